package initsys

import (
	"errors"
	"fmt"
	"time"

	"marbles/packaging"
	"marbles/scheduler"
)

// maxWallTimes is how many entries of StartCalendarInterval are written at most: launchd keeps a timer for each.
const maxWallTimes = 500

// Looks is how long an interval of launchd may be. It forgets what has passed of one whenever its user logs in or the
// machine sleeps, so that one of a week might never end; the key's history says when it is due.
const Looks = 6 * time.Hour

// WallTimes writes a cadence that names slots as launchd's wall times, which are in the machine's zone. They name every slot,
// and may name more: within one entry launchd takes a day that matches by its date or its weekday, so where a cadence wants
// both, or a month with a weekday, the entries leave the weekday out.
func WallTimes(c scheduler.Cadence, local *time.Location, now time.Time) (list []packaging.WallTime, notes []string, err error) {
	f, ok := c.Fields()
	if !ok {
		return nil, nil, errors.New("it names no slots")
	}
	if loc := c.Location(); loc != nil && !sameClock(loc, local, now) {
		return nil, nil, fmt.Errorf("launchd knows the machine's time zone alone (%s), and its cadence is %s", local, c)
	}
	dates, weekdays := [][2]int{{-1, -1}}, []int{-1} // month and day; any
	if !f.EveryMonth() || !f.EveryDate() {
		dates = pairs(orAny(f.Months, f.EveryMonth()), orAny(f.Days, f.EveryDate()))
	}
	if !f.EveryWeekday() {
		weekdays = nil
		for _, d := range f.Weekdays {
			weekdays = append(weekdays, int(d))
		}
	}
	type day struct{ month, date, weekday int }
	var days []day
	byDate, byWeekday := dates[0] != [2]int{-1, -1}, !f.EveryWeekday()
	switch {
	case f.Either && !f.EveryMonth():
		// A weekday of some months is no entry: every day of them is.
		for _, m := range f.Months {
			days = append(days, day{m, -1, -1})
		}
		notes = append(notes, "launchd cannot say a weekday of some months: it starts marbles on every day of them, which does nothing on the others")
	case f.Either:
		for _, d := range dates {
			days = append(days, day{d[0], d[1], -1})
		}
		for _, w := range weekdays {
			days = append(days, day{-1, -1, w})
		}
	case byDate:
		for _, d := range dates {
			days = append(days, day{d[0], d[1], -1})
		}
		if byWeekday {
			notes = append(notes, "launchd cannot say a day that matches by date and weekday both: it starts marbles on every such date, which does nothing on the others")
		}
	default:
		for _, w := range weekdays {
			days = append(days, day{-1, -1, w})
		}
	}
	// An entry of nothing but wildcards is left out: minutes are written one by one then.
	every := f.EveryMinute() && !(f.EveryHour() && len(days) == 1 && days[0] == day{-1, -1, -1})
	clock := pairs(orAny(f.Hours, f.EveryHour()), orAny(f.Minutes, every))
	if n := len(days) * len(clock); n > maxWallTimes {
		return nil, nil, fmt.Errorf("launchd would need %d entries for %s, and %d are the most that are written: use every:, or fewer times", n, c, maxWallTimes)
	}
	for _, d := range days {
		for _, t := range clock {
			list = append(list, packaging.WallTime{Month: d.month, Day: d.date, Weekday: d.weekday, Hour: t[0], Minute: t[1]})
		}
	}
	if len(changesAhead(local, now)) > 0 {
		notes = append(notes, "launchd has its own way with clock changes: a slot that one of them removes may not be started, and one that comes twice is started once")
	}
	return list, notes, nil
}

// orAny is a set of values, or any.
func orAny(values []int, all bool) []int {
	if all {
		return []int{-1}
	}
	return values
}

func pairs(a, b []int) (out [][2]int) {
	for _, x := range a {
		for _, y := range b {
			out = append(out, [2]int{x, y})
		}
	}
	return out
}

// sameClock reports whether two zones show the same time from now on, as far as that is known.
func sameClock(a, b *time.Location, now time.Time) bool {
	if a.String() == b.String() {
		return true
	}
	offset := func(t time.Time, loc *time.Location) int { _, o := t.In(loc).Zone(); return o }
	if offset(now, a) != offset(now, b) {
		return false
	}
	for _, changes := range [][]change{changesAhead(a, now), changesAhead(b, now)} {
		for _, c := range changes {
			if offset(c.at, a) != offset(c.at, b) || offset(c.at.Add(-time.Second), a) != offset(c.at.Add(-time.Second), b) {
				return false
			}
		}
	}
	return true
}

// Interval is the StartInterval of an interval, in seconds, and what is to be said of it.
func Interval(every time.Duration) (seconds int, notes []string) {
	if every > Looks {
		notes = append(notes, fmt.Sprintf("launchd forgets at each login and sleep how much of an interval has passed: it starts marbles every %s, which waits where the key is due before the next time, and else does nothing",
			brief(Looks)))
		every = Looks
	}
	return int(every / time.Second), notes
}

// brief writes a duration without its zeros: 6h, 90s.
func brief(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}
