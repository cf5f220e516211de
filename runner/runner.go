package runner

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// Command is what a step runs: a shell text or an argv.
type Command struct {
	Shell string   // given to the step's shell
	Argv  []string // run as it is; Shell is empty then
}

// Step is one unit of work.
type Step struct {
	Name    string
	Command Command
	Env     []string      // NAME=value, added to the workflow's
	Timeout time.Duration // 0: none
	Workdir string        // absolute; "": the workflow's
	Shell   []string      // argv prefix, as {"sh", "-c"}; nil: the workflow's
}

// Workflow is what can be launched. It is immutable.
type Workflow struct {
	Name        string
	Describe    string
	Input       jsontext.Value // defaults, an object; nil for none
	Env         []string
	Timeout     time.Duration // for the whole run; 0: none
	Workdir     string        // absolute; "": the workspace
	Shell       []string      // nil: {"sh", "-c"}
	Concurrency int           // at most this many runs at once, over all processes; 0: no limit
	Steps       []Step
}

// Launch asks for one run.
type Launch struct {
	Workspace *state.Workspace
	Workflow  *Workflow
	Input     jsontext.Value // given input, laid over the workflow's defaults by key; nil for none
	Trigger   string         // schedule | monitor | manual | launch
	Kind      string         // workflow | handler
	Key       string         // the key that asked, or ""
	Slot      time.Time
	RunID     string // "" for a new one
	// Env and Files are a handler's: each file is written 0600 to a private directory that goes with the run, and its
	// path is in the environment under the map's key (MARBLES_CHANGE_FILE, MARBLES_BODY_FILE, MARBLES_PATHS_FILE,
	// MARBLES_LAUNCH_FILE).
	Env   []string
	Files map[string][]byte
	// Echo gets the steps' output live, both streams, besides the journal (roll writes it to stderr); nil for none.
	Echo io.Writer
	// Started is called once the run file says running, right before the first step's process is spawned; an error ends
	// the run as failed. Ticks write the key's record here.
	Started func(run string, at time.Time) error
}

// Result is how a run ended.
type Result struct {
	RunID  string
	Status state.Status
	Output jsontext.Value // nil for none
	Error  *state.RunError
	// Files are the handler's files as they were when it ended, for MARBLES_LAUNCH_FILE only.
	Files    map[string][]byte
	Started  time.Time
	Finished time.Time
}

// Options are a worker's settings. Zero values are the defaults.
type Options struct {
	Concurrency int           // runs at once; default 16
	Grace       time.Duration // between SIGTERM and SIGKILL; default 10 s
	Log         *slog.Logger
}

// Worker runs launches and ticks, at most Concurrency runs at once. It is safe for concurrent use.
type Worker struct{}

// New makes a worker.
func New(o Options) *Worker { panic("todo") }

// Run is an accepted run.
type Run struct{}

// ID is the run's id. Done is closed when it has settled; Wait waits for that. Cancel asks it to stop (SIGTERM, then
// SIGKILL after the grace), with a reason; a queued run never starts then.
func (r *Run) ID() string            { panic("todo") }
func (r *Run) Done() <-chan struct{} { panic("todo") }
func (r *Run) Wait() Result          { panic("todo") }
func (r *Run) Cancel(reason string)  { panic("todo") }

// Start accepts a launch: when it returns without error the run is on disk. It never waits for a place.
// A RunID whose file exists already is fs.ErrExist.
func (w *Worker) Start(l Launch) (*Run, error) { panic("todo") }

// Overlap is what a tick does while the key's older run is at work in this process.
type Overlap string

// The overlap rules of design §6.
const (
	OverlapSkip    Overlap = "skip"
	OverlapQueue   Overlap = "queue"
	OverlapReplace Overlap = "replace"
)

// Tick is one firing of a key.
type Tick struct {
	Workspace *state.Workspace
	Key       string
	Kind      string // state.KindSchedule | state.KindMonitor
	Label     string
	Slot      time.Time // zero where it has none (a forced tick)
	SlotLocal string
	Forced    bool // by a person: no due test, no slot
	Overlap   Overlap
	// Due is asked under the lock whether the tick is still due, given the key's history (nil for none).
	Due func(rec *state.KeyRecord) bool
	// NextDue is the next due instant after a finish; zero for none.
	NextDue func(finish time.Time) time.Time
	// Body does the tick under the lock; schedules use Worker.Body.
	Body func(ctx context.Context, t *Ticking) error
}

// Ticking is a tick in progress, given to its body.
type Ticking struct {
	Tick
	Record *state.KeyRecord // as it was before, never nil
}

// Launch starts a run on behalf of the tick and waits for its end: the key's record names the slot and the run before
// the process is spawned, and the slot ledger says "ran". A run that did not complete is an error as well as a Result.
func (t *Ticking) Launch(ctx context.Context, l Launch) (Result, error) { panic("todo") }

// TickResult is how a tick ended.
type TickResult struct {
	// Outcome is SlotRan, SlotSkipped (Holder says who), SlotFailed, or "" where it was no longer due.
	Outcome  state.Outcome
	Holder   string
	Result   Result // of the last launch, if any
	Quiet    bool   // no run was started and nothing failed: a poll that saw nothing
	Err      error
	Finished time.Time
}

// Tick does one firing: overlap rule, lock, recovery of what a dead owner left under this key, due test, body, history,
// ledger. It blocks until the tick has ended. A body that started no run and did not fail writes its history lazily.
func (w *Worker) Tick(ctx context.Context, t Tick) TickResult { panic("todo") }

// Recover settles what dead processes left in a workspace: it ends their processes, settles runs that were running as
// failed (InterruptedError), and returns the runs that never began for the caller to start again or to settle
// with Abandon. Call it while holding the service lock, before the loop is armed.
func (w *Worker) Recover(ctx context.Context, ws *state.Workspace) (neverBegan []*state.RunFile, err error) {
	panic("todo")
}

// Resume accepts a run that Recover returned: the same run file and id, this process as the owner. Launch's RunID is set
// from the file; its Input is the file's.
func (w *Worker) Resume(f *state.RunFile, l Launch) (*Run, error) { panic("todo") }

// Abandon settles a run that never began as cancelled, with a reason.
func (w *Worker) Abandon(ws *state.Workspace, f *state.RunFile, reason string) error { panic("todo") }

// Active is how many runs are at work and how many wait for a place.
func (w *Worker) Active() (running, queued int) { panic("todo") }

// Ping goes through the worker's own machinery and back: it returns nil when the worker turned (watchdog).
func (w *Worker) Ping(ctx context.Context) error { panic("todo") }

// Drain accepts nothing more and waits for what runs until ctx ends, then cancels the rest and waits for that.
// Queued runs stay queued on disk.
func (w *Worker) Drain(ctx context.Context) error { panic("todo") }
