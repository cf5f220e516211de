package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// CatchUp is what happens to slots that came while nobody could run them.
type CatchUp struct {
	Never  bool          // false: an overdue key fires once
	Within time.Duration // >0: only if the newest missed slot is younger
}

// Trigger is one key to fire.
type Trigger struct {
	ID      string // unique among all triggers
	Cadence Cadence
	Jitter  time.Duration // each slot is delayed by a share of it that depends on ID and slot only
	CatchUp CatchUp
	// Base is what was settled last: for slots, the latest of slot, finish and first sight; for an
	// interval, the last finish or first sight. A Base in the future is read as now; for slots only one that is
	// more than 60 s ahead, so that a small step back just before a start repeats no slot. The zero Base is now.
	Base time.Time
	// Civil is the nominal civil time of the last started slot, and CivilAt its instant. Where they
	// disagree in the present zone the zone has changed since, and no slot whose civil time is not
	// later fires again. Only a cadence that follows the machine's zone is judged by it.
	Civil   string
	CivilAt time.Time
}

// Stretch is slots that ended without a run of their own.
type Stretch struct {
	First, Last time.Time
	Count       int
	More        bool
}

// Due is one decision of the loop.
type Due struct {
	ID     string
	Slot   Slot    // the newest slot that the decision is about
	Fire   bool    // false: only Missed is to be recorded
	Late   bool    // more than 60 s late: fired by the catch-up rule
	Older  Stretch // older slots that this run stands for (Count 0: none), to be recorded as merged
	Missed Stretch // slots that catch_up gave up (Count 0: none); where Fire is false, Slot is the last of them
}

// Options are a loop's settings.
type Options struct {
	// Fire is called in the loop's goroutine for each decision and must not block. No lock is held:
	// it may call the loop's methods.
	Fire func(Due)
	// Parallel: at most this many overdue keys are fired at once after a start or a wake; more are
	// spread out, 250 ms apart, or closer where that would take longer than 60 s. 0 means no spreading.
	Parallel int
	Log      *slog.Logger // nil means no log
	// Zone watches the machine's zone; nil means time.Local for ever.
	Zone *Zone
	// Delay is how much later than its instant a slot may be offered by somebody else's clock and still be on time: the
	// share of jitter that an init system's timer adds.
	Delay time.Duration
}

// Loop fires triggers when they are due: one heap, one timer.
type Loop struct {
	o       Options
	now     clock
	wake    chan struct{}
	pings   chan chan struct{} // closed after the next look
	running atomic.Bool

	// mu guards what follows. It is not held while Fire runs.
	mu      sync.Mutex
	entries map[string]*entry
	agenda  agenda
	local   *time.Location // the machine's zone that the agenda stands on
	wall    int64          // the last look: Unix nanoseconds
	mono    time.Duration  // and the monotonic clock
	sleeps  int64          // wall instant until which Run sleeps; a sooner due instant must wake it
	batch   []Due          // decisions of this look that are not yet fired
}

// NewLoop makes a loop without triggers.
func NewLoop(o Options) *Loop {
	start := time.Now()
	l := newLoop(o, func() (time.Time, time.Duration) {
		t := time.Now()
		return t.Round(0), t.Sub(start)
	})
	return l
}

func newLoop(o Options, now clock) *Loop {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loop{o: o, now: now, wake: make(chan struct{}, 1), pings: make(chan chan struct{}), sleeps: math.MinInt64}
	l.local = l.zone()
	wall, mono := now()
	l.wall, l.mono = wall.UnixNano(), mono
	return l
}

// Set replaces the triggers. A trigger whose ID, cadence and jitter did not change keeps its place (its
// Base is ignored); a new one is armed from its Base. Of equal IDs the last counts.
func (l *Loop) Set(triggers []Trigger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.wallNow()
	old := l.entries
	l.entries = make(map[string]*entry, len(triggers))
	for i := range triggers {
		t := &triggers[i]
		e := old[t.ID]
		if e == nil || e.jitter != t.Jitter || e.cadence.String() != t.Cadence.String() {
			e = l.enter(t, e, now)
		}
		e.within = t.CatchUp.Within
		if t.CatchUp.Never {
			e.within = never
		}
		e.seq = int32(i)
		l.entries[t.ID] = e
	}
	for id, e := range old {
		if l.entries[id] != e {
			e.standing = removed
		}
	}
	l.agenda.rebuild(l.entries)
	l.signal()
}

// enter makes the entry of a trigger that is new, or that replaces one with another cadence or jitter.
func (l *Loop) enter(t *Trigger, old *entry, now int64) *entry {
	e := &entry{id: t.ID, cadence: t.Cadence, jitter: t.Jitter, settled: now, ran: noCivil, index: -1}
	if !t.Base.IsZero() {
		e.settled = nanos(t.Base)
	}
	if !t.CivilAt.IsZero() && !e.interval() {
		e.ran, e.ranAt = civilMinutes(t.Civil), nanos(t.CivilAt)
		e.settled = max(e.settled, e.ranAt)
	}
	// What this loop fired may not be in the caller's record yet.
	if old != nil && !old.interval() && !e.interval() {
		e.settled = max(e.settled, old.settled)
		if old.ranAt > e.ranAt {
			e.ran, e.ranAt = old.ran, old.ranAt
		}
	}
	e.settled = e.past(e.settled, now)
	l.arm(e)
	return e
}

// Finished says that an interval trigger's tick ended (or was skipped) at an instant: the next is due one
// interval later. An instant in the future is read as now, and so
// is none. For slot triggers and for IDs that are not among the
// triggers it does nothing.
func (l *Loop) Finished(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	if e == nil || !e.interval() {
		return
	}
	now := l.wallNow()
	settled := now
	if !at.IsZero() {
		settled = e.past(nanos(at), now)
	}
	if e.standing != waiting && settled <= e.settled {
		return
	}
	e.settled, e.granted = settled, false
	l.arm(e)
	l.agenda.place(e)
	if e.standing == armed && e.due < l.sleeps {
		l.signal()
	}
}

// Next is the trigger that fires next, and when. ok is false where none is armed.
func (l *Loop) Next() (id string, at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.agenda) == 0 {
		return "", time.Time{}, false
	}
	e := l.agenda[0]
	return e.id, time.Unix(0, e.due).In(e.location(l.local)), true
}

// NextOf is when a trigger's next slot is; ok is false where it is unknown or waits for its run to finish.
func (l *Loop) NextOf(id string) (slot Slot, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[id]
	if e == nil || e.standing != armed && e.standing != overdue {
		return Slot{}, false
	}
	return l.pending(e), true
}

// Run runs the loop until ctx ends, then returns nil. It starts no goroutine. A loop is run by one caller at a
// time; a second one gets an error.
func (l *Loop) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return errors.New("cannot run the loop: it runs already")
	}
	defer l.running.Store(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var pinged chan struct{}
	// The context is asked by itself, so that no flood of due keys can starve the stop.
	for ctx.Err() == nil {
		timer.Reset(l.turn())
		if pinged != nil {
			close(pinged)
			pinged = nil
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.wake:
		case pinged = <-l.pings:
		}
	}
	return nil
}

// Ping makes Run look at the clock, and returns nil once it did and everything due then was handed out: for the watchdog.
func (l *Loop) Ping(ctx context.Context) error {
	turned := make(chan struct{})
	select {
	case l.pings <- turned:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-turned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signal wakes Run, now or when it goes to sleep next.
func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pending is an entry's next slot.
func (l *Loop) pending(e *entry) Slot {
	return Slot{At: time.Unix(0, e.slot).In(e.location(l.local)), Civil: renderCivil(e.civil)}
}
