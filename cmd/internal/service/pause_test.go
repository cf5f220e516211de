package service

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/scheduler"
	"marbles/state"
)

// armAt arms one hourly key whose last slot was at 01:00, and says what it counts from.
func armAt(t *testing.T, ws *state.Workspace, key string, now time.Time) (scheduler.Trigger, bool) {
	t.Helper()
	c := cron(t, "0 * * * *")
	target := &Target{Workspace: ws, Catalog: &catalog.Catalog{Schedules: []*catalog.Schedule{{Key: key, Cadence: c, Enabled: true}}}}
	_, triggers, err := makePlan([]*Target{target}, now, time.UTC, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(triggers) == 0 {
		return scheduler.Trigger{}, false
	}
	return triggers[0], true
}

func TestPausedKeyIsNotArmed(t *testing.T) {
	ws := workspace(t)
	at := func(hour, minute int) time.Time { return time.Date(2026, 5, 1, hour, minute, 0, 0, time.UTC) }
	if err := ws.WriteSince(map[string]state.Since{"k": {Cadence: cron(t, "0 * * * *").String(), At: state.Stamp{Time: at(0, 0)}}}); err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteKey("k", &state.KeyRecord{LastFinish: state.Stamp{Time: at(1, 1)}, Slot: state.Stamp{Time: at(1, 0)}}); err != nil {
		t.Fatal(err)
	}
	pause := func(on bool, now time.Time) {
		t.Helper()
		if changed, err := ws.SetPause("k", on, "holidays", "me", now); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	pause(true, at(2, 30))
	if _, ok := armAt(t, ws, "k", at(4, 30)); ok {
		t.Error("a paused key is armed")
	}
	pause(false, at(5, 30))
	tr, ok := armAt(t, ws, "k", at(6, 30))
	if !ok || !tr.Base.Equal(at(5, 30)) {
		t.Errorf("armed %v from %s", ok, tr.Base)
	}
	if _, ok := armAt(t, ws, "k", at(6, 31)); !ok {
		t.Error("not armed again")
	}
	entries, err := ws.Slots("k", 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%s %s %s %d %s", e.Outcome, e.From.Format("15:04"), e.Slot.Format("15:04"), e.Count, e.Reason))
	}
	want := []string{
		"missed 00:00 02:00 0 asleep, off or clock set forward, and paused since",
		"missed 03:00 05:00 3 paused: holidays",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the ledger says\n%q, want\n%q", got, want)
	}
}

// What pauses everything pauses every key, and one that is paused twice goes on when both are over.
func TestPausesOverlap(t *testing.T) {
	ws := workspace(t)
	now := time.Now()
	for _, p := range []struct {
		key string
		on  bool
		of  bool
	}{{"k", true, true}, {"", true, true}, {"k", false, true}, {"", false, false}} {
		if _, err := ws.SetPause(p.key, p.on, "", "", now); err != nil {
			t.Fatal(err)
		}
		pauses, err := ws.Pauses()
		if err != nil {
			t.Fatal(err)
		}
		if got := pauses.Of("k") != nil; got != p.of {
			t.Errorf("after %+v: paused %v", p, got)
		}
	}
}
