package importer

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/strict"
	"marbles/scheduler"
)

// finish writes the definitions and makes sure that they load: what the catalog refuses is mended or named.
func (r *reading) finish(p *Plan) error {
	for {
		text, lines := write(p)
		c, err := catalog.LoadText("imported.yaml", []byte(text), r.workspace(), catalog.Options{Now: r.Now, Local: r.Local})
		var diags catalog.Diagnostics
		switch {
		case err == nil:
			p.Text = text
			r.compare(p, c)
			return nil
		case !errors.As(err, &diags):
			return fmt.Errorf("cannot check what was imported: %w", err)
		}
		if !r.mend(p, diags, lines) {
			return fmt.Errorf("cannot check what was imported: %w", err)
		}
	}
}

func (r *reading) workspace() string {
	if r.Workspace != "" {
		return r.Workspace
	}
	return "/"
}

// mend changes or drops every job that a diagnostic is about. Each job is changed a few times at most, so this ends.
func (r *reading) mend(p *Plan, diags catalog.Diagnostics, lines []lineOf) (changed bool) {
	done, gone := map[*Job]bool{}, map[*Job]bool{}
	note := func(at Place, e Effect, what, next string) { p.Notes = append(p.Notes, Note{at, e, what, next}) }
	for _, d := range diags {
		if d.Line < 1 || d.Line > len(lines) || lines[d.Line-1].job == nil {
			continue
		}
		at := lines[d.Line-1]
		if done[at.job] {
			continue
		}
		done[at.job], changed = true, true
		switch {
		case at.trigger != nil && at.trigger.Jitter > 0 && strings.HasPrefix(d.Path, "schedules") && strings.HasSuffix(d.Path, ".jitter"):
			was := at.trigger.Jitter
			at.trigger.Jitter = at.trigger.shorter()
			note(at.trigger.Place, Changed, "the random delay of "+interval(was)+" becomes "+interval(at.trigger.Jitter)+": a jitter must be shorter than the time between two slots", "")
		case at.trigger != nil:
			note(at.trigger.Place, Lost, "the schedule cannot be carried over: "+brief(d.Message), "add the schedule by hand")
			at.job.Triggers = slices.DeleteFunc(at.job.Triggers, func(t *Trigger) bool { return t == at.trigger })
		case at.watch != nil:
			note(at.watch.Place, Lost, "the monitor cannot be carried over: "+brief(d.Message), "add the monitor by hand")
			at.job.Watches = slices.DeleteFunc(at.job.Watches, func(w *Watch) bool { return w == at.watch })
		case at.job.unchecked():
			note(at.job.Place, Changed, "the command is kept as it is, though it is no good shell: "+brief(d.Message), "check the command")
		default:
			note(at.job.Place, Lost, "the job cannot be carried over: "+brief(d.Message), "add the job by hand")
			gone[at.job] = true
		}
	}
	p.Jobs = slices.DeleteFunc(p.Jobs, func(j *Job) bool { return gone[j] })
	return changed
}

// shorter is the longest jitter that a trigger may have; 0 for none.
func (t *Trigger) shorter() time.Duration {
	gap := t.Every
	if t.Cron != "" {
		if c, _, err := scheduler.ParseCron(t.Cron); err == nil {
			gap = c.ShortestGap()
		}
	}
	if gap > time.Minute {
		return gap - time.Minute
	}
	return 0
}

// unchecked hands a job's shell texts to its shell as arguments, where the catalog does not look at them.
func (j *Job) unchecked() bool {
	changed := false
	for i, s := range j.Steps {
		if s.Shell != "" {
			shell := j.Shell
			if shell == "" {
				shell = "/bin/sh"
			}
			j.Steps[i].Argv, j.Steps[i].Shell = []string{shell, "-c", s.Shell}, ""
			changed = true
		}
	}
	j.Shell = ""
	return changed
}

// lineOf is what a line of the definitions is about.
type lineOf struct {
	job     *Job
	trigger *Trigger
	watch   *Watch
}

// writer writes YAML by hand, so that each part has its comment and its order.
type writer struct {
	strings.Builder
	lines []lineOf
	about lineOf
}

func (w *writer) line(indent int, text string) {
	for l := range strings.SplitSeq(text, "\n") {
		if l != "" {
			w.WriteString(strings.Repeat(" ", indent) + l)
		}
		w.WriteByte('\n')
		w.lines = append(w.lines, w.about)
	}
}

func (w *writer) value(indent int, key, value string) {
	if value != "" {
		w.line(indent, key+": "+scalar(value))
	}
}

// write is the definition file, and what each of its lines is about.
func write(p *Plan) (text string, lines []lineOf) {
	w := &writer{}
	w.line(0, "# Made by `marbles import`. Look at it, then `marbles check` and `marbles list`.")
	if len(p.Jobs) > 0 {
		w.line(0, "workflows:")
	}
	schedules, monitors := false, false
	for _, j := range p.Jobs {
		w.about = lineOf{job: j}
		w.workflow(j)
		schedules = schedules || len(j.Triggers) > 0
		monitors = monitors || len(j.Watches) > 0
	}
	w.about = lineOf{}
	if schedules {
		w.line(0, "\nschedules:")
	}
	for _, j := range p.Jobs {
		for _, t := range j.Triggers {
			w.about = lineOf{job: j, trigger: t}
			w.schedule(j, t)
		}
	}
	w.about = lineOf{}
	if monitors {
		w.line(0, "\nmonitors:")
	}
	for _, j := range p.Jobs {
		for _, m := range j.Watches {
			w.about = lineOf{job: j, watch: m}
			w.line(2, "# "+m.Place.String())
			w.line(2, "- watch: "+scalar(m.Glob))
			w.value(4, "key", m.Key)
			w.value(4, "baseline", "silent")
			w.value(4, "start", j.Name)
		}
	}
	return w.String(), w.lines
}

func (w *writer) workflow(j *Job) {
	w.line(2, "# "+j.Place.String()+": "+strict.OneLine(j.Origin))
	w.line(2, scalar(j.Name)+":")
	w.value(4, "describe", j.Describe)
	w.value(4, "user", j.User)
	w.value(4, "group", j.Group)
	w.value(4, "workdir", j.Workdir)
	w.value(4, "shell", j.Shell)
	if len(j.Env) > 0 {
		w.line(4, "env:")
		for _, v := range j.Env {
			w.line(6, v.Name+": "+scalar(v.Value))
		}
	}
	if j.Timeout > 0 {
		w.value(4, "timeout", interval(j.Timeout))
	}
	if len(j.Triggers) > 1 {
		w.line(4, "concurrency: 1")
	}
	if len(j.Steps) == 1 && !j.Steps[0].Continue && !j.Steps[0].Always {
		w.command(4, j.Steps[0])
		w.limits(4, j)
		return
	}
	w.line(4, "steps:")
	for _, s := range j.Steps {
		w.line(6, "- name: "+scalar(s.Name))
		w.command(8, s)
		if s.Continue && !s.Always {
			w.line(8, "continue_on_error: true")
		}
		if s.Always {
			w.line(8, "always: true")
		}
		w.limits(8, j)
	}
}

func (w *writer) command(indent int, s Step) {
	if len(s.Argv) == 0 {
		w.value(indent, "run", s.Shell)
		return
	}
	items := make([]string, len(s.Argv))
	for i, a := range s.Argv {
		items[i] = flow(a)
	}
	w.line(indent, "run: ["+strings.Join(items, ", ")+"]")
}

func (w *writer) limits(indent int, j *Job) {
	var parts []string
	for _, l := range [][2]string{{"memory", j.Memory}, {"cpu", j.CPU}, {"tasks", j.Tasks}} {
		if l[1] != "" {
			parts = append(parts, l[0]+": "+l[1])
		}
	}
	if len(parts) > 0 {
		w.line(indent, "limits: {"+strings.Join(parts, ", ")+"}")
	}
}

func (w *writer) schedule(j *Job, t *Trigger) {
	w.line(2, "# "+t.Place.String()+": "+strict.OneLine(t.Origin))
	w.line(2, "- run: "+scalar(j.Name))
	w.value(4, "key", t.Key)
	if t.Every > 0 {
		w.value(4, "every", interval(t.Every))
	}
	if t.Cron != "" {
		w.line(4, "cron: "+strconv.Quote(t.Cron))
	}
	w.value(4, "timezone", t.Zone)
	if t.Jitter > 0 {
		w.value(4, "jitter", interval(t.Jitter))
	}
	if t.Never {
		w.line(4, "catch_up: false")
	}
	if t.Disabled {
		w.line(4, "enabled: false")
	}
}

// scalar writes a text as YAML that reads it as that text: plain where that is safe, a block where it has lines, else
// quoted.
func scalar(text string) string {
	printable := !strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) || c == '\ufeff' })
	block := printable && strings.Contains(text, "\n") && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "\n") && !strings.HasSuffix(text, "\n")
	switch {
	case block:
		pad := "\n" + strings.Repeat(" ", 2)
		// The writer indents every line.
		return "|-" + pad + strings.ReplaceAll(text, "\n", pad)
	case !printable || strings.Contains(text, "\n"):
		return double(text)
	case plain(text):
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// flow is scalar inside brackets.
func flow(text string) string {
	if plain(text) && !strings.ContainsAny(text, ",[]{}") {
		return text
	}
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return double(text)
	}
	return "'" + strings.ReplaceAll(text, "'", "''") + "'"
}

// plain tells whether a text can stand as it is: it begins with a letter or a slash and holds nothing that YAML
// gives a meaning.
func plain(text string) bool {
	if text == "" || strings.HasSuffix(text, " ") || strings.HasSuffix(text, ":") || strings.Contains(text, ": ") || strings.Contains(text, " #") {
		return false
	}
	switch strings.ToLower(text) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		return false
	}
	if c := text[0]; isLetter(rune(c)) && c < 128 || c == '/' && path.IsAbs(text) {
		return true
	}
	if text[0] == '-' && len(text) > 1 { // an option
		return text[1] == '-' || isLetter(rune(text[1])) && text[1] < 128
	}
	if text[0] < '0' || text[0] > '9' { // as 30m: digits and one unit
		return false
	}
	unit := strings.TrimLeft(text, "0123456789")
	return len(unit) == 1 && strings.Contains("smhd", unit)
}

// double writes a text in double quotes, with escapes that YAML knows.
func double(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c) && c != '\ufeff':
			b.WriteRune(c)
		case c > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			fmt.Fprintf(&b, `\u%04x`, c)
		}
	}
	return b.String() + `"`
}
