package scheduler

import (
	"testing"
	"testing/synctest"
	"time"
)

// A service that moves between zones, as a laptop does. Lines show the wall of the zone it is in then.
func TestZoneChange(t *testing.T) {
	type leg struct{ zone, until string }
	for _, c := range []struct {
		name, cadence string
		catchUp       CatchUp
		base, now     string // in the first zone; base is a slot that ran
		zone          string
		legs          []leg // run until, then move
		want          []string
	}{
		{"west after the day's run: not again that day", "at 09:00", CatchUp{}, "2026-03-01T09:00", "2026-03-02T08:59", "Europe/Berlin",
			[]leg{{"America/New_York", "2026-03-02T10:00"}, {"", "2026-03-03T09:00"}},
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
		{"west before the day's run: at the new time", "at 09:00", CatchUp{}, "2026-03-01T09:00", "2026-03-02T08:00", "Europe/Berlin",
			[]leg{{"America/New_York", "2026-03-02T08:30"}, {"", "2026-03-02T09:00"}},
			[]string{"02 09:00:00 k fire 09:00"}},
		{"east over the day's slot: caught up", "at 09:00", CatchUp{}, "2026-03-01T09:00", "2026-03-02T08:00", "America/New_York",
			[]leg{{"Europe/Berlin", "2026-03-02T08:30"}, {"", "2026-03-03T09:00"}},
			[]string{"02 14:30:10 k fire 09:00 late", "03 09:00:00 k fire 09:00"}},
		{"east over the day's slot, never", "at 09:00", CatchUp{Never: true}, "2026-03-01T09:00", "2026-03-02T08:00", "America/New_York",
			[]leg{{"Europe/Berlin", "2026-03-02T08:30"}, {"", "2026-03-03T09:00"}},
			[]string{"02 14:30:10 k missed 1 09:00", "03 09:00:00 k fire 09:00"}},
		{"east and back: the slot was caught up in between", "at 09:00", CatchUp{}, "2026-03-01T09:00", "2026-03-02T08:00", "America/New_York",
			[]leg{{"Europe/Berlin", "2026-03-02T08:30"}, {"America/New_York", "2026-03-02T14:35"}, {"", "2026-03-03T09:00"}},
			[]string{"02 14:30:10 k fire 09:00 late", "03 09:00:00 k fire 09:00"}},
		{"east after the day's run: tomorrow", "at 09:00", CatchUp{}, "2026-03-01T09:00", "2026-03-02T08:59", "America/New_York",
			[]leg{{"Asia/Tokyo", "2026-03-02T09:30"}, {"", "2026-03-03T09:00"}},
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
		{"west with several slots: the later ones only", "0 9-17/2 * * *", CatchUp{}, "2026-03-02T11:00", "2026-03-02T12:30", "Europe/Berlin",
			[]leg{{"America/New_York", "2026-03-02T13:30"}, {"", "2026-03-02T17:00"}},
			[]string{"02 13:00:00 k fire 13:00", "02 15:00:00 k fire 15:00", "02 17:00:00 k fire 17:00"}},
		{"elapsed time has no local slots", "*/30 * * * *", CatchUp{}, "2026-03-02T09:00", "2026-03-02T09:29", "Europe/Berlin",
			[]leg{{"America/New_York", "2026-03-02T09:40"}, {"", "2026-03-02T04:30"}},
			[]string{"02 09:30:00 k fire 09:30", "02 04:00:00 k fire 04:00", "02 04:30:00 k fire 04:30"}},
		{"an interval does not care", "every 1h", CatchUp{}, "2026-03-02T09:00", "2026-03-02T09:30", "Europe/Berlin",
			[]leg{{"America/New_York", "2026-03-02T09:40"}, {"", "2026-03-02T08:00"}},
			[]string{"02 04:00:00 k fire 04:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.now, c.zone, Options{})
				tr := trigger(t, "k", c.cadence, wallTime(t, c.base, c.zone))
				tr.CatchUp = c.catchUp
				tr.Civil, tr.CivilAt = c.base, tr.Base
				b.loop.Set([]Trigger{tr})
				b.run()
				for _, leg := range c.legs {
					b.until(leg.until)
					if leg.zone != "" {
						b.move(leg.zone)
					}
				}
				b.want(c.want...)
			})
		})
	}
}

// A key with a zone of its own is not touched by the machine's: six slots in UTC across London's hour that occurs twice,
// with the system zone changed in the midst of them.
func TestOwnZoneThroughSystemChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2022-10-30T00:58:00Z", "Europe/London", Options{})
		b.loop.Set([]Trigger{
			{ID: "a", Cadence: cadenceOf(t, "0,1,30,59 1 * * *").In(time.UTC), Base: b.now()},
			{ID: "b", Cadence: cadenceOf(t, "59 0 * * *").In(time.UTC), Base: b.now()},
			{ID: "c", Cadence: cadenceOf(t, "0 2 * * *").In(time.UTC), Base: b.now()},
		})
		b.run()
		b.until("2022-10-30T01:15:00Z")
		b.move("Asia/Tokyo")
		b.pass(11 * time.Second)
		b.move("UTC")
		b.until("2022-10-30T02:00:00Z")
		b.want(
			"30 01:59:00 b fire 01:59", // 00:59 UTC is 01:59 in London's summer
			"30 01:00:00 a fire 01:00",
			"30 01:01:00 a fire 01:01",
			"30 01:30:00 a fire 01:30",
			"30 01:59:00 a fire 01:59",
			"30 02:00:00 c fire 02:00",
		)
	})
}

// The service was down while the zone changed: the record's civil time says what ran.
func TestStartInAnotherZone(t *testing.T) {
	berlin := func(at string) time.Time { return wallTime(t, at, "Europe/Berlin") }
	for _, c := range []struct {
		name    string
		civil   string
		civilAt time.Time
		base    time.Time
		now     string // in New York
		want    []string
	}{
		{"ran this morning in Berlin", "2026-03-02T09:00", berlin("2026-03-02T09:00"), berlin("2026-03-02T09:10"), "2026-03-02T08:00",
			[]string{"03 09:00:00 k fire 09:00"}},
		{"ran this morning in Berlin, with an older base", "2026-03-02T09:00", berlin("2026-03-02T09:00"), berlin("2026-03-01T09:10"), "2026-03-02T08:00",
			[]string{"03 09:00:00 k fire 09:00"}},
		{"ran yesterday in Berlin", "2026-03-01T09:00", berlin("2026-03-01T09:00"), berlin("2026-03-01T09:10"), "2026-03-02T08:00",
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
		{"ran yesterday here", "2026-03-01T09:00", wallTime(t, "2026-03-01T09:00", "America/New_York"), time.Time{}, "2026-03-02T08:00",
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
		{"a record of a wrong clock", "2031-03-01T09:00", berlin("2031-03-01T09:00"), berlin("2031-03-01T09:10"), "2026-03-02T08:00",
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
		{"a damaged record", "2031-03-01T09:00", berlin("2026-03-01T09:00"), berlin("2026-03-02T09:10"), "2026-03-02T08:00",
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
		{"a civil time that is none", "yesterday", berlin("2026-03-01T09:00"), berlin("2026-03-02T09:10"), "2026-03-02T08:00",
			[]string{"02 09:00:00 k fire 09:00", "03 09:00:00 k fire 09:00"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.now, "America/New_York", Options{})
				tr := trigger(t, "k", "at 09:00", c.base)
				tr.Civil, tr.CivilAt = c.civil, c.civilAt
				b.loop.Set([]Trigger{tr})
				b.run()
				b.until("2026-03-03T09:00")
				b.want(c.want...)
			})
		})
	}
}

// The clock was set back after a run, then the zone changes: the run of the wrong time does not silence the key.
func TestSetBackThenZoneChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:59", "Europe/Berlin", Options{})
		b.loop.Set([]Trigger{trigger(t, "k", "at 09:00", b.now())})
		b.run()
		b.until("2026-03-02T09:01")
		b.step(-25 * time.Hour)
		b.pass(11 * time.Second)
		b.move("America/New_York")
		b.until("2026-03-02T09:00")
		b.want(
			"02 09:00:00 k fire 09:00",
			"01 09:00:00 k fire 09:00",
			"02 09:00:00 k fire 09:00",
		)
	})
}
