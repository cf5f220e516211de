package catalog

import (
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
	"marbles/runner"
	"marbles/scheduler"
)

// monitorEvery is a monitor's cadence where none is given (design §3).
const monitorEvery = "1m"

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
			s.Input = d.input(v)
		case "overlap":
			overlap, _ := d.oneOf(v, overlaps)
			s.Overlap = runner.Overlap(overlap)
		case "catch_up":
			s.CatchUp = d.catchUp(v)
		case "enabled":
			s.Enabled, _ = d.Bool(v)
		default:
			d.Unknown(k, scheduleKeys)
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

func (d *decoder) monitor(index int, n *strict.Node) {
	if !d.Map(n, "a monitor: a mapping with watch and at least one of do and start") {
		return
	}
	m := Monitor{Enabled: true, Position: d.At(n)}
	r := ref{index: index}
	var w when
	start := false
	var watch, exclude, do, input *strict.Node
	for k, v := range d.Pairs(n) {
		if w.take(k.Value, v) {
			continue
		}
		switch k.Value {
		case "watch":
			watch = v
		case "exclude":
			exclude = v
		case "key":
			m.Key, r.explicit = d.key(v)
			r.key = markOf(v)
		case "enabled":
			m.Enabled, _ = d.Bool(v)
		case "timeout":
			m.Timeout, _ = d.Duration(v)
			r.timeout = markOf(v)
		case "do":
			do = v
		case "start":
			start = true
			m.Start, r.run = d.target(v)
		case "input":
			input = v
		case "baseline":
			_, m.Silent = d.oneOf(v, []string{"silent"})
		default:
			d.Unknown(k, monitorKeys)
		}
	}
	d.watch(&m, n, watch, exclude)
	if do == nil && !start {
		d.Errorf(n, "give at least one of do and start")
	}
	if do != nil {
		m.Handler = d.handler(do)
	}
	if input != nil {
		m.Input = d.launchInput(input, start)
	}
	c, jitter := d.times(n, w, monitorEvery)
	if c != nil {
		m.Cadence, m.Jitter, r.cadence = c.Cadence, jitter, c
	}
	d.file.monitors = append(d.file.monitors, m)
	d.file.monitorRefs = append(d.file.monitorRefs, r)
}

func (d *decoder) launchInput(n *strict.Node, start bool) jsontext.Value {
	switch {
	case strict.KindOf(n) == strict.String:
		d.Errorf(n, "a jq program as input is not supported yet; give a mapping")
		return nil
	case !start:
		d.Errorf(n, "input is for the workflow that start names, and there is no start")
	}
	return d.input(n)
}

// isURL tells a URL of any scheme from a glob.
var isURL = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://`)

// watch reads a monitor's source.
func (d *decoder) watch(m *Monitor, n, watch, exclude *strict.Node) {
	if watch == nil {
		d.Errorf(n, "give watch, a glob or an http or https URL")
		return
	}
	text, ok := d.String(watch, "a glob or an http or https URL as a text")
	if !ok {
		return
	}
	var patterns []string
	var nodes []*strict.Node
	if exclude != nil && d.List(exclude, "a list of globs") {
		for _, item := range d.Items(exclude) {
			if pattern, ok := d.String(item, "a glob as a text"); ok {
				patterns, nodes = append(patterns, pattern), append(nodes, item)
			}
		}
	}
	m.Label = text
	if strings.TrimSpace(text) == "" {
		d.Errorf(watch, "a source is required")
		return
	}
	var err error
	if strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://") {
		if exclude != nil {
			d.Errorf(exclude, "exclude is for globs; a URL has nothing to exclude")
		}
		if m.Source, err = monitor.NewHTTP(text, monitor.HTTPOptions{}); err != nil {
			d.Errorf(watch, "%v", err)
		}
		return
	}
	if isURL.MatchString(text) {
		d.Errorf(watch, "only http and https URLs are watched")
		return
	}
	if m.Source, err = monitor.NewFiles(d.workspace, text, patterns); err == nil {
		return
	}
	// The error names no place: find which of the patterns it is about.
	if _, err := monitor.NewFiles(d.workspace, text, nil); err != nil {
		d.Errorf(watch, "%v", err)
		return
	}
	before := len(d.Errors)
	for i := range patterns {
		if _, err := monitor.NewFiles(d.workspace, text, patterns[i:i+1]); err != nil {
			d.Errorf(nodes[i], "%v", err)
		}
	}
	if len(d.Errors) == before {
		d.Errorf(exclude, "%v", err)
	}
}
