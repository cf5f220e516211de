package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"marbles/state"
)

// errChildParked says that the run which a step started waits for somebody: then the step waits too.
var errChildParked = &stopped{status: state.Suspended, err: state.RunError{Name: "Error", Message: "its run is parked"}}

// child does a start step: it launches another workflow as a run of its own, and takes its result. The id of that run is
// in the journal before there is the run. One that parked is looked at again.
func (s *step) child(ctx context.Context, input []member) *stopped {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	if w := s.waited(state.SuspendChild); w != nil {
		s.rec.Child = w.Child()
		return s.childEnd(w.Child())
	}
	wf := s.r.w.workflow(s.r.ws, s.Start.Workflow)
	if wf == nil {
		return failed("Error", "cannot start %q: no such workflow is defined", s.Start.Workflow)
	}
	given := s.Start.Input
	if s.Start.Program != nil {
		values, err := s.program(ctx, s.Start.Program, input)
		if err == nil && len(values) != 1 {
			err = fmt.Errorf("its program gave %d values, not one object", len(values))
		}
		if err != nil {
			return failed("Error", "cannot make the input of %q: %v", s.Start.Workflow, err)
		}
		given = values[0]
	}
	s.rec.Child = state.NewRunID(time.Now())
	s.r.journal.step(&s.rec)
	run, err := s.r.w.Start(Launch{
		Workspace: s.r.ws, Workflow: wf, Input: given, Trigger: triggerStart, Kind: kindWorkflow,
		RunID: s.rec.Child, Parent: s.r.id, Echo: s.r.launch.Echo,
	})
	if errors.Is(err, ErrDraining) {
		return cancelled(stopReason)
	}
	if err != nil {
		return asStopped(err)
	}
	s.r.journal.line(s.label(), "started run "+run.id)
	select {
	case <-run.Done():
	case <-ctx.Done():
		run.Cancel("its parent run: " + context.Cause(ctx).Error())
		<-run.Done()
		return asStopped(context.Cause(ctx))
	}
	return s.took(run.result)
}

// took takes the result of the step's run.
func (s *step) took(res Result) *stopped {
	switch {
	case res.Status == state.Complete:
		s.rec.Result = res.Output
		return nil
	case res.Status == state.Suspended:
		return errChildParked
	case res.Status == state.Queued:
		return cancelled(stopReason)
	}
	how := "failed"
	if res.Status == state.Cancelled {
		how = "was cancelled"
	}
	if res.Error != nil {
		how += ": " + res.Error.Message
	}
	return failed("Error", "started run %s, which %s", res.RunID, how)
}

// childEnd is how a run that had parked is now.
func (s *step) childEnd(id string) *stopped {
	f, err := s.r.ws.Run(id)
	if errors.Is(err, fs.ErrNotExist) {
		return failed("Error", "started run %s, which is gone", id)
	}
	if err != nil {
		return asStopped(err)
	}
	if !f.Run.Status.Settled() {
		return errChildParked
	}
	return s.took(Result{RunID: id, Status: f.Run.Status, Output: f.Run.Output, Error: f.Run.Error})
}

// parkForChild is the report of a step whose run is parked.
func (s *step) parkForChild() event {
	if w := s.waited(state.SuspendChild); w != nil && w.Status == state.Pending {
		return event{parked: true}
	}
	return event{parked: true, waits: []state.Suspension{
		s.suspend(state.SuspendChild, "run "+s.rec.Child, struct {
			Run string `json:"run"`
		}{s.rec.Child}),
	}}
}

// workflow is a workflow as it is defined now; nil where it is not.
func (w *Worker) workflow(ws *state.Workspace, name string) *Workflow {
	if w.o.Workflow == nil {
		return nil
	}
	return w.o.Workflow(ws, name)
}
