package scheduler

import "time"

// maxCount is how far Latest counts.
const maxCount = 1000

// Latest is the newest slot in (after, until], found without walking every slot of a
// long stretch. count is how many there are, counted up to 1,000; more says that there are more.
// oldest is the first of them.
func (c Cadence) Latest(after, until time.Time, local *time.Location) (oldest, newest Slot, count int, more, ok bool) {
	loc := c.zone(local)
	if !after.Before(until) {
		return Slot{}, Slot{}, 0, false, false
	}
	if c.every > 0 {
		return c.latestInterval(after, until, loc)
	}
	from, last := seconds(after)+1, seconds(until)
	w := newWalk(c.cal, loc, from)
	var at, civil int64
	for count <= maxCount {
		a, nominal, found := w.next(from)
		if !found || a > last {
			break
		}
		at, civil = a, nominal
		if count++; count == 1 {
			oldest = c.slot(at, civil, loc)
		}
		from = at + 1
	}
	if count == 0 {
		return Slot{}, Slot{}, 0, false, false
	}
	if count > maxCount {
		count, more = maxCount, true
		at, civil = c.lastSlot(at, civil, last, loc)
	}
	return oldest, c.slot(at, civil, loc), count, more, true
}

// latestInterval is Latest for an interval: its slots are whole intervals after the start.
func (c Cadence) latestInterval(after, until time.Time, loc *time.Location) (oldest, newest Slot, count int, more, ok bool) {
	span := seconds(until) - seconds(after)
	if until.Nanosecond() < after.Nanosecond() {
		span--
	}
	n := span / c.every
	if n == 0 {
		return Slot{}, Slot{}, 0, false, false
	}
	oldest = Slot{At: c.intervals(after, 1, loc)}
	newest = Slot{At: c.intervals(after, n, loc)}
	return oldest, newest, int(min(n, maxCount)), n > maxCount, true
}

// lastSlot is the newest slot at or before last, given one that is not newer. It looks back in doubling steps and then
// halves what is left, so it costs a few dozen looks however many slots there are.
func (c Cadence) lastSlot(at, civil, last int64, loc *time.Location) (int64, int64) {
	next := func(from int64) (int64, int64, bool) {
		w := newWalk(c.cal, loc, from)
		a, n, ok := w.next(from)
		return a, n, ok && a <= last
	}
	hi := last // there is no slot from hi+1 to last
	for step := int64(60); last-step > at; step *= 2 {
		if a, n, ok := next(last - step); ok {
			at, civil = a, n
			break
		}
		hi = last - step - 1
	}
	for {
		a, n, ok := next(at + 1)
		if !ok {
			return at, civil
		}
		at, civil = a, n
		mid := at + (hi-at)/2
		if a, n, ok := next(mid + 1); ok {
			at, civil = a, n
		} else {
			hi = mid
		}
	}
}
