package state

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A line that could not be written is written before the next one, or at the end.
func TestKeepSlot(t *testing.T) {
	ws := newWorkspace(t)
	at := func(minute int) time.Time { return time.Date(2026, 5, 1, 0, minute, 0, 0, time.UTC) }
	keep := func(minute int) error {
		return ws.KeepSlot("k", SlotEntry{Slot: Stamp{at(minute)}, At: Stamp{at(minute)}, Outcome: SlotSkipped}, true)
	}
	path := filepath.Join(ws.Dir(), "slots", "k.jsonl")
	block := func(on bool) {
		t.Helper()
		var err error
		if on { // a directory in its place, which refuses even root
			err = os.Mkdir(path, 0o700)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := func(minutes ...int) {
		t.Helper()
		entries, err := ws.Slots("k", 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != len(minutes) {
			t.Fatalf("%d lines, want %d: %+v", len(entries), len(minutes), entries)
		}
		for i, e := range entries {
			if !e.Slot.Equal(at(minutes[i])) && !e.Slot.Equal(at(minutes[len(minutes)-1-i])) {
				t.Errorf("line %d is of %s", i, e.Slot)
			}
		}
	}
	block(true)
	for minute := 1; minute <= 2; minute++ {
		if err := keep(minute); err == nil {
			t.Error("no error where nothing could be written")
		}
	}
	block(false)
	if err := keep(3); err != nil {
		t.Fatal(err)
	}
	want(1, 2, 3)
	if err := ws.FlushSlots(); err != nil {
		t.Fatal(err)
	}
	want(1, 2, 3)
}
