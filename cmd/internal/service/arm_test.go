package service

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/scheduler"
	"marbles/state"
)

func cron(t *testing.T, expr string) scheduler.Cadence {
	t.Helper()
	c, _, err := scheduler.ParseCron(expr)
	if err != nil {
		t.Fatal(err)
	}
	return c.In(time.UTC)
}

func every(t *testing.T, text string) scheduler.Cadence {
	t.Helper()
	c, err := scheduler.ParseEvery(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func stamp(text string) state.Stamp { return state.Stamp{Time: at(text)} }

func workspace(t *testing.T) *state.Workspace {
	t.Helper()
	root, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, err := root.Workspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Register(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return ws
}

// Where a key's next slot counts from, by what is on disk.
func TestArm(t *testing.T) {
	nightly, hourly, tenth := cron(t, "30 2 * * *"), every(t, "1h"), cron(t, "*/10 * * * *")
	now := at("2026-11-30T12:00:00Z")
	tests := []struct {
		name    string
		cadence scheduler.Cadence
		since   *state.Since
		record  *state.KeyRecord
		ledger  []state.SlotEntry
		want    time.Time
	}{
		{"first sight", nightly, nil, nil, nil, now},
		{"seen before, never ran", nightly, &state.Since{Cadence: nightly.String(), At: stamp("2026-11-28T08:00:00Z")}, nil, nil, at("2026-11-28T08:00:00Z")},
		{"another cadence", nightly, &state.Since{Cadence: "every 1h", At: stamp("2026-11-28T08:00:00Z")},
			&state.KeyRecord{Slot: stamp("2026-11-28T02:30:00Z"), LastFinish: stamp("2026-11-28T02:31:00Z")}, nil, now},
		{"the slot that was started last", nightly, &state.Since{Cadence: nightly.String(), At: stamp("2026-11-01T08:00:00Z")},
			&state.KeyRecord{Slot: stamp("2026-11-29T02:30:00Z"), LastFinish: stamp("2026-11-29T02:31:00Z")}, nil, at("2026-11-29T02:30:00Z")},
		{"a history of the first format", nightly, nil,
			&state.KeyRecord{LastFinish: stamp("2026-11-28T02:31:00Z")}, nil, at("2026-11-28T02:31:00Z")},
		{"slots that were skipped during a long run are not due again", tenth, &state.Since{Cadence: tenth.String(), At: stamp("2026-11-01T08:00:00Z")},
			&state.KeyRecord{Slot: stamp("2026-11-30T11:00:00Z"), LastFinish: stamp("2026-11-30T11:45:00Z")},
			[]state.SlotEntry{{Slot: stamp("2026-11-30T11:30:00Z"), Outcome: state.SlotSkipped}, {Slot: stamp("2026-11-30T11:40:00Z"), Outcome: state.SlotSkipped}},
			at("2026-11-30T11:40:00Z")},
		{"a long run's line follows those of the slots skipped meanwhile", tenth, &state.Since{Cadence: tenth.String(), At: stamp("2026-11-01T08:00:00Z")},
			&state.KeyRecord{Slot: stamp("2026-11-30T11:30:00Z"), LastFinish: stamp("2026-11-30T11:55:00Z")},
			[]state.SlotEntry{{Slot: stamp("2026-11-30T11:40:00Z"), Outcome: state.SlotSkipped}, {Slot: stamp("2026-11-30T11:50:00Z"), Outcome: state.SlotSkipped},
				{Slot: stamp("2026-11-30T11:30:00Z"), Outcome: state.SlotRan}},
			at("2026-11-30T11:50:00Z")},
		{"what the ledger says was missed is not missed again", nightly, &state.Since{Cadence: nightly.String(), At: stamp("2026-11-28T08:00:00Z")}, nil,
			[]state.SlotEntry{{Slot: stamp("2026-11-30T02:30:00Z"), Outcome: state.SlotMissed}}, at("2026-11-30T02:30:00Z")},
		{"a monitor's looks that saw nothing count", tenth, &state.Since{Cadence: tenth.String(), At: stamp("2026-11-01T08:00:00Z")},
			&state.KeyRecord{Kind: state.KindMonitor, Slot: stamp("2026-11-30T09:00:00Z"), LastFinish: stamp("2026-11-30T11:50:01Z")}, nil, at("2026-11-30T11:50:01Z")},
		{"slots after a crash are due", tenth, &state.Since{Cadence: tenth.String(), At: stamp("2026-11-01T08:00:00Z")},
			&state.KeyRecord{Slot: stamp("2026-11-30T11:00:00Z"), LastFinish: stamp("2026-11-30T11:58:00Z"), LastStatus: "failed"}, nil, at("2026-11-30T11:00:00Z")},
		{"an interval counts from its last finish", hourly, &state.Since{Cadence: hourly.String(), At: stamp("2026-11-01T08:00:00Z")},
			&state.KeyRecord{Slot: stamp("2026-11-30T11:00:00Z"), LastFinish: stamp("2026-11-30T11:20:00Z")}, nil, at("2026-11-30T11:20:00Z")},
		{"an interval that never ran counts from first sight", hourly, &state.Since{Cadence: hourly.String(), At: stamp("2026-11-30T11:50:00Z")}, nil, nil, at("2026-11-30T11:50:00Z")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ws := workspace(t)
			if tt.since != nil {
				if err := ws.WriteSince(map[string]state.Since{"k": *tt.since}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.record != nil {
				tt.record.Version = 1
				if err := ws.WriteKey("k", tt.record); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range tt.ledger {
				if err := ws.AppendSlot("k", e, false); err != nil {
					t.Fatal(err)
				}
			}
			target := &Target{Workspace: ws, Catalog: &catalog.Catalog{Schedules: []*catalog.Schedule{
				{Key: "k", Cadence: tt.cadence, Enabled: true},
				{Key: "off", Cadence: tt.cadence},
			}}}
			p, triggers, err := makePlan([]*Target{target}, now, time.UTC, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			if len(triggers) != 1 || !p.live(ws, "k") || p.live(ws, "off") {
				t.Fatalf("%d triggers are armed, want only k", len(triggers))
			}
			if got := triggers[0].Base; !got.Equal(tt.want) {
				t.Errorf("counts from %s, want %s", got, tt.want)
			}
			since, err := ws.Since()
			if err != nil || since["k"].Cadence != tt.cadence.String() || since["off"].At.IsZero() {
				t.Errorf("since.json holds %v, %v", since, err)
			}
		})
	}
}

// The test under the lock: no such or later slot was started.
func TestStillDue(t *testing.T) {
	nightly, hourly := cron(t, "30 2 * * *"), every(t, "1h")
	slot, now := at("2026-11-30T02:30:00Z"), at("2026-11-30T02:30:01Z")
	tests := []struct {
		name    string
		cadence scheduler.Cadence
		rec     *state.KeyRecord
		queued  *state.RunFile
		want    bool
	}{
		{"no history", nightly, nil, nil, true},
		{"an earlier slot", nightly, &state.KeyRecord{Slot: stamp("2026-11-29T02:30:00Z")}, nil, true},
		{"this slot", nightly, &state.KeyRecord{Slot: state.Stamp{Time: slot}}, nil, false},
		{"a later slot", nightly, &state.KeyRecord{Slot: stamp("2026-11-30T02:30:01Z")}, nil, false},
		{"a slot from the future says nothing", nightly, &state.KeyRecord{Slot: stamp("2026-12-30T02:30:00Z")}, nil, true},
		{"this slot, claimed by a run that never began", nightly, &state.KeyRecord{Slot: state.Stamp{Time: slot}, Run: "rn-a"},
			&state.RunFile{Run: state.Run{ID: "rn-a"}}, true},
		{"this slot, claimed by another run", nightly, &state.KeyRecord{Slot: state.Stamp{Time: slot}, Run: "rn-b"},
			&state.RunFile{Run: state.Run{ID: "rn-a"}}, false},
		{"an interval's run by hand that never began", hourly, &state.KeyRecord{Run: "rn-b", LastFinish: stamp("2026-11-30T02:10:00Z")},
			&state.RunFile{Run: state.Run{ID: "rn-b"}}, true},
		{"an interval after its time", hourly, &state.KeyRecord{LastFinish: stamp("2026-11-30T01:30:00Z")}, nil, true},
		{"an interval that another process ran meanwhile", hourly, &state.KeyRecord{LastFinish: stamp("2026-11-30T02:10:00Z")}, nil, false},
		{"an interval's finish from the future says nothing", hourly, &state.KeyRecord{LastFinish: stamp("2026-12-30T02:10:00Z")}, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := stillDue(tt.cadence, slot, tt.rec, tt.queued, now); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// Damage costs only itself.
func TestArmWithDamagedRecords(t *testing.T) {
	nightly := cron(t, "30 2 * * *")
	now := at("2026-11-30T12:00:00Z")
	ws := workspace(t)
	keys := []string{"damaged", "later", "whole"}
	var schedules []*catalog.Schedule
	since := map[string]state.Since{}
	for _, key := range keys {
		schedules = append(schedules, &catalog.Schedule{Key: key, Cadence: nightly, Enabled: true})
		since[key] = state.Since{Cadence: nightly.String(), At: stamp("2026-11-01T00:00:00Z")}
		rec := &state.KeyRecord{Version: 1, Slot: stamp("2026-11-30T02:30:00Z"), LastFinish: stamp("2026-11-30T02:31:00Z")}
		if err := ws.WriteKey(key, rec); err != nil {
			t.Fatal(err)
		}
		if err := ws.AppendSlot(key, state.SlotEntry{Slot: stamp("2026-11-30T02:30:00Z"), Outcome: state.SlotRan}, false); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(ws.Dir(), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := ws.WriteSince(since); err != nil {
		t.Fatal(err)
	}
	write("schedules/damaged.json", "{\"version\": 1, \"lastSta")
	write("schedules/later.json", "{\"version\": 99}")
	target := &Target{Workspace: ws, Catalog: &catalog.Catalog{Schedules: schedules}}
	plan := func() map[string]time.Time {
		t.Helper()
		_, triggers, err := makePlan([]*Target{target}, now, time.UTC, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		bases := map[string]time.Time{}
		for _, tr := range triggers {
			bases[filepath.Base(tr.ID)] = tr.Base
		}
		return bases
	}
	bases := plan()
	if _, ok := bases["later"]; ok || len(bases) != 2 {
		t.Errorf("armed are %v, want all but the key whose history is of a later version", bases)
	}
	for _, key := range []string{"damaged", "whole"} {
		if want := at("2026-11-30T02:30:00Z"); !bases[key].Equal(want) {
			t.Errorf("%s counts from %s, want %s", key, bases[key], want)
		}
	}
	write("since.json", "not JSON")
	if bases := plan(); !bases["whole"].Equal(at("2026-11-30T02:30:00Z")) {
		t.Errorf("without first sights whole counts from %s, want its last slot", bases["whole"])
	}
	if data, err := os.ReadFile(filepath.Join(ws.Dir(), "since.json.damaged")); err != nil || string(data) != "not JSON" {
		t.Errorf("the damaged file is not set aside: %q, %v", data, err)
	}
}

// A definition that is away for a time keeps the instant at which it was first seen.
func TestFirstSightsOutliveAnAbsence(t *testing.T) {
	nightly := cron(t, "30 2 * * *")
	ws := workspace(t)
	define := func(keys ...string) *Target {
		target := &Target{Workspace: ws, Catalog: &catalog.Catalog{}}
		for _, key := range keys {
			target.Catalog.Schedules = append(target.Catalog.Schedules, &catalog.Schedule{Key: key, Cadence: nightly, Enabled: true})
		}
		return target
	}
	first := at("2026-11-01T12:00:00Z")
	bases := map[string]time.Time{}
	for day, keys := range [][]string{{"a", "b"}, {"a"}, {"a"}, {"a", "b"}} {
		_, triggers, err := makePlan([]*Target{define(keys...)}, first.AddDate(0, 0, day), time.UTC, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, tr := range triggers {
			bases[filepath.Base(tr.ID)] = tr.Base
		}
	}
	for _, key := range []string{"a", "b"} {
		if !bases[key].Equal(first) {
			t.Errorf("%s counts from %s, want its first sight %s", key, bases[key], first)
		}
	}
	// How many are kept is bounded; the newest are.
	many := map[string]state.Since{}
	for i := range 3000 {
		many[fmt.Sprintf("k%04d", i)] = state.Since{Cadence: nightly.String(), At: state.Stamp{Time: first.Add(time.Duration(i) * time.Second)}}
	}
	if err := ws.WriteSince(many); err != nil {
		t.Fatal(err)
	}
	if _, err := firstSights(define("a", "b"), first, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	since, err := ws.Since()
	if err != nil {
		t.Fatal(err)
	}
	_, oldest := since["k1997"]
	_, newest := since["k1998"]
	if len(since) != 2+1002 || oldest || !newest {
		t.Errorf("%d first sights are kept, k1997 %v, k1998 %v; want 1004, and the newest", len(since), oldest, newest)
	}
}

// What cannot be read costs only itself.
func TestArmWithUnreadableRecords(t *testing.T) {
	nightly := cron(t, "30 2 * * *")
	now := at("2026-11-30T12:00:00Z")
	mkdir := func(path string) error { return os.Mkdir(path, 0o700) }
	tests := []struct {
		name   string
		damage func(dir string) error
		armed  int
	}{
		{"since.json of a later version", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "since.json"), []byte(`{"version":99}`), 0o600)
		}, 2},
		{"since.json is a folder", func(dir string) error { return mkdir(filepath.Join(dir, "since.json")) }, 2},
		{"a ledger is a folder", func(dir string) error { return mkdir(filepath.Join(dir, "slots", "a.jsonl")) }, 2},
		{"a history is a folder", func(dir string) error { return mkdir(filepath.Join(dir, "schedules", "a.json")) }, 2},
		{"histories are no folder", func(dir string) error {
			path := filepath.Join(dir, "schedules")
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ws := workspace(t)
			if err := tt.damage(ws.Dir()); err != nil {
				t.Fatal(err)
			}
			before, _ := os.ReadFile(filepath.Join(ws.Dir(), "since.json"))
			target := &Target{Workspace: ws, Catalog: &catalog.Catalog{Schedules: []*catalog.Schedule{
				{Key: "a", Cadence: nightly, Enabled: true},
				{Key: "b", Cadence: nightly, Enabled: true},
			}}}
			_, triggers, err := makePlan([]*Target{target}, now, time.UTC, slog.New(slog.DiscardHandler))
			if err != nil || len(triggers) != tt.armed {
				t.Errorf("%d keys are armed, %v; want %d", len(triggers), err, tt.armed)
			}
			if after, _ := os.ReadFile(filepath.Join(ws.Dir(), "since.json")); len(before) > 0 && string(after) != string(before) {
				t.Errorf("since.json of a later version was written over: %s", after)
			}
		})
	}
}
