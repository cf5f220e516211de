package service

import (
	"log/slog"
	"maps"

	"marbles/state"
)

// handed keeps an eye on the keys whose clock was handed to an init system: those are left out of the loop. A key whose
// timer is gone, or off, is taken back, whoever did that: a backup must not stop because of a file that somebody deleted.
type handed struct {
	s      *service
	stamps map[string]state.FileStamp // by workspace directory, as of the plan in force
	known  map[string]known           // by trigger id, likewise
	lost   map[string]bool            // those that were off at the last look: one that is being uninstalled loses its record too
}

// known is a record, and how its clock was.
type known struct {
	record *state.Handed
	off    string
}

func newHanded(s *service) *handed { return &handed{s: s} }

// take notes what is handed over before a plan is made of it, so that the next look sees every change since.
func (h *handed) take(targets []*Target) {
	stamps := make(map[string]state.FileStamp, len(targets))
	for _, t := range targets {
		dir := t.Workspace.Dir()
		stamp, err := t.Workspace.HandedStamp()
		if err != nil {
			stamp = h.stamps[dir]
		}
		stamps[dir] = stamp
	}
	h.stamps = stamps
}

// look looks whether keys were handed over or come back, with one stat for each workspace and two for each key that was
// handed over, and arms the loop anew then. The keeper calls it.
func (h *handed) look() {
	targets := h.s.plan.Load().targets
	before := h.stamps
	h.take(targets)
	changed := !maps.Equal(before, h.stamps)
	lost := map[string]bool{}
	for id, k := range h.known {
		if now := k.record.Off(); now == k.off {
			continue
		} else if now == "" || h.lost[id] {
			changed = true
		} else {
			lost[id] = true
		}
	}
	h.lost = lost
	if changed {
		h.s.rearm(targets)
	}
}

// say logs once what has changed since the plan before, nil for none.
func (h *handed) say(before, after *plan) {
	if before == nil {
		before = &plan{}
	}
	h.known = map[string]known{}
	for id, record := range after.handed {
		h.known[id] = known{record, ""}
		if before.handed[id] == nil {
			h.s.Log.Info("clock of a key is the init system's: the service leaves it out", "key", record.Key, "clock", record.String())
		}
	}
	for id, record := range after.orphans {
		off := record.Off()
		h.known[id] = known{record, off}
		if before.orphans[id] == nil {
			h.s.Log.Warn("clock of a key is not in force: the service keeps the key", "key", record.Key, "clock", record.String(), "reason", off, "file", record.Files[0].Path)
		}
	}
	for id, record := range before.handed {
		if after.handed[id] == nil && after.orphans[id] == nil {
			h.s.Log.Info("clock of a key is the service's again", "key", record.Key, "clock", record.String())
		}
	}
}

// readHanded reads which keys of a workspace were handed over. A record that cannot be read hands nothing over: rather
// both clocks than none, since a slot is started once.
func readHanded(ws *state.Workspace, log *slog.Logger) map[string]*state.Handed {
	keys, err := ws.HandedKeys()
	if err != nil {
		log.Error("keys that were handed over cannot be listed: none are left out", "workspace", ws.ID(), "error", err)
		return nil
	}
	all := map[string]*state.Handed{}
	for _, key := range keys {
		record, err := ws.Handed(key)
		switch {
		case err != nil:
			log.Error("record of a key that was handed over cannot be read: it is not left out", "key", key, "error", err)
		case record != nil && len(record.Files) > 0:
			all[key] = record
		}
	}
	return all
}
