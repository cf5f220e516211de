package scheduler

import (
	"math/bits"
	"time"
)

// gapDays is how many days ShortestGap looks at: 28 years, after which dates fall on the same weekdays again (but for
// the turn of a century that is no leap year, which brings no shorter gaps that a jitter could come near).
const gapDays = 28*365 + 7

// ShortestGap is a lower bound of the time between two slots in ordinary time (clock changes aside), for the
// check that jitter is smaller. It is 0 for the zero Cadence.
func (c Cadence) ShortestGap() time.Duration {
	if c.every > 0 {
		return c.Interval()
	}
	if c.text == "" {
		return 0
	}
	// The same step thrice: the gap inside a unit, or from the last of one unit to the first of the next.
	minutes := gap(c.cal.minutes, 60*gap(uint64(c.cal.hours), 24*c.dayGap()))
	return time.Duration(minutes) * time.Minute
}

// gap is the shortest distance between two values of a set, where the set comes again after at least period.
// A unit of a larger set is one of its values, so period is that set's shortest gap.
func gap(set uint64, period int64) int64 {
	first, last := bits.TrailingZeros64(set), 63-bits.LeadingZeros64(set)
	shortest := period - int64(last-first)
	for prev, rest := first, set&(set-1); rest != 0; rest &= rest - 1 {
		v := bits.TrailingZeros64(rest)
		shortest = min(shortest, int64(v-prev))
		prev = v
	}
	return shortest
}

// dayGap is the shortest distance between two days that match.
func (c Cadence) dayGap() int64 {
	if c.cal.weekly() {
		return gap(uint64(c.cal.weekdays), 7)
	}
	start := dayNumber(2000, time.March, 1)
	shortest := int64(gapDays)
	day, ok := c.cal.dayFrom(start)
	for ok && shortest > 1 {
		prev := day
		if day, ok = c.cal.dayFrom(day + 1); ok {
			shortest = min(shortest, day-prev)
		}
		if day > start+gapDays {
			break
		}
	}
	return shortest
}
