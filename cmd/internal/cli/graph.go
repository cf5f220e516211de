package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/runner"
	"marbles/state"
)

// graph is the steps of a run as they hang together: what the run was started with, where its file has that, and how each
// step went.
type graph struct {
	file  *state.RunFile
	steps []*node // in document order, as far as that is known
}

// node is one step.
type node struct {
	name   string
	order  int
	after  []string // the steps it needs; nil: not known
	final  string
	record *state.StepRecord // nil: it has not ended
	items  []*state.StepRecord
	waits  []*state.Suspension
}

// newGraph puts a run's graph together. now is the workflow as it is defined now, which is used where the file does not
// say what it was and every step that ran is in it; nil where that is not known.
func newGraph(f *state.RunFile, now *runner.Workflow) *graph {
	g := &graph{file: f}
	g.literals()
	if len(g.steps) == 0 && now != nil {
		g.defined(now)
	}
	for i := range f.Steps {
		rec := &f.Steps[i]
		n := g.step(rec.Name)
		if rec.Item != nil {
			n.items = append(n.items, rec)
		} else {
			n.record = rec
		}
	}
	for i := range f.Suspensions {
		s := &f.Suspensions[i]
		if s.Kind == state.SuspendPause && len(s.StepPath) < 2 {
			continue // of the whole run
		}
		n := g.step(s.Name)
		n.waits = append(n.waits, s)
	}
	for _, n := range g.steps {
		slices.SortStableFunc(n.items, func(x, y *state.StepRecord) int { return cmp.Compare(*x.Item, *y.Item) })
	}
	return g
}

// step finds a step, or adds one behind those that are known.
func (g *graph) step(name string) *node {
	for _, n := range g.steps {
		if n.name == name {
			return n
		}
	}
	n := &node{name: name, order: len(g.steps)}
	g.steps = append(g.steps, n)
	return n
}

// literals adds the steps as they were when the run started.
func (g *graph) literals() {
	if g.file.Marbles == nil {
		return
	}
	prefix := g.file.Run.Step + "."
	for path, literal := range g.file.Marbles.Literals {
		name, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		var l struct {
			Name  string   `json:"name"`
			Order int      `json:"order"`
			Needs []string `json:"needs"`
			Final string   `json:"final"`
		}
		if json.Unmarshal(literal, &l, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) != nil {
			continue // it still has its record
		}
		g.steps = append(g.steps, &node{name: cmp.Or(l.Name, name), order: l.Order, after: l.Needs, final: l.Final})
	}
	slices.SortFunc(g.steps, func(x, y *node) int { return cmp.Or(cmp.Compare(x.order, y.order), strings.Compare(x.name, y.name)) })
	g.chain()
}

// defined adds the steps as they are defined now, unless others ran.
func (g *graph) defined(now *runner.Workflow) {
	known := map[string]bool{}
	for i := range now.Steps {
		known[now.Steps[i].Name] = true
	}
	for i := range g.file.Steps {
		if !known[g.file.Steps[i].Name] {
			return
		}
	}
	for i := range now.Steps {
		s := &now.Steps[i]
		g.steps = append(g.steps, &node{name: s.Name, order: i, after: s.Needs, final: string(s.Final)})
	}
	g.chain()
}

// chain lets each step that says nothing else come after the one above it.
func (g *graph) chain() {
	above := ""
	for _, n := range g.steps {
		if n.after == nil && n.final == "" && above != "" {
			n.after = []string{above}
		}
		if n.final == "" {
			above = n.name
		}
	}
}

// rows is the graph as a table: each step below those it needs.
func (g *graph) rows() [][]string {
	rows := [][]string{{"STEP", "AFTER", "STATUS", "TOOK", "CPU", "MEMORY", ""}}
	for _, n := range g.steps {
		rows = append(rows, n.row())
		for _, item := range n.items {
			row := recordRow(item)
			row[0] = fmt.Sprintf("  [%d]", *item.Item)
			rows = append(rows, row)
		}
	}
	if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[1] != "-" }) {
		for i, row := range rows { // it is not known how they hang together, or there is one
			rows[i] = slices.Delete(row, 1, 2)
		}
	}
	return rows
}

func (n *node) row() []string {
	row := []string{"", "", "-", "-", "-", "-", ""}
	if n.record != nil {
		row = recordRow(n.record)
	}
	row[0], row[1] = clean(n.name, 40), clean(strings.Join(n.after, ", "), 60)
	if n.final != "" {
		row[1] = "(" + strings.ReplaceAll(n.final, "_", " ") + ")"
	}
	if row[1] == "" {
		row[1] = "-"
	}
	var notes []string
	for _, s := range n.waits {
		if s.Status == state.Pending && n.record == nil {
			row[2] = "waits"
			if s.Kind == state.SuspendUnit {
				row[2] = string(state.Running)
			}
		}
		if text := waitNote(s); text != "" {
			notes = append(notes, text)
		}
	}
	if row[6] != "" {
		notes = append(notes, row[6])
	}
	row[6] = strings.Join(notes, "; ")
	return row
}

// waitNote says what a step waits for, or how that ended.
func waitNote(s *state.Suspension) string {
	switch {
	case s.Status == state.Pending && s.Kind == state.SuspendUnit:
		return "in " + clean(s.Text(), 100)
	case s.Status == state.Pending:
		return "waits for " + clean(s.Text(), 100)
	case s.Status == state.NoLongerOpen:
		return ""
	case s.Kind != state.SuspendInput:
		return ""
	}
	a, err := s.Answer()
	if err != nil || a == nil {
		return ""
	}
	text := "answered " + clean(a.Answer, 60)
	if a.By != "" {
		text += " by " + clean(a.By, 40)
	}
	text += " at " + clock(cmp.Or(a.At.Time, millis(s.Timestamps.ResolvedAt)))
	if a.Note != "" {
		text += ": " + clean(a.Note, 100)
	}
	return text
}

// recordRow is the record of a step or an item.
func recordRow(s *state.StepRecord) []string {
	cpu, memory := "-", "-"
	if ms := s.UserMS + s.SystemMS + s.CPUMS; ms > 0 {
		cpu = (time.Duration(ms) * time.Millisecond).String()
	}
	if s.MaxRSS > 0 {
		memory = fmt.Sprintf("%.1f MiB", float64(s.MaxRSS)/(1<<20))
		if cpu == "-" { // it was measured, and is less than a millisecond
			cpu = "0s"
		}
	}
	status := string(s.Status)
	if s.Attempts > 1 {
		status += fmt.Sprintf(" (attempt %d)", s.Attempts)
	}
	var notes []string
	if s.Error != nil {
		notes = append(notes, clean(s.Error.Message, 100))
	}
	if s.Child != "" {
		notes = append(notes, "started "+clean(s.Child, 40))
	}
	if s.Unit != "" {
		notes = append(notes, "in "+clean(s.Unit, 80))
	}
	if len(s.Leftover) > 0 {
		notes = append(notes, "left behind and ended: "+clean(strings.Join(s.Leftover, ", "), 100))
	}
	return []string{clean(s.Name, 40), "-", status, took(millis(s.StartedAt), millis(s.FinishedAt)), cpu, memory, strings.Join(notes, "; ")}
}
