package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// At is a calendar slot.
type At struct {
	Hour, Minute int
	Weekdays     []time.Weekday // empty: every day; the order given is kept for rendering
}

// NewAt checks a calendar slot. A weekday that is given twice counts once.
func NewAt(at At) (Cadence, error) {
	ok := 0 <= at.Hour && at.Hour <= 23 && 0 <= at.Minute && at.Minute <= 59
	c := Cadence{cal: calendar{days: allDays, months: allMonths}}
	var names []string
	for _, d := range at.Weekdays {
		if d < time.Sunday || d > time.Saturday {
			ok = false
			break
		}
		if c.cal.weekdays&(1<<d) == 0 {
			names = append(names, weekdayName(d))
		}
		c.cal.weekdays |= 1 << d
	}
	if !ok {
		return Cadence{}, fmt.Errorf("cannot read calendar slot %s (want hour 0–23, minute 0–59)", at.json())
	}
	when := "daily"
	if len(names) == 0 {
		c.cal.weekdays = allWeekdays
	} else {
		when = strings.Join(names, ", ")
	}
	c.cal.hours = 1 << at.Hour
	c.cal.minutes = 1 << at.Minute
	c.text = fmt.Sprintf("%s at %02d:%02d", when, at.Hour, at.Minute)
	return c, nil
}

// json writes the slot as its definition would.
func (at At) json() string {
	b := fmt.Appendf(nil, `{"hour":%d,"minute":%d`, at.Hour, at.Minute)
	if len(at.Weekdays) > 0 {
		names := make([]string, len(at.Weekdays))
		for i, d := range at.Weekdays {
			names[i] = strconv.Itoa(int(d))
			if time.Sunday <= d && d <= time.Saturday {
				names[i] = strconv.Quote(weekdayName(d))
			}
		}
		b = fmt.Appendf(b, `,"weekday":[%s]`, strings.Join(names, ","))
	}
	return string(append(b, '}'))
}

func weekdayName(d time.Weekday) string { return strings.ToLower(d.String()[:3]) }

// weekdayNumber is the weekday a three-letter name stands for, in any case.
func weekdayNumber(name string) (int, bool) {
	return nameIndex(name, "sun", "mon", "tue", "wed", "thu", "fri", "sat")
}

// monthNumber is the month a three-letter name stands for, in any case.
func monthNumber(name string) (int, bool) {
	i, ok := nameIndex(name, "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
	return i + 1, ok
}

func nameIndex(name string, names ...string) (int, bool) {
	i := slices.Index(names, strings.ToLower(name))
	return i, i >= 0
}
