package service

import (
	"errors"
	"io/fs"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/runner"
	"marbles/state"
)

// adopt takes the parked runs of dead processes over, while the service is at work: there can be very many. drain waits
// for it.
func (s *service) adopt(targets []*Target) {
	for _, t := range targets {
		s.ticks.Go(func() {
			if err := s.worker.Adopt(s.looks, t.Workspace); err != nil {
				s.Log.Error("parked runs cannot be read", "workspace", t.Workspace.ID(), "error", err)
			}
		})
	}
}

// adoptUnits takes the runs over whose units have been at work without a service.
func (s *service) adoptUnits(targets []*Target) {
	for _, t := range targets {
		if err := s.worker.AdoptUnits(s.looks, t.Workspace); err != nil {
			s.Log.Error("runs with units cannot be read", "workspace", t.Workspace.ID(), "error", err)
		}
	}
}

// nextDue is when a key is due after a finish; zero for never.
func (s *service) nextDue(ws *state.Workspace, key string, finish time.Time) time.Time {
	a, ok := s.plan.Load().armed[triggerID(ws, key)]
	if !ok {
		return time.Time{}
	}
	cadence := a.cadence()
	next, ok := cadence.Next(finish, s.zone.Location())
	if !ok {
		return time.Time{}
	}
	return next.At
}

// late lets an interval count from the end of a run that had parked.
func (s *service) late(ws *state.Workspace, key string, f *state.RunFile) {
	s.loop.Finished(triggerID(ws, key), time.UnixMilli(int64(f.Run.Timestamps.Ended())))
}

// asked starts runs that other processes ask for: queued ones that were handed over, and those that stand for an
// interrupted one. What it reports as not done yet is asked again.
func (s *service) asked(ws *state.Workspace, q state.Request) (done bool) {
	p := s.plan.Load()
	t := p.target(ws)
	if t == nil || p.armed == nil {
		return false
	}
	log := s.Log.With("run", q.Run, "workspace", ws.ID())
	if q.Action == state.ActionStart {
		f, err := ws.Run(q.Run)
		if err == nil {
			s.resume([]begun{{t, f}})
		}
		return err == nil || errors.Is(err, fs.ErrNotExist)
	}
	old, err := ws.Run(q.Of)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true
	case err != nil:
		log.Error("interrupted run cannot be read", "interrupted", q.Of, "error", err)
		return false
	case !old.Run.Status.Settled():
		return false // whoever settles it has not got that far
	case old.Run.Extensions.Restarted != q.Run:
		return true // another one stands for it
	}
	if _, err := ws.Run(q.Run); !errors.Is(err, fs.ErrNotExist) {
		return true // it is there already
	}
	log.Warn("starting a run in place of an interrupted one", "interrupted", q.Of)
	return s.restart(t, q, old)
}

// restartAgain is when a restart is tried again that its key had no turn for.
const restartAgain = 10 * time.Second

// restart launches a run in place of an interrupted one; the request is done once its file is there.
func (s *service) restart(t *Target, q state.Request, old *state.RunFile) (done bool) {
	log := s.Log.With("run", q.Run, "workspace", t.Workspace.ID())
	ext := old.Run.Extensions
	if sch := t.Catalog.Schedule(ext.TriggerID); sch != nil && sch.Workflow == old.Run.Step && ext.Trigger != "launch" {
		s.restarting.Lock()
		defer s.restarting.Unlock()
		if s.restarts[q.Run] {
			return false // on its way
		}
		if s.restarts == nil {
			s.restarts = map[string]bool{}
		}
		s.restarts[q.Run] = true
		a := armed{target: t, schedule: sch}
		s.ticks.Go(func() {
			res, from := s.tick(a, Firing{RunID: q.Run, RestartOf: q.Of, Input: objectOf(old.Run.Input)})
			forget := func() {
				s.restarting.Lock()
				defer s.restarting.Unlock()
				delete(s.restarts, q.Run)
			}
			if res.Outcome == state.SlotSkipped {
				time.AfterFunc(restartAgain, forget) // harmless once the service has stopped
			} else {
				forget()
			}
			if res.Outcome != state.SlotParked && res.Outcome != state.SlotSkipped {
				s.loop.Finished(triggerID(t.Workspace, sch.Key), from)
			}
			report(log.With("key", sch.Key), res)
		})
		return false
	}
	w := t.Catalog.Workflow(old.Run.Step)
	if w == nil {
		log.Error("interrupted run cannot be restarted: its workflow is no longer defined", "interrupted", q.Of)
		return true
	}
	_, err := s.worker.Start(runner.Launch{
		Workspace: t.Workspace, Workflow: &w.Workflow, Input: objectOf(old.Run.Input), Trigger: "restart",
		Kind: ext.Kind, Key: ext.TriggerID, RunID: q.Run, RestartOf: q.Of,
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		log.Error("interrupted run cannot be restarted", "interrupted", q.Of, "error", err)
		return !errors.Is(err, runner.ErrDraining)
	}
	return true
}

// objectOf is an input as a launch takes it.
func objectOf(input jsontext.Value) jsontext.Value {
	if input.Kind() != '{' {
		return nil
	}
	return input
}
