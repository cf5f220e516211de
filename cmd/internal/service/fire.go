package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// fire is called by the loop and must not block: every decision gets a goroutine of its own, so that no key
// waits for another. drain waits for them.
func (s *service) fire(due scheduler.Due) {
	p := s.plan.Load()
	a, ok := p.armed[due.ID]
	if !ok {
		s.ticks.Go(func() { s.gone(p, due) })
		return
	}
	s.ticks.Go(func() { s.handle(a, due) })
}

// goneReason is why a slot was skipped that came due, and whose key was taken out before it was started.
const goneReason = "its key was paused, disabled or taken out of the definitions just then"

// gone records a slot that came due while its key was taken out. One whose key was handed over just then is for the clock
// that it was handed to.
func (s *service) gone(p *plan, due scheduler.Due) {
	if p.handed[due.ID] != nil {
		return
	}
	id, key, _ := strings.Cut(due.ID, "/")
	for _, t := range p.targets {
		if t.Workspace.ID() == id && due.Fire {
			s.skipGone(t.Workspace, key, due)
		}
	}
}

// skipGone does so where the slot has no end yet: another process may have run it.
func (s *service) skipGone(ws *state.Workspace, key string, due scheduler.Due) {
	if ends, err := ws.SlotEnds(key, due.Slot.At); err != nil || len(ends) > 0 {
		return
	}
	if rec, err := ws.Key(key); err != nil || rec != nil && rec.Slot.Equal(due.Slot.At.Truncate(time.Millisecond)) {
		return
	}
	e := state.SlotEntry{
		Slot: state.Stamp{Time: due.Slot.At}, At: state.Stamp{Time: time.Now()}, Outcome: state.SlotSkipped, Reason: goneReason,
	}
	if err := ws.KeepSlot(key, e, true); err != nil {
		s.Log.Error("cannot record a skipped slot", "key", key, "error", err)
	}
}

// handle records what was missed and runs the tick.
func (s *service) handle(a armed, due scheduler.Due) {
	key, ws := a.key(), a.target.Workspace
	log := s.Log.With("key", key, "workspace", ws.ID())
	s.account(a, due)
	if !due.Fire {
		return
	}
	if due.Late {
		log.Info("catching up", "slot", due.Slot.At, "late", time.Since(due.Slot.At).Round(time.Second).String())
	}
	defer s.live.clock(due.ID)()
	gone := false
	res, from := s.tick(a, Firing{Due: &due, Live: func(key string) bool {
		gone = !s.plan.Load().live(ws, key)
		return !gone
	}})
	if gone && res.Outcome == "" && res.Err == nil {
		s.skipGone(ws, key, due)
	}
	if res.Outcome != state.SlotParked { // else its interval counts from the end of the run, see late
		s.loop.Finished(due.ID, from)
	}
	report(log, res)
}

// tick does a tick and says from when the key's interval counts.
func (s *service) tick(a armed, f Firing) (runner.TickResult, time.Time) {
	if a.schedule != nil {
		res := s.desk.Schedule(context.Background(), *a.target, a.schedule, f)
		return res, finished(res, a.target.Workspace, a.schedule.Key)
	}
	f.Looks = s.looks
	return s.desk.monitor(context.Background(), *a.target, a.monitor, f)
}

// finished is when an interval counts from: the end of the tick, or, where another process ran the key meanwhile, the
// end of that.
func finished(res runner.TickResult, ws *state.Workspace, key string) time.Time {
	if res.Outcome == "" && res.Err == nil {
		if rec, err := ws.Key(key); err == nil && rec != nil && !rec.LastFinish.IsZero() {
			return rec.LastFinish.Time
		}
	}
	if res.Finished.IsZero() {
		return time.Now()
	}
	return res.Finished
}

// away is why nobody started slots in time: those before this service began were missed because none ran, those since
// because the machine slept, or its clock went forward.
func (s *service) away(st scheduler.Stretch) string {
	const off, asleep = "off: no service ran then", "asleep, or the clock was set forward"
	switch {
	case s.clock != "":
		return s.clock
	case st.Last.Before(s.started):
		return off
	case !st.First.Before(s.started):
		return asleep
	}
	return off + ", and later " + asleep
}

// account writes the slots that ended without a run of their own into the ledger.
func (s *service) account(a armed, due scheduler.Due) {
	write := func(st scheduler.Stretch, outcome state.Outcome, reason string) {
		if st.Count == 0 {
			return
		}
		e := state.SlotEntry{
			Slot:    state.Stamp{Time: st.Last},
			At:      state.Stamp{Time: time.Now()},
			Outcome: outcome,
			Reason:  reason,
		}
		// An interval that never ran is missed anew at each start: once is enough.
		if last, err := a.target.Workspace.Slots(a.key(), 1); err == nil && len(last) > 0 &&
			last[0].Outcome == outcome && last[0].Slot.Equal(st.Last.Truncate(time.Millisecond)) {
			return
		}
		if st.Count > 1 {
			e.From, e.Count, e.More = state.Stamp{Time: st.First}, st.Count, st.More
		}
		if err := a.target.Workspace.KeepSlot(a.key(), e, true); err != nil {
			s.Log.Error("cannot record missed slots", "key", a.key(), "error", err)
		}
		if outcome == state.SlotMissed && a.schedule != nil && s.hooks != nil {
			s.hooks.Missed(a.target.Workspace, a.schedule, e)
		}
	}
	write(due.Missed, state.SlotMissed, s.away(due.Missed)+"; catch_up does not allow it")
	write(due.Older, state.SlotMerged, "a later slot stands for it")
}

func report(log *slog.Logger, res runner.TickResult) {
	switch {
	case errors.Is(res.Err, runner.ErrDraining):
		log.Info("left for the next service", "run", res.Result.RunID)
	case res.Outcome == state.SlotSkipped:
		log.Warn("tick was skipped", "holder", res.Holder, "reason", res.Reason)
	case res.Outcome == state.SlotParked, res.Result.Status == state.Suspended:
		log.Info("run is parked", "run", res.Result.RunID, "reason", res.Reason)
	case res.Result.Status == state.Cancelled:
		log.Warn("run was cancelled", "run", res.Result.RunID, "error", res.Err)
	case res.Err != nil && res.Result.RunID != "" && res.Result.Status != state.Complete:
		log.Error("run failed", "run", res.Result.RunID, "error", res.Err)
	case res.Err != nil:
		if res.Result.RunID != "" { // what it ran was well
			log = log.With("run", res.Result.RunID)
		}
		log.Error("tick failed", "error", res.Err)
	case res.Result.RunID != "":
		log.Info("run completed", "run", res.Result.RunID, "took", res.Result.Finished.Sub(res.Result.Started).Round(time.Millisecond).String())
	default:
		log.Debug("tick saw nothing to do")
	}
}

// begun is a run of a dead owner that never began, and whose it is.
type begun struct {
	target *Target
	file   *state.RunFile
}

// recover settles what dead processes left in each workspace. What cannot be read costs only itself and is named; a
// stop ends it early.
func (s *service) recover(ctx context.Context, targets []*Target) []begun {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-s.Stop: // comes before Kill
			cancel()
		case <-ctx.Done():
		}
	})
	var out []begun
	for _, t := range targets {
		log := s.Log.With("workspace", t.Workspace.ID())
		if swept, err := t.Workspace.Sweep(); err != nil {
			log.Warn("cannot sweep left-over temporary files", "error", err)
		} else if len(swept) > 0 {
			log.Info("left-over temporary files were swept", "files", len(swept))
		}
		if err := t.Workspace.RebuildIndex(); err != nil {
			log.Warn("cannot rebuild the run index, lists will be slower", "error", err)
		}
		files, err := s.worker.Recover(ctx, t.Workspace)
		if ctx.Err() != nil {
			return nil
		}
		for _, err := range joined(err) {
			log.Error("something a dead process left cannot be settled", "error", err)
		}
		for _, f := range files {
			if f.Run.Extensions.Kind == "handler" {
				if err := s.forget(t.Workspace, f); err != nil {
					log.Error("cannot settle a run that never began", "run", f.Run.ID, "error", err)
				}
				continue
			}
			out = append(out, begun{t, f})
		}
	}
	return out
}

// forget settles a handler's run that never began: what it was to see is not committed, so a poll finds it again. The
// slot it stood for is due again with that.
func (s *service) forget(ws *state.Workspace, f *state.RunFile) error {
	key := f.Run.Extensions.TriggerID
	lock, err := ws.TryLock("schedule:" + key)
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := s.worker.Abandon(ws, f, "its service stopped before it began; the next poll looks again"); err != nil {
		return err
	}
	rec, err := ws.Key(key)
	if err != nil || rec == nil || rec.Run != f.Run.ID {
		return err
	}
	rec.Slot, rec.SlotLocal = state.Stamp{}, ""
	return ws.WriteKey(key, rec)
}

// joined are the errors that errors.Join put together, on every level. Other errors that wrap several stay whole.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(several.Unwrap()...).Error() {
		return []error{err}
	}
	var all []error
	for _, err := range several.Unwrap() {
		all = append(all, joined(err)...)
	}
	return all
}

// names reports whether the key's record names a run.
func (a armed) names(run string) bool {
	rec, err := a.target.Workspace.Key(a.key())
	return err == nil && rec != nil && rec.Run == run
}

// claimed lets keys count from the runs that are about to be resumed, as if those were started: the loop must neither see
// their slots as passed over, nor be there before them.
func claimed(triggers []scheduler.Trigger, runs []begun, now time.Time) {
	slots := map[string]time.Time{}
	for _, b := range runs {
		id := triggerID(b.target.Workspace, b.file.Run.Extensions.TriggerID)
		slots[id] = later(slots[id], b.file.Run.Extensions.Slot.Time)
	}
	for i := range triggers {
		tr := &triggers[i]
		slot := slots[tr.ID]
		switch {
		case slot.IsZero() || !tr.Allows(slot, now):
		case tr.Cadence.Interval() > 0:
			tr.Base = later(tr.Base, now) // its end will say when it is due again
		default:
			tr.Base = later(tr.Base, slot)
		}
	}
}

// resume starts, once, the runs that never began, before the loop is armed, so that a slot they stand for is taken
// when the loop looks at it.
func (s *service) resume(runs []begun) {
	for _, b := range runs {
		abandon := func(reason string) {
			if f, err := b.target.Workspace.Run(b.file.Run.ID); err == nil && f.Run.Status.Settled() {
				return // somebody cancelled it meanwhile
			}
			if err := s.worker.Abandon(b.target.Workspace, b.file, reason); err != nil {
				s.Log.Error("cannot settle a run that never began", "run", b.file.Run.ID, "error", err)
			}
		}
		ext := b.file.Run.Extensions
		switch {
		case ext.Kind == "handler":
			continue // see recover
		case ext.Trigger == "schedule" || ext.Trigger == "manual" && ext.TriggerID != "":
			sch := b.target.Catalog.Schedule(ext.TriggerID)
			if sch == nil || !sch.Enabled {
				abandon("its schedule is no longer there")
				continue
			}
			tr := scheduler.Trigger{ID: triggerID(b.target.Workspace, sch.Key), Jitter: sch.Jitter, CatchUp: sch.CatchUp}
			if slot := ext.Slot.Time; !slot.IsZero() && !tr.Allows(slot, time.Now()) {
				abandon("its slot is older than catch_up allows")
				continue
			}
			s.sayResumed(b)
			a := armed{target: b.target, schedule: sch}
			file := b.file
			s.ticks.Go(func() {
				res, from := s.tick(a, Firing{Queued: file})
				switch {
				case res.Outcome == state.SlotSkipped && a.names(file.Run.ID): // whoever has the key settles it
				case res.Outcome == state.SlotSkipped:
					abandon("its slot was taken meanwhile by " + res.Holder)
				case res.Outcome == "" && res.Err == nil:
					abandon("its slot was started meanwhile")
				}
				if res.Outcome != state.SlotParked {
					s.loop.Finished(triggerID(a.target.Workspace, sch.Key), from)
				}
				report(s.Log.With("key", sch.Key, "workspace", a.target.Workspace.ID()), res)
			})
		default:
			w := b.target.Catalog.Workflow(b.file.Run.Step)
			if w == nil {
				abandon("its workflow is no longer defined")
				continue
			}
			s.sayResumed(b)
			if _, err := s.worker.Start(runner.Launch{
				Workspace: b.target.Workspace, Workflow: &w.Workflow, Queued: b.file,
				Trigger: ext.Trigger, Kind: ext.Kind, Key: ext.TriggerID, Slot: ext.Slot.Time,
			}); err != nil {
				s.Log.Error("cannot start a queued run", "run", b.file.Run.ID, "error", err)
			}
		}
	}
}

// sayResumed logs that a run on disk is about to start: one that a command has handed over is nothing special.
func (s *service) sayResumed(b begun) {
	log := s.Log.With("run", b.file.Run.ID, "workflow", b.file.Run.Step, "workspace", b.target.Workspace.ID())
	if key := b.file.Run.Extensions.TriggerID; key != "" {
		log = log.With("key", key)
	}
	if b.file.Owner() == state.Self() {
		log.Info("starting a run that was handed over")
		return
	}
	log.Warn("starting a run that was queued and never began")
}

// cleanups undo a start, last first.
type cleanups []struct {
	name string
	undo func() error
}

func (c *cleanups) push(name string, undo func() error) {
	*c = append(*c, struct {
		name string
		undo func() error
	}{name, undo})
}

func (c *cleanups) run() error {
	var errs []error
	for len(*c) > 0 {
		last := (*c)[len(*c)-1]
		*c = (*c)[:len(*c)-1]
		if err := last.undo(); err != nil {
			errs = append(errs, fmt.Errorf("cannot stop %s: %w", last.name, err))
		}
	}
	return errors.Join(errs...)
}
