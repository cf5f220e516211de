package runner

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"marbles/state"
)

// asking is a workflow that does something, asks, and does something else.
func asking(dir string) *Workflow {
	wf := shell("job", "echo before >> "+dir+"/ran; echo '\"first\"' > $MARBLES_RESULT_FILE")
	wf.Steps = append(wf.Steps,
		Step{Name: "ask", Ask: &Ask{Mode: state.ModeQuestion, Title: "Publish?", Choices: []string{"a", "b"}}},
		Step{Name: "after", Command: Command{Shell: "echo after >> " + dir + "/ran; cp $MARBLES_INPUT_FILE $MARBLES_RESULT_FILE"}},
		Step{Name: "final", Final: Always, Command: Command{Shell: "echo final $MARBLES_STATUS >> " + dir + "/ran"}})
	return wf
}

func ran(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, "ran"))
	return string(b)
}

// A run parks, frees its place, its process goes, another one adopts it, and it goes on where it was.
func TestParkAndGoOn(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := asking(dir)
	w, _ := keeper(t, wf, func(o *Options) { o.Concurrency = 1 })
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	res := r.Wait()
	if res.Status != state.Suspended || res.File == nil || len(res.File.Open()) != 1 {
		t.Fatalf("%+v", res)
	}
	if running, queued := w.Active(); running != 0 || queued != 0 {
		t.Errorf("a parked run has a place: %d running, %d queued", running, queued)
	}
	if got := ran(dir); got != "before\n" {
		t.Errorf("ran %q", got)
	}
	_, err := ws.AnswerRun(t.Context(), r.ID(), "", state.Answer{Answer: "b"})
	must(t, err)
	f := becomes(t, ws, r.ID(), state.Complete)
	if got := ran(dir); got != "before\nafter\nfinal complete\n" {
		t.Errorf("ran %q", got)
	}
	if f.Run.Timestamps.StartedAt == 0 || len(f.Open()) != 0 {
		t.Errorf("%+v", f.Run.Timestamps)
	}
	soonNoLocks(t, ws)
}

func TestCancelParkedFinal(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := asking(dir)
	w, _ := keeper(t, wf, nil)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	r.Wait()
	must(t, ws.Ask(state.Request{Run: r.ID(), Action: state.ActionCancel, Reason: "no"}))
	f := becomes(t, ws, r.ID(), state.Cancelled)
	if got := ran(dir); got != "before\nfinal cancelled\n" || f.Run.Error.Message != "no" {
		t.Errorf("ran %q, %+v", got, f.Run.Error)
	}
}

// A run at work is paused, and its stopped step runs again.
func TestPauseRunning(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := shell("job", "echo begun >> "+dir+"/ran; test -e "+dir+"/go || exec sleep 30")
	w, _ := keeper(t, wf, nil)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	for end := time.Now().Add(5 * time.Second); ran(dir) == "" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
	}
	must(t, ws.Ask(state.Request{Run: r.ID(), Action: state.ActionPause, Reason: "lunch", By: "u"}))
	res := r.Wait()
	if res.Status != state.Suspended {
		t.Fatalf("%+v", res)
	}
	f := becomes(t, ws, r.ID(), state.Suspended)
	if open := f.Open(); len(open) != 1 || open[0].Kind != state.SuspendPause || open[0].Reason != "lunch" || len(f.Steps) != 0 {
		t.Errorf("%+v, steps %+v", open, f.Steps)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	must(t, ws.Ask(state.Request{Run: r.ID(), Action: state.ActionResume}))
	becomes(t, ws, r.ID(), state.Complete)
	if got := ran(dir); got != "begun\nbegun\n" {
		t.Errorf("ran %q", got)
	}
}

// A tick whose run parks ends; the history has its end when the run has.
func TestTickParks(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := asking(dir)
	late := make(chan *state.RunFile, 1)
	w, _ := keeper(t, wf, func(o *Options) {
		o.Late = func(_ *state.Workspace, _ string, f *state.RunFile) { late <- f }
	})
	slot := time.Now().Truncate(time.Minute)
	res := w.Tick(t.Context(), schedule(w, ws, slot, wf))
	if res.Outcome != state.SlotParked || res.Err != nil || res.Result.Status != state.Suspended {
		t.Fatalf("%+v", res)
	}
	soonNoLocks(t, ws)
	if rec := record(t, ws, "k"); rec.Run != res.Result.RunID || !rec.LastFinish.IsZero() || !rec.Slot.Equal(slot) {
		t.Errorf("%+v", rec)
	}
	_, err := ws.AnswerRun(t.Context(), res.Result.RunID, "", state.Answer{Answer: "a"})
	must(t, err)
	f := <-late
	rec := record(t, ws, "k")
	if rec.LastStatus != "complete" || !rec.LastFinish.Equal(endOf(f)) {
		t.Errorf("%+v", rec)
	}
	entries, err := ws.Slots("k", 10)
	must(t, err)
	var outcomes []state.Outcome
	for _, e := range entries {
		outcomes = append(outcomes, e.Outcome)
	}
	if len(outcomes) != 2 {
		t.Errorf("ledger %v", outcomes)
	}
}

// A child that settles while its parent is at work with another step ends the parent's wait, although that parks only then.
func TestChildSettlesBeforeItsParentParks(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	child := &Workflow{Name: "child", Steps: []Step{{Name: "ask", Ask: &Ask{Mode: state.ModeQuestion, Title: "Go?"}}}}
	parent := &Workflow{Name: "parent", Steps: []Step{
		{Name: "child", Start: &Start{Workflow: "child"}},
		{Name: "wait", Needs: []string{}, Wait: &Wait{For: time.Millisecond}},
		{Name: "work", Command: Command{Shell: "touch " + dir + "/begun; until test -e " + dir + "/go; do sleep 0.01; done"}},
	}}
	w, _ := keeper(t, nil, func(o *Options) {
		o.Workflow = func(_ *state.Workspace, name string) *Workflow {
			return map[string]*Workflow{"child": child, "parent": parent}[name]
		}
	})
	r := start(t, w, Launch{Workspace: ws, Workflow: parent, Trigger: "manual"})
	r.Wait()
	eventually(t, "its other step", exists(dir, "begun"))
	list, err := ws.Runs(state.RunQuery{})
	must(t, err)
	for _, run := range list.Runs {
		if run.Name == "child" {
			_, err := ws.AnswerRun(t.Context(), run.ID, "", state.Answer{Answer: "yes"})
			must(t, err)
			becomes(t, ws, run.ID, state.Complete)
		}
	}
	eventually(t, "the end of the wait", func() bool {
		f := runFile(t, ws, r.ID())
		return len(f.Open()) == 0 && f.Run.Status == state.Running
	})
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
}
