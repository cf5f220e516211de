package runner

import (
	"testing"
	"time"

	"marbles/state"
)

// handOver writes a run down for this process to start, as `roll --detach` does, and asks for something of it at once, in
// place of the request to start it.
func handOver(t *testing.T, ws *state.Workspace, w *Worker, wf *Workflow, q state.Request) string {
	t.Helper()
	id := state.NewRunID(time.Now())
	r := w.newRun(Launch{Workspace: ws, Workflow: wf, RunID: id, Trigger: "manual"}, nil)
	f := r.newFile(time.Now())
	r.cancel(nil)
	must(t, ws.HandOver(f, state.Self(), state.Request{Run: id, Action: state.ActionStart}))
	q.Run = id
	must(t, ws.Ask(q))
	return id
}

// A run that is cancelled before the service has seen that it is to be started never is.
func TestCancelledBeforeItIsStarted(t *testing.T) {
	ws := newWorkspace(t)
	wf := shell("job", "echo no")
	w, log := keeper(t, wf, func(o *Options) {
		o.Asked = func(*state.Workspace, state.Request) bool { t.Error("it is started"); return true }
	})
	id := handOver(t, ws, w, wf, state.Request{Action: state.ActionCancel, Reason: "enough"})
	must(t, w.Adopt(t.Context(), ws)) // looks after requests from now on
	if f := becomes(t, ws, id, state.Cancelled); f.Run.Error.Message != "enough" {
		t.Errorf("%+v\n%s", f.Run.Error, log)
	}
	eventually(t, "the request is done", func() bool { q, err := ws.RequestOf(id); return err == nil && q == nil })
}

// One that is paused first is started, and then paused.
func TestPausedBeforeItIsStarted(t *testing.T) {
	ws := newWorkspace(t)
	wf := shell("job", "sleep 20")
	var w *Worker
	w, _ = keeper(t, wf, func(o *Options) {
		o.Asked = func(ws *state.Workspace, q state.Request) bool {
			f, err := ws.Run(q.Run)
			if err == nil {
				_, err = w.Start(Launch{Workspace: ws, Workflow: wf, Queued: f, Trigger: "manual"})
			}
			return err == nil
		}
	})
	id := handOver(t, ws, w, wf, state.Request{Action: state.ActionPause, Reason: "later"})
	must(t, w.Adopt(t.Context(), ws))
	f := becomes(t, ws, id, state.Suspended)
	if open := f.Open(); len(open) != 1 || open[0].Kind != state.SuspendPause {
		t.Errorf("it waits for %+v", open)
	}
}

// The next service does not start what was cancelled while there was none.
func TestCancelledWhileNobodyStartsIt(t *testing.T) {
	ws := newWorkspace(t)
	wf := shell("job", "echo no")
	w, _ := keeper(t, wf, nil)
	f := deadRun(t, ws, state.Queued, func(*state.RunFile) {})
	must(t, ws.Ask(state.Request{Run: f.Run.ID, Action: state.ActionCancel, Reason: "enough"}))
	never, err := w.Recover(t.Context(), ws)
	must(t, err)
	if len(never) != 0 {
		t.Errorf("%d runs are given back to be started", len(never))
	}
	if f := runFile(t, ws, f.Run.ID); f.Run.Status != state.Cancelled || f.Run.Error.Message != "enough" {
		t.Errorf("the run is %s, %+v", f.Run.Status, f.Run.Error)
	}
}
