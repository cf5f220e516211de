package scheduler

import (
	"math"
	"time"
)

// Cadence is when something is due: an interval, a calendar slot or a cron expression, and the zone its wall
// clock is read in. It is immutable and small, since a service may hold 100,000 of them. The zero Cadence
// is never due.
type Cadence struct {
	loc   *time.Location // nil: the machine's zone
	text  string         // what String says, without the zone
	every int64          // seconds; 0 for slots
	cal   calendar       // for slots
}

// Slot is one due instant of a cadence. Civil is its nominal wall time,
// "2006-01-02T15:04" (02:30 even where a gap moved it to 03:30); empty for intervals and for
// crons that follow elapsed time. Where a moved slot meets another one, they are one slot with the later
// nominal time.
type Slot struct {
	At    time.Time
	Civil string
}

// In returns the cadence in an explicit zone. Without one it follows the machine's zone, as with nil or
// time.Local.
func (c Cadence) In(loc *time.Location) Cadence {
	if loc == time.Local {
		loc = nil
	}
	c.loc = loc
	return c
}

// Interval is the interval of an `every` cadence, 0 for the others. One longer than a time.Duration can hold
// (292 years) reads as the longest.
func (c Cadence) Interval() time.Duration {
	if c.every > math.MaxInt64/int64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(c.every) * time.Second
}

// Location is the explicit zone, nil for machine-local.
func (c Cadence) Location() *time.Location { return c.loc }

// String renders it for people: "every 6h", "daily at 09:05", "mon, fri at 16:30",
// "cron 0 9 1 * *", followed by " in <zone>" where one is explicit. Equal texts are equal cadences, so it
// also serves as a fingerprint.
func (c Cadence) String() string {
	switch {
	case c.text == "":
		return "never"
	case c.loc != nil:
		return c.text + " in " + c.loc.String()
	}
	return c.text
}

// Next is the first slot strictly after t; for an interval it is t plus the interval. local is the machine's
// zone, used where the cadence has none. ok is false where there is none within 100 years or so, or
// none before the year 10000.
func (c Cadence) Next(t time.Time, local *time.Location) (s Slot, ok bool) {
	loc := c.zone(local)
	if c.every > 0 {
		at := c.intervals(t, 1, loc)
		if at.Unix() >= lastInstant {
			return Slot{}, false
		}
		return Slot{At: at}, true
	}
	from := seconds(t) + 1
	w := newWalk(c.cal, loc, from)
	at, civil, ok := w.next(from)
	if !ok {
		return Slot{}, false
	}
	return c.slot(at, civil, loc), true
}

// zone is the zone the cadence's wall clock is read in.
func (c Cadence) zone(local *time.Location) *time.Location {
	switch {
	case c.loc != nil:
		return c.loc
	case local != nil:
		return local
	}
	return time.Local
}

// intervals is n intervals after t.
func (c Cadence) intervals(t time.Time, n int64, loc *time.Location) time.Time {
	return time.Unix(seconds(t)+n*c.every, int64(t.Nanosecond())).In(loc)
}

// seconds is the second that t lies in, kept within a range that can be reckoned with.
func seconds(t time.Time) int64 { return min(max(t.Unix(), -lastInstant), lastInstant) }

func (c Cadence) slot(at, civil int64, loc *time.Location) Slot {
	s := Slot{At: time.Unix(at, 0).In(loc)}
	if !c.cal.elapsed {
		s.Civil = time.Unix(civil, 0).UTC().Format("2006-01-02T15:04")
	}
	return s
}
