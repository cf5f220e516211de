package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/state"
)

// maxSuggestions bounds for how many names that are not known the nearest one is looked for.
const maxSuggestions = 100

// linker brings the files together: it checks what names other things, and gives keys.
type linker struct {
	*Catalog
	files      []*file
	errors     Diagnostics
	incomplete bool // some file was not read, so that a name may be declared there

	nearest map[string]string // of workflow names not known
	given   map[string]place  // explicit keys
	suffix  map[string]int    // derived keys: the last -n given
}

// place is a mark and its file.
type place struct {
	file *file
	mark mark
}

func (l *linker) link() {
	l.nearest = make(map[string]string)
	l.linkWorkflows()
	l.incomplete = l.incomplete || slices.ContainsFunc(l.files, func(f *file) bool { return f.broken })
	l.linkStarts()
	schedules, monitors := 0, 0
	for _, f := range l.files {
		schedules += len(f.schedules)
		monitors += len(f.monitors)
	}
	l.Schedules = make([]*Schedule, 0, schedules)
	l.Monitors = make([]*Monitor, 0, monitors)
	l.keys = make(map[string]int, schedules+monitors)
	l.given = make(map[string]place)
	l.suffix = make(map[string]int)
	l.explicitKeys()
	for _, f := range l.files {
		for i := range f.schedules {
			l.linkSchedule(f, &f.schedules[i], f.scheduleRefs[i])
		}
		for i := range f.monitors {
			l.linkMonitor(f, &f.monitors[i], f.monitorRefs[i])
		}
		f.scheduleRefs, f.monitorRefs = nil, nil
	}
	l.foldedKeys()
}

func (l *linker) linkWorkflows() {
	l.workflows = make(map[string]*Workflow)
	for _, f := range l.files {
		for i := range f.workflows {
			w := &f.workflows[i]
			if first := l.workflows[w.Name]; first != nil {
				if first.Position.File != w.Position.File { // within a file it is a repeated key, reported there
					l.error(w.Position, strict.Join("workflows", w.Name),
						fmt.Sprintf("workflow %q is there already, at %s", w.Name, first.Position))
				}
				continue
			}
			l.workflows[w.Name] = w
			l.Workflows = append(l.Workflows, w)
		}
	}
}

// explicitKeys takes all keys that are given before any is derived: a derived one must step aside.
func (l *linker) explicitKeys() {
	take := func(f *file, r ref, key, list string) {
		if !r.explicit || key == "" {
			return
		}
		if first, ok := l.given[key]; ok {
			l.error(f.at(r.key), strict.Index(list, r.index)+".key",
				fmt.Sprintf("key %q is there already, at %s", key, first.file.at(first.mark)))
			return
		}
		l.given[key] = place{f, r.key}
	}
	for _, f := range l.files {
		for i := range f.schedules {
			take(f, f.scheduleRefs[i], f.schedules[i].Key, "schedules")
		}
		for i := range f.monitors {
			take(f, f.monitorRefs[i], f.monitors[i].Key, "monitors")
		}
	}
}

// foldedKeys warns of keys that are one file name where file names have no case, as on macOS. Derived keys are lower
// case, so a given key must be involved.
func (l *linker) foldedKeys() {
	var mixed []string
	for key := range l.given {
		if strings.ToLower(key) != key {
			mixed = append(mixed, key)
		}
	}
	slices.Sort(mixed)
	last := make(map[string]string, len(mixed))
	for _, key := range mixed {
		lower := strings.ToLower(key)
		other, ok := last[lower]
		if _, plain := l.keys[lower]; plain {
			other, ok = lower, true
		}
		if ok {
			at := l.given[key]
			l.warn(at.file.at(at.mark), "", fmt.Sprintf(
				"key %q differs from %q in case only: where file names have no case, as on macOS, both share one history", key, other))
		}
		last[lower] = key
	}
}

func (l *linker) linkSchedule(f *file, s *Schedule, r ref) {
	path := func() string { return strict.Index("schedules", r.index) }
	w := l.target(f, r.run, s.Workflow, func() string { return path() + ".run" })
	if w != nil {
		s.Workflow = w.Name
		l.collide(f, r.run, w, s.Input, path)
		l.accepts(f, r.launch(), w, s.Input, path)
		if r.cadence.slots() && w.Timeout > r.cadence.gap {
			l.warn(s.Position, path(), fmt.Sprintf("workflow %q may take %s (its timeout), longer than the %s from one slot to the next",
				w.Name, runner.Brief(w.Timeout), runner.Brief(r.cadence.gap)))
		}
	}
	s.Label = s.Workflow
	if s.Input != nil {
		s.Label += " " + string(s.Input)
	}
	if !r.explicit {
		s.Key = l.derive(f, s.Position, path, scheduleKey(s.Workflow, s.Input))
	}
	l.linkHooks(f, s.Hooks, s.Key, r.starts)
	if s.Key != "" {
		l.keys[s.Key] = len(l.Schedules)
	}
	l.Schedules = append(l.Schedules, s)
}

func (l *linker) linkMonitor(f *file, m *Monitor, r ref) {
	path := func() string { return strict.Index("monitors", r.index) }
	var w *Workflow
	if r.run.line != 0 {
		if w = l.target(f, r.run, m.Start, func() string { return path() + ".start" }); w != nil {
			m.Start = w.Name
			l.collide(f, r.run, w, m.Input, path)
			if m.InputProgram == nil {
				l.accepts(f, r.launch(), w, m.Input, path)
			}
		}
	}
	if r.cadence.slots() {
		gap := r.cadence.gap
		if m.Timeout > gap {
			l.warn(f.at(r.timeout), path()+".timeout", fmt.Sprintf("timeout %s is longer than the %s from one look to the next",
				runner.Brief(m.Timeout), runner.Brief(gap)))
		}
		for _, h := range m.handlers() {
			if h.workflow != nil && h.workflow.Steps[0].Timeout > gap {
				l.warn(m.Position, path()+"."+h.key, fmt.Sprintf("handler may take %s (its timeout), longer than the %s from one look to the next",
					runner.Brief(h.workflow.Steps[0].Timeout), runner.Brief(gap)))
			}
		}
	}
	if !r.explicit {
		m.Key = l.derive(f, m.Position, path, monitorKey(m.Label))
	}
	if m.Source != nil {
		m.Label = m.Source.String() // records and lists have it, and a URL's query may be a secret
	}
	for _, h := range m.handlers() {
		if h.workflow == nil {
			continue
		}
		h.workflow.Name = m.Key
		if step := &h.workflow.Steps[0]; step.Name == "" {
			step.Name = h.step
		}
	}
	if m.Key != "" {
		l.keys[m.Key] = ^len(l.Monitors)
	}
	l.Monitors = append(l.Monitors, m)
}

// handler is one of a monitor's handlers: the key it is given by, and what its step is called where it has no name.
type handler struct {
	key, step string
	workflow  *runner.Workflow // nil for none
}

func (m *Monitor) handlers() [3]handler {
	return [...]handler{{"do", m.Key, m.Handler}, {"on_down", "on_down", m.OnDown}, {"on_up", "on_up", m.OnUp}}
}

// target finds the workflow that a trigger names, or reports that there is none.
func (l *linker) target(f *file, at mark, name string, path func() string) *Workflow {
	if w := l.workflows[name]; w != nil {
		return w
	}
	// A name that is no text has been reported, and a file that was not read may declare any other.
	if at.line == 0 || l.incomplete {
		return nil
	}
	nearest, ok := l.nearest[name]
	if !ok && len(l.nearest) < maxSuggestions {
		nearest = strict.Nearest(name, func(yield func(string) bool) {
			for _, w := range l.Workflows {
				if !yield(w.Name) {
					return
				}
			}
		})
		l.nearest[name] = nearest
	}
	l.errors = append(l.errors, Diagnostic{Position: f.at(at), Path: path(), Message: fmt.Sprintf("no workflow %q", name),
		Nearest: nearest})
	return nil
}

// collide reports an input that shares its variable with another input of the workflow it goes to.
func (l *linker) collide(f *file, at mark, w *Workflow, input jsontext.Value, path func() string) {
	if input == nil || w.Input == nil {
		return
	}
	defaults := members(w.Input)
	for _, name := range members(input) {
		for _, other := range defaults {
			if name != other && runner.InputName(name) == runner.InputName(other) {
				l.error(f.at(at), path()+".input",
					fmt.Sprintf("input %q and input %q of workflow %q would both be %s", name, other, w.Name, runner.InputName(name)))
			}
		}
	}
}

// members are the names of a JSON object's members.
func members(object jsontext.Value) (names []string) {
	d := jsontext.NewDecoder(strings.NewReader(string(object)))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return names
		}
		names = append(names, name.String())
		if err := d.SkipValue(); err != nil {
			return names
		}
	}
	return names
}

// derive gives a derived key: as it is where it is free, else with -2, -3, … and a warning.
func (l *linker) derive(f *file, at Position, path func() string, base string) string {
	taken := func(key string) bool {
		_, explicit := l.given[key]
		_, derived := l.keys[key]
		return explicit || derived
	}
	if !taken(base) {
		return base
	}
	n := max(l.suffix[base], 1)
	key := base
	for taken(key) {
		n++
		key = base + "-" + strconv.Itoa(n)
	}
	l.suffix[base] = n
	l.warn(at, path(), fmt.Sprintf("key %q is taken, so this one is %q; give it a key of its own, as its place in the file decides it now",
		base, key))
	return key
}

func (l *linker) error(at Position, path, message string) {
	l.errors = append(l.errors, Diagnostic{Position: at, Path: path, Message: message})
}

func (l *linker) warn(at Position, path, message string) {
	l.Warnings = append(l.Warnings, Diagnostic{Position: at, Path: path, Message: message})
}

// scheduleKey is a schedule's derived key (spec §3.5): the workflow's slug, and eight hex digits of its own input.
func scheduleKey(workflow string, input jsontext.Value) string {
	if input == nil {
		return slug(workflow)
	}
	canonical, err := state.Canonical(input)
	if err != nil { // it is JSON of our own making
		canonical = slices.Clone(input)
	}
	sum := sha256.Sum256(canonical)
	return slug(workflow) + "-" + hex.EncodeToString(sum[:4])
}

// monitorKey is a monitor's derived key (spec §3.5): the source's slug, and six hex digits of the source.
func monitorKey(source string) string {
	sum := sha256.Sum256([]byte(source))
	return slug(source) + "-" + hex.EncodeToString(sum[:3])
}

// slug is a text as part of a file name (spec §3.5): lower case, what is no ASCII letter or digit as one dash, at most
// 40 bytes, "x" for nothing.
func slug(text string) string {
	const most = 40
	plain := text != "" && len(text) <= most
	for i := 0; plain && i < len(text); i++ {
		plain = text[i] >= 'a' && text[i] <= 'z' || text[i] >= '0' && text[i] <= '9'
	}
	if plain {
		return text
	}
	var b strings.Builder
	dash := false
	// JavaScript, whose keys these are, lowers a dotted capital I to two characters.
	for _, r := range strings.ToLower(strings.ReplaceAll(text, "İ", "i̇")) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if dash && b.Len() > 0 {
				b.WriteByte('-')
			}
			dash = false
			b.WriteRune(r)
			continue
		}
		dash = true
	}
	s := b.String()
	if len(s) > most {
		s = strings.TrimRight(s[:most], "-")
	}
	if s == "" {
		return "x"
	}
	return s
}
