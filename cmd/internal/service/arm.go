package service

import (
	"errors"
	"log/slog"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/scheduler"
	"marbles/state"
)

// armed is one key as the loop knows it.
type armed struct {
	target   *Target
	schedule *catalog.Schedule // or
	monitor  *catalog.Monitor
}

// plan is what is in force: every trigger, and whose it is. It is immutable.
type plan struct {
	targets  []*Target
	armed    map[string]armed // by trigger id
	triggers int
}

// live reports whether a key of a workspace is still in force.
func (p *plan) live(ws *state.Workspace, key string) bool {
	_, ok := p.armed[triggerID(ws, key)]
	return ok
}

func (p *plan) target(ws *state.Workspace) *Target {
	for _, t := range p.targets {
		if t.Workspace.ID() == ws.ID() {
			return t
		}
	}
	return nil
}

// A trigger's id is unique over all workspaces. Keys hold no "/".
func triggerID(ws *state.Workspace, key string) string { return ws.ID() + "/" + key }

// makePlan arms the enabled keys of every target from their histories. A key seen for the first time, or with another
// cadence, is written down with the present instant, one file per workspace.
//
// A damaged history costs only itself: its key counts from the ledger, and its next tick sets the file aside. A key whose
// history a later marbles wrote is not armed.
func makePlan(targets []*Target, now time.Time, local *time.Location, log *slog.Logger) (*plan, []scheduler.Trigger, error) {
	n := 0
	for _, t := range targets {
		n += len(t.Catalog.Schedules) + len(t.Catalog.Monitors)
	}
	p := &plan{targets: targets, armed: make(map[string]armed, n)}
	triggers := make([]scheduler.Trigger, 0, n)
	for _, t := range targets {
		h, err := readHistories(t, now, local, log)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range t.Catalog.Schedules {
			if !s.Enabled {
				continue
			}
			id := triggerID(t.Workspace, s.Key)
			tr, ok := h.trigger(id, s.Key, s.Cadence)
			if !ok {
				continue
			}
			tr.Jitter, tr.CatchUp = s.Jitter, s.CatchUp
			p.armed[id] = armed{target: t, schedule: s}
			triggers = append(triggers, tr)
		}
		for _, m := range t.Catalog.Monitors {
			if !m.Enabled {
				continue
			}
			id := triggerID(t.Workspace, m.Key)
			tr, ok := h.trigger(id, m.Key, m.Cadence)
			if !ok {
				continue
			}
			tr.Jitter = m.Jitter
			p.armed[id] = armed{target: t, monitor: m}
			triggers = append(triggers, tr)
		}
	}
	p.triggers = len(triggers)
	return p, triggers, nil
}

// histories are what the disk knows of a workspace's keys.
type histories struct {
	ws    *state.Workspace
	now   time.Time
	local *time.Location
	log   *slog.Logger
	known map[string]bool // keys with a record
	since map[string]state.Since
}

func readHistories(t *Target, now time.Time, local *time.Location, log *slog.Logger) (*histories, error) {
	h := &histories{ws: t.Workspace, now: now, local: local, log: log, known: map[string]bool{}}
	keys, err := t.Workspace.Keys()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		h.known[k] = true
	}
	h.since, err = t.Workspace.Since()
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		to, aside := damaged.SetAside()
		if aside != nil {
			return nil, aside
		}
		log.Warn("record of first sights is damaged: keys without a history count from now", "error", err, "set_aside", to)
	} else if err != nil {
		return nil, err
	}
	next := make(map[string]state.Since, len(t.Catalog.Schedules)+len(t.Catalog.Monitors))
	changed := false
	see := func(key string, c scheduler.Cadence) {
		s := state.Since{Cadence: c.String(), At: state.Stamp{Time: now}}
		if old, ok := h.since[key]; ok && old.Cadence == s.Cadence {
			s = old
		} else {
			changed = true
		}
		next[key] = s
	}
	for _, s := range t.Catalog.Schedules {
		see(s.Key, s.Cadence)
	}
	for _, m := range t.Catalog.Monitors {
		see(m.Key, m.Cadence)
	}
	if changed || len(next) != len(h.since) {
		if err := t.Workspace.WriteSince(next); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// trigger arms one key. For slots the base is the latest of: the slot that was started last, the newest slot the ledger
// has an end for, and the first sight of this cadence. A history without a slot (the first format, or a key only
// ever rolled by hand) counts from its last finish, and a key that has such a history but was never seen by a
// service has no first sight of its own.
func (h *histories) trigger(id, key string, c scheduler.Cadence) (tr scheduler.Trigger, ok bool) {
	tr = scheduler.Trigger{ID: id, Cadence: c}
	since, seen := h.since[key]
	if !seen || since.Cadence != c.String() {
		since.At = state.Stamp{Time: h.now}
	}
	tr.Base = since.At.Time
	if !h.known[key] {
		return tr, true
	}
	rec, err := h.ws.Key(key)
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		h.log.Warn("history is damaged, counting from the slot ledger", "key", key, "error", err)
		rec = &state.KeyRecord{}
	} else if err != nil {
		h.log.Error("history cannot be read, the key will not run", "key", key, "error", err)
		return tr, false
	}
	if rec == nil {
		return tr, true
	}
	if c.Interval() > 0 {
		if !rec.LastFinish.IsZero() {
			tr.Base = rec.LastFinish.Time
		}
		return tr, true
	}
	last := rec.Slot.Time
	if last.IsZero() {
		last = rec.LastFinish.Time
	}
	if !seen && !last.IsZero() {
		tr.Base = last
	}
	tr.Base = later(tr.Base, last)
	tr.Civil, tr.CivilAt = rec.SlotLocal, rec.Slot.Time
	// Only an overdue key can have ends in the ledger that its record does not know.
	if s, ok := c.Next(tr.Base, h.local); ok && !s.At.After(h.now) {
		entries, err := h.ws.Slots(key, 1)
		if err != nil {
			h.log.Warn("slot ledger cannot be read", "key", key, "error", err)
		}
		if len(entries) > 0 {
			tr.Base = later(tr.Base, entries[0].Slot.Time)
		}
	}
	return tr, true
}

// later is the later of two instants. One from the future (the clock was set back) is the loop's to judge.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
