package scheduler

import (
	"testing"
	"testing/synctest"
	"time"
)

// A sleep of the machine, or a clock set ahead: the whole gap goes to the catch-up rule, within ten seconds.
func TestClockAhead(t *testing.T) {
	never := CatchUp{Never: true}
	for _, c := range []struct {
		name, cadence string
		catchUp       CatchUp
		now           string
		ahead         time.Duration
		until         string
		want          []string
	}{
		{"asleep at the slot", "30 20 * * *", CatchUp{}, "2026-03-02T20:25", 11*time.Hour + 35*time.Minute, "2026-03-03T20:30",
			[]string{"03 08:00:10 k fire 20:30 late", "03 20:30:00 k fire 20:30"}},
		{"asleep for nine of ten minutes", "every 10m", CatchUp{}, "2026-03-02T08:00", 9 * time.Minute, "2026-03-02T08:10",
			[]string{"02 08:10:00 k fire 08:10"}},
		{"an hour ahead under five seconds", "every 5s", CatchUp{}, "2026-03-02T08:00:01", time.Hour, "2026-03-02T09:30",
			[]string{"02 09:00:06 k fire 08:00:06 late"}},
		{"an hour ahead under five seconds, never", "every 5s", never, "2026-03-02T08:00:01", time.Hour, "2026-03-02T09:30",
			[]string{"02 09:00:06 k missed 1 08:00:06", "02 09:00:11 k fire 09:00:11"}},
		{"eight hours asleep under a minute", "* * * * *", CatchUp{}, "2026-03-02T00:00:30", 8 * time.Hour, "2026-03-02T08:01:30",
			[]string{"02 08:00:40 k fire 08:00 older 479 00:01-07:59", "02 08:01:00 k fire 08:01"}},
		{"eight hours asleep under a minute, never", "* * * * *", never, "2026-03-02T00:00:30", 8 * time.Hour, "2026-03-02T08:01:30",
			[]string{"02 08:00:40 k fire 08:00 missed 479 00:01-07:59", "02 08:01:00 k fire 08:01"}},
		{"eight hours asleep under an hour, never", "30 * * * *", never, "2026-03-02T00:20", 8*time.Hour + 20*time.Minute, "2026-03-02T09:30",
			[]string{"02 08:40:10 k missed 9 00:30-08:30", "02 09:30:00 k fire 09:30"}},
		{"ahead, but not over a slot", "at 17:00", CatchUp{}, "2026-03-02T08:00", 8 * time.Hour, "2026-03-02T17:00",
			[]string{"02 17:00:00 k fire 17:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.now, "UTC", Options{Parallel: 4})
				tr := trigger(t, "k", c.cadence, b.now())
				tr.CatchUp = c.catchUp
				b.loop.Set([]Trigger{tr})
				b.run()
				b.step(c.ahead)
				b.until(c.until)
				b.want(c.want...)
			})
		})
	}
}

func TestClockBack(t *testing.T) {
	for _, c := range []struct {
		name, cadence   string
		base, now, then string // it runs from now to then
		back            time.Duration
		until           string
		want            []string
	}{
		{"a wrong afternoon is corrected", "* * * * *", "2026-03-02T16:58", "2026-03-02T16:59:50", "2026-03-02T17:00:05", 119 * time.Minute, "2026-03-02T15:03",
			[]string{"02 16:59:50 k fire 16:59", "02 17:00:00 k fire 17:00", "02 15:02:00 k fire 15:02", "02 15:03:00 k fire 15:03"}},
		{"a few seconds, just after a slot", "* * * * *", "2026-03-02T08:59", "2026-03-02T08:59:50", "2026-03-02T09:00:02", 5 * time.Second, "2026-03-02T09:01:30",
			[]string{"02 09:00:00 k fire 09:00", "02 09:01:00 k fire 09:01"}},
		{"a minute, just after a slot", "* * * * *", "2026-03-02T08:59", "2026-03-02T08:59:50", "2026-03-02T09:00:02", time.Minute, "2026-03-02T09:01:30",
			[]string{"02 09:00:00 k fire 09:00", "02 09:01:00 k fire 09:01"}},
		{"more than a minute repeats it once", "* * * * *", "2026-03-02T08:59", "2026-03-02T08:59:50", "2026-03-02T09:00:02", 61 * time.Second, "2026-03-02T09:01:30",
			[]string{"02 09:00:00 k fire 09:00", "02 09:00:00 k fire 09:00", "02 09:01:00 k fire 09:01"}},
		{"before a daily slot", "at 09:00", "2026-03-01T09:00", "2026-03-02T08:00", "2026-03-02T08:30", 20 * time.Hour, "2026-03-02T09:00",
			[]string{"02 09:00:00 k fire 09:00"}},
		{"an interval that waits", "every 1h", "2026-03-02T08:50", "2026-03-02T09:00", "2026-03-02T09:10", 7 * time.Hour, "2026-03-02T03:10:10",
			[]string{"02 03:10:10 k fire 03:10:10"}},
		{"an interval, by two seconds", "every 1m", "2026-03-02T09:00", "2026-03-02T09:00", "2026-03-02T09:00:01", 2 * time.Second, "2026-03-02T09:01:00",
			[]string{"02 09:01:00 k fire 09:01"}},
		{"an interval, by two minutes", "every 5m", "2026-03-02T09:00", "2026-03-02T09:00", "2026-03-02T09:00:03", 2 * time.Minute, "2026-03-02T09:03:10",
			[]string{"02 09:03:10 k fire 09:03:10"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.now, "UTC", Options{})
				b.loop.Set([]Trigger{trigger(t, "k", c.cadence, wallTime(t, c.base, "UTC"))})
				b.run()
				b.until(c.then)
				b.step(-c.back)
				b.until(c.until)
				b.want(c.want...)
			})
		})
	}
}

// The clock goes back while an interval's tick runs: it is due an interval after its finish as the clock has it.
func TestClockBackWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T09:00", "UTC", Options{})
		b.loop.Set([]Trigger{trigger(t, "k", "every 1m", b.now())})
		b.run()
		b.pass(time.Minute)
		wrong := b.now()
		b.step(-3 * time.Hour)
		b.pass(200 * time.Second)
		b.loop.Finished("k", wrong)
		b.pass(time.Minute)
		b.want("02 09:01:00 k fire 09:01", "02 06:05:20 k fire 06:05:20")
	})
}

// Many small steps back, none of which is over a minute, add up to no repetition.
func TestManySmallStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:59:59", "UTC", Options{})
		b.loop.Set([]Trigger{trigger(t, "k", "* * * * *", b.now())})
		b.run()
		b.pass(2 * time.Second)
		for range 6 {
			b.step(-15 * time.Second)
			b.pass(10 * time.Second)
		}
		// It is 08:59:31, and 09:00 was fired.
		b.until("2026-03-02T09:01")
		b.want("02 09:00:00 k fire 09:00", "02 09:01:00 k fire 09:01")
	})
}

// Through both clock changes of a year, in zones west and east of Greenwich: no slot twice, none lost, no spinning.
func TestClockChanges(t *testing.T) {
	for _, c := range []struct {
		name, zone, cadence, from, until string
		want                             []string
	}{
		{"minutes into spring, west", "America/New_York", "* * * * *", "2026-03-08T01:58:30", "2026-03-08T03:01",
			[]string{"08 01:59:00 k fire 01:59", "08 03:00:00 k fire 03:00", "08 03:01:00 k fire 03:01"}},
		{"a skipped slot, west", "America/New_York", "at 02:30", "2026-03-08T00:00", "2026-03-09T03:00",
			[]string{"08 03:30:00 k fire 03:30", "09 02:30:00 k fire 02:30"}},
		{"a skipped slot, east", "Europe/Berlin", "at 02:30", "2026-03-29T00:00", "2026-03-30T03:00",
			[]string{"29 03:30:00 k fire 03:30", "30 02:30:00 k fire 02:30"}},
		{"a doubled slot, west", "America/New_York", "at 01:30", "2026-11-01T00:00", "2026-11-02T01:30",
			[]string{"01 01:30:00 k fire 01:30", "02 01:30:00 k fire 01:30"}},
		{"a doubled slot, east", "Europe/Berlin", "at 02:30", "2026-10-25T00:00", "2026-10-26T02:30",
			[]string{"25 02:30:00 k fire 02:30", "26 02:30:00 k fire 02:30"}},
		{"hours through autumn", "America/New_York", "0 * * * *", "2026-11-01T00:30", "2026-11-01T02:00",
			[]string{"01 01:00:00 k fire 01:00", "01 01:00:00 k fire 01:00", "01 02:00:00 k fire 02:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.from, c.zone, Options{})
				b.loop.Set([]Trigger{trigger(t, "k", c.cadence, b.now())})
				b.run()
				b.until(c.until)
				b.want(c.want...)
			})
		})
	}
}
