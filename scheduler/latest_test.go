package scheduler

import (
	"testing"
	"time"
)

func TestLatest(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	every := func(text string) Cadence {
		c, err := ParseEvery(text)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	tests := []struct {
		name           string
		c              Cadence
		after, until   string
		oldest, newest string // "" for none
		count          int
		more           bool
	}{
		{"none yet", mustCron(t, "0 9 * * *"), "2026-01-01T09:00+01:00", "2026-01-02T08:59+01:00", "", "", 0, false},
		{"the end counts", mustCron(t, "0 9 * * *"), "2026-01-01T09:00+01:00", "2026-01-02T09:00+01:00",
			"2026-01-02T09:00+01:00", "2026-01-02T09:00+01:00", 1, false},
		{"backwards", mustCron(t, "* * * * *"), "2026-01-02T09:00+01:00", "2026-01-01T09:00+01:00", "", "", 0, false},
		{"exactly a thousand", mustCron(t, "* * * * *"), "2026-01-01T00:00Z", "2026-01-01T16:40Z",
			"2026-01-01T01:01+01:00", "2026-01-01T17:40+01:00", 1000, false},
		{"one more", mustCron(t, "* * * * *"), "2026-01-01T00:00Z", "2026-01-01T16:41Z",
			"2026-01-01T01:01+01:00", "2026-01-01T17:41+01:00", 1000, true},
		{"ten years of minutes", mustCron(t, "* 0-22 * * *"), "2016-01-01T00:00Z", "2026-10-25T22:30Z",
			"2016-01-01T01:01+01:00", "2026-10-25T22:59+01:00", 1000, true},
		{"a burst once a year", mustCron(t, "* 0-20 1 1 *"), "2016-01-01T00:00Z", "2026-12-31T22:30Z",
			"2016-01-01T01:01+01:00", "2026-01-01T20:59+01:00", 1000, true},
		{"from the beginning of time", mustCron(t, "30 2 * * *"), "0001-01-01T00:00Z", "2026-03-29T01:30Z",
			"0001-01-01T02:30+00:53", "2026-03-29T03:30+02:00", 1000, true},
		{"intervals", every("1h"), "2026-03-29T00:10Z", "2026-03-29T02:09:59Z",
			"2026-03-29T03:10+02:00", "2026-03-29T03:10+02:00", 1, false},
		{"an interval at the end", every("1h"), "2026-03-29T00:10Z", "2026-03-29T02:10Z",
			"2026-03-29T03:10+02:00", "2026-03-29T04:10+02:00", 2, false},
		{"no interval", every("1h"), "2026-03-29T00:10Z", "2026-03-29T00:10Z", "", "", 0, false},
		{"short intervals", every("1s"), "2026-03-29T00:00Z", "2026-03-29T00:20Z",
			"2026-03-29T01:00+01:00", "2026-03-29T01:20+01:00", 1000, true},
		{"an interval less a fraction", every("1m"), "2026-03-29T00:00:00.5Z", "2026-03-29T00:02:00.4Z",
			"2026-03-29T01:01+01:00", "2026-03-29T01:01+01:00", 1, false},
		{"never", Cadence{}, "2016-01-01T00:00Z", "2026-01-01T00:00Z", "", "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after, until := instant(t, tt.after, berlin), instant(t, tt.until, berlin)
			oldest, newest, count, more, ok := tt.c.Latest(after, until, berlin)
			if ok != (tt.oldest != "") || count != tt.count || more != tt.more {
				t.Fatalf("got %d, %t, %t", count, more, ok)
			}
			if !ok {
				return
			}
			if got := oldest.At.Format(minuteLayout); got != tt.oldest {
				t.Errorf("oldest is %s, want %s", got, tt.oldest)
			}
			if got := newest.At.Format(minuteLayout); got != tt.newest {
				t.Errorf("newest is %s, want %s", got, tt.newest)
			}
			if next, ok := tt.c.Next(newest.At, berlin); ok && !next.At.After(until) {
				t.Errorf("%s is newer", next.At)
			}
		})
	}
}

// Clocks show anything after a flat battery.
func TestFarAwayInstants(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	every, _ := ParseEvery("1h")
	for _, c := range []Cadence{mustCron(t, "30 2 * * *"), mustCron(t, "*/5 * * * *"), mustCron(t, "0 0 29 2 1-5"), every} {
		for _, at := range []time.Time{
			{}, time.Unix(0, 0), time.Unix(-1<<62, 0), time.Unix(1<<62, 0), time.Unix(lastInstant-1, 0), time.Unix(lastInstant, 0),
			time.Unix(lastInstant-86400*40, 0), time.Unix(-lastInstant, 0),
		} {
			s, ok := c.Next(at, berlin)
			if ok && (!s.At.After(at) || s.At.UTC().Year() > 9999) {
				t.Errorf("%s: after %s comes %s", c, at, s.At)
			}
			c.Latest(at, time.Unix(1<<62, 0), berlin)
			c.ClockChange(at, berlin)
		}
	}
}
