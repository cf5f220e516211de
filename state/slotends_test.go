package state

import (
	"testing"
	"time"
)

func TestSlotEnds(t *testing.T) {
	ws := newWorkspace(t)
	at := func(minute int) Stamp { return Stamp{time.Date(2026, 5, 1, 0, minute, 0, 0, time.UTC)} }
	put := func(slot, from, decided int, outcome Outcome) {
		e := SlotEntry{Slot: at(slot), At: at(decided), Outcome: outcome}
		if from != slot {
			e.From, e.Count = at(from), slot-from+1
		}
		if err := ws.AppendSlot("k", e, false); err != nil {
			t.Fatal(err)
		}
	}
	put(10, 10, 10, SlotParked)
	put(11, 11, 11, SlotRan)
	put(500, 200, 501, SlotMissed)
	put(10, 10, 600, SlotRan) // the end of the parked one
	for i := 700; i < 2000; i++ {
		put(i, i, i, SlotRan)
	}
	for minute, want := range map[int][]Outcome{
		10: {SlotParked, SlotRan}, 11: {SlotRan}, 12: nil, 200: {SlotMissed}, 333: {SlotMissed}, 500: {SlotMissed}, 501: nil, 1999: {SlotRan}, 3000: nil,
	} {
		entries, err := ws.SlotEnds("k", at(minute).Time)
		if err != nil {
			t.Fatal(err)
		}
		var got []Outcome
		for _, e := range entries {
			got = append(got, e.Outcome)
		}
		if len(got) != len(want) || len(got) > 0 && (got[0] != want[0] || got[len(got)-1] != want[len(want)-1]) {
			t.Errorf("minute %d: got %v, want %v", minute, got, want)
		}
	}
	if entries, err := ws.SlotEnds("none", at(1).Time); entries != nil || err != nil {
		t.Errorf("got %v, %v", entries, err)
	}
}
