package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"marbles/state"
)

// settledRecord is the key's record, with what a dead owner left settled.
func (t *Ticking) settledRecord() (rec *state.KeyRecord, err error) {
	if rec, err = t.readRecord(); err != nil {
		return nil, err
	}
	rec, t.orphan, err = t.w.settleKey(t.ctx, t.Workspace, t.Key, rec, t.NextDue)
	return rec, err
}

// parked is the key's last run where that is not over although its tick is: it is parked, or goes on after it was. The
// key's lock is free then. nil for none.
func (t *Ticking) parked(rec *state.KeyRecord) *state.RunFile {
	if rec == nil || rec.Run == "" || t.orphan != nil {
		return nil
	}
	f, err := t.Workspace.Run(rec.Run)
	if err != nil || f.Run.Status.Settled() || launched(f) {
		return nil
	}
	if f.Run.Status != state.Suspended && orphaned(f) {
		return nil
	}
	return f
}

// pass lets a tick come by a run of its key that is parked, by its overlap rule: it is not ok where the tick ends here.
func (t *Ticking) pass(f *state.RunFile, lock **state.Lock) (res TickResult, ok bool) {
	if t.Overlap != OverlapReplace && t.finishOlder(f) {
		return res, true
	}
	switch t.Overlap {
	case OverlapReplace:
		return t.replaceParked(f, lock)
	case OverlapQueue:
		return t.outside(f, lock)
	}
	return t.skipped(waitsFor(f), "", f.Run.ID, true), false
}

// finishOlder goes on to the end of an older run that units live on of and nobody owns, where this process is no service: there
// may be none that would.
func (t *Ticking) finishOlder(f *state.RunFile) (settled bool) {
	if t.w.o.Parks || f.Run.Status != state.Suspended || t.w.elses(f) || !waitsForUnit(f) {
		return false
	}
	run, err := t.w.carryOn(t.Workspace, f.Run.ID, goingOn{locked: true})
	if err != nil {
		t.log().Error("run whose unit lives on cannot be taken over", "run", f.Run.ID, "error", err)
		return false
	}
	select {
	case <-run.Done():
	case <-t.ctx.Done():
		run.Cancel(reasonOf(t.ctx))
		<-run.Done()
	}
	return run.Wait().Status.Settled()
}

// waitsFor says what a run waits for.
func waitsFor(f *state.RunFile) string {
	open := f.Open()
	if f.Run.Status != state.Suspended || len(open) == 0 {
		return fmt.Sprintf("run %s is %s", f.Run.ID, f.Run.Status)
	}
	return fmt.Sprintf("run %s waits for %s", f.Run.ID, open[0].Text())
}

// replaceParked has the older run cancelled by whoever has it, and waits for its end.
func (t *Ticking) replaceParked(f *state.RunFile, lock **state.Lock) (res TickResult, ok bool) {
	q := state.Request{Run: f.Run.ID, Action: state.ActionCancel, Reason: errReplaced.Error(), At: state.Stamp{Time: time.Now()}}
	if err := t.Workspace.Ask(q); err != nil {
		return t.early(err), false
	}
	if !t.w.o.Parks && !t.w.elses(f) {
		if _, err := t.w.ActOn(t.ctx, t.Workspace, q); err != nil {
			return t.early(err), false
		}
	}
	return t.outside(f, lock)
}

// outside waits without the key's lock until the older run has settled, and takes the lock again.
func (t *Ticking) outside(f *state.RunFile, lock **state.Lock) (res TickResult, ok bool) {
	if err := (*lock).Release(); err != nil {
		return t.early(err), false
	}
	*lock = nil
	look := time.NewTicker(pollRequests)
	defer look.Stop()
	for {
		now, err := t.Workspace.Run(f.Run.ID)
		if err != nil || now.Run.Status.Settled() || orphaned(now) {
			break
		}
		select {
		case <-look.C:
			continue
		case <-t.ctx.Done():
			return t.early(context.Cause(t.ctx)), false
		case <-t.w.stop:
			return t.early(ErrDraining), false
		}
	}
	again, err := t.lock()
	if held := (*state.HeldError)(nil); errors.As(err, &held) {
		// Whoever settles the older run has the lock for a moment.
		again, err = t.Workspace.LockWait("schedule:"+t.Key, takingPoll*20)
		if errors.As(err, &held) {
			return t.heldBy(held), false
		}
	}
	if err != nil {
		return t.early(err), false
	}
	*lock = again
	return res, true
}

// finishParked ends a tick whose run is parked. Its history has no end yet: that comes with the run's (see lateHistory).
// mu is held.
func (t *Ticking) finishParked(now time.Time) TickResult {
	f := t.result.File
	reason := ""
	if f != nil {
		reason = waitsFor(f)
	}
	t.ledger(state.SlotEntry{At: state.Stamp{Time: now}, Outcome: state.SlotParked, Run: t.result.RunID, Reason: reason})
	t.w.at("ledger")
	return TickResult{Outcome: state.SlotParked, Reason: reason, Result: t.result, Finished: now}
}
