package state

import (
	"strings"
	"syscall"
	"testing"
)

// A probe asks what every write asks, but for what makes it last; nothing of it stays, whatever the disk says.
func TestProbe(t *testing.T) {
	for _, tc := range []struct {
		fail, calls string
	}{
		{"", "open tmp, write tmp, close tmp, remove tmp"},
		{"open", "open tmp"},
		{"write", "open tmp, write tmp, close tmp, remove tmp"},
		{"close", "open tmp, write tmp, close tmp, remove tmp"},
		{"remove", "open tmp, write tmp, close tmp, remove tmp"},
	} {
		t.Run(tc.fail, func(t *testing.T) {
			w := newWorkspace(t)
			faults := &faultyFiles{fail: tc.fail, err: syscall.ENOSPC}
			w.fs = faults
			err := w.Probe()
			if (err != nil) != (tc.fail != "") {
				t.Errorf("Probe: %v", err)
			}
			if got := strings.Join(faults.calls, ", "); got != tc.calls {
				t.Errorf("it asks for %s, want %s", got, tc.calls)
			}
		})
	}
}
