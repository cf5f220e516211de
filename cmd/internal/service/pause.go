package service

import (
	"errors"
	"time"

	"marbles/scheduler"
	"marbles/state"
)

// pauses keeps an eye on what is paused: a key that is paused is taken out of the loop, and armed again when that ends.
type pauses struct {
	s      *service
	stamps map[string][2]state.FileStamp // by workspace directory, as of the plan in force
}

// pauseInterval is how often is looked whether something was paused, or goes on.
const pauseInterval = time.Second

func newPauses(s *service) *pauses {
	return &pauses{s: s, stamps: map[string][2]state.FileStamp{}}
}

// take notes what the pauses of the targets are like before a plan is made of them, so that the next look sees every
// change since.
func (p *pauses) take(targets []*Target) {
	for _, t := range targets {
		if stamp, err := t.Workspace.PauseStamp(); err == nil {
			p.stamps[t.Workspace.Dir()] = stamp
		}
	}
}

// look looks whether pauses have changed, with two stats per workspace, and arms the loop anew where they have. It is
// called from the service's own loop.
func (p *pauses) look() {
	targets := p.s.plan.Load().targets
	changed := false
	for _, t := range targets {
		stamp, err := t.Workspace.PauseStamp()
		changed = changed || err == nil && stamp != p.stamps[t.Workspace.Dir()]
	}
	if !changed {
		return
	}
	p.take(targets)
	old := p.s.plan.Load()
	if next := p.s.rearm(targets); next != nil {
		p.s.Log.Info("pauses have changed", "triggers", next.triggers, "before", old.triggers)
	}
}

// rearm arms the loop anew from what is on disk now; nil where that cannot be done. It is called from the service's own loop.
func (s *service) rearm(targets []*Target) *plan {
	next, triggers, err := makePlan(targets, time.Now(), s.zone.Location(), s.Log)
	if err != nil {
		s.Log.Error("keys cannot be armed anew", "error", err)
		return nil
	}
	s.handed.say(s.plan.Load(), next)
	s.plan.Store(next)
	s.loop.Set(triggers)
	s.live.watch(next)
	return next
}

// readPauses reads what is paused in a workspace. What cannot be read pauses nothing, and says so: a file that nobody can
// read must not keep a backup from running.
func readPauses(h *histories) *state.Pauses {
	p, err := h.ws.Pauses()
	if err == nil {
		return p
	}
	h.log.Error("what is paused cannot be read: nothing is", "workspace", h.ws.ID(), "error", err)
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		if to, err := damaged.SetAside(); err == nil {
			h.log.Info("damaged file was set aside", "file", to)
		}
	}
	return &state.Pauses{}
}

// resumed accounts for the slots that a key's latest pause kept from running, once, and lets the key go on after them.
// What was missed before the pause began is left to the rules of catching up, unless the pause's own slots are newer.
func (h *histories) resumed(key string, tr *scheduler.Trigger) {
	last := h.pauses.Ended(key)
	if last == nil || tr.Cadence.Interval() > 0 || !last.Until.After(tr.Base) || last.Until.After(h.now) {
		return
	}
	stretch := func(after, until time.Time) (st scheduler.Stretch) {
		first, newest, count, more, ok := tr.Cadence.Latest(after, until, h.local)
		if ok {
			st = scheduler.Stretch{First: first.At, Last: newest.At, Count: count, More: more}
		}
		return st
	}
	begin := last.Since.Add(-1)
	before := stretch(tr.Base, begin)
	within := stretch(later(tr.Base, begin), last.Until.Add(-1))
	if within.Count == 0 {
		return
	}
	if err := appendMissed(h.ws, key, before, "asleep, off or clock set forward, and paused since"); err != nil {
		h.log.Error("cannot record missed slots", "key", key, "error", err)
	}
	if err := appendMissed(h.ws, key, within, pausedReason(last)); err != nil {
		h.log.Error("cannot record missed slots", "key", key, "error", err)
		return // the slots are still open
	}
	tr.Base = last.Until.Time
}

// pausedReason is why a slot within a pause was missed.
func pausedReason(p *state.Pause) string {
	if p.Reason == "" {
		return "paused"
	}
	return "paused: " + p.Reason
}

func appendMissed(ws *state.Workspace, key string, st scheduler.Stretch, reason string) error {
	if st.Count == 0 {
		return nil
	}
	e := state.SlotEntry{Slot: state.Stamp{Time: st.Last}, At: state.Stamp{Time: time.Now()}, Outcome: state.SlotMissed, Reason: reason}
	if st.Count > 1 {
		e.From, e.Count, e.More = state.Stamp{Time: st.First}, st.Count, st.More
	}
	return ws.AppendSlot(key, e, true)
}
