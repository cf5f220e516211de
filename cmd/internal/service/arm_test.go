package service

import (
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
