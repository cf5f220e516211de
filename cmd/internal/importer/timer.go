package importer

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// timer reads a systemd timer with the service that it starts.
func (r *reading) timer(s source) {
	t := &unit{name: filepath.Base(s.name), path: s.name}
	if s.name == stdin {
		t.name = "timer.timer"
	}
	r.parseUnit(t, s)
	r.dropIns(t)
	service := r.service(t)
	if service == nil {
		r.idle(t)
		return
	}
	j := r.serviceJob(service)
	if j == nil {
		r.idle(t)
		return
	}
	j.Place, j.Origin = Place{File: s.name}, fmt.Sprintf("%s, which starts %s (%s)", t.name, service.name, service.path)
	if j.Describe == "" {
		j.Describe = brief(t.text("Unit", "Description"))
	}
	r.triggers(t, j)
	if len(j.Triggers) == 0 {
		r.note(Place{File: s.name}, Lost, "add a schedule", "no schedule could be made of it: the workflow is there, and nothing starts it")
	}
	r.leftovers(t)
	r.leftovers(service)
	r.add(j, strings.TrimSuffix(t.name, ".timer"))
}

// idle names the lines of a timer whose service could not be carried over.
func (r *reading) idle(t *unit) {
	for _, e := range t.entries {
		if e.section == "Timer" && !e.used && e.value != "" {
			e.used = true
			r.note(e.Place, Lost, "mend its service and import it again", "%s=%s: there is nothing that it could start", e.key, brief(e.value))
		}
	}
	r.leftovers(t)
}

// service finds what a timer starts.
func (r *reading) service(t *unit) *unit {
	name := strings.TrimSuffix(t.name, ".timer") + ".service"
	at := Place{File: t.path}
	if e := t.last("Timer", "Unit"); e != nil {
		name, at = r.specifiers(t, e, e.value, ""), e.Place
	}
	if strings.ContainsAny(name, "/\x00") || !strings.HasSuffix(name, ".service") {
		r.note(at, Lost, "add the workflow by hand", "it starts %s, which is no service", brief(name))
		return nil
	}
	u := &unit{name: name}
	s, ok, err := r.unitFile(t.path, name)
	if !ok && err == nil {
		if template, instance := u.template(); instance != "" {
			s, ok, err = r.unitFile(t.path, template)
		}
	}
	if err != nil {
		r.note(at, Lost, "name a file that can be read as its service", "%s, which it starts: %s", name, brief(err.Error()))
		return nil
	}
	if !ok {
		r.note(at, Lost, "name the service's file too: marbles import "+path.Base(t.path)+" "+name, "%s, which it starts, is neither beside it nor where systemd looks", name)
		return nil
	}
	u.path = s.name
	r.parseUnit(u, s)
	r.dropIns(u)
	return u
}

// triggers makes the schedules of a timer.
func (r *reading) triggers(t *unit, j *Job) {
	jitter := r.delay(t)
	persistent := t.yes("Timer", "Persistent")
	for _, e := range t.find("Timer", "OnCalendar") {
		tr := &Trigger{Place: e.Place, Origin: e.key + "=" + e.value, Jitter: jitter, Never: !persistent}
		if r.calendar(e, tr) {
			j.Triggers = append(j.Triggers, tr)
		}
	}
	repeat := []*entry{}
	for _, key := range []string{"OnUnitInactiveSec", "OnUnitActiveSec"} {
		for _, e := range t.find("Timer", key) {
			d, infinite, err := timespan(e.value)
			if err != nil || infinite || d <= 0 {
				r.note(e.Place, Lost, "give the schedule an `every`", "%s=%s is no interval", e.key, e.value)
				continue
			}
			if d%time.Second != 0 {
				r.note(e.Place, Changed, "", "%s=%s becomes %s", e.key, e.value, interval(seconds(d)))
			}
			if key == "OnUnitActiveSec" {
				r.note(e.Place, Changed, "use `at` or `cron` for fixed times", "%s= counts from each start; `every` counts from each end", e.key)
			}
			j.Triggers = append(j.Triggers, &Trigger{Place: e.Place, Origin: e.key + "=" + e.value, Every: seconds(d), Jitter: jitter})
			repeat = append(repeat, e)
		}
	}
	for _, key := range []string{"OnBootSec", "OnStartupSec", "OnActiveSec"} {
		for _, e := range t.find("Timer", key) {
			if len(repeat) > 0 {
				r.note(e.Place, Changed, "`marbles roll "+strings.TrimSuffix(t.name, ".timer")+"` for one run now", "%s=%s: the first run comes one interval after marbles first saw the schedule, and no other after a boot", e.key, e.value)
				continue
			}
			r.note(e.Place, Lost, "a unit of the init system that runs `marbles roll NAME` then", "%s=%s: boot and start are no times of marbles", e.key, e.value)
		}
	}
	for _, e := range t.find("Timer", "AccuracySec") {
		r.note(e.Place, Dropped, "", "AccuracySec=%s: marbles starts on time", e.value)
	}
	for _, key := range []string{"OnClockChange", "OnTimezoneChange"} {
		if e := t.last("Timer", key); e != nil && t.yes("Timer", key) {
			r.note(e.Place, Lost, "", "%s=%s has no counterpart", key, e.value)
		}
	}
	if e := t.last("Timer", "WakeSystem"); e != nil && t.yes("Timer", "WakeSystem") {
		r.note(e.Place, Lost, "keep a timer that wakes the machine", "WakeSystem=%s: marbles does not wake a machine that sleeps; a slot it slept through is caught up", e.value)
	}
	t.find("Timer", "Persistent")
}

// delay is the jitter of a timer.
func (r *reading) delay(t *unit) time.Duration {
	for _, key := range []string{"RandomizedDelaySec", "RandomizedOffsetSec"} {
		e := t.last("Timer", key)
		if e == nil {
			continue
		}
		d, infinite, err := timespan(e.value)
		if err != nil || infinite {
			r.note(e.Place, Lost, "give the schedule a jitter", "%s=%s is no time span", key, e.value)
			continue
		}
		t.find("Timer", "FixedRandomDelay") // as marbles does it anyway
		if d >= time.Second {
			return seconds(d)
		}
	}
	return 0
}

// calendar reads an OnCalendar= into a trigger.
func (r *reading) calendar(e *entry, t *Trigger) bool {
	c, err := parseOnCalendar(e.value)
	if err != nil {
		r.note(e.Place, Lost, "write the schedule by hand (docs/time.md)", "OnCalendar=%s: %v", e.value, err)
		return false
	}
	t.Zone, t.Calendar = c.zone, e.value
	t.Old = func(from time.Time, n int) ([]time.Time, error) {
		return c.next(from, r.zoneOf(c.zone), n), nil
	}
	if every, ok := c.everySecond(); ok {
		t.Every, t.Zone = every, ""
		t.Why = "OnCalendar= names moments; `every` counts from each end"
		r.note(e.Place, Changed, "", "OnCalendar=%s becomes every: %s, which counts from each end", e.value, interval(every))
		return true
	}
	if t.Cron, err = c.cron(); err != nil {
		r.note(e.Place, Lost, "write a cron that fires on too many days, and have the command look at the date first", "OnCalendar=%s does not carry over: %v", e.value, err)
		return false
	}
	if c.passesOver() {
		t.Why = "systemd passes over the first day of a repetition in some months; marbles does not"
	}
	if !c.wholeMinute() {
		t.Why = "seconds do not carry over: marbles starts at the full minute, once"
		r.note(e.Place, Changed, "have the command wait, if the second matters", "OnCalendar=%s: %s", e.value, t.Why)
	}
	return true
}

// serviceJob makes a workflow of a service; nil where it runs nothing.
func (r *reading) serviceJob(u *unit) *Job {
	j := &Job{Describe: brief(u.text("Unit", "Description")), User: u.text("Service", "User"), Group: u.text("Service", "Group")}
	manager := r.userManager(u)
	if j.Group != "" && j.User == "" && !manager {
		j.User = "root"
	}
	if j.User != "" || !manager {
		if j.User == "" {
			j.User = "root"
		}
		r.note(Place{File: u.path}, Changed, "run the service as root, or delete `user` where it is the service's own", "user: %s takes a service that runs as root", j.User)
	}
	r.workdir(u, j, manager)
	for _, e := range u.find("Service", "Environment") {
		all, err := words(e.value)
		if err != nil {
			r.note(e.Place, Lost, "correct the line", "%v", err)
		}
		for _, w := range all {
			name, value, ok := strings.Cut(r.specifiers(u, e, w, j.User), "=")
			if !ok || !isName(name) || strings.HasPrefix(name, "MARBLES_") {
				r.note(e.Place, Lost, "give the variable another name", "%s is no variable that a step can have", brief(w))
				continue
			}
			j.Env = setVariable(j.Env, name, value)
		}
	}
	var files []string
	for _, e := range u.find("Service", "EnvironmentFile") {
		line, ok := environmentFile(r.specifiers(u, e, e.value, j.User))
		if !ok {
			r.note(e.Place, Lost, "set the variables in env", "EnvironmentFile=%s is no absolute path", e.value)
			continue
		}
		files = append(files, line)
		r.note(e.Place, Changed, "check that the file is good shell", "EnvironmentFile=%s is read by the shell, as a script", e.value)
	}
	r.limits(u, j)
	r.steps(u, j, files)
	if len(j.Steps) == 0 {
		r.note(Place{File: u.path}, Lost, "add the workflow by hand", "%s has no ExecStart= that could be carried over", u.name)
		return nil
	}
	r.kind(u)
	return j
}

// kind reads what sort of service it is.
func (r *reading) kind(u *unit) {
	if e := u.last("Service", "Type"); e != nil && e.value != "oneshot" && e.value != "simple" && e.value != "exec" {
		r.note(e.Place, Changed, "check that the program ends when its work is done", "Type=%s: a step is at work until its process ends", e.value)
	}
	if e := u.last("Service", "Restart"); e != nil && e.value != "no" {
		next := "give the step a retry, as retry: {attempts: 3, wait: 10s}"
		if wait := u.text("Service", "RestartSec"); wait != "" {
			next += " (RestartSec=" + wait + ")"
		}
		r.note(e.Place, Lost, next, "Restart=%s: a failed run is not started again before the next slot", e.value)
	}
	for _, e := range u.find("Unit", "OnFailure") {
		r.note(e.Place, Lost, "on_failure: systemctl start --no-block "+shellQuote(e.value), "OnFailure=%s does not carry over", e.value)
	}
	for _, key := range []string{"StandardOutput", "StandardError"} {
		e := u.last("Service", key)
		switch {
		case e == nil:
		case strings.HasPrefix(e.value, "journal") || e.value == "inherit":
			r.note(e.Place, Dropped, "", "%s=%s: each run's output is kept; `journal_output: true` in the settings sends it to the system journal too", key, e.value)
		default:
			r.note(e.Place, Lost, "redirect in the command", "%s=%s: the output goes to the run's journal", key, e.value)
		}
	}
}

// workdir finds the working directory: systemd's own default is /, a user's manager's is the home directory.
func (r *reading) workdir(u *unit, j *Job, manager bool) {
	j.Workdir = "/"
	if manager {
		j.Workdir = r.Home
	}
	e := u.last("Service", "WorkingDirectory")
	if e == nil {
		return
	}
	dir := strings.TrimPrefix(r.specifiers(u, e, e.value, j.User), "-")
	if dir == "~" {
		dir = r.home(j.User)
	}
	if !path.IsAbs(dir) {
		r.note(e.Place, Lost, "give the workflow a workdir", "WorkingDirectory=%s is no absolute path here", e.value)
		return
	}
	j.Workdir = dir
}

// limits reads timeouts and limits that have a counterpart.
func (r *reading) limits(u *unit, j *Job) {
	for _, key := range []string{"TimeoutStartSec", "RuntimeMaxSec", "TimeoutSec"} {
		e := u.last("Service", key)
		if e == nil {
			continue
		}
		d, infinite, err := timespan(e.value)
		switch {
		case err != nil:
			r.note(e.Place, Lost, "give the workflow a timeout", "%v", err)
		case infinite || d == 0:
			// as marbles has it without a timeout
		case j.Timeout == 0 || d < j.Timeout:
			j.Timeout = seconds(d)
		}
	}
	limited := false
	take := func(key, want string, read func(string) (string, bool), to *string) {
		e := u.last("Service", key)
		if e == nil || e.value == "infinity" {
			return
		}
		text, ok := read(e.value)
		if !ok {
			r.note(e.Place, Lost, "give the workflow limits", "%s=%s is no %s", key, e.value, want)
			return
		}
		*to = text
		if !limited {
			limited = true
			r.note(e.Place, Changed, "delegate a cgroup, as the packaged unit does", "%s=%s becomes a limit of the step, which takes cgroups (docs/settings.md)", key, e.value)
		}
	}
	take("MemoryMax", "size in bytes", size, &j.Memory)
	take("CPUQuota", "share", func(s string) (string, bool) {
		percent, ok := strings.CutSuffix(s, "%")
		var v float64
		if _, err := fmt.Sscanf(percent, "%g", &v); err != nil || !ok || v < 1 || v > 100_000 {
			return "", false
		}
		return fmt.Sprintf("%g", v/100), true
	}, &j.CPU)
	take("TasksMax", "number", func(s string) (string, bool) {
		return s, s != "" && len(s) < 7 && strings.Trim(s, "0123456789") == "" && s[0] != '0'
	}, &j.Tasks)
}

// size writes systemd's size, whose units are powers of 1024, as ours.
func size(text string) (string, bool) {
	digits := strings.TrimRight(text, "KMG")
	unit, ok := map[string]string{"": "B", "K": "KiB", "M": "MiB", "G": "GiB"}[text[len(digits):]]
	if !ok || digits == "" || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" || len(digits) > 12 {
		return "", false
	}
	return digits + unit, true
}

// steps makes the steps of a service's commands, in their order.
func (r *reading) steps(u *unit, j *Job, files []string) {
	for _, key := range []string{"ExecStartPre", "ExecStart", "ExecStartPost", "ExecStopPost"} {
		for _, e := range u.find("Service", key) {
			all, err := words(e.value)
			if err != nil {
				r.note(e.Place, Lost, "correct the line", "%v", err)
				continue
			}
			for _, argv := range commands(all) {
				s, ok := r.step(u, e, argv, files, j.User)
				if !ok {
					continue
				}
				s.Always = key == "ExecStopPost"
				j.Steps = append(j.Steps, s)
			}
		}
	}
	for _, key := range []string{"ExecCondition", "ExecStop", "ExecReload"} {
		for _, e := range u.find("Service", key) {
			r.note(e.Place, Lost, "put it into the command, or into a step", "%s=%s does not carry over", key, e.value)
		}
	}
	seen := map[string]int{}
	for i := range j.Steps {
		name := strings.Trim(strings.Map(plainRune, j.Steps[i].Name), "-")
		if name == "" {
			name = "step"
		}
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s-%d", name, seen[name])
		}
		j.Steps[i].Name = name
	}
}

func plainRune(c rune) rune {
	if isLetter(c) && c < 128 || c >= '0' && c <= '9' || c == '-' || c == '_' {
		return c
	}
	return '-'
}

// commands splits at the words that are a semicolon.
func commands(all []string) (found [][]string) {
	var one []string
	for _, w := range append(all, ";") {
		switch {
		case w != ";":
			if w == `\;` {
				w = ";"
			}
			one = append(one, w)
		case len(one) > 0:
			found = append(found, one)
			one = nil
		}
	}
	return found
}

func setVariable(env []Variable, name, value string) []Variable {
	for i := range env {
		if env[i].Name == name {
			env[i].Value = value
			return env
		}
	}
	return append(env, Variable{name, value})
}

// leftovers names every assignment that nobody has taken.
func (r *reading) leftovers(u *unit) {
	for _, e := range u.entries {
		if e.used || e.value == "" {
			continue
		}
		e.used = true
		effect, next, what := leftover(e)
		r.note(e.Place, effect, next, "%s=%s: %s", e.key, brief(e.value), what)
	}
}

// leftover says what becomes of an assignment that has no counterpart.
func leftover(e *entry) (effect Effect, next, what string) {
	switch {
	case e.section == "Install" || e.key == "Documentation" || strings.HasPrefix(e.section, "X-") || strings.HasPrefix(e.key, "X-"):
		return Dropped, "", "not needed"
	case e.key == "Description" || e.key == "RemainAfterElapse" || e.key == "RemainAfterExit" || e.key == "RestartSec" ||
		e.key == "FixedRandomDelay" || e.key == "SyslogIdentifier" || e.key == "GuessMainPID" || e.key == "DefaultDependencies":
		return Dropped, "", "not needed"
	case strings.HasPrefix(e.key, "Condition") || strings.HasPrefix(e.key, "Assert"):
		return Lost, "test it in the command, or in a step's `if`", "the condition does not carry over: the job runs anyway"
	case e.section == "Unit":
		return Lost, "have the command wait for what it needs", "order and dependencies of units do not carry over"
	case e.section == "Timer":
		return Lost, "see docs/definitions.md for what a schedule knows", "it has no counterpart"
	case e.key == "LoadCredential" || e.key == "LoadCredentialEncrypted" || e.key == "SetCredential" || e.key == "SetCredentialEncrypted":
		return Lost, "load it in the unit of the marbles service, and name it under the workflow's secrets", "the credential does not carry over"
	case e.section == "Service" && slices.Contains([]string{"no", "false", "off", "0"}, strings.ToLower(e.value)):
		return Dropped, "", "it asks for nothing"
	case e.section == "Service":
		return Lost, fmt.Sprintf("a step with `isolate: unit` and `unit: {%s: …}`", e.key), "it does not carry over to an ordinary step"
	}
	return Lost, "correct the line", "the section [" + e.section + "] is not known"
}
