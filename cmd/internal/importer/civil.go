package importer

import (
	"slices"
	"time"
)

// Wall times are counted in seconds: the Unix time of the same reading in UTC. This is a second reckoning beside the
// scheduler's, on purpose: it looks at offsets, and at nothing else.

const (
	daySeconds = 24 * 60 * 60
	// farthest is how many days are looked at: 29 February on a given weekday comes every 40 years at least.
	farthest = 41 * 366
)

// civilDay is the wall time at which a day begins.
type civilDay int64

func (d civilDay) at(hour, minute, second int) int64 {
	return int64(d) + int64(hour*3600+minute*60+second)
}

// civilDays collects the first n instants after from that the days for which ok is true have.
func civilDays(from time.Time, loc *time.Location, n int, ok func(int, time.Month, int) bool, instants func(civilDay) []time.Time) []time.Time {
	var found []time.Time
	// A day before, since a change of the clocks can move what belongs to it.
	first := from.In(loc).AddDate(0, 0, -1)
	day := time.Date(first.Year(), first.Month(), first.Day(), 0, 0, 0, 0, time.UTC).Unix()
	for range farthest {
		if t := time.Unix(day, 0).UTC(); ok(t.Date()) {
			for _, at := range instants(civilDay(day)) {
				if at.After(from) {
					found = append(found, at)
				}
			}
		}
		day += daySeconds
		if len(found) >= n && time.Unix(day-2*daySeconds, 0).After(found[n-1]) {
			break
		}
	}
	slices.SortFunc(found, time.Time.Compare)
	found = slices.CompactFunc(found, time.Time.Equal)
	return found[:min(n, len(found))]
}

// occurrences are the instants at which a wall time is shown: none, one or two.
func occurrences(civil int64, loc *time.Location) (all []time.Time) {
	for _, offset := range offsets(civil, loc) {
		if at := time.Unix(civil-offset, 0).In(loc); shows(at) == civil {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// offsets are those in force around a wall time.
func offsets(civil int64, loc *time.Location) (all []int64) {
	for _, hours := range []int64{-26, -13, -3, 0, 3, 13, 26} {
		_, offset := time.Unix(civil+hours*3600, 0).In(loc).Zone()
		all = append(all, int64(offset))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shows is the wall time at an instant.
func shows(at time.Time) int64 {
	_, offset := at.Zone()
	return at.Unix() + int64(offset)
}

// change is the instant of the clock change that skips a wall time.
func change(civil int64, loc *time.Location) time.Time {
	low, high := civil-26*3600, civil+26*3600
	for low+1 < high { // low shows less than civil, high shows more
		if mid := (low + high) / 2; shows(time.Unix(mid, 0).In(loc)) < civil {
			low = mid
		} else {
			high = mid
		}
	}
	return time.Unix(high, 0).In(loc)
}
