package scheduler

import "time"

const (
	// maxOffset is more than any zone is from UTC, in seconds: RFC 9636 wants offsets within 26 hours.
	maxOffset = 26 * 60 * 60
	// reach is how far behind an instant a clock change can still matter to it: the size of one change, at most
	// twice maxOffset, and once more where two changes overlap.
	reach = 4 * maxOffset
	// forever is after every instant, and small enough to add offsets to.
	forever = 1 << 60
	// lastInstant is the year 10000, which RFC 3339 cannot write.
	lastInstant = 253402300800
	// horizon is how far ahead a slot is looked for, in seconds.
	horizon = 101 * 366 * daySeconds
)

// span is a stretch of time with one offset from UTC: the instants from start to before end. Neighbours may have equal
// offsets, since the time package ends spans at the turn of a year too.
type span struct {
	start, end int64
	offset     int64
	// What came before, where a span was reached from its predecessor: its offset, and the
	// civil second up to which wall times have already occurred or been skipped.
	follows bool
	before  int64
	floor   int64
}

// spanAt is the span that an instant lies in, from that instant on.
func spanAt(at int64, loc *time.Location) span {
	t := time.Unix(at, 0).In(loc)
	_, offset := t.Zone()
	s := span{start: at, end: forever, offset: int64(offset), floor: -forever}
	_, end := t.ZoneBounds()
	if end.IsZero() {
		return s
	}
	s.end = end.Unix()
	if s.end <= at {
		// Where a zone goes on by a rule, Go (1.26) gives every year 365 days. On the last day of a leap year the
		// end it answers has passed, and no change is left in that year.
		s.end = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return s
}

// after is the span that follows one; the last span is followed by an empty one.
func (s span) after(loc *time.Location) span {
	next := spanAt(s.end, loc)
	next.follows = true
	next.before = s.offset
	next.floor = max(s.floor, s.end+s.offset)
	return next
}

// skipped is the civil seconds that the clock change at the start of the span skips; empty where hi is not above lo.
func (s span) skipped() (lo, hi int64) {
	if !s.follows {
		return 0, 0
	}
	return s.floor, s.start + s.offset
}

// Resolve is the instant of a civil time in a zone, under the rule of the package comment. Values outside their usual
// ranges are normalised as by time.Date.
func Resolve(year int, month time.Month, day, hour, minute int, loc *time.Location) time.Time {
	civil := time.Date(year, month, day, hour, minute, 0, 0, time.UTC).Unix()
	return time.Unix(resolve(civil, loc), 0).In(loc)
}

func resolve(civil int64, loc *time.Location) int64 {
	s := spanAt(civil-maxOffset, loc) // no zone shows it earlier
	for {
		if lo, hi := s.skipped(); lo <= civil && civil < hi {
			return civil - s.before
		}
		// Spans are visited in order, so the first that holds the wall time is its first occurrence.
		if civil < s.end+s.offset || s.end == forever {
			return civil - s.offset
		}
		s = s.after(loc)
	}
}

// walk finds the slots of a calendar in a zone, one after the other.
//
// Within a span, slots are the matching wall times that did not occur in an earlier span, and the ones skipped by the change
// at its start, moved by the size of the change. The moved ones mix with the others, so both are looked for and
// the earlier instant wins.
type walk struct {
	cal   calendar
	loc   *time.Location
	reach int64
	first span // the first span that can matter to what is asked next
	then  span // the one after first, once it was needed
}

func newWalk(cal calendar, loc *time.Location, from int64) walk {
	w := walk{cal: cal, loc: loc}
	if !cal.elapsed {
		w.reach = reach
	}
	w.first = spanAt(from-w.reach, loc)
	return w
}

// next is the first slot at or after from, as an instant and as its nominal civil time. from must not decrease
// from call to call.
func (w *walk) next(from int64) (at, civil int64, ok bool) {
	if w.first.end <= from-w.reach {
		w.first = spanAt(from-w.reach, w.loc)
	}
	limit := min(from+horizon, lastInstant)
	at = forever
	for s := w.first; ; {
		a, c := w.within(s, from)
		if a < at || a == at && c > civil {
			at, civil = a, c
		}
		// A moved slot can lie beyond a very short span, where the next one may have an earlier slot.
		if at < s.end || s.end >= limit {
			return at, civil, at < limit
		}
		if at == forever {
			ahead, ok := w.cal.next(max(from, s.start) - maxOffset)
			if !ok {
				return 0, 0, false
			}
			// Nothing can be due before then: skip the clock changes of the years between.
			if far := ahead - maxOffset - w.reach; far > s.end {
				s = spanAt(far, w.loc)
				w.first = s
				continue
			}
		}
		s = w.after(s)
	}
}

// within is the first slot at or after from that belongs to a span, or forever.
func (w *walk) within(s span, from int64) (at, civil int64) {
	at = forever
	lo := max(from, s.start) + s.offset
	if !w.cal.elapsed {
		lo = max(lo, s.floor)
	}
	if end := s.end + s.offset; lo < end {
		if c, ok := w.cal.next(lo); ok && c < end {
			at, civil = c-s.offset, c
		}
	}
	if w.cal.elapsed {
		return at, civil
	}
	if lo, hi := s.skipped(); lo < hi {
		if c, ok := w.cal.next(max(lo, from+s.before)); ok && c < hi && c-s.before < at {
			at, civil = c-s.before, c
		}
	}
	return at, civil
}

// after remembers the span after the first, which every question near a clock change needs.
func (w *walk) after(s span) span {
	if s != w.first {
		return s.after(w.loc)
	}
	if w.then.start != s.end || !w.then.follows {
		w.then = s.after(w.loc)
	}
	return w.then
}
