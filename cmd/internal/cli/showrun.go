package cli

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/runner"
	"marbles/state"
)

// shownRun is `show <run> --json`: the run file as it is on disk, and where its parts are.
type shownRun struct {
	Project  string         `json:"project"`
	File     string         `json:"file"`
	Journal  string         `json:"journal"`
	Orphaned bool           `json:"orphaned"`
	Waits    string         `json:"waits,omitempty"` // what a suspended run waits for
	Children []runLine      `json:"children"`        // runs that its steps started
	Hooks    []runLine      `json:"hooks"`           // runs that told of it
	Run      *state.RunFile `json:"run"`
}

func (a *app) showRun(act *actor, ws *state.Workspace, id string, asJSON bool) error {
	f, err := ws.Run(id)
	if err != nil {
		return unknownRun(id, err)
	}
	sum := f.Summary()
	line := newRunLine(ws, sum)
	shown := shownRun{
		Project: ws.Project(), File: filepath.Join(ws.Dir(), "runs", id+".json"),
		Journal: filepath.Join(ws.Dir(), "output", id+".jsonl"), Orphaned: line.Orphaned, Run: f,
		Children: []runLine{}, Hooks: []runLine{},
	}
	if f.Run.Status == state.Suspended {
		shown.Waits = waitsText(f)
	}
	shown.relatives(ws)
	if asJSON {
		return printJSON(a.Stdout, shown)
	}
	if err := a.paint(a.Stdout).facts(a.Stdout, shown.facts(line, sum)); err != nil {
		return err
	}
	if rows := newGraph(f, act.definedNow(ws, f)).rows(); len(rows) > 1 {
		fmt.Fprintln(a.Stdout)
		if err := a.paint(a.Stdout).table(a.Stdout, rows); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		what  string
		lines []runLine
	}{{"started by its steps", shown.Children}, {"told of it", shown.Hooks}} {
		if len(list.lines) == 0 {
			continue
		}
		fmt.Fprintf(a.Stdout, "\n%s:\n", list.what)
		if err := printRunLines(a.Stdout, a.paint(a.Stdout), list.lines, false); err != nil {
			return err
		}
	}
	if f.Run.Status == state.Suspended {
		fmt.Fprintln(a.Stdout)
		a.sayParked(a.Stdout, f)
	}
	return nil
}

// definedNow is a run's workflow as it is defined now, for a run whose file does not have it as it was; nil where that
// cannot be told.
func (a *actor) definedNow(ws *state.Workspace, f *state.RunFile) *runner.Workflow {
	if f.Marbles != nil && len(f.Marbles.Literals) > 0 || len(f.Steps) < 2 {
		return nil
	}
	cat, err := a.definitions(ws)
	if err != nil {
		return nil
	}
	w := cat.Workflow(f.Run.Step)
	if w == nil {
		return nil
	}
	return &w.Workflow
}

// facts are what there is to say of the run as a whole.
func (s shownRun) facts(line runLine, sum state.RunSummary) [][]string {
	f := s.Run
	ext := f.Run.Extensions
	status := line.Status
	if line.Orphaned {
		status += " orphaned (pid gone)"
	}
	if s.Waits != "" {
		status += ", waits for " + clean(s.Waits, 200)
	}
	kind, parent := ext.Kind, ""
	if kind == "workflow" {
		kind = ""
	}
	if f.Run.Links != nil {
		parent = f.Run.Links.ParentRunID
	}
	rows := [][]string{
		{"run", sum.ID}, {"workflow", clean(sum.Name, 200)}, {"kind", clean(kind, 40)}, {"status", status},
		{"project", clean(s.Project, 300)}, {"trigger", ext.Trigger}, {"started by", parent},
		{"restart of", ext.RestartOf}, {"started anew as", ext.Restarted}, {"retry of", ext.RetryOf},
		{"key", sum.Key}, {"slot", clock(ext.Slot.Time)},
		{"created", clock(sum.Created)}, {"started", clock(sum.Started)}, {"ended", clock(sum.Ended)},
		{"took", took(sum.Started, sum.Ended)}, {"input", clean(compact(f.Run.Input), 500)},
		{"result", clean(compact(f.Run.Output), 500)}, {"pid", fmt.Sprint(f.PID)},
		{"file", clean(s.File, 500)}, {"journal", clean(s.Journal, 500)},
	}
	if f.Run.Error != nil {
		rows = append(rows, []string{"error", clean(f.Run.Error.Message, 500)})
	}
	return rows
}

// relatives finds the runs that belong to this one: those of its steps, and those that told of it.
func (s *shownRun) relatives(ws *state.Workspace) {
	for _, step := range s.Run.Steps {
		if step.Child == "" {
			continue
		}
		child := runLine{ID: step.Child, Status: "unknown", Project: ws.Project()} // deleted since
		if f, err := ws.Run(step.Child); err == nil {
			child = newRunLine(ws, f.Summary())
			child.Waits = waits(ws, child.ID)
		}
		s.Children = append(s.Children, child)
	}
	ended := s.Run.Summary().Ended
	if ended.IsZero() {
		return
	}
	// A hook's run is made at the end of what it tells of, so that only those that are younger are read.
	list, err := ws.Runs(state.RunQuery{Since: ended})
	if err != nil {
		return // the run itself is shown
	}
	const most = 20 // runs of hooks that are looked at
	looked := 0
	for _, r := range slices.Backward(list.Runs) {
		if r.Trigger != "hook" {
			continue
		}
		if looked++; looked > most {
			return
		}
		f, err := ws.Run(r.ID)
		if err == nil && hookRun(f.Run.Input) == s.Run.Run.ID {
			s.Hooks = append(s.Hooks, newRunLine(ws, r))
		}
	}
}

// hookRun is the run that the input of a hook's run tells of.
func hookRun(input jsontext.Value) string {
	var in struct {
		Run string `json:"run"`
	}
	if json.Unmarshal(input, &in, jsontext.AllowInvalidUTF8(true)) != nil {
		return ""
	}
	return in.Run
}

// compact is a JSON value in one line, without the indentation that its record gives it.
func compact(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) // else it stays as it is
	return string(v)
}
