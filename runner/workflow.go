package runner

import (
	"context"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// Command is what a step runs: a shell text or an argv.
type Command struct {
	Shell string   // given to the step's shell
	Argv  []string // run as it is; Shell is empty then
}

// Program is a compiled jq program. String is its text, from which Options.Compile makes it again.
type Program interface {
	String() string
	Run(ctx context.Context, input []byte) ([]jsontext.Value, error)
}

// Schema checks a workflow's input before anything of a launch is recorded.
type Schema interface {
	Validate(input jsontext.Value) error
}

// Final is when a step runs that is no part of the graph, after all that are.
type Final string

// The kinds of final steps.
const (
	NotFinal  Final = ""
	Always    Final = "always"
	OnFailure Final = "on_failure" // the run failed or was cancelled
)

// Step is one unit of work. It has exactly one of Command, Ask, Wait, Start and Call.
type Step struct {
	Name    string
	Command Command
	Ask     *Ask
	Wait    *Wait
	Start   *Start
	// Call is done within this process. What it writes is the step's output, on the stream "stream".
	Call func(ctx context.Context, c Call) (jsontext.Value, error)

	// Needs are the steps that come before. nil: the one above, final steps apart; empty: none.
	Needs           []string
	Final           Final
	If              Program // over input and results; it must give one value, and null and false skip the step
	ContinueOnError bool    // the run goes on, with null as the step's result
	Retry           Retry
	Each            *Each         // of a Command or Start
	Timeout         time.Duration // of one attempt; 0: none. Of Ask and Wait it is not used

	Env       []string // NAME=value, added to the workflow's
	Workdir   string   // absolute, or with a Worktree relative to it; "": the workflow's
	Shell     []string // argv prefix, as {"sh", "-c"}; nil: the workflow's
	Secrets   []Secret // added to the workflow's
	Limits    Limits
	Worktree  *Worktree
	Artifacts []Artifact
	Isolate   *Isolate // it runs in a unit of the init system, and outlives this process; nil: as a child
}

// Call is what a Step.Call gets.
type Call struct {
	Run, Key string
	Input    jsontext.Value // as in MARBLES_INPUT_FILE
	Output   io.Writer
}

// Ask is a step that asks a person. With ModeApproval a rejection ends the run as cancelled, with the note as the reason.
type Ask struct {
	Mode     string // state.ModeQuestion | state.ModeApproval
	Title    string
	Body     string
	Choices  []string
	Deadline time.Duration // from when it is asked; 0: none
	// Default answers it at the deadline; nil: the step fails then.
	Default *string
}

// Wait is a step that waits. Exactly one member is set.
type Wait struct {
	For   time.Duration
	Until time.Time
}

// Start is a step that launches another workflow and takes its result. The step's run holds no place meanwhile.
type Start struct {
	Workflow string
	Input    jsontext.Value // literal; or
	Program  Program        // makes it, from input and results
}

// Each does a step once for each element of a list. The result is the list of results.
type Each struct {
	List     jsontext.Value // an array; or
	Program  Program        // makes one array, from input and results
	Parallel int            // at most so many at once; 0: 1
}

// Retry says how a step is tried again after it failed. The zero value: not at all.
type Retry struct {
	Attempts  int           // in all
	Wait      time.Duration // before the second; twice as long each time, with jitter
	MaxWait   time.Duration // 0: no cap
	ExitCodes []int         // only these are tried again; nil: every failure
}

// Limits bound what a step's processes may use together. They need a cgroup with those controllers.
type Limits struct {
	Memory int64   // bytes; 0: none
	CPU    float64 // processors; 0: none
	Tasks  int     // processes and threads; 0: none
}

// Secret is a variable of a step's environment whose value no text ever shows. Its Read is asked at each start of a
// process.
type Secret struct {
	Name string // of the variable
	From string // "credential x", "file /x", "variable X": for errors
	Read func() (string, error)
}

// Worktree lets a step run in a git worktree of its own, which is removed afterwards. Its branch is kept.
type Worktree struct {
	Base   string // what it is made from; "": HEAD
	Branch string // "": named after the run and the step
}

// Artifact is a file that a step made and the artifact store keeps a version of.
type Artifact struct {
	Name string
	Type string
	Path string // relative to the step's working directory, or absolute
}

// ArtifactStore keeps artifacts.
type ArtifactStore interface {
	Add(ctx context.Context, n state.NewArtifact) (state.ArtifactVersion, error)
}

// What becomes of a run whose process died.
const (
	InterruptFail    = "fail"
	InterruptRestart = "restart"
)

// Workflow is what can be launched. It is immutable.
type Workflow struct {
	Name        string
	Describe    string
	Input       jsontext.Value // defaults, an object; nil for none
	Schema      Schema         // nil for none
	Env         []string
	Timeout     time.Duration // for the whole run, its parked time apart; 0: none
	Workdir     string        // absolute; "": the workspace
	Shell       []string      // nil: {"sh", "-c"}
	Concurrency int           // at most this many runs at once, over all processes; 0: no limit
	User, Group string        // of its processes, where the service is root; "": the service's
	Secrets     []Secret
	OnInterrupt string // InterruptFail (default) | InterruptRestart
	Steps       []Step
}
