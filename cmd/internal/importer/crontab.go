package importer

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"marbles/cmd/internal/strict"
	"marbles/scheduler"
)

// crontab is one table as it is read, line by line.
type crontab struct {
	*reading
	file     string
	system   bool       // lines have a user column
	env      []Variable // set by the lines above
	zone     string     // CRON_TZ
	delay    time.Duration
	comment  []string // directly above
	comments int      // lines that are kept nowhere
	first    int      // of them
	jobs     int
	accounts bool // some job has a user
	noPath   bool // some job has cron's own PATH
}

const (
	maxLines = 100_000
	maxLine  = 16 << 10
)

// crontab reads a table.
func (r *reading) crontab(s source, system bool) {
	c := &crontab{reading: r, file: s.name, system: system}
	lines := strings.Split(string(s.data), "\n")
	if len(lines) > maxLines {
		r.note(Place{s.name, maxLines + 1}, Lost, "split the file", "there are more than %d lines: the rest is not read", maxLines)
		lines = lines[:maxLines]
	}
	for i, line := range lines {
		c.line(Place{s.name, i + 1}, strings.TrimSuffix(line, "\r"))
	}
	c.end()
}

func (c *crontab) line(at Place, raw string) {
	text := strings.TrimLeft(raw, " \t")
	switch {
	case strings.TrimSpace(text) == "":
		c.forget()
	case len(raw) > maxLine:
		c.forget()
		c.note(at, Lost, "put the command into a script", "the line has more than %d bytes, which no cron takes", maxLine)
	case !utf8.ValidString(raw) || strings.Contains(raw, "\x00"):
		c.forget()
		c.note(at, Lost, "write it in UTF-8", "the line is no UTF-8 text: %s", brief(raw))
	case text[0] == '#':
		c.remark(at, strings.TrimSpace(strings.TrimLeft(text, "#")))
	default:
		if name, value, ok := assignment(text); ok {
			c.forget()
			c.variable(at, name, value)
			return
		}
		c.job(at, text)
		c.comment = nil
	}
}

// remark keeps a comment for the job below it.
func (c *crontab) remark(at Place, text string) {
	if c.isJob(text) {
		c.note(at, Dropped, "", "commented out, and stays out: %s", brief(text))
		return
	}
	if c.comments++; c.comments == 1 {
		c.first = at.Line
	}
	if text != "" && !strings.Contains(text, "dow") && strings.ContainsFunc(text, isLetter) {
		c.comment = append(c.comment, text)
	}
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r > 127 }

// isJob tells whether a comment's text is a job that was commented out.
func (c *crontab) isJob(text string) bool {
	fields := strings.Fields(text)
	if len(fields) < 6 {
		return false
	}
	_, err := parseCronOld(strings.Join(fields[:5], " "))
	return err == nil
}

func (c *crontab) forget() { c.comment = nil }

// assignment reads NAME=value, as cron does: blanks around the sign, quotes around name or value.
func assignment(text string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(text, "=")
	if !ok {
		return "", "", false
	}
	name = unquote(strings.TrimSpace(name))
	for i, ch := range []byte(name) {
		if !(ch == '_' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || i > 0 && ch >= '0' && ch <= '9') {
			return "", "", false
		}
	}
	return name, unquote(strings.TrimSpace(value)), name != ""
}

func unquote(s string) string {
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}

// variable takes an environment line: some of them speak to cron.
func (c *crontab) variable(at Place, name, value string) {
	const hook = "give the workflows an on_failure, or set on_failure for all in the settings (docs/settings.md)"
	switch {
	case name == "MAILTO" && value == "":
		c.note(at, Dropped, "", "MAILTO is empty: no mail was sent, and none is; output is in each run's journal")
		return
	case name == "MAILTO" || name == "MAILFROM" || name == "MAIL_FROM":
		c.note(at, Lost, hook, "%s=%s: marbles sends no mail; the output of each run is kept (marbles watch RUN)", name, value)
		return
	case strings.HasPrefix(name, "CONTENT_T") || strings.HasPrefix(name, "CRON_MAIL") || name == "MAIL_FORMAT":
		c.note(at, Dropped, "", "%s speaks of mail, and marbles sends none", name)
		return
	case name == "CRON_TZ":
		c.timezone(at, value)
		return
	case name == "RANDOM_DELAY":
		minutes, err := strconv.Atoi(value)
		if err != nil || minutes < 0 || minutes > 60*24 {
			c.note(at, Lost, "give the schedules a jitter", "RANDOM_DELAY=%s is no number of minutes", value)
			return
		}
		c.delay = time.Duration(minutes) * time.Minute
		c.note(at, Changed, "", "RANDOM_DELAY=%s becomes jitter: %s, by a share that depends on key and slot", value, interval(c.delay))
		return
	case name == "START_HOURS_RANGE":
		c.note(at, Lost, "say the hours in the schedules' cron", "START_HOURS_RANGE=%s has no counterpart", value)
		return
	case name == "LOGNAME" || name == "USER":
		c.note(at, Dropped, "", "cron sets %s itself, and so does marbles", name)
		return
	case strings.HasPrefix(name, "MARBLES_"):
		c.note(at, Lost, "give the variable another name", "%s: variables that begin with MARBLES_ are set by marbles itself", name)
		return
	case name == "TZ":
		c.note(at, Changed, "give the schedules a timezone if they meant that zone",
			"TZ=%s goes to the jobs' environment; it moves no schedule (Debian's cron; others differ)", value)
	}
	for i := range c.env {
		if c.env[i].Name == name {
			c.env = append(append([]Variable{}, c.env[:i]...), c.env[i+1:]...) // jobs above keep theirs
			break
		}
	}
	c.env = append(append([]Variable{}, c.env...), Variable{name, value})
}

func (c *crontab) timezone(at Place, value string) {
	c.zone = ""
	if value == "" {
		return
	}
	if _, err := time.LoadLocation(value); err != nil || value == "Local" {
		c.note(at, Lost, "give the schedules a timezone by its IANA name, as Europe/Berlin", "CRON_TZ=%s: there is no such zone", value)
		return
	}
	c.zone = value
	c.note(at, Changed, "", "CRON_TZ=%s becomes timezone; Debian's cron ignores it and used the machine's zone", value)
}

// job reads a line that starts something.
func (c *crontab) job(at Place, text string) {
	rest := text
	if strings.HasPrefix(rest, "-") {
		rest = strings.TrimLeft(rest[1:], " \t")
		c.note(at, Dropped, "", "the leading - kept cron from logging the job; marbles records every run")
	}
	t := &Trigger{Place: at, Origin: brief(text), Zone: c.zone, Never: true, Jitter: c.delay}
	boot := false
	if strings.HasPrefix(rest, "@") {
		var word string
		word, rest = field(rest)
		ok := false
		if boot, ok = c.descriptor(at, t, strings.ToLower(word)); !ok {
			c.note(at, Lost, "write five fields", "cannot read %s: cron knows @reboot, @hourly, @daily, @weekly, @monthly and @yearly", word)
			return
		}
	} else {
		fields := make([]string, 0, 5)
		for len(fields) < 5 && rest != "" {
			var f string
			f, rest = field(rest)
			fields = append(fields, f)
		}
		if len(fields) < 5 || rest == "" {
			c.note(at, Lost, "correct the line, or add the job by hand", "the line is neither a job (five fields and a command) nor a variable: %s", brief(text))
			return
		}
		if !c.fields(at, t, fields) {
			return
		}
	}
	j := &Job{Place: at, Origin: brief(text), Describe: describe(c.comment)}
	c.comments -= len(c.comment)
	if c.system {
		if j.User, rest = field(rest); rest == "" {
			c.note(at, Lost, "give --from crontab if the table has no user column", "there is no command after the user %s", j.User)
			return
		}
		// FreeBSD's form, user:group/class.
		j.User, _, _ = strings.Cut(j.User, "/")
		j.User, j.Group, _ = strings.Cut(j.User, ":")
		c.accounts = true
	}
	c.environment(at, j)
	c.command(at, j, rest)
	if boot {
		c.note(at, Lost, "a unit of the init system that runs `marbles roll NAME` at boot",
			"@reboot is no time: the workflow is there, and nothing starts it")
	} else {
		j.Triggers = []*Trigger{t}
	}
	c.jobs++
	c.add(j, c.name(rest))
}

// field cuts the first word off.
func field(text string) (word, rest string) {
	i := strings.IndexAny(text, " \t")
	if i < 0 {
		return text, ""
	}
	return text[:i], strings.TrimLeft(text[i:], " \t")
}

// descriptor reads what begins with @.
func (c *crontab) descriptor(at Place, t *Trigger, word string) (boot, ok bool) {
	switch word {
	case "@reboot":
		return true, true
	case "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually":
		t.Cron = word
		t.Old = c.old(t, word)
		return false, true
	case "@every_minute":
		t.Cron = "* * * * *"
		t.Old = c.old(t, t.Cron)
		return false, true
	case "@every_second":
		word = "@1"
	}
	n, err := strconv.Atoi(word[1:]) // FreeBSD: seconds from end to start
	if err != nil || n < 1 || n > 1<<30 {
		return false, false
	}
	t.Every = time.Duration(n) * time.Second
	return false, true
}

// fields reads the five fields.
func (c *crontab) fields(at Place, t *Trigger, fields []string) bool {
	if low, spread, ok := random(fields[0]); ok {
		c.note(at, Changed, "", "minute %s, which cron chooses anew, becomes minute %s with a jitter of %dm", fields[0], low, spread)
		fields[0] = low
		t.Jitter = time.Duration(spread) * time.Minute
		t.Why = "cron chooses a minute by chance; marbles' jitter comes on top of what is shown"
	}
	expr := strings.Join(fields, " ")
	t.Cron = expr
	_, _, err := scheduler.ParseCron(expr)
	old, oerr := parseCronOld(expr)
	switch {
	case err != nil && oerr != nil:
		c.note(at, Lost, "correct the line, or add the job by hand", "%v", err)
		return false
	case err != nil:
		c.note(at, Lost, "write the schedule in another way (docs/time.md)", "%v", err)
		return false
	case oerr != nil:
		c.note(at, Changed, "look at the instants in the report", "Debian's cron refuses %q (%v); marbles takes it", expr, oerr)
		return true
	}
	if old.ignored != "" {
		t.Why = old.ignored
		c.note(at, Changed, "look at the instants in the report", "%s", old.ignored)
	}
	t.Old = c.old(t, expr)
	return true
}

func (c *crontab) old(t *Trigger, expr string) func(time.Time, int) ([]time.Time, error) {
	return func(from time.Time, n int) ([]time.Time, error) {
		old, err := parseCronOld(expr)
		if err != nil {
			return nil, err
		}
		return old.next(from, c.zoneOf(t.Zone), n), nil
	}
}

// random reads a minute that cron chooses by chance: ~, a~, ~b or a~b.
func random(text string) (low string, spread int, ok bool) {
	a, b, ok := strings.Cut(text, "~")
	if !ok {
		return "", 0, false
	}
	lo, hi := 0, 59
	var err error
	if a != "" {
		if lo, err = strconv.Atoi(a); err != nil {
			return "", 0, false
		}
	}
	if b != "" {
		if hi, err = strconv.Atoi(b); err != nil {
			return "", 0, false
		}
	}
	if lo < 0 || hi > 59 || hi < lo {
		return "", 0, false
	}
	return strconv.Itoa(lo), hi - lo, true
}

// environment gives a job what cron gives it: the table's variables, its shell, and the home directory to work in.
func (c *crontab) environment(at Place, j *Job) {
	home := c.Home
	if c.system {
		home = c.home(j.User)
	}
	c.noPath = true
	for _, v := range c.env {
		switch v.Name {
		case "SHELL":
			if v.Value != "" && !strings.ContainsAny(v.Value, " \t") {
				j.Shell = v.Value
			}
			if v.Value == "/bin/sh" {
				j.Shell = ""
			}
		case "HOME":
			home = v.Value
			j.Env = append(j.Env, v)
		default:
			c.noPath = c.noPath && v.Name != "PATH"
			j.Env = append(j.Env, v)
		}
	}
	if path.IsAbs(home) {
		j.Workdir = home
		return
	}
	c.note(at, Changed, "give the workflow a workdir",
		"cron works in the home directory of %s, which is not known here: the job works in the project's", j.User)
}

// command reads a job's command: an unescaped % ends it, and what follows is its input.
func (c *crontab) command(at Place, j *Job, text string) {
	parts := percent(strings.TrimRight(text, " \t"))
	command := parts[0]
	if len(parts) > 1 {
		shell := path.Base(j.Shell)
		if j.Shell != "" && shell != "sh" && shell != "bash" && shell != "dash" && shell != "ksh" && shell != "zsh" {
			c.note(at, Lost, "give the command its input in its own way", "the input after %%: %s is no shell that knows here-documents", shell)
		} else {
			end := "INPUT"
			for strings.Contains(text, end) {
				end += "_"
			}
			command = "{ " + command + "\n} <<'" + end + "'\n" + strings.Join(parts[1:], "\n") + "\n" + end
			c.note(at, Changed, "", "the input after %% becomes a here-document")
		}
	}
	j.Steps = []Step{{Shell: command}}
}

// percent splits at each % that has no backslash before it.
func percent(text string) []string {
	var parts []string
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '%':
			b.WriteByte('%')
			i++
		case text[i] == '%':
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(text[i])
		}
	}
	return append(parts, b.String())
}

// name finds what a job may be called: a file of /etc/cron.d is called for what it does, else the command is.
func (c *crontab) name(command string) string {
	base := path.Base(c.file)
	if path.Base(path.Dir(c.file)) == "cron.d" {
		return base
	}
	return commandName(command)
}

// end says what is true of the whole table.
func (c *crontab) end() {
	at := Place{File: c.file}
	if c.comments > 0 {
		c.note(Place{c.file, c.first}, Dropped, "", "%s, from here on, are not carried over: only those directly above a job are", plural(c.comments, "comment line"))
	}
	if c.jobs == 0 {
		return
	}
	c.note(at, Changed, "delete `catch_up: false` to run a missed slot once", "cron loses what it missed while the machine was off; `catch_up: false` keeps that")
	c.note(at, Changed, "set `overlap` (docs/definitions.md)", "cron starts a job beside one that still runs; marbles skips the slot and says so")
	if c.noPath {
		c.note(at, Changed, "set PATH in the workflow's env", "cron's own PATH is /usr/bin:/bin where the table sets none; a step gets the service's")
	}
	if c.accounts {
		c.note(at, Changed, "run the service as root, or delete `user` where it is the service's own", "`user` takes a service that runs as root")
	}
	if !c.system {
		c.note(at, Changed, "check it if this table is another user's", "the jobs work in %s", c.Home)
	}
}

// describe joins the comment above a job.
func describe(lines []string) string {
	text := strings.Join(lines, " ")
	const longest = 200
	if r := []rune(text); len(r) > longest {
		text = string(r[:longest]) + "…"
	}
	return strict.OneLine(text)
}

// brief is a line as notes and comments show it.
func brief(text string) string {
	const longest = 120
	text = strings.TrimSpace(text)
	text = strict.OneLine(strings.ReplaceAll(text[:min(len(text), 5*longest)], "\t", " "))
	if r := []rune(text); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
