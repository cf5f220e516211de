package runner

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

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
	// Queued is the file of a run that never began (see Recover): it goes on under its own id and with its own input, and
	// this process as its owner. RunID and Input are not looked at then.
	Queued *state.RunFile
	// Parent is the run whose step started it; "" for none. RestartOf and RetryOf are other runs that it stands for.
	Parent, RestartOf, RetryOf string
	// Env and Files are a handler's: each file is written 0600 to a private directory that goes with the run, and its
	// path is in the environment under the map's key (MARBLES_CHANGE_FILE, MARBLES_BODY_FILE, MARBLES_PATHS_FILE,
	// LaunchFile).
	Env   []string
	Files map[string][]byte
	// Echo gets the steps' output live, both streams, besides the journal (roll writes it to stderr); nil for none.
	Echo io.Writer
	// Started is called while the run file is being written, before any process is spawned: for a run that has to wait,
	// while it waits, and once that file is there; an error ends the run as failed before its start. Ticks write the key's record here.
	Started func(run string, at time.Time) error

	brief bool // see Run
}

// LaunchFile is the variable of the handler's file that is read back: in it a handler asks for a launch.
const LaunchFile = "MARBLES_LAUNCH_FILE"

// Result is how a run ended.
type Result struct {
	RunID string
	// Status is settled, with two exceptions: queued, where Drain left the run queued on disk, and suspended, where it
	// is parked: File has what it waits for.
	Status state.Status
	Output jsontext.Value // nil for none
	Error  *state.RunError
	File   *state.RunFile // of a parked run
	// Files are the handler's files as they were when it ended, for LaunchFile only.
	Files    map[string][]byte
	Started  time.Time
	Finished time.Time
}

// ErrParked says that a run waits, for an answer or a time: Result.File says for what.
var ErrParked = errors.New("the run is suspended")

// Err is nil for a run that completed, ErrDraining for one left queued, ErrParked for one that waits, else why it did not
// complete.
func (r Result) Err() error {
	switch {
	case r.Status == state.Complete:
		return nil
	case r.Status == state.Queued:
		return ErrDraining
	case r.Status == state.Suspended:
		return ErrParked
	case r.Error == nil:
		return fmt.Errorf("the run is %s", r.Status)
	}
	return errors.New(r.Error.Message)
}

// Stream names one stream of one step's process.
type Stream struct {
	Workspace      *state.Workspace
	Run, Key, Step string // Key is "" for none
	Name           string // state.Stdout or state.Stderr
}

// Whether steps get cgroups of their own.
const (
	CgroupsAuto = "auto" // where this process's cgroup was delegated to it
	CgroupsOn   = "on"   // wherever it may make them; it fails where it may not
	CgroupsOff  = "off"
)

// Options are a worker's settings. Zero values are the defaults.
type Options struct {
	Concurrency int           // runs at once; default 16
	Grace       time.Duration // between SIGTERM and SIGKILL; default 10 s; negative: none
	Log         *slog.Logger
	// Env is the service's own environment, NAME=value. Of it a step gets PATH, HOME, USER, LOGNAME, SHELL, LANG,
	// LC_*, TZ and TMPDIR, and nothing else.
	Env []string
	// Workflow finds a workflow by its name, as it is defined now; nil or a nil result: it is not defined. Steps that start
	// another one, and parked runs, ask for it.
	Workflow func(ws *state.Workspace, name string) *Workflow
	// Compile makes a Program of its text, for parked runs.
	Compile func(text string) (Program, error)
	// Parks says that this process keeps parked runs and goes on with them (the service). Another one (roll) lets go of
	// a run that parks: its Result is suspended.
	Parks bool
	// Started is told of every run that begins its first step, Parked of every run that parks, and Settled of every run
	// that settles, also one that a dead process left, once its file says so. They must not block; nil for none.
	Started, Parked, Settled func(ws *state.Workspace, f *state.RunFile)
	// Asked is told of requests that only the caller can act on: to start a queued run that was handed over, or a run in
	// place of an interrupted one. It reports whether the request is done; it must not block.
	Asked func(ws *state.Workspace, q state.Request) (done bool)
	// NextDue is when a key is due after a finish, where its run ends after its tick, because it had parked; nil for never.
	NextDue func(ws *state.Workspace, key string, finish time.Time) time.Time
	// Late is told that the history of a key has the end of such a run; nil for none.
	Late func(ws *state.Workspace, key string, f *state.RunFile)
	// Output gives what also gets a stream of a step's process, with secrets masked, besides the journal, which stays the
	// truth: all of it, also what is above OutputLimit. Write must not block; Close comes at the stream's end. nil for none.
	Output func(Stream) io.WriteCloser
	// Artifacts keeps what steps make; nil: a step that makes one fails.
	Artifacts ArtifactStore
	// OutputLimit is how many bytes of output a run's journal takes; what is above it is dropped but for the last 256 KiB. 0: 64 MiB; negative: none.
	OutputLimit int64
	// Cgroups says whether steps get cgroups of their own; "": CgroupsAuto.
	Cgroups string
	// Units are for steps with Isolate; nil: they fail.
	Units Units
	// TempDir is where the private directories of runs are made; default TMPDIR of Env, else /tmp.
	TempDir string
}
