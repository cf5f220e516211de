package catalog

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
	"marbles/monitor/filter"
	"marbles/runner"
)

// monitorEvery is a monitor's cadence where none is given.
const monitorEvery = "1m"

// maxLooks bounds fail_after and recover_after.
const maxLooks = 1_000_000

// The keys of a monitor, in the order messages may suggest them: of every one, of one that watches files, of one that
// watches a URL.
var (
	anyMonitorKeys = []string{"watch", "key", "every", "at", "cron", "timezone", "jitter", "enabled", "timeout", "do", "start",
		"input", "baseline", "fail_after", "recover_after", "on_down", "on_up", "ping"}
	globKeys = []string{"exclude", "ignore", "settle", "live", "reread"}
	urlKeys  = []string{"method", "headers", "body", "auth", "ca", "cert", "cert_key", "proxy", "user_agent", "max_body",
		"allow_private", "cert_days", "select"}
)

// pair is a key and its value.
type pair struct{ key, value *strict.Node }

func (d *decoder) monitor(index int, n *strict.Node) {
	if !d.Map(n, "a monitor: a mapping with watch and at least one of do and start") {
		return
	}
	m := Monitor{Enabled: true, FailAfter: 1, RecoverAfter: 1, Position: d.At(n)}
	r := ref{index: index}
	var w when
	var watch, input *strict.Node
	var source []pair // keys of one kind of source
	start := false
	for k, v := range d.Pairs(n) {
		if w.take(k.Value, v) || d.health(&m, k, v) {
			continue
		}
		switch k.Value {
		case "watch":
			watch = v
		case "key":
			m.Key, r.explicit = d.key(v)
			r.key = markOf(v)
		case "enabled":
			m.Enabled, _ = d.Bool(v)
		case "timeout":
			m.Timeout, _ = d.Duration(v)
			r.timeout = markOf(v)
		case "do":
			m.Handler = d.handler(v)
		case "start":
			start = true
			m.Start, r.run = d.target(v)
		case "input":
			input, r.input = v, markOf(v)
		case "ping":
			m.Ping = d.ping(v)
		case "baseline":
			_, m.Silent = d.oneOf(v, []string{"silent"})
		default:
			if slices.Contains(globKeys, k.Value) || slices.Contains(urlKeys, k.Value) {
				source = append(source, pair{k, v})
				continue
			}
			d.Unknown(k, slices.Concat(anyMonitorKeys, globKeys, urlKeys))
		}
	}
	d.source(&m, n, watch, source)
	if m.Handler == nil && !start {
		d.Errorf(n, "give at least one of do and start")
	}
	if input != nil {
		d.launchInput(&m, input, start)
	}
	c, jitter := d.times(n, w, monitorEvery)
	if c != nil {
		m.Cadence, m.Jitter, r.cadence = c.Cadence, jitter, c
	}
	d.file.monitors = append(d.file.monitors, m)
	d.file.monitorRefs = append(d.file.monitorRefs, r)
}

// health reads a value if its key is about how the source is, and not what it holds.
func (d *decoder) health(m *Monitor, k, v *strict.Node) bool {
	switch k.Value {
	case "fail_after":
		m.FailAfter, _ = d.Int(v, 1, maxLooks)
	case "recover_after":
		m.RecoverAfter, _ = d.Int(v, 1, maxLooks)
	case "on_down":
		m.OnDown = d.handler(v)
	case "on_up":
		m.OnUp = d.handler(v)
	default:
		return false
	}
	return true
}

// launchInput reads the input of what `start` names: a jq program over the change, or a literal.
func (d *decoder) launchInput(m *Monitor, n *strict.Node, start bool) {
	if !start {
		d.Errorf(n, "input is for the workflow that start names, and there is no start")
	}
	switch strict.KindOf(n) {
	case strict.Map:
		m.Input = d.input(n)
	case strict.String:
		m.InputProgram = d.program(n)
	default:
		d.Want(n, "a mapping, or a jq program over the change as a text")
	}
}

// program compiles a jq program.
func (d *decoder) program(n *strict.Node) *filter.Program {
	if strings.TrimSpace(n.Value) == "" {
		d.Errorf(n, "jq program is empty; . is the change as it is")
		return nil
	}
	program, err := filter.CompileProgram(n.Value)
	if err != nil {
		d.Errorf(n, "%v", err)
	}
	return program
}

// isURL tells a URL of any scheme from a glob.
var isURL = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://`)

// source reads what a monitor watches, and the keys that only one kind of source has.
func (d *decoder) source(m *Monitor, n, watch *strict.Node, own []pair) {
	if watch == nil {
		d.Errorf(n, "give watch, a glob or an http or https URL")
		return
	}
	text, ok := d.String(watch, "a glob or an http or https URL as a text")
	if !ok {
		return
	}
	m.Label = text
	switch {
	case strings.TrimSpace(text) == "":
		d.Errorf(watch, "a source is required")
	case strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://"):
		d.url(m, watch, own)
	case isURL.MatchString(text):
		d.Errorf(watch, "only http and https URLs are watched")
	default:
		d.glob(m, watch, own)
	}
}

// glob reads a source of files.
func (d *decoder) glob(m *Monitor, watch *strict.Node, own []pair) {
	o := monitor.FilesOptions{Shared: d.shared.filesOf(d.workspace)}
	var exclude *strict.Node
	for _, p := range own {
		switch p.key.Value {
		case "exclude":
			exclude, o.Exclude = p.value, d.patterns(p.value)
		case "ignore":
			_, o.NoIgnore = d.oneOf(p.value, []string{"none"})
		case "settle":
			d.settle(&o, p.value)
		case "live":
			m.Live, _ = d.Bool(p.value)
		case "reread":
			o.Reread, _ = d.Duration(p.value)
		default:
			d.Errorf(p.key, "%s is for a URL, and this monitor watches files", p.key.Value)
		}
	}
	var err error
	if m.Source, err = monitor.NewFiles(d.workspace, watch.Value, o); err == nil {
		return
	}
	// The error names no place: find which of the patterns it is about.
	before := len(d.Errors)
	good := watch.Value
	if _, plain := monitor.NewFiles(d.workspace, good, monitor.FilesOptions{}); plain != nil {
		d.Errorf(watch, "%v", plain)
		good = "*"
	}
	if exclude != nil && strict.KindOf(exclude) == strict.List {
		for _, item := range d.Items(exclude) {
			if strict.KindOf(item) != strict.String {
				continue
			}
			if _, err := monitor.NewFiles(d.workspace, good, monitor.FilesOptions{Exclude: []string{item.Value}}); err != nil {
				d.Errorf(item, "%v", err)
			}
		}
	}
	if len(d.Errors) == before {
		d.Errorf(watch, "%v", err)
	}
}

// patterns reads a list of globs. Those that are no texts have been reported.
func (d *decoder) patterns(n *strict.Node) (patterns []string) {
	if !d.List(n, "a list of globs") {
		return nil
	}
	for _, item := range d.Items(n) {
		if pattern, ok := d.String(item, "a glob as a text"); ok {
			patterns = append(patterns, pattern)
		}
	}
	return patterns
}

// settle reads how long files must keep still: a duration, or that and the longest wait.
func (d *decoder) settle(o *monitor.FilesOptions, n *strict.Node) {
	if strict.KindOf(n) == strict.String {
		o.Settle, _ = d.moment(n)
		return
	}
	if !d.Map(n, "a duration such as 2s as a text, or a mapping such as {quiet: 2s, max_wait: 1m}") {
		return
	}
	var quiet, longest *strict.Node
	good := true
	for k, v := range d.Pairs(n) {
		var ok bool
		switch k.Value {
		case "quiet":
			quiet = v
			o.Settle, ok = d.moment(v)
		case "max_wait":
			longest = v
			o.MaxSettle, ok = d.moment(v)
		default:
			d.Unknown(k, settleKeys)
		}
		good = good && ok
	}
	switch {
	case quiet == nil:
		d.Errorf(n, "give quiet, how long what changed must have kept still")
	case good && longest != nil && o.MaxSettle < o.Settle:
		d.Errorf(longest, "max_wait %s is shorter than quiet, %s", runner.Brief(o.MaxSettle), runner.Brief(o.Settle))
	}
}

// moment reads a duration that may be in milliseconds.
func (d *decoder) moment(n *strict.Node) (time.Duration, bool) {
	if text, ok := strings.CutSuffix(n.Value, "ms"); ok && strict.KindOf(n) == strict.String {
		if v, err := strict.Duration(text + "s"); err == nil {
			return v / 1000, true
		}
	}
	return d.Duration(n)
}

var settleKeys = []string{"quiet", "max_wait"}
