package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"marbles/state"
)

var (
	errReplaced = errors.New("replaced by a newer slot")
	errStopping = errors.New(stopReason)
)

// keyID names a key of a workspace.
type keyID struct{ dir, key string }

// seat is a key's turn within this process: one tick is at work, at most one waits. Worker.mu guards it.
type seat struct {
	at   *Ticking
	next *Ticking
}

// sit takes the key's turn, by the tick's overlap rule. Without it the tick has ended as res says.
func (t *Ticking) sit() (res TickResult, ok bool) {
	w := t.w
	id := keyID{t.Workspace.Dir(), t.Key}
	w.mu.Lock()
	s := w.seats[id]
	if s == nil {
		w.seats[id] = &seat{at: t}
		w.mu.Unlock()
		return res, true
	}
	older := s.at
	switch {
	case t.sameSlot(s.at) || s.next != nil && t.sameSlot(s.next):
		// The slot is being run already, or will be: to wait for that is in vain, and to replace it would lose it.
		w.mu.Unlock()
		return t.skipped("its slot is being run already", fmt.Sprintf("pid %d", w.self.PID), older.runID(), false), false
	case t.Overlap == OverlapQueue && s.next == nil:
	case t.Overlap == OverlapReplace:
		if s.next != nil {
			s.next.turn <- false
		}
		older.cancel(errReplaced)
	default:
		w.mu.Unlock()
		return t.skipped("its last run is still at work", fmt.Sprintf("pid %d", w.self.PID), older.runID(), true), false
	}
	s.next = t
	w.mu.Unlock()
	mine := false
	select {
	case mine = <-t.turn:
	case <-t.ctx.Done():
		mine = t.getUp(s)
		if !mine && !errors.Is(context.Cause(t.ctx), errReplaced) {
			return TickResult{Err: context.Cause(t.ctx), Finished: time.Now()}, false
		}
	case <-w.stop:
		if mine = t.getUp(s); !mine {
			return TickResult{Err: ErrDraining, Finished: time.Now()}, false
		}
	}
	if !mine {
		return t.skipped(errReplaced.Error(), fmt.Sprintf("pid %d", w.self.PID), older.runID(), true), false
	}
	return res, true
}

// getUp leaves the line, unless the turn came at this very moment.
func (t *Ticking) getUp(s *seat) (mine bool) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if s.next == t {
		s.next = nil
		return false
	}
	return <-t.turn
}

// rise gives the turn to the tick that waits.
func (t *Ticking) rise() {
	w := t.w
	id := keyID{t.Workspace.Dir(), t.Key}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seats[id]
	if s.next == nil {
		delete(w.seats, id)
		return
	}
	s.at, s.next = s.next, nil
	s.at.turn <- true
}

// sameSlot reports whether another tick is of the very same slot.
func (t *Ticking) sameSlot(other *Ticking) bool {
	return !t.Slot.IsZero() && !t.Forced && !other.Forced && other.Slot.Equal(t.Slot)
}

// replaced ends a tick that a newer slot replaced before it had a run: as skipped, unless its slot is on record already.
func (t *Ticking) replaced() (res TickResult, ok bool) {
	if !errors.Is(context.Cause(t.ctx), errReplaced) {
		return res, false
	}
	rec, err := t.Workspace.Key(t.Key)
	taken := err == nil && rec != nil && !t.Slot.IsZero() && !rec.Slot.Before(t.Slot)
	return t.skipped(errReplaced.Error(), fmt.Sprintf("pid %d", t.w.self.PID), "", !taken), true
}

// skipped ends the tick as skipped, with a line in the ledger where its slot has ended by that.
func (t *Ticking) skipped(reason, holder, run string, ended bool) TickResult {
	now := time.Now()
	if ended {
		t.ledger(state.SlotEntry{Outcome: state.SlotSkipped, At: state.Stamp{Time: now}, Run: run, Reason: reason, Holder: holder})
	}
	return TickResult{Outcome: state.SlotSkipped, Holder: holder, Reason: reason, Result: Result{RunID: run}, Finished: now}
}
