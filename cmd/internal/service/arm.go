package service

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// armed is one key as the loop knows it.
type armed struct {
	target   *Target
	schedule *catalog.Schedule // or
	monitor  *catalog.Monitor
}

func (a armed) key() string {
	if a.schedule != nil {
		return a.schedule.Key
	}
	return a.monitor.Key
}

func (a armed) cadence() scheduler.Cadence {
	if a.schedule != nil {
		return a.schedule.Cadence
	}
	return a.monitor.Cadence
}

// plan is what is in force: every trigger, and whose it is. It is immutable.
type plan struct {
	targets []*Target
	armed   map[string]armed // by trigger id
	// Keys whose clock was handed to an init system, and those whose clock was, and is off; by trigger id.
	handed, orphans map[string]*state.Handed
	triggers        int
}

// live reports whether a key of a workspace is still in force. One that was handed to an init system is: what was decided
// before that is done.
func (p *plan) live(ws *state.Workspace, key string) bool {
	id := triggerID(ws, key)
	_, ok := p.armed[id]
	return ok || p.handed[id] != nil
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

// each calls f for every key of a target's catalog with what the loop would be told of it, schedules first.
func (t *Target) each(f func(a armed, tr scheduler.Trigger, enabled bool)) {
	for _, s := range t.Catalog.Schedules {
		tr := scheduler.Trigger{ID: triggerID(t.Workspace, s.Key), Cadence: s.Cadence, Jitter: s.Jitter, CatchUp: s.CatchUp}
		f(armed{target: t, schedule: s}, tr, s.Enabled)
	}
	for _, m := range t.Catalog.Monitors {
		tr := scheduler.Trigger{ID: triggerID(t.Workspace, m.Key), Cadence: m.Cadence, Jitter: m.Jitter}
		f(armed{target: t, monitor: m}, tr, m.Enabled)
	}
}

// makePlan arms the enabled keys of every target from their histories. A key seen for the first time, or with another
// cadence, is written down with the present instant, one file per workspace.
//
// A damaged history costs only itself: its key counts from the ledger, and its next tick sets the file aside. A key whose
// history cannot be read, or was written by a later marbles, is not armed.
func makePlan(targets []*Target, now time.Time, local *time.Location, log *slog.Logger) (*plan, []scheduler.Trigger, error) {
	n := 0
	for _, t := range targets {
		n += len(t.Catalog.Schedules) + len(t.Catalog.Monitors)
	}
	p := &plan{targets: targets, armed: make(map[string]armed, n), handed: map[string]*state.Handed{}, orphans: map[string]*state.Handed{}}
	triggers := make([]scheduler.Trigger, 0, n)
	for _, t := range targets {
		h, err := readHistories(t, now, local, log)
		if err != nil {
			return nil, nil, err
		}
		t.each(func(a armed, tr scheduler.Trigger, enabled bool) {
			if record := h.handed[a.key()]; record != nil && !record.Idle {
				if record.Off() == "" {
					p.handed[tr.ID] = record
					return
				}
				p.orphans[tr.ID] = record
			}
			if enabled && h.pauses.Of(a.key()) == nil && h.arm(a.key(), &tr) {
				p.armed[tr.ID] = a
				triggers = append(triggers, tr)
			}
		})
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
	known map[string]bool // keys with a record; nil where that cannot be told
	since map[string]state.Since
	// pauses are what is paused, or was.
	pauses *state.Pauses
	// handed are the keys that were handed to an init system.
	handed map[string]*state.Handed
	// ailing are the keys whose health is on record.
	ailing map[string]bool
}

func readHistories(t *Target, now time.Time, local *time.Location, log *slog.Logger) (*histories, error) {
	h := &histories{ws: t.Workspace, now: now, local: local, log: log.With("workspace", t.Workspace.ID())}
	h.pauses, h.handed = readPauses(h), readHanded(t.Workspace, log)
	keys, err := t.Workspace.Keys()
	if err != nil {
		log.Error("histories cannot be listed", "workspace", t.Workspace.ID(), "error", err)
	} else {
		h.known = make(map[string]bool, len(keys))
	}
	for _, k := range keys {
		h.known[k] = true
	}
	if keys, err = t.Workspace.HealthKeys(); err != nil {
		log.Error("health of monitors cannot be listed", "workspace", t.Workspace.ID(), "error", err)
	}
	h.ailing = make(map[string]bool, len(keys))
	for _, k := range keys {
		h.ailing[k] = true
	}
	h.since, err = firstSights(t, now, log)
	return h, err
}

// firstSights returns when each key was first seen with its cadence, as far as that was known, and writes down what is
// new. What cannot be read costs only itself: keys without a history count from now then, and a file that may be
// whole is not written over.
func firstSights(t *Target, now time.Time, log *slog.Logger) (map[string]state.Since, error) {
	ws := t.Workspace
	old, err := ws.Since()
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		var to string
		log.Warn("record of first sights is damaged: keys without a history count from now", "workspace", ws.ID(), "error", err)
		if to, err = damaged.SetAside(); err == nil {
			log.Info("damaged file was set aside", "file", to)
		}
	}
	if err != nil {
		log.Error("record of first sights cannot be used: keys without a history count from this start", "workspace", ws.ID(), "error", err)
		return nil, nil
	}
	next := make(map[string]state.Since, len(old))
	changed := false
	t.each(func(a armed, tr scheduler.Trigger, _ bool) {
		s := state.Since{Cadence: tr.Cadence.String(), At: state.Stamp{Time: now}}
		if known, ok := old[a.key()]; ok && known.Cadence == s.Cadence {
			s = known
		} else {
			changed = true
		}
		next[a.key()] = s
	})
	for _, key := range absent(old, next) {
		next[key] = old[key]
	}
	if changed || len(next) != len(old) {
		return old, ws.WriteSince(next)
	}
	return old, nil
}

// absent are the keys that are not defined now, newest first. They may come back, as after a mistaken edit, so they are
// remembered: as many as are defined, and manyAbsent more.
func absent(old, defined map[string]state.Since) []string {
	const manyAbsent = 1000
	var keys []string
	for key := range old {
		if _, ok := defined[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(old[b].At.Compare(old[a].At.Time), strings.Compare(a, b))
	})
	return keys[:min(len(keys), len(defined)+manyAbsent)]
}

// arm says where a key counts from. For slots the base is the latest of: the slot that was started last, the newest slot the
// ledger has an end for, and the first sight of this cadence. A history without a slot (the first format, or a key only
// ever rolled by hand) counts from its last finish, and a key that has such a history but was never seen by a
// service has no first sight of its own.
func (h *histories) arm(key string, tr *scheduler.Trigger) (ok bool) {
	c := tr.Cadence
	since, seen := h.since[key]
	if !seen || since.Cadence != c.String() {
		since.At = state.Stamp{Time: h.now}
	}
	tr.Base = since.At.Time
	rec, err := (*state.KeyRecord)(nil), error(nil)
	if h.known == nil || h.known[key] {
		rec, err = h.ws.Key(key)
	}
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		h.log.Warn("history is damaged, counting from the slot ledger", "key", key, "error", err)
		rec = &state.KeyRecord{}
	} else if err != nil {
		h.log.Error("history cannot be read, the key will not run", "key", key, "error", err)
		return false
	}
	if rec == nil {
		rec = &state.KeyRecord{}
	}
	if c.Interval() > 0 {
		if !rec.LastFinish.IsZero() {
			tr.Base = rec.LastFinish.Time
		}
		// A source that failed is looked at again sooner. That it is to be left alone for longer is found by the tick.
		if at := h.retryAt(key); !at.IsZero() {
			tr.Base = earlier(tr.Base, at.Add(-c.Interval()))
		}
		return true
	}
	if runner.Unwritten(h.ws, rec) {
		rec.Slot, rec.SlotLocal = state.Stamp{}, ""
	}
	last := rec.Slot.Time
	if last.IsZero() || rec.Kind == state.KindMonitor { // a look that saw nothing has settled what was due before it
		last = later(last, rec.LastFinish.Time)
	}
	if !seen && !last.IsZero() {
		tr.Base = last
	}
	tr.Base = later(tr.Base, last)
	tr.Civil, tr.CivilAt = rec.SlotLocal, rec.Slot.Time
	// Only an overdue key can have ends in the ledger that its record does not know.
	if s, ok := c.Next(tr.Base, h.local); ok && !s.At.After(h.now) {
		// Its lines stand in the order in which slots ended: that of a long run follows those of the newer slots that were
		// skipped meanwhile.
		const recent = 50
		entries, err := h.ws.Slots(key, recent)
		if err != nil {
			h.log.Warn("slot ledger cannot be read", "key", key, "error", err)
		}
		for _, e := range entries {
			tr.Base = later(tr.Base, e.Slot.Time)
		}
		h.resumed(key, tr)
	}
	return true
}

// retryAt is when a monitor is to look again because of its last failure; zero where that is not set.
func (h *histories) retryAt(key string) time.Time {
	if !h.ailing[key] {
		return time.Time{}
	}
	health, err := h.ws.Health(key)
	if err != nil || health == nil {
		return time.Time{} // its next look says what is wrong with the file
	}
	return health.RetryAt.Time
}

// earlier is the earlier of two instants.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// later is the later of two instants. One from the future (the clock was set back) is the loop's to judge.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
