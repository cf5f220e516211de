package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"marbles/state"
)

// Retry does a settled run again that failed or was cancelled: with whole as a new run with the old one's input, else
// under its own id, from the steps that did not complete, as the workflow is defined now.
//
// The lists forget that it had settled before its file says so. A crash before the file leaves the run as it was, one
// after it a queued run that never began, or one that is interrupted like any other.
func (w *Worker) Retry(ctx context.Context, ws *state.Workspace, f *state.RunFile, l Launch, whole bool) (*Run, error) {
	id := f.Run.ID
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("cannot retry run %s: %w", id, err) }
	l.Workspace = ws
	if whole {
		l.Input, l.RetryOf = f.Run.Input, id
		return w.Start(l)
	}
	edit, err := ws.LockEdit(ctx, id)
	if err != nil {
		return fail(err)
	}
	defer edit.Release()
	if f, err = ws.Run(id); err != nil {
		return fail(err)
	}
	switch status := f.Run.Status; {
	case status == state.Complete:
		return fail(state.Hint(errors.New("it is complete"), "marbles retry --whole "+id))
	case !status.Settled():
		return fail(fmt.Errorf("it is %s", status))
	}
	input, err := launchInput(nil, f.Run.Input)
	if err != nil {
		return fail(err)
	}
	again(f)
	ext := f.Run.Extensions
	l.RunID, l.Input, l.Kind, l.Key, l.Slot = id, f.Run.Input, ext.Kind, ext.TriggerID, ext.Slot.Time
	l.Parent, l.RestartOf, l.RetryOf = parentOf(f), ext.RestartOf, ext.RetryOf
	r := w.newRun(l, input)
	r.file, r.written, r.claimed, r.late = f, true, true, true
	err = r.accept(func(placed bool) error {
		w.at("reopening")
		if !placed {
			return ws.ReopenRun(f)
		}
		return r.begin(ws.ReopenRun)
	})
	if err != nil {
		return fail(err)
	}
	return r, nil
}

// again makes a settled run one that has still to do what did not complete.
func again(f *state.RunFile) {
	var kept []state.StepRecord
	for _, s := range f.Steps {
		if s.Status == state.Complete || s.Status == state.Skipped {
			kept = append(kept, s)
		}
	}
	f.Steps = kept
	closeOpen(f)
	run := &f.Run
	run.Status, run.Error, run.Output = state.Queued, nil, nil
	run.Timestamps.CompletedAt, run.Timestamps.FailedAt, run.Timestamps.CancelledAt = 0, 0, 0
	run.Timestamps.StartedAt = 0
	if f.Marbles == nil {
		f.Marbles = &state.RunMarbles{}
	}
	f.Marbles.Attempt++
	f.Marbles.Literals, f.Marbles.Waits = nil, nil
}

// restart files the request for the run that is to stand for an interrupted one, where its workflow wants that, and names
// it in the file, which is written after this. The service starts it once that file says so: whatever dies in between,
// the next one finds the request and uses its id again.
func (w *Worker) restart(ws *state.Workspace, f *state.RunFile) error {
	if w.o.Workflow == nil || f.Run.Extensions.Kind != kindWorkflow || parentOf(f) != "" || f.Run.Extensions.Restarted != "" {
		return nil
	}
	wf := w.o.Workflow(ws, f.Run.Step)
	if wf == nil || wf.OnInterrupt != InterruptRestart {
		return nil
	}
	list, err := ws.Requests()
	if err != nil {
		return err
	}
	for _, q := range list {
		if q.Action == state.ActionRestart && q.Of == f.Run.ID {
			f.Run.Extensions.Restarted = q.Run
			return nil
		}
	}
	now := time.Now()
	id := state.NewRunID(now)
	err = ws.Ask(state.Request{Run: id, Action: state.ActionRestart, Of: f.Run.ID, At: state.Stamp{Time: now}})
	if err != nil {
		return err
	}
	w.at("restart filed")
	f.Run.Extensions.Restarted = id
	return nil
}
