package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a start finds: one trigger with a base, and what happens at once and up to a later time.
func TestStart(t *testing.T) {
	never, within := CatchUp{Never: true}, func(d time.Duration) CatchUp { return CatchUp{Within: d} }
	for _, c := range []struct {
		name, zone, cadence string
		catchUp             CatchUp
		base, now, until    string
		want                []string
	}{
		{"off at the slot", "UTC", "at 03:00", CatchUp{}, "2026-03-02T03:00:04", "2026-03-03T09:12", "2026-03-04T03:00",
			[]string{"03 09:12:00 k fire 03:00 late", "04 03:00:00 k fire 03:00"}},
		{"off at the slot, never", "UTC", "at 03:00", never, "2026-03-02T03:00:04", "2026-03-03T09:12", "2026-03-04T03:00",
			[]string{"03 09:12:00 k missed 1 03:00", "04 03:00:00 k fire 03:00"}},
		{"seen for the first time", "UTC", "at 03:00", CatchUp{}, "2026-03-03T09:12", "2026-03-03T09:12", "2026-03-04T03:00",
			[]string{"04 03:00:00 k fire 03:00"}},
		{"without a base", "UTC", "at 03:00", CatchUp{}, "", "2026-03-03T09:12", "2026-03-04T03:00",
			[]string{"04 03:00:00 k fire 03:00"}},
		{"killed after the slot, before it was recorded", "UTC", "at 03:00", CatchUp{}, "2026-03-02T03:00:04", "2026-03-03T03:00:20", "2026-03-04T02:59:59",
			[]string{"03 03:00:20 k fire 03:00"}},
		{"killed after the slot was recorded", "UTC", "at 03:00", CatchUp{}, "2026-03-03T03:00", "2026-03-03T03:00:01", "2026-03-04T03:00",
			[]string{"04 03:00:00 k fire 03:00"}},
		{"restart after the day's run", "America/New_York", "0 4 * * *", CatchUp{}, "2026-02-06T04:00", "2026-02-06T14:59", "2026-02-07T04:00",
			[]string{"07 04:00:00 k fire 04:00"}},
		{"restart daily under a longer interval", "UTC", "every 12h", CatchUp{}, "2026-03-02T08:00", "2026-03-02T16:00", "2026-03-02T20:00",
			[]string{"02 20:00:00 k fire 20:00"}},

		{"late by exactly a minute", "UTC", "at 09:00", never, "2026-03-01T09:00", "2026-03-02T09:01:00", "2026-03-02T10:00",
			[]string{"02 09:01:00 k fire 09:00"}},
		{"late by more", "UTC", "at 09:00", never, "2026-03-01T09:00", "2026-03-02T09:01:01", "2026-03-02T10:00",
			[]string{"02 09:01:01 k missed 1 09:00"}},

		{"a morning slot of today", "UTC", "at 08:00", CatchUp{}, "2026-03-01T08:00", "2026-03-02T10:57", "2026-03-02T23:00",
			[]string{"02 10:57:00 k fire 08:00 late"}},
		{"a slot right now", "UTC", "at 10:57", CatchUp{}, "2026-03-01T10:57", "2026-03-02T10:57", "2026-03-02T23:00",
			[]string{"02 10:57:00 k fire 10:57"}},
		{"one of two slots of today", "UTC", "0 8,17 * * *", CatchUp{}, "2026-03-01T17:00", "2026-03-02T10:57", "2026-03-02T23:00",
			[]string{"02 10:57:00 k fire 08:00 late", "02 17:00:00 k fire 17:00"}},
		{"an evening slot is not taken early", "UTC", "at 17:00", CatchUp{}, "2026-03-01T17:00", "2026-03-02T10:57", "2026-03-02T23:00",
			[]string{"02 17:00:00 k fire 17:00"}},
		{"an evening slot on weekdays", "UTC", "30 19 * * 1-5", CatchUp{}, "2026-02-27T19:30", "2026-03-02T10:57", "2026-03-02T23:00",
			[]string{"02 19:30:00 k fire 19:30"}},
		{"yesterday's slot does not take today's", "UTC", "at 17:00", CatchUp{}, "2026-02-28T17:00", "2026-03-02T10:57", "2026-03-02T23:00",
			[]string{"02 10:57:00 k fire 17:00 late", "02 17:00:00 k fire 17:00"}},

		{"hours missed", "UTC", "0 * * * *", CatchUp{}, "2026-03-02T02:00", "2026-03-02T09:12", "2026-03-02T10:00",
			[]string{"02 09:12:00 k fire 09:00 late older 6 03:00-08:00", "02 10:00:00 k fire 10:00"}},
		{"hours missed, never", "UTC", "0 * * * *", never, "2026-03-02T02:00", "2026-03-02T09:12", "2026-03-02T10:00",
			[]string{"02 09:12:00 k missed 7 03:00-09:00", "02 10:00:00 k fire 10:00"}},
		{"hours missed, newest young enough", "UTC", "0 * * * *", within(12*time.Minute + 1), "2026-03-02T02:00", "2026-03-02T09:12", "2026-03-02T09:30",
			[]string{"02 09:12:00 k fire 09:00 late older 6 03:00-08:00"}},
		{"hours missed, newest too old", "UTC", "0 * * * *", within(12 * time.Minute), "2026-03-02T02:00", "2026-03-02T09:12", "2026-03-02T09:30",
			[]string{"02 09:12:00 k missed 7 03:00-09:00"}},
		{"hours missed, newest on time", "UTC", "0 * * * *", CatchUp{}, "2026-03-02T02:00", "2026-03-02T09:00:30", "2026-03-02T09:30",
			[]string{"02 09:00:30 k fire 09:00 older 6 03:00-08:00"}},
		{"hours missed, newest on time, never", "UTC", "0 * * * *", never, "2026-03-02T02:00", "2026-03-02T09:00:30", "2026-03-02T09:30",
			[]string{"02 09:00:30 k fire 09:00 missed 6 03:00-08:00"}},
		{"hours missed, newest on time, older too old", "UTC", "0 * * * *", within(time.Hour), "2026-03-02T02:00", "2026-03-02T09:00:30", "2026-03-02T09:30",
			[]string{"02 09:00:30 k fire 09:00 missed 6 03:00-08:00"}},
		{"hours missed, newest on time, older young enough", "UTC", "0 * * * *", within(2 * time.Hour), "2026-03-02T02:00", "2026-03-02T09:00:30", "2026-03-02T09:30",
			[]string{"02 09:00:30 k fire 09:00 older 6 03:00-08:00"}},
		{"more minutes missed than are counted", "UTC", "* 8 * * *", CatchUp{}, "2026-01-01T00:00", "2026-03-02T12:00", "2026-03-02T13:00",
			[]string{"02 12:00:00 k fire 08:59 late older 1000+ 08:00-08:58"}},
		{"more minutes missed than are counted, never", "UTC", "* 8 * * *", never, "2026-01-01T00:00", "2026-03-02T12:00", "2026-03-02T13:00",
			[]string{"02 12:00:00 k missed 1000+ 08:00-08:59"}},

		{"interval overdue", "UTC", "every 1h", CatchUp{}, "2026-03-02T02:00", "2026-03-02T09:12", "2026-03-02T12:00",
			[]string{"02 09:12:00 k fire 03:00 late"}},
		{"interval overdue, never: start plus interval", "UTC", "every 1h", never, "2026-03-02T02:00", "2026-03-02T09:12", "2026-03-02T12:00",
			[]string{"02 09:12:00 k missed 1 03:00", "02 10:12:00 k fire 10:12"}},
		{"interval overdue, young enough", "UTC", "every 1h", within(12*time.Minute + 1), "2026-03-02T08:00", "2026-03-02T09:12", "2026-03-02T12:00",
			[]string{"02 09:12:00 k fire 09:00 late"}},
		{"interval overdue, too old", "UTC", "every 1h", within(12 * time.Minute), "2026-03-02T08:00", "2026-03-02T09:12", "2026-03-02T10:12",
			[]string{"02 09:12:00 k missed 1 09:00", "02 10:12:00 k fire 10:12"}},
		{"interval overdue by a minute", "UTC", "every 1h", never, "2026-03-02T08:11", "2026-03-02T09:12", "2026-03-02T12:00",
			[]string{"02 09:12:00 k fire 09:11"}},

		{"interval with a base in the future", "UTC", "every 1h", CatchUp{}, "2027-01-01T00:00", "2026-03-02T09:00", "2026-03-02T10:00",
			[]string{"02 10:00:00 k fire 10:00"}},
		{"slot with a base in the future", "UTC", "* 9-10 * * *", CatchUp{}, "2026-03-02T17:00", "2026-03-02T09:00:10", "2026-03-02T09:02",
			[]string{"02 09:01:00 k fire 09:01", "02 09:02:00 k fire 09:02"}},
		{"slot with a base a few seconds ahead", "UTC", "* 9-10 * * *", CatchUp{}, "2026-03-02T09:01", "2026-03-02T09:00:58", "2026-03-02T09:02",
			[]string{"02 09:02:00 k fire 09:02"}},
		{"base beyond all reason", "UTC", "every 1h", CatchUp{}, "9999-12-31T23:59", "2026-03-02T09:00", "2026-03-02T10:00",
			[]string{"02 10:00:00 k fire 10:00"}},
		{"base before all reason", "UTC", "at 03:00", CatchUp{}, "0003-01-01T00:00", "2026-03-02T09:00", "2026-03-02T10:00",
			[]string{"02 09:00:00 k fire 03:00 late older 1000+ 03:00-03:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.now, c.zone, Options{})
				tr := Trigger{ID: "k", Cadence: cadenceOf(t, c.cadence), CatchUp: c.catchUp}
				if c.base != "" {
					tr.Base = wallTime(t, c.base, c.zone)
				}
				b.loop.Set([]Trigger{tr})
				b.run()
				b.until(c.until)
				b.want(c.want...)
			})
		})
	}
}

// Catch-up comes at once, and the regular slot keeps its own delay.
func TestCatchUpBeforeAJitteredSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nine, ten := wallTime(t, "2026-03-02T09:00", "UTC"), wallTime(t, "2026-03-02T10:00", "UTC")
		// An ID whose 09:00 comes at 09:50 or later and whose 10:00 comes after 10:30.
		const jitter = 55 * time.Minute
		id := ""
		for i := 0; ; i++ {
			id = fmt.Sprint("k", i)
			if share(id, nine.UnixNano(), jitter) > 50*time.Minute && share(id, ten.UnixNano(), jitter) > 30*time.Minute {
				break
			}
		}
		b := newBench(t, "2026-03-02T10:05", "UTC", Options{})
		tr := trigger(t, id, "0 * * * *", wallTime(t, "2026-03-02T08:00", "UTC"))
		tr.Jitter = jitter
		b.loop.Set([]Trigger{tr})
		b.run()
		b.until("2026-03-02T10:59")
		at := ten.Add(share(id, ten.UnixNano(), jitter))
		b.want(
			"02 10:05:00 "+id+" fire 09:00 late",
			at.Format("02 15:04:05")+" "+id+" fire 10:00",
		)
	})
}

// Two slots that jitter brought within a minute are both on time: the older is merged whatever the rule says of missed ones.
func TestTwoSlotsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jitter = 59 * time.Second
		first, second := wallTime(t, "2026-03-02T09:01", "UTC"), wallTime(t, "2026-03-02T09:02", "UTC")
		id := ""
		for i := 0; ; i++ {
			id = fmt.Sprint("k", i)
			if share(id, first.UnixNano(), jitter) > 50*time.Second && share(id, second.UnixNano(), jitter) < 5*time.Second {
				break
			}
		}
		b := newBench(t, "2026-03-02T09:02:10", "UTC", Options{})
		tr := trigger(t, id, "* * * * *", wallTime(t, "2026-03-02T08:50", "UTC"))
		tr.Jitter, tr.CatchUp = jitter, CatchUp{Never: true}
		b.loop.Set([]Trigger{tr})
		b.run()
		b.want("02 09:02:10 " + id + " fire 09:02 older 1 09:01 missed 10 08:51-09:00")
	})
}

// overdueKeys is n daily keys whose slot was an hour ago.
func overdueKeys(t *testing.T, n int, now time.Time) []Trigger {
	var ts []Trigger
	for i := range n {
		ts = append(ts, trigger(t, fmt.Sprintf("k%04d", i), "0 "+fmt.Sprint(now.Hour()-1)+" * * *", now.Add(-24*time.Hour)))
	}
	return ts
}

func TestOverdueKeysAreSpreadOut(t *testing.T) {
	for _, c := range []struct {
		keys, parallel int
		gap            time.Duration
	}{
		{4, 4, 0},
		{5, 4, 250 * time.Millisecond},
		{20, 4, 250 * time.Millisecond},
		{244, 4, 250 * time.Millisecond},
		{604, 4, 100 * time.Millisecond},
		{604, 0, 0},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.parallel, c.keys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, "2026-03-02T10:00", "UTC", Options{Parallel: c.parallel})
				start := b.now()
				b.loop.Set(overdueKeys(t, c.keys, start))
				b.run()
				b.pass(time.Minute)
				var got, want []string
				for i, d := range b.dues {
					got = append(got, fmt.Sprint(d.ID, " ", d.Late, " ", b.ats[i].Sub(start)))
				}
				for i := range c.keys {
					after := time.Duration(0)
					if c.parallel > 0 {
						after = time.Duration(max(0, i+1-c.parallel)) * c.gap
					}
					want = append(want, fmt.Sprintf("k%04d true %v", i, after))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestSpreadHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T09:59:50", "UTC", Options{Parallel: 1})
		now := b.now()
		yesterday := now.Add(-23 * time.Hour)
		ts := []Trigger{
			trigger(t, "first", "at 08:00", yesterday),
			trigger(t, "on-time", "every 1s", now.Add(-2*time.Second)),
			trigger(t, "given-up", "at 09:00", yesterday),
			trigger(t, "hourly", "0 9-10 * * *", yesterday),
			trigger(t, "brief", "at 09:00", yesterday),
		}
		ts[2].CatchUp = CatchUp{Never: true}
		ts[4].CatchUp = CatchUp{Within: 59*time.Minute + 51*time.Second} // it is 59 m 50 s old
		// Enough before them to take the whole minute.
		for i := range 597 {
			ts = append(ts, trigger(t, fmt.Sprint("more", i), "at 08:59", yesterday))
		}
		b.loop.Set(ts)
		b.run()
		b.until("2026-03-02T10:01")
		var got []string
		for i, d := range b.dues {
			if !strings.HasPrefix(d.ID, "more") {
				got = append(got, b.log[i])
			}
		}
		want := []string{
			// Neither what is on time nor what is given up waits.
			"02 09:59:50 given-up missed 1 09:00",
			"02 09:59:50 on-time fire 09:59:49",
			"02 09:59:50 first fire 08:00 late",
			// Its next slot came before its turn.
			"02 10:00:00 hourly fire 10:00 older 1 09:00",
			// Waiting for its turn did not make it too old.
			"02 10:00:49 brief fire 09:00 late",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got, want := len(b.dues), len(ts); got != want {
			t.Errorf("got %d decisions, want %d", got, want)
		}
	})
}

// A sleep in the midst of a spread: what is left is spread again, not fired at once.
func TestSleepDuringASpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T10:00", "UTC", Options{Parallel: 2})
		ts := overdueKeys(t, 20, b.now())
		for i := range ts {
			ts[i].CatchUp.Within = 90 * time.Minute
		}
		b.loop.Set(ts)
		b.run()
		b.pass(time.Second)
		if got := len(b.dues); got != 6 {
			t.Fatalf("after a second: got %d, want 6", got)
		}
		b.step(time.Hour)
		b.pass(249 * time.Millisecond)
		b.pass(time.Millisecond)
		if got := len(b.dues); got != 8 {
			t.Fatalf("after the sleep: got %d, want 8", got)
		}
		b.pass(time.Minute)
		if got := len(b.dues); got != 20 {
			t.Errorf("in the end: got %d, want 20", got)
		}
		for i, d := range b.dues {
			if !d.Fire || !d.Late {
				t.Errorf("decision %d: %s", i, b.log[i])
			}
		}
	})
}

// The clock goes back in the midst of a spread: the turns do not wait for the old time to come again.
func TestSetBackDuringASpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T10:00", "UTC", Options{Parallel: 2})
		b.loop.Set(overdueKeys(t, 20, b.now()))
		b.run()
		b.pass(time.Second)
		b.step(-30 * time.Minute)
		b.pass(10 * time.Second)
		if got := len(b.dues); got != 20 {
			t.Errorf("got %d decisions, want 20", got)
		}
	})
}

// While the first of many fire, others finish, change and go.
func TestChangesWhileOverdueKeysFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T10:00", "UTC", Options{Parallel: 1000})
		now := b.now()
		var ts []Trigger
		for i := range 600 {
			ts = append(ts, trigger(t, fmt.Sprintf("k%03d", i), "every 1h", now.Add(-2*time.Hour)))
		}
		b.loop.Set(ts)
		b.onFire = func(d Due) {
			if d.ID == "k000" {
				b.loop.Finished("k599", b.now())
				b.loop.Set(append(ts[:300:300], ts[400:]...))
			}
		}
		b.run()
		got := map[string]int{}
		for _, d := range b.dues {
			got[d.ID]++
		}
		for i := range 600 {
			id, want := ts[i].ID, 1
			if i >= 300 && i < 400 || i == 599 {
				want = 0
			}
			if got[id] != want {
				t.Errorf("%s fired %d times, want %d", id, got[id], want)
			}
		}
		b.pass(time.Hour)
		if got := b.dues[len(b.dues)-1].ID; got != "k599" {
			t.Errorf("the last to fire is %s, want k599, an hour after it finished", got)
		}
	})
}
