package scheduler

import (
	"container/heap"
	"math"
	"time"
)

const (
	onTime     = 60 * time.Second // a slot that is later than this was missed
	lookEvery  = 10 * time.Second // the longest sleep (design §6)
	stepBack   = time.Second      // how far the clock must go back to be noticed; slewing stays far below
	stepAhead  = 5 * time.Second  // how far ahead it must go to be worth a line in the log
	spreadGap  = 250 * time.Millisecond
	spreadOver = 60 * time.Second
	batchSize  = 256 // decisions taken under one hold of the lock
)

// clock reads the wall clock, without a monotonic reading, and the monotonic clock, which stands still while the
// machine sleeps.
type clock func() (wall time.Time, mono time.Duration)

func (l *Loop) wallNow() int64 {
	wall, _ := l.now()
	return wall.UnixNano()
}

// zone is the machine's zone as last read.
func (l *Loop) zone() *time.Location {
	if l.o.Zone == nil {
		return time.Local
	}
	return l.o.Zone.Location()
}

// turn looks at the clock and the zone, fires what is due, and returns how long to sleep. Where nothing is due it
// looks at one entry only.
func (l *Loop) turn() time.Duration {
	wall, mono := l.now()
	if l.o.Zone != nil {
		l.o.Zone.Refresh()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := wall.UnixNano()
	l.sleeps = math.MinInt64
	l.follow(now, mono)

	var late []*entry
	for {
		late = l.collect(now, late)
		if len(l.batch) == 0 {
			break
		}
		l.fire()
	}
	if l.o.Parallel > 0 && len(late) > l.o.Parallel {
		l.spread(late[l.o.Parallel:], now)
		late = late[:l.o.Parallel]
	}
	for _, e := range late {
		// While earlier ones fired it may have been removed, or finished and armed again.
		if e.standing == overdue {
			l.decide(e, l.judge(e, now))
		}
		if len(l.batch) == batchSize {
			l.fire()
		}
	}
	l.fire()

	// The clock is read again: firing takes time, and due instants are on the wall.
	at := l.wallNow()
	sleep := lookEvery
	if len(l.agenda) > 0 {
		sleep = min(sleep, max(0, time.Duration(l.agenda[0].due-at)))
	}
	l.sleeps = at + int64(sleep)
	return sleep
}

// follow moves the agenda after the clock was set back or the zone changed. Forward steps and sleep need
// nothing: what they made overdue is found in the heap.
func (l *Loop) follow(now int64, mono time.Duration) {
	step := time.Duration(now-l.wall) - (mono - l.mono)
	l.wall, l.mono = now, mono
	back := step < -stepBack
	moved := l.zone() != l.local
	switch {
	case back:
		l.o.Log.Info("clock set back", "by", -step)
	case step > stepAhead:
		l.o.Log.Info("clock moved ahead or machine slept", "by", step)
	}
	if moved {
		l.local = l.zone()
		l.o.Log.Info("time zone changed", "zone", l.local.String())
	}
	if !back && !moved {
		return
	}
	for _, e := range l.entries {
		if e.standing == waiting {
			continue
		}
		settled := e.settled
		switch {
		case back && -step > onTime:
			settled = min(settled, now)
		case back:
			settled = e.past(settled, now)
		}
		// A granted entry's turn was set by the clock before the step.
		if settled != e.settled || back && e.granted || moved && !e.interval() && e.cadence.Location() == nil {
			e.settled = settled
			l.arm(e)
		}
	}
	l.agenda.rebuild(l.entries)
}

// collect takes what is due out of the heap, until the batch is full: decisions go to the batch, and keys that would
// be fired late to late, since only their number says whether they are spread out.
func (l *Loop) collect(now int64, late []*entry) []*entry {
	for len(l.batch) < batchSize && len(l.agenda) > 0 && l.agenda[0].due <= now {
		e := heap.Pop(&l.agenda).(*entry)
		j := l.judge(e, now)
		// A granted entry that comes in its turn fires; after a sleep in the midst of a spread it is one of many again.
		if j.due.Late && l.o.Parallel > 0 && !(e.granted && now-e.due <= int64(lookEvery)) {
			e.standing = overdue
			late = append(late, e)
			continue
		}
		l.decide(e, j)
	}
	return late
}

// fire hands the batch to the caller. It lets go of the lock meanwhile.
func (l *Loop) fire() {
	l.mu.Unlock()
	defer l.mu.Lock()
	for i := range l.batch {
		l.o.Fire(l.batch[i])
	}
	clear(l.batch) // it holds texts and zones
	l.batch = l.batch[:0]
}

// spread gives overdue entries their turns, evenly, none later than its own next slot.
func (l *Loop) spread(late []*entry, now int64) {
	gap := min(spreadGap, spreadOver/time.Duration(len(late)))
	l.o.Log.Info("overdue keys are spread out", "count", len(late), "over", gap*time.Duration(len(late)))
	for i, e := range late {
		if e.standing != overdue {
			continue
		}
		e.standing, e.granted = armed, true
		e.due = now + int64(gap)*int64(i+1)
		if !e.interval() {
			newest := l.judge(e, now).due.Slot
			if next, ok := e.cadence.Next(newest.At, l.local); ok {
				e.due = min(e.due, e.fireAt(next.At.UnixNano()))
			}
		}
		l.agenda.place(e)
	}
}
