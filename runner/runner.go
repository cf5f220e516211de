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
	// Queued is the file of a run that never began (see Recover): it goes on under its own id and with its own input, and
	// this process as its owner. RunID and Input are not looked at then.
	Queued *state.RunFile
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
	// Status is settled, with one exception: queued, where Drain left the run queued on disk.
	Status state.Status
	Output jsontext.Value // nil for none
	Error  *state.RunError
	// Files are the handler's files as they were when it ended, for LaunchFile only.
	Files    map[string][]byte
	Started  time.Time
	Finished time.Time
}

// Err is nil for a run that completed, ErrDraining for one left queued, else why it did not complete.
func (r Result) Err() error {
	switch {
	case r.Status == state.Complete:
		return nil
	case r.Status == state.Queued:
		return ErrDraining
	case r.Error == nil:
		return fmt.Errorf("the run is %s", r.Status)
	}
	return errors.New(r.Error.Message)
}

// Options are a worker's settings. Zero values are the defaults.
type Options struct {
	Concurrency int           // runs at once; default 16
	Grace       time.Duration // between SIGTERM and SIGKILL; default 10 s; negative: none
	Log         *slog.Logger
	// Env is the service's own environment, NAME=value. Of it a step gets PATH, HOME, USER, LOGNAME, SHELL, LANG,
	// LC_*, TZ and TMPDIR, and nothing else.
	Env []string
	// TempDir is where the private directories of runs are made; default TMPDIR of Env, else /tmp.
	TempDir string
}
