package scheduler

import (
	"math/bits"
	"time"
)

// Fields are the wall times of a cadence that names slots: every combination of them is a slot, but for the days.
type Fields struct {
	Minutes, Hours []int // sorted; every value there is: unrestricted
	Days, Months   []int // sorted, from 1
	Weekdays       []time.Weekday
	// Either: a day matches by its date or by its weekday. Otherwise it must match by both.
	Either bool
	// Elapsed: it follows elapsed time through clock changes, see the package comment.
	Elapsed bool
}

// Fields describes the cadence's slots for other clocks; ok is false for an interval, and for the zero Cadence.
func (c Cadence) Fields() (f Fields, ok bool) {
	if c.every > 0 || c.text == "" {
		return Fields{}, false
	}
	f = Fields{
		Minutes: values(c.cal.minutes), Hours: values(uint64(c.cal.hours)),
		Days: values(uint64(c.cal.days)), Months: values(uint64(c.cal.months)),
		Either: c.cal.either, Elapsed: c.cal.elapsed,
	}
	for _, d := range values(uint64(c.cal.weekdays)) {
		f.Weekdays = append(f.Weekdays, time.Weekday(d))
	}
	return f, true
}

// EveryMinute reports that the minute is unrestricted; the others say it of their fields.
func (f Fields) EveryMinute() bool { return len(f.Minutes) == 60 }

// EveryHour is EveryMinute for the hour.
func (f Fields) EveryHour() bool { return len(f.Hours) == 24 }

// EveryDate is EveryMinute for the day of the month.
func (f Fields) EveryDate() bool { return len(f.Days) == 31 }

// EveryMonth is EveryMinute for the month.
func (f Fields) EveryMonth() bool { return len(f.Months) == 12 }

// EveryWeekday is EveryMinute for the weekday.
func (f Fields) EveryWeekday() bool { return len(f.Weekdays) == 7 }

// values are the members of a set, sorted.
func values(set uint64) []int {
	list := make([]int, 0, bits.OnesCount64(set))
	for ; set != 0; set &= set - 1 {
		list = append(list, bits.TrailingZeros64(set))
	}
	return list
}
