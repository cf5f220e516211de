package scheduler

import (
	"math/bits"
	"time"
)

const (
	allDays     = 1<<32 - 2 // 1 to 31
	allMonths   = 1<<13 - 2 // 1 to 12
	allWeekdays = 1<<7 - 1
	allHours    = 1<<24 - 1

	daySeconds = 24 * 60 * 60
	// searchMonths bounds the search for a day. The rarest there is, 29 February on a given weekday, comes
	// at least every 40 years.
	searchMonths = 12 * 100
)

// calendar is a set of wall times, one bit for each minute, hour, day, month and weekday (Sunday is 0) that matches.
type calendar struct {
	minutes  uint64
	hours    uint32
	days     uint32
	months   uint16
	weekdays uint8
	either   bool // a day matches by its date or its weekday; otherwise it must by both
	elapsed  bool // follows elapsed time through clock changes (see the package comment)
}

// Wall times are counted in civil seconds: the Unix time of the same wall reading in UTC. Days since 1970
// are counted likewise.

// next is the first wall time at or after a civil second that matches.
func (c *calendar) next(civil int64) (int64, bool) {
	minute := floorDiv(civil+59, 60)
	day := floorDiv(minute, 24*60)
	if c.matchesDay(day) {
		if m, ok := c.minuteFrom(int(minute - day*24*60)); ok {
			return (day*24*60 + int64(m)) * 60, true
		}
	}
	day, ok := c.dayFrom(day + 1)
	if !ok {
		return 0, false
	}
	m, ok := c.minuteFrom(0)
	return (day*24*60 + int64(m)) * 60, ok
}

// minuteFrom is the first matching minute of a day at or after m.
func (c *calendar) minuteFrom(m int) (int, bool) {
	hour := m / 60
	if c.hours>>hour&1 != 0 {
		if rest := c.minutes >> (m % 60); rest != 0 {
			return m + bits.TrailingZeros64(rest), true
		}
	}
	rest := c.hours >> (hour + 1)
	if rest == 0 || c.minutes == 0 {
		return 0, false
	}
	hour += 1 + bits.TrailingZeros32(rest)
	return hour*60 + bits.TrailingZeros64(c.minutes), true
}

// weekly reports that only the weekday decides whether a day matches.
func (c *calendar) weekly() bool { return c.days == allDays && c.months == allMonths && !c.either }

func (c *calendar) matchesDay(day int64) bool {
	if c.weekly() {
		return c.weekdays>>weekday(day)&1 != 0
	}
	year, month, d := date(day)
	return c.month(year, month)>>d&1 != 0
}

// dayFrom is the first matching day at or after one.
func (c *calendar) dayFrom(day int64) (int64, bool) {
	if c.weekly() {
		wd := weekday(day)
		week := uint16(c.weekdays) | uint16(c.weekdays)<<7
		return day + int64(bits.TrailingZeros16(week>>wd)), week != 0
	}
	year, month, d := date(day)
	first := day - int64(d) + 1
	mask := c.month(year, month) >> d << d
	for range searchMonths {
		if mask != 0 {
			return first + int64(bits.TrailingZeros32(mask)) - 1, true
		}
		first += int64(monthDays(year, month))
		if month++; month > time.December {
			year, month = year+1, time.January
		}
		mask = 0
		if c.months>>month&1 != 0 {
			mask = c.monthFrom(year, month, weekday(first))
		}
	}
	return 0, false
}

// month is the set of matching days of a month, 1 to 31.
func (c *calendar) month(year int, month time.Month) uint32 {
	if c.months>>month&1 == 0 {
		return 0
	}
	return c.monthFrom(year, month, weekday(dayNumber(year, month, 1)))
}

// monthFrom is month for a month that matches, given the weekday of its first day.
func (c *calendar) monthFrom(year int, month time.Month, first int) uint32 {
	week := uint64(c.weekdays)
	week = (week | week<<7) >> first & allWeekdays
	byWeekday := uint32(week * (1 | 1<<7 | 1<<14 | 1<<21 | 1<<28) << 1)
	mask := c.days & byWeekday
	if c.either {
		mask = c.days | byWeekday
	}
	return mask & uint32(uint64(2)<<monthDays(year, month)-2)
}

func monthDays(year int, month time.Month) int {
	switch month {
	case time.February:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case time.April, time.June, time.September, time.November:
		return 30
	}
	return 31
}

// In UTC there are no clock changes, so the time package can be trusted with the calendar.

func date(day int64) (int, time.Month, int) { return time.Unix(day*daySeconds, 0).UTC().Date() }

func dayNumber(year int, month time.Month, day int) int64 {
	return floorDiv(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), daySeconds)
}

// weekday is the weekday of a day; 1 January 1970 was a Thursday.
func weekday(day int64) int {
	d := day + int64(time.Thursday)
	return int(d - floorDiv(d, 7)*7)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
