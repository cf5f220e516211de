package catalog

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// The keys that are accepted, in the order messages may suggest them.
var (
	fileKeys     = []string{"workflows", "schedules", "monitors"}
	workflowKeys = []string{"describe", "input", "env", "timeout", "workdir", "shell", "concurrency", "run", "steps", "input_schema",
		"user", "group", "secrets", "on_interrupt", "keep", "retry", "limits", "worktree", "artifacts", "isolate", "unit", "on_failure", "on_recovery", "on_missed"}
	scheduleKeys = []string{"run", "key", "every", "at", "cron", "timezone", "input", "jitter", "overlap", "catch_up", "enabled",
		"on_failure", "on_recovery", "on_missed", "ping"}
	atKeys      = []string{"hour", "minute", "weekday"}
	overlaps    = []string{string(runner.OverlapSkip), string(runner.OverlapQueue), string(runner.OverlapReplace)}
	interrupts  = []string{runner.InterruptFail, runner.InterruptRestart}
	weekdays    = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
	cadenceKeys = []string{"every", "at", "cron"}
)

const (
	maxConcurrency = 10000
	maxKey         = 200 // bytes; with ".json" and a temporary name's marks it stays one file name
)

// file is what one definition file declares.
type file struct {
	name      string
	workflows []Workflow
	schedules []Schedule
	monitors  []Monitor
	// One per workflow, schedule and monitor: what only the linker can check.
	workflowRefs []workflowRef
	scheduleRefs []ref
	monitorRefs  []ref
	errors       Diagnostics
	warnings     Diagnostics
	broken       bool // not read whole: what it declares is not known
}

// workflowRef is what of a workflow the linker needs besides the workflow.
type workflowRef struct {
	starts []*startRef // of its steps and hooks
}

// ref is what of a trigger the linker needs besides the trigger.
type ref struct {
	index    int  // in its list of the file
	explicit bool // the key was given
	cadence  *cadence
	run, key mark // places; line 0 where not given
	timeout  mark // of a monitor's look or handler
	input    mark
	starts   []*startRef // of its hooks
}

// mark is a place in the file at hand.
type mark struct{ line, column int32 }

func markOf(n *strict.Node) mark { return mark{int32(n.Line), int32(n.Column)} }

func (f *file) at(m mark) Position {
	return Position{File: f.name, Line: max(int(m.line), 1), Column: max(int(m.column), 1)}
}

// decoder turns one document into a file.
type decoder struct {
	*strict.Document
	file      *file
	workspace string
	exposed   bool // other users may read the file
	*loading
	names  map[string]string // texts that occur often, once each
	shells shells
}

func (d *decoder) decode(root *strict.Node) {
	if !d.Map(root, "a mapping with workflows, schedules or monitors") {
		return
	}
	for k, v := range d.Pairs(root) {
		empty := strict.KindOf(v) == strict.Null // a section whose entries are all commented out
		switch k.Value {
		case "workflows":
			if !empty && d.Map(v, "a mapping of workflows by name") {
				d.workflows(v)
			}
		case "schedules":
			if !empty && d.List(v, "a list of schedules") {
				d.file.schedules = make([]Schedule, 0, len(v.Content))
				d.file.scheduleRefs = make([]ref, 0, len(v.Content))
				for i, item := range d.Items(v) {
					d.schedule(i, item)
				}
			}
		case "monitors":
			if !empty && d.List(v, "a list of monitors") {
				for i, item := range d.Items(v) {
					d.monitor(i, item)
				}
			}
		default:
			d.Unknown(k, fileKeys)
		}
	}
}

// intern gives equal texts one string.
func (d *decoder) intern(text string) string {
	if known, ok := d.names[text]; ok {
		return known
	}
	d.names[text] = text
	return text
}

// name checks a workflow's or step's name.
func (d *decoder) name(n *strict.Node, what, name string) bool {
	switch {
	case name == "":
		d.Errorf(n, "%s is empty", what)
	case strings.ContainsFunc(name, unicode.IsControl):
		d.Errorf(n, "%s %q contains a control character", what, name)
	default:
		return true
	}
	return false
}

// cadence reads which of every, at and cron is given, in a zone where one is; fallback is the interval where none is,
// "" where that is an error. from is what holds them. A nil result has been reported.
func (d *decoder) cadence(from *strict.Node, w when, fallback string) *cadence {
	var loc *time.Location
	var at scheduler.At
	var text cadenceText
	n, kind, ok := d.oneCadence(from, w)
	text.kind = kind
	good := true
	switch {
	case !ok:
	case n == nil && fallback == "":
		d.Errorf(from, "give one of every, at and cron")
		return nil
	case n == nil:
		n, text.kind, text.text = from, "every", fallback
	case kind == "every":
		text.text, good = d.String(n, "an interval such as 30m, 6h or 1d as a text")
	case kind == "cron":
		text.text, good = d.String(n, "a cron expression as a text")
	case kind == "at":
		at, text.text, good = d.at(n)
	}
	ok = ok && good
	if w.timezone != nil {
		loc, good = d.timezone(w.timezone)
		if text.zone = w.timezone.Value; good && text.kind == "every" {
			d.Errorf(w.timezone, "a timezone is for at and cron; an interval has none")
			good = false
		}
		ok = ok && good
	}
	if !ok {
		return nil
	}
	c := d.cadences.parse(text, at, loc)
	if c.err != nil {
		d.Errorf(n, "%v", c.err)
		return nil
	}
	for _, warning := range c.warnings {
		d.Warnf(n, "%s", warning)
	}
	return c
}

// oneCadence is the one of every, at and cron that is given, nil for none; ok is false where there are more.
func (d *decoder) oneCadence(from *strict.Node, w when) (n *strict.Node, kind string, ok bool) {
	ok = true
	for k, v := range d.Pairs(from) {
		if v != w.every && v != w.at && v != w.cron || !slices.Contains(cadenceKeys, k.Value) {
			continue
		}
		if n != nil {
			d.Errorf(k, "give one of every, at and cron; %s stands beside it", kind)
			ok = false
			continue
		}
		n, kind = v, k.Value
	}
	return n, kind, ok
}

func (d *decoder) timezone(n *strict.Node) (*time.Location, bool) {
	name, ok := d.String(n, "a time zone's name as a text")
	if !ok {
		return nil, false
	}
	zone := d.cadences.zone(name)
	if zone.location == nil {
		d.Errorf(n, "no time zone %q", name)
		d.Errors[len(d.Errors)-1].Nearest = zone.nearest
		return nil, false
	}
	return zone.location, true
}

// at reads a calendar slot, and a text by which equal ones are known.
func (d *decoder) at(n *strict.Node) (at scheduler.At, text string, ok bool) {
	if !d.Map(n, "a mapping such as {hour: 2, minute: 30, weekday: [mon, thu]}") {
		return at, "", false
	}
	ok = true
	hour := false
	var key strings.Builder
	for k, v := range d.Pairs(n) {
		good := true
		switch k.Value {
		case "hour":
			hour = true
			at.Hour, good = d.Int(v, 0, 23)
		case "minute":
			at.Minute, good = d.Int(v, 0, 59)
		case "weekday":
			at.Weekdays, good = d.weekdays(v)
		default:
			d.Unknown(k, atKeys)
			good = false
		}
		ok = ok && good
	}
	if !hour {
		d.Errorf(n, "give an hour")
		ok = false
	}
	key.WriteByte(byte(at.Hour))
	key.WriteByte(byte(at.Minute))
	for _, day := range at.Weekdays {
		key.WriteByte(byte(day))
	}
	return at, key.String(), ok
}

func (d *decoder) weekdays(n *strict.Node) (days []time.Weekday, ok bool) {
	const want = "a weekday's name (sun, mon, tue, wed, thu, fri, sat) as a text, or a list of them"
	ok = true
	add := func(n *strict.Node) {
		name, good := d.String(n, want)
		if !good {
			ok = false
			return
		}
		for i, known := range weekdays {
			if name != known {
				continue
			}
			for _, day := range days {
				if day == time.Weekday(i) {
					d.Errorf(n, "weekday %s is given twice", name)
					ok = false
				}
			}
			days = append(days, time.Weekday(i))
			return
		}
		d.Near(n, name, weekdays, "no weekday %q, want one of %s", name, strings.Join(weekdays, ", "))
		ok = false
	}
	if strict.KindOf(n) != strict.List {
		add(n)
		return days, ok
	}
	for _, item := range d.Items(n) {
		add(item)
	}
	return days, ok
}

// key reads an explicit key.
func (d *decoder) key(n *strict.Node) (string, bool) {
	key, ok := d.String(n, "a text")
	if !ok {
		return "", false
	}
	switch err := state.PlainName("key", key); {
	case err != nil:
		d.Errorf(n, "%v", err)
	case len(key) > maxKey:
		d.Errorf(n, "key has %d bytes, at most %d are allowed", len(key), maxKey)
	case strings.HasSuffix(key, ".break"):
		d.Errorf(n, "key %q ends in .break, as the files do by which locks are taken over", key)
	case strings.HasPrefix(key, "-"):
		d.Errorf(n, "key %q begins with a dash", key)
	case strings.ContainsFunc(key, unicode.IsControl):
		d.Errorf(n, "key %q contains a control character", key)
	default:
		return key, true
	}
	return "", false
}

// oneOf reads a text out of a closed set.
func (d *decoder) oneOf(n *strict.Node, valid []string) (string, bool) {
	text, ok := d.String(n, "one of the texts "+strings.Join(valid, ", "))
	if !ok {
		return "", false
	}
	for _, v := range valid {
		if v == text {
			return v, true
		}
	}
	d.Near(n, text, valid, "want one of %s, got %q", strings.Join(valid, ", "), text)
	return "", false
}

// launch is the place of the input that a trigger gives, else of the workflow it names.
func (r ref) launch() mark {
	if r.input.line != 0 {
		return r.input
	}
	return r.run
}
