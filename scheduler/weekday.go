package scheduler

import "time"

// ParseWeekday reads the three-letter name of a weekday, as calendar slots are written with.
func ParseWeekday(name string) (day time.Weekday, ok bool) {
	n, ok := weekdayNumber(name)
	return time.Weekday(n), ok
}
