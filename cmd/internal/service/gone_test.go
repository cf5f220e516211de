package service

import (
	"log/slog"
	"testing"
	"time"

	"marbles/scheduler"
	"marbles/state"
)

// A slot that came due, and whose key was taken out before it was started, has its line in the ledger all the same:
// whether that was before the loop's decision arrived or after.
func TestSlotsOfKeysThatAreGone(t *testing.T) {
	w := newWorld(t, `
workflows:
  job: {run: 'echo >>runs'}
schedules:
  - {run: job, cron: "* * * * *"}
`)
	s := &service{Options: Options{Log: slog.New(slog.DiscardHandler)}, zone: scheduler.NewZone(""), desk: w.desk}
	s.hooks = NewHooks(s.Log, nil, s.catalog)
	s.loop = scheduler.NewLoop(scheduler.Options{})
	s.live = newWatchers(s)
	s.plan.Store(&plan{targets: []*Target{&w.target}})
	a := armed{target: &w.target, schedule: w.target.Catalog.Schedules[0]}
	due := func(slot string) scheduler.Due {
		return scheduler.Due{ID: triggerID(w.ws, "job"), Fire: true, Slot: scheduler.Slot{At: at(slot)}}
	}
	s.fire(due("2026-01-01T00:01:00Z"))
	s.ticks.Wait()
	s.handle(a, due("2026-01-01T00:02:00Z"))
	for _, slot := range []string{"2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"} {
		entries, err := w.ws.SlotEnds("job", at(slot))
		if err != nil || len(entries) != 1 || entries[0].Outcome != state.SlotSkipped || entries[0].Reason != goneReason {
			t.Errorf("slot %s: %+v, %v", slot, entries, err)
		}
	}
	// One that has its end, since another process took it, gets no second one.
	s.plan.Store(&plan{targets: []*Target{&w.target}, armed: map[string]armed{triggerID(w.ws, "job"): a}})
	now := time.Now().UTC().Truncate(time.Minute)
	s.handle(a, scheduler.Due{ID: triggerID(w.ws, "job"), Fire: true, Slot: scheduler.Slot{At: now}})
	s.plan.Store(&plan{targets: []*Target{&w.target}})
	if n := w.count("runs"); n != 1 {
		t.Errorf("%d runs", n)
	}
	s.handle(a, scheduler.Due{ID: triggerID(w.ws, "job"), Fire: true, Slot: scheduler.Slot{At: now}})
	entries, err := w.ws.SlotEnds("job", now)
	if err != nil || len(entries) != 1 || entries[0].Outcome != state.SlotRan {
		t.Errorf("a slot that ran: %+v, %v", entries, err)
	}
}
