package scheduler

import "time"

// Cadence is when something is due. It is immutable.
type Cadence struct{} // fields of your choosing, small: 100,000 of them are held

// ParseEvery reads an interval: <digits><s|m|h|d>, positive, as in spec §3.1 (its messages too).
func ParseEvery(text string) (Cadence, error) { panic("todo") }

// At is a calendar slot.
type At struct {
	Hour, Minute int
	Weekdays     []time.Weekday // empty: every day; the order given is kept for rendering
}

// NewAt checks a calendar slot.
func NewAt(at At) (Cadence, error) { panic("todo") }

// ParseCron reads five fields or a descriptor (@daily, @every 1h is refused: use every).
// Warnings are what is legal but probably not meant: both day fields restricted, a step that
// does not divide its field. A cron that can never fire is an error.
func ParseCron(expr string) (c Cadence, warnings []string, err error) { panic("todo") }

// In returns the cadence in an explicit zone. Without one it follows the machine's zone.
func (c Cadence) In(loc *time.Location) Cadence { panic("todo") }

// Interval is the interval of an `every` cadence, 0 for the others.
func (c Cadence) Interval() time.Duration { panic("todo") }

// Location is the explicit zone, nil for machine-local.
func (c Cadence) Location() *time.Location { panic("todo") }

// String renders it for people as spec §3.1: "every 6h", "daily at 09:05", "mon, fri at 16:30",
// "cron 0 9 1 * *", followed by " in <zone>" where one is explicit. Equal texts are equal cadences: it is
// also the fingerprint in since.json.
func (c Cadence) String() string { panic("todo") }

// Slot is one due instant of a cadence. Civil is its nominal wall time,
// "2006-01-02T15:04" (02:30 even where a gap moved it to 03:30); empty for intervals and for
// crons that follow elapsed time.
type Slot struct {
	At    time.Time
	Civil string
}

// Next is the first slot strictly after t; for an interval it is t plus the interval. local is the machine's
// zone, used where the cadence has none. ok is false where there is none within 100 years or so.
// `next`, the loop and the history's nextDue all come from here.
func (c Cadence) Next(t time.Time, local *time.Location) (s Slot, ok bool) { panic("todo") }

// Latest is the newest slot in (after, until], found without walking every slot of a
// long stretch. count is how many there are, counted up to 1,000; more says that there are more.
// oldest is the first of them.
func (c Cadence) Latest(after, until time.Time, local *time.Location) (oldest, newest Slot, count int, more, ok bool) {
	panic("todo")
}

// ShortestGap is a lower bound of the time between two slots in ordinary time (clock changes aside), for the
// check that jitter is smaller.
func (c Cadence) ShortestGap() time.Duration { panic("todo") }

// ClockChange describes how the next clock change within a year after t moves or doubles a slot of the
// cadence, as a sentence for a warning; "" where it does not.
func (c Cadence) ClockChange(t time.Time, local *time.Location) string { panic("todo") }

// Resolve is the instant of a civil time in a zone, under the rule of the package comment.
func Resolve(year int, month time.Month, day, hour, minute int, loc *time.Location) time.Time {
	panic("todo")
}
