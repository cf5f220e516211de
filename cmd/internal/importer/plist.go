package importer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"howett.net/plist"
)

const (
	maxNesting = 32     // of a plist
	maxObjects = 10_000 // in a binary plist, counted as often as they are referred to
)

// job is a launchd job as it is read; its keys go as they are taken.
type agent struct {
	*reading
	s    source
	keys map[string]any
}

// plist reads a launchd job: XML, binary or text.
func (r *reading) plist(s source) error {
	if err := sane(s.data); err != nil {
		return fmt.Errorf("cannot read %s: %w", s.name, err)
	}
	var keys map[string]any
	if _, err := plist.Unmarshal(s.data, &keys); err != nil {
		return fmt.Errorf("cannot read %s: it is no property list with a dictionary: %s", s.name, brief(err.Error()))
	}
	a := &agent{reading: r, s: s, keys: keys}
	a.job()
	return nil
}

// at is the place of a key. Only texts have lines.
func (a *agent) at(key string) Place {
	p := Place{File: a.s.name}
	if bytes.HasPrefix(a.s.data, []byte("bplist")) {
		return p
	}
	pattern := regexp.MustCompile(`<key>\s*` + regexp.QuoteMeta(key) + `\s*</key>|\b` + regexp.QuoteMeta(key) + `"?\s*=`)
	if i := pattern.FindIndex(a.s.data); i != nil {
		p.Line = 1 + bytes.Count(a.s.data[:i[0]], []byte("\n"))
	}
	return p
}

func (a *agent) take(key string) (any, bool) {
	v, ok := a.keys[key]
	delete(a.keys, key)
	return v, ok
}

func (a *agent) text(key string) string {
	v, ok := a.take(key)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		a.note(a.at(key), Lost, "correct the key", "%s is no text", key)
	}
	return s
}

func (a *agent) texts(key string) (all []string) {
	v, ok := a.take(key)
	if !ok {
		return nil
	}
	list, _ := v.([]any)
	for _, item := range list {
		if s, ok := item.(string); ok {
			all = append(all, s)
		}
	}
	if len(list) == 0 || len(all) != len(list) {
		a.note(a.at(key), Lost, "correct the key", "%s is no list of texts", key)
		return nil
	}
	return all
}

func (a *agent) yes(key string) bool {
	v, _ := a.take(key)
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return strings.EqualFold(v, "yes") || strings.EqualFold(v, "true") || v == "1"
	}
	return false
}

// number reads an integer. The text form has texts only.
func number(v any) (int, bool) {
	switch v := v.(type) {
	case uint64:
		return int(v), v < 1<<31
	case int64:
		return int(v), v >= 0 && v < 1<<31
	case string:
		var n int
		if _, err := fmt.Sscanf(v, "%d", &n); err == nil && fmt.Sprint(n) == v {
			return n, n >= 0
		}
	}
	return 0, false
}

func (a *agent) job() {
	label := a.text("Label")
	if label == "" {
		label = strings.TrimSuffix(filepath.Base(a.s.name), ".plist")
		a.note(Place{File: a.s.name}, Changed, "", "it has no Label: its file's name stands for it")
	}
	j := &Job{Place: Place{File: a.s.name}, Origin: "launchd job " + brief(label), Workdir: "/"}
	argv, program := a.texts("ProgramArguments"), a.text("Program")
	if program != "" && len(argv) > 0 && argv[0] != program {
		if argv[0] != path.Base(program) {
			a.note(a.at("Program"), Changed, "", "the program gets its own name as argv[0], not %s", brief(argv[0]))
		}
		argv[0] = program
	} else if program != "" && len(argv) == 0 {
		argv = []string{program}
	}
	if len(argv) == 0 || argv[0] == "" {
		a.note(Place{File: a.s.name}, Lost, "add the workflow by hand", "%s starts nothing: it has neither ProgramArguments nor Program", label)
		a.leftovers()
		return
	}
	j.Steps = []Step{{Argv: argv}}
	a.surroundings(j)
	a.triggers(j)
	a.service(j)
	a.leftovers()
	parts := strings.Split(label, ".")
	name := label
	if len(parts) > 2 { // reverse DNS
		name = strings.Join(parts[2:], "-")
	}
	a.add(j, name)
}

// surroundings reads what a job works in.
func (a *agent) surroundings(j *Job) {
	if dir := a.text("WorkingDirectory"); path.IsAbs(dir) {
		j.Workdir = dir
	} else if dir != "" {
		a.note(a.at("WorkingDirectory"), Lost, "give the workflow a workdir", "WorkingDirectory %s is no absolute path", dir)
	}
	if j.User, j.Group = a.text("UserName"), a.text("GroupName"); j.Group != "" && j.User == "" {
		j.User = "root"
	}
	if j.User != "" {
		a.note(a.at("UserName"), Changed, "run the service as root, or delete `user` where it is the service's own", "user: %s takes a service that runs as root", j.User)
	}
	if v, ok := a.take("EnvironmentVariables"); ok {
		env, _ := v.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(env)) {
			value, ok := env[name].(string)
			if !ok || !isName(name) || strings.HasPrefix(name, "MARBLES_") {
				a.note(a.at("EnvironmentVariables"), Lost, "give the variable another name", "%s is no variable that a step can have", brief(name))
				continue
			}
			j.Env = append(j.Env, Variable{name, value})
		}
	}
	if v, ok := a.take("TimeOut"); ok {
		if n, ok := number(v); ok && n > 0 {
			a.note(a.at("TimeOut"), Dropped, "", "TimeOut is launchd's idle time, and ignored")
		}
	}
	for _, key := range []string{"StandardOutPath", "StandardErrorPath"} {
		if file := a.text(key); file != "" && file != "/dev/null" {
			a.note(a.at(key), Lost, "redirect in the command, if something reads that file", "%s %s: the output goes to the run's journal (marbles watch RUN)", key, file)
		}
	}
}

// triggers makes schedules and monitors.
func (a *agent) triggers(j *Job) {
	disabled := a.yes("Disabled")
	if v, ok := a.take("StartInterval"); ok {
		at := a.at("StartInterval")
		if n, ok := number(v); ok && n > 0 {
			a.note(at, Changed, "use `at` or `cron` for fixed times", "StartInterval counts from each start; `every` counts from each end")
			j.Triggers = append(j.Triggers, &Trigger{Place: at, Origin: fmt.Sprintf("StartInterval %d", n), Every: time.Duration(n) * time.Second, Disabled: disabled})
		} else {
			a.note(at, Lost, "give the schedule an `every`", "StartInterval is no number of seconds")
		}
	}
	if v, ok := a.take("StartCalendarInterval"); ok {
		list, isList := v.([]any)
		if !isList {
			list = []any{v}
		}
		before := len(j.Triggers)
		for _, item := range list {
			if t := a.slot(item); t != nil {
				t.Disabled = disabled
				j.Triggers = append(j.Triggers, t)
			}
		}
		if len(j.Triggers) > before {
			a.note(a.at("StartCalendarInterval"), Changed, "set catch_up (docs/time.md)", "launchd runs once for what it missed asleep, and not for what it missed switched off; marbles runs once for both")
		}
	}
	for _, key := range []string{"WatchPaths", "QueueDirectories"} {
		for _, p := range a.texts(key) {
			a.watch(j, key, p)
		}
	}
}

// slot reads one StartCalendarInterval; a part that is missing matches everything.
func (a *agent) slot(item any) *Trigger {
	at := a.at("StartCalendarInterval")
	parts, ok := item.(map[string]any)
	if !ok {
		a.note(at, Lost, "correct the key", "StartCalendarInterval is neither a dictionary nor a list of them")
		return nil
	}
	old := launchdSlot{-1, -1, -1, -1, -1}
	fields := map[string]struct {
		to        *int
		low, high int
	}{
		"Minute": {&old.minute, 0, 59}, "Hour": {&old.hour, 0, 23}, "Day": {&old.day, 1, 31},
		"Month": {&old.month, 1, 12}, "Weekday": {&old.weekday, 0, 7},
	}
	origin := "StartCalendarInterval {"
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		f, known := fields[name]
		n, ok := number(parts[name])
		if !known || !ok || n < f.low || n > f.high {
			a.note(at, Lost, "correct the key", "StartCalendarInterval: %s %v is nothing that launchd knows", brief(name), parts[name])
			return nil
		}
		*f.to = n
		origin += fmt.Sprintf("%s %d ", name, n)
	}
	if old.weekday == 7 {
		old.weekday = 0
	}
	cron := fmt.Sprintf("%s %s %s %s %s", star(old.minute), star(old.hour), star(old.day), star(old.month), star(old.weekday))
	return &Trigger{Place: at, Origin: strings.TrimSpace(origin) + "}", Cron: cron, Old: func(from time.Time, n int) ([]time.Time, error) {
		return old.next(from, a.zoneOf(""), n), nil
	}}
}

func star(n int) string {
	if n < 0 {
		return "*"
	}
	return fmt.Sprint(n)
}

// launchdSlot is a StartCalendarInterval; -1 matches everything.
type launchdSlot struct{ minute, hour, day, month, weekday int }

// next is when launchd starts the job. What a change of the clocks skips is as much later as mktime(3) makes it.
func (s launchdSlot) next(from time.Time, loc *time.Location, n int) []time.Time {
	is := func(want, got int) bool { return want < 0 || want == got }
	day := func(year int, month time.Month, day int) bool {
		if !is(s.month, int(month)) {
			return false
		}
		weekday := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday())
		if s.day >= 0 && s.weekday >= 0 {
			return s.day == day || s.weekday == weekday // launchd.plist(5): either
		}
		return is(s.day, day) && is(s.weekday, weekday)
	}
	return civilDays(from, loc, n, day, func(d civilDay) (found []time.Time) {
		for h := range 24 {
			for m := range 60 {
				if !is(s.hour, h) || !is(s.minute, m) {
					continue
				}
				civil := d.at(h, m, 0)
				all := occurrences(civil, loc)
				switch {
				case len(all) == 0 && s.hour < 0: // the clock never shows it
				case len(all) == 0:
					_, before := change(civil, loc).Add(-time.Second).Zone()
					found = append(found, time.Unix(civil-int64(before), 0).In(loc))
				case s.hour < 0:
					found = append(found, all...)
				default:
					found = append(found, all[0])
				}
			}
		}
		return found
	})
}

// watch makes a monitor of a path below the workspace.
func (a *agent) watch(j *Job, key, name string) {
	at := a.at(key)
	rel, err := filepath.Rel(a.Workspace, name)
	if a.Workspace == "" || err != nil || !filepath.IsLocal(rel) || rel == "." {
		a.note(at, Lost, "put the definitions into a project above it: -o "+path.Dir(path.Clean(name))+"/.foundry/marbles/imported.yaml",
			"%s %s is not below the project %s, and a monitor looks nowhere else", key, name, a.Workspace)
		return
	}
	glob := globQuote(filepath.ToSlash(rel))
	what := "files below it too, and their contents"
	if key == "QueueDirectories" {
		glob += "/**"
		what = "changes in it; launchd starts the job as long as something is in it"
	} else if strings.HasSuffix(name, "/") || path.Ext(name) == "" {
		glob = "{" + glob + "," + glob + "/**}"
	}
	j.Watches = append(j.Watches, &Watch{Place: at, Glob: glob})
	a.note(at, Changed, "see docs/monitors.md", "%s %s becomes a monitor, which looks once a minute: %s", key, name, what)
}

func globQuote(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune(`*?[]{}\!,`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// service names what makes the job more than one that runs at times.
func (a *agent) service(j *Job) {
	if v, ok := a.take("KeepAlive"); ok && v != false {
		a.note(a.at("KeepAlive"), Lost, "leave the job with launchd", "KeepAlive: a program that always runs is no workflow; marbles starts it at its times and waits for its end")
	}
	if a.yes("RunAtLoad") {
		a.note(a.at("RunAtLoad"), Lost, "`marbles roll NAME` for one run now", "RunAtLoad: marbles starts nothing because it was loaded")
	}
	if len(j.Triggers)+len(j.Watches) == 0 {
		a.note(Place{File: a.s.name}, Lost, "add a schedule", "no schedule could be made of it: the workflow is there, and nothing starts it")
	}
}

// leftovers names every key that nobody has taken.
func (a *agent) leftovers() {
	const most = 100 // each is looked for in the text
	for i, key := range slices.Sorted(maps.Keys(a.keys)) {
		if i == most {
			a.note(Place{File: a.s.name}, Lost, "", "%d more keys have no counterpart", len(a.keys)-most)
			return
		}
		switch key {
		case "ProcessType", "LowPriorityIO", "LowPriorityBackgroundIO", "Nice", "Umask", "SoftResourceLimits", "HardResourceLimits", "LegacyTimers":
			a.note(a.at(key), Lost, "set it in the command", "%s does not carry over", key)
		case "ExitTimeOut":
			a.note(a.at(key), Lost, "set grace in the settings", "ExitTimeOut does not carry over: grace is one for all")
		case "ThrottleInterval", "AbandonProcessGroup", "EnableTransactions", "Debug", "LimitLoadToSessionType", "OnDemand":
			a.note(a.at(key), Dropped, "", "%s is not needed", key)
		default:
			a.note(a.at(key), Lost, "", "%s has no counterpart", brief(key))
		}
	}
}

// sane refuses what the parser would be lost in: deep nesting, and binary plists whose objects refer to one another
// again and again.
func sane(data []byte) error {
	if bytes.HasPrefix(data, []byte("bplist")) {
		return saneBinary(data)
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '(' || c == '{' || c == '<' && (bytes.HasPrefix(data[i:], []byte("<dict")) || bytes.HasPrefix(data[i:], []byte("<array"))):
			depth++
		case c == ')' || c == '}' || c == '<' && (bytes.HasPrefix(data[i:], []byte("</dict")) || bytes.HasPrefix(data[i:], []byte("</array"))):
			depth--
		}
		if depth > maxNesting {
			return fmt.Errorf("it is nested more than %d levels", maxNesting)
		}
	}
	return nil
}

func saneBinary(data []byte) error {
	bad := errors.New("it is no whole binary property list")
	if len(data) < 40 {
		return bad
	}
	trailer := data[len(data)-32:]
	b := binaryPlist{data: data, offsetSize: int(trailer[6]), refSize: int(trailer[7])}
	b.objects, b.table = binary.BigEndian.Uint64(trailer[8:]), binary.BigEndian.Uint64(trailer[24:])
	if b.offsetSize < 1 || b.offsetSize > 8 || b.refSize < 1 || b.refSize > 8 || b.objects > maxObjects || b.table > uint64(len(data)-32) {
		return bad
	}
	return b.count(binary.BigEndian.Uint64(trailer[16:]), 0)
}

// binaryPlist walks a binary plist without building it.
type binaryPlist struct {
	data                []byte
	offsetSize, refSize int
	objects, table      uint64
	visited             int
}

// integer reads a big-endian number, which is out of every range where it is not there.
func (b *binaryPlist) integer(at uint64, size int) uint64 {
	if at > uint64(len(b.data)) || uint64(size) > uint64(len(b.data))-at {
		return 1 << 62
	}
	v := uint64(0)
	for _, c := range b.data[at : at+uint64(size)] {
		v = v<<8 | uint64(c)
	}
	return v
}

func (b *binaryPlist) count(object uint64, depth int) error {
	b.visited++
	switch {
	case depth > maxNesting:
		return fmt.Errorf("it is nested more than %d levels, or in a circle", maxNesting)
	case b.visited > maxObjects:
		return fmt.Errorf("it has more than %d objects", maxObjects)
	case object >= b.objects:
		return errors.New("it refers to an object that is not there")
	}
	at := b.integer(b.table+object*uint64(b.offsetSize), b.offsetSize)
	if at >= uint64(len(b.data)) {
		return errors.New("it refers to an object that is not there")
	}
	kind, n := b.data[at]>>4, uint64(b.data[at]&15)
	if kind != 0xA && kind != 0xC && kind != 0xD {
		return nil
	}
	at++
	if n == 15 {
		width := 1 << (b.integer(at, 1) & 3)
		n = b.integer(at+1, width)
		at += 1 + uint64(width)
	}
	if kind == 0xD {
		n *= 2
	}
	if n > maxObjects {
		return fmt.Errorf("it has more than %d objects", maxObjects)
	}
	for i := range n {
		if err := b.count(b.integer(at+i*uint64(b.refSize), b.refSize), depth+1); err != nil {
			return err
		}
	}
	return nil
}
