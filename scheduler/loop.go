package scheduler

import (
	"context"
	"log/slog"
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
	// interval, the last finish or first sight. A Base in the future is read as now.
	Base time.Time
	// Civil is the nominal civil time of the last started slot, and CivilAt its instant. Where they
	// disagree in the present zone the zone has changed since, and no slot whose civil time is not
	// later fires again.
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
	Slot   Slot
	Fire   bool    // false: only Missed is to be recorded
	Late   bool    // more than 60 s late: fired by the catch-up rule
	Older  Stretch // older slots this one stands for (Count 0: none): "merged" where Fire, else "missed" together with Slot
	Missed Stretch // slots that catch_up gave up (Count 0: none)
}

// Options are a loop's settings.
type Options struct {
	// Fire is called in the loop's goroutine for each decision and must not block.
	Fire func(Due)
	// Parallel: at most this many overdue keys are fired at once after a start or a wake; more are
	// spread out. 0 means no spreading.
	Parallel int
	Log      *slog.Logger
	// Zone watches the machine's zone; nil means time.Local for ever.
	Zone *Zone
}

// Loop fires triggers when they are due: one heap, one timer.
type Loop struct{}

// NewLoop makes a loop without triggers.
func NewLoop(o Options) *Loop { panic("todo") }

// Set replaces the triggers. A trigger whose ID and cadence did not change keeps its place (its
// Base is ignored); a new one is armed from its Base.
func (l *Loop) Set(triggers []Trigger) { panic("todo") }

// Finished says that an interval trigger's tick ended (or was skipped) at an instant: the next is due one
// interval later. For slot triggers it does nothing.
func (l *Loop) Finished(id string, at time.Time) { panic("todo") }

// Next is the trigger that fires next, and when. ok is false where none is armed.
func (l *Loop) Next() (id string, at time.Time, ok bool) { panic("todo") }

// NextOf is when a trigger's next slot is; ok is false where it is unknown or waits for its run to finish.
func (l *Loop) NextOf(id string) (slot Slot, ok bool) { panic("todo") }

// Turned is when the loop last looked at the clock, for the watchdog.
func (l *Loop) Turned() time.Time { panic("todo") }

// Run runs the loop until ctx ends.
func (l *Loop) Run(ctx context.Context) error { panic("todo") }

// Zone is the machine's time zone, read again when it changes (Go reads it once per process).
type Zone struct{}

// NewZone reads the zone by TZ, else /etc/localtime, as Go does. root is "" or a directory in place of / for tests.
func NewZone(root string) *Zone { panic("todo") }

// Location is the zone as last read.
func (z *Zone) Location() *time.Location { panic("todo") }

// Refresh looks whether it changed; it costs one stat when it did not.
func (z *Zone) Refresh() (changed bool) { panic("todo") }
