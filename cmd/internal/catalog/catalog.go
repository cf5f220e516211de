// Package catalog reads definition files into workflows, schedules and monitors.
//
// Reading is strict: unknown keys, wrong types and everything else that design §3 calls an error is reported, all
// at once, with file, line, column, dotted path and the nearest valid name. A catalog that loaded is complete and valid.
package catalog

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/monitor"
	"marbles/runner"
	"marbles/scheduler"
)

// Source is where definitions come from and whose they are.
type Source struct {
	Workspace string // project directory, absolute, symbolic links resolved
	Path      string // the folder or single file that holds the definitions
}

// Locate resolves a --source value: "" is ./.foundry/marbles of cwd or of its nearest parent that has one, else
// cwd itself (design §3; spec §1: with no source found the root is the working directory, and the catalog is empty).
// A folder is its own workspace, a file's folder is its workspace; but a source that is, or lies in, a .foundry/marbles folder
// belongs to the project above it. A path that does not exist is an error with a hint.
func Locate(path, cwd string) (Source, error) { panic("todo") }

// Options are how to load.
type Options struct {
	// Running refuses files that others may write, when this process is root (cron's rule, design §5).
	Running bool
	Now     time.Time // for warnings about the next clock change; zero: no such warnings
	// Local is the machine's zone for those warnings; nil: time.Local.
	Local *time.Location
}

// Catalog is what the definition files of one workspace declare.
type Catalog struct {
	Sources   []Source
	Files     []string // in reading order
	Workflows []*Workflow
	Schedules []*Schedule
	Monitors  []*Monitor
	Warnings  []Diagnostic
}

// Load reads one or more sources of one workspace as one catalog. On error the error is Diagnostics (all of them).
func Load(sources []Source, o Options) (*Catalog, error) { panic("todo") }

// Workflow finds a workflow by name, Schedule and Monitor find a key; nil where there is none.
func (c *Catalog) Workflow(name string) *Workflow { panic("todo") }
func (c *Catalog) Schedule(key string) *Schedule  { panic("todo") }
func (c *Catalog) Monitor(key string) *Monitor    { panic("todo") }

// Nearest is the known workflow name or key that is most like text, "" where none is near.
func (c *Catalog) Nearest(text string) string { panic("todo") }

// Position is where something is declared.
type Position struct {
	File         string
	Line, Column int
}

// Workflow is a declared workflow, ready to be launched.
type Workflow struct {
	runner.Workflow
	Position Position
}

// Schedule launches a workflow on a cadence.
type Schedule struct {
	Key, Label string
	Workflow   string
	Cadence    scheduler.Cadence
	Input      jsontext.Value // its own, an object; nil for none
	Jitter     time.Duration
	Overlap    runner.Overlap
	CatchUp    scheduler.CatchUp
	Enabled    bool
	Position   Position
}

// Monitor polls a source on a cadence.
type Monitor struct {
	Key, Label string
	Source     *monitor.Source
	Cadence    scheduler.Cadence
	Jitter     time.Duration
	Enabled    bool
	Timeout    time.Duration // for one look
	Silent     bool          // baseline: silent
	// Handler is a workflow of one step made from `do`, named by the key; nil where there is only `start`.
	Handler  *runner.Workflow
	Start    string         // workflow launched after the handler succeeded; "" for none
	Input    jsontext.Value // literal input of that launch; nil for none
	Position Position
}

// Diagnostic is one error or warning.
type Diagnostic struct {
	Position
	Path    string // dotted, as schedules[0].every; a name with a dot in it is quoted
	Message string
	Nearest string // the nearest valid name, for "did you mean"
}

func (d Diagnostic) String() string { panic("todo") }

// Diagnostics are all errors of a catalog, by file, line and column.
type Diagnostics []Diagnostic

func (d Diagnostics) Error() string { panic("todo") }
