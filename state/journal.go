package state

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Streams of a text record.
const (
	Stdout     = "stdout"
	Stderr     = "stderr"
	StepStream = "step" // step lifecycle lines
)

// Journal is the append-only output of one run. It is safe for concurrent use.
// Every record is one append of a whole line.
type Journal struct{}

// OpenJournal creates or continues output/<run>.jsonl and appends a start record.
// It first ends a torn last line.
func (w *Workspace) OpenJournal(run, name string, now time.Time) (*Journal, error) { panic("todo") }

// Text appends what arrived together on one stream of a step. Bytes that are not
// UTF-8 go as base64; joining the texts of one step and stream gives back its bytes.
// partial marks a piece of a longer line.
func (j *Journal) Text(at time.Time, step, stream string, data []byte, partial bool) error {
	panic("todo")
}

// Spawning records that a process is about to be started, Spawned which one it
// became (its process group is its pid). Both kinds are ours; readers ignore them.
func (j *Journal) Spawning(at time.Time, step string) error           { panic("todo") }
func (j *Journal) Spawned(at time.Time, step string, p Process) error { panic("todo") }

// End appends the end record: result, or err where the run did not complete.
func (j *Journal) End(at time.Time, status Status, result jsontext.Value, err *RunError) error {
	panic("todo")
}

// Sync makes the journal durable, its directory entry included.
func (j *Journal) Sync() error { panic("todo") }

// Close closes the file without syncing.
func (j *Journal) Close() error { panic("todo") }

// Remove deletes a journal that cannot be trusted as proof of what was spawned
// (see runner: recovery), after an append failed.
func (j *Journal) Remove() error { panic("todo") }

// Entry is one record of a journal as read back.
type Entry struct {
	Kind    string // start | text | spawn | process | end
	At      time.Time
	Run     string // start
	Name    string // start
	Process Process
	Step    string
	Stream  string
	Text    []byte // decoded
	Partial bool
	Status  Status
	Result  jsontext.Value
	Error   *RunError
}

// ReadJournal calls fn for each complete record there is now. Unknown kinds and
// damaged lines are passed over; a torn last line is not seen.
func (w *Workspace) ReadJournal(run string, fn func(Entry) error) error { panic("todo") }

// FollowJournal calls fn for each record, then waits for more (seen within 100 ms),
// until done, called when nothing new came, says to stop, or ctx ends. After done
// said stop, what was appended meanwhile is still delivered. A journal that does not exist
// yet is waited for; one that was deleted or cut short while followed is an error.
func (w *Workspace) FollowJournal(ctx context.Context, run string, fn func(Entry) error, done func() (bool, error)) error {
	panic("todo")
}
