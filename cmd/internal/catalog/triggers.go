package catalog

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/scheduler"
)

// when is what schedules and monitors say of their time.
type when struct {
	every, at, cron, timezone, jitter *strict.Node
}

// take keeps a value if its key is one of time's.
func (w *when) take(key string, v *strict.Node) bool {
	switch key {
	case "every":
		w.every = v
	case "at":
		w.at = v
	case "cron":
		w.cron = v
	case "timezone":
		w.timezone = v
	case "jitter":
		w.jitter = v
	default:
		return false
	}
	return true
}

// times reads them; a nil cadence has been reported.
func (d *decoder) times(n *strict.Node, w when, fallback string) (c *cadence, jitter time.Duration) {
	c = d.cadence(n, w, fallback)
	if w.jitter == nil {
		return c, 0
	}
	jitter, ok := d.Duration(w.jitter)
	if ok && c != nil && jitter >= c.gap {
		d.Errorf(w.jitter, "jitter %s is not below the shortest gap between two slots, %s", w.jitter.Value, runner.Brief(c.gap))
	}
	return c, jitter
}

func (d *decoder) schedule(index int, n *strict.Node) {
	if !d.Map(n, "a schedule: a mapping with run and one of every, at and cron") {
		return
	}
	s := Schedule{Enabled: true, Overlap: runner.OverlapSkip, Position: d.At(n)}
	r := ref{index: index}
	var w when
	run := false
	for k, v := range d.Pairs(n) {
		if w.take(k.Value, v) {
			continue
		}
		switch k.Value {
		case "run":
			run = true
			s.Workflow, r.run = d.target(v)
		case "key":
			s.Key, r.explicit = d.key(v)
			r.key = markOf(v)
		case "input":
			s.Input, r.input = d.input(v), markOf(v)
		case "overlap":
			overlap, _ := d.oneOf(v, overlaps)
			s.Overlap = runner.Overlap(overlap)
		case "catch_up":
			s.CatchUp = d.catchUp(v)
		case "enabled":
			s.Enabled, _ = d.Bool(v)
		case "ping":
			s.Ping = d.ping(v)
		default:
			if !d.hookKey(&s.Hooks, &r.starts, k, v, func() string { return strict.Index("schedules", index) }) {
				d.Unknown(k, scheduleKeys)
			}
		}
	}
	if !run {
		d.Errorf(n, "give run, the name of the workflow to launch")
	}
	c, jitter := d.times(n, w, "")
	if c != nil {
		s.Cadence, s.Jitter, r.cadence = c.Cadence, jitter, c
	}
	d.file.schedules = append(d.file.schedules, s)
	d.file.scheduleRefs = append(d.file.scheduleRefs, r)
}

// target reads a workflow's name, and its place where it is one.
func (d *decoder) target(n *strict.Node) (string, mark) {
	name, ok := d.String(n, "a workflow's name as a text")
	if !ok {
		return "", mark{}
	}
	return d.intern(name), markOf(n)
}

// catchUp reads true, false or a duration.
func (d *decoder) catchUp(n *strict.Node) scheduler.CatchUp {
	switch strict.KindOf(n) {
	case strict.Bool:
		yes, _ := d.Bool(n)
		return scheduler.CatchUp{Never: !yes}
	case strict.String:
		if within, err := strict.Duration(n.Value); err == nil {
			return scheduler.CatchUp{Within: within}
		}
	}
	d.Want(n, "true, false or a duration such as 6h")
	return scheduler.CatchUp{}
}

// input reads a literal input; an empty mapping is none.
func (d *decoder) input(n *strict.Node) jsontext.Value {
	if !d.Map(n, "a mapping") {
		return nil
	}
	d.variables(n)
	text, ok := d.JSON(n)
	if !ok || len(n.Content) == 0 {
		return nil
	}
	return text
}

// variables reports inputs whose INPUT_<NAME> would be one variable.
func (d *decoder) variables(n *strict.Node) {
	if len(n.Content) <= 2 {
		return
	}
	seen := make(map[string]string, len(n.Content)/2)
	for k := range d.Pairs(n) {
		name := runner.InputName(k.Value)
		if first, ok := seen[name]; ok && first != k.Value {
			d.Errorf(k, "inputs %q and %q would both be %s", first, k.Value, name)
			continue
		}
		seen[name] = k.Value
	}
}
