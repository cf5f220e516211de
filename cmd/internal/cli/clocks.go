package cli

import (
	"fmt"

	"marbles/cmd/internal/settings"
	"marbles/scheduler"
	"marbles/state"
)

// clockOf says to whom a key's clock was handed; nil where it is the service's.
func clockOf(ws *state.Workspace, key string) *handedClock {
	h, err := ws.Handed(key)
	if err != nil || h == nil || h.Idle || h.Off() != "" {
		return nil
	}
	return &handedClock{Manager: h.Manager, Scope: h.Scope, Unit: h.Unit, made: h.Cadence}
}

// handedClock is the init system's clock of a key, as --json prints it.
type handedClock struct {
	Manager string `json:"manager"`
	Scope   string `json:"scope"`
	Unit    string `json:"unit"`
	made    string // the cadence it was made from
}

// handedClocks says whose the clock of a key is. Where the state root cannot be read it is the service's.
func handedClocks(s *settings.Settings) func(project, key string) *handedClock {
	none := func(string, string) *handedClock { return nil }
	if s.State == "" {
		return none
	}
	root, err := state.OpenReader(s.State)
	if err != nil {
		return none
	}
	known := map[string]map[string]*handedClock{} // by project and key: one look at each project, however many keys it has
	return func(project, key string) *handedClock {
		clocks, ok := known[project]
		if !ok {
			clocks = map[string]*handedClock{}
			known[project] = clocks
			if ws, err := root.Workspace(project); err == nil {
				keys, _ := ws.HandedKeys() // one that cannot be read is named by status
				for _, k := range keys {
					clocks[k] = clockOf(ws, k)
				}
			}
		}
		return clocks[key]
	}
}

// mark stands behind a cadence in a list.
func (h *handedClock) mark() string {
	if h == nil {
		return ""
	}
	return " (" + h.Manager + ": " + h.Unit + ")"
}

func (h *handedClock) text() string { return "its clock is " + h.Manager + "'s " + h.Unit }

// stale says what to do about a clock that was made from another cadence than a key has now; "" for nothing.
func (h *handedClock) stale(key string, c scheduler.Cadence) string {
	if h.made == "" || h.made == c.String() {
		return ""
	}
	return fmt.Sprintf("made from %s: marbles %s install %s --%s", h.made, h.Manager, key, h.Scope)
}
