// Package catalog reads definition files into workflows, schedules and monitors.
//
// Reading is strict: unknown keys, wrong types and everything else that design §3 calls an error is reported, all
// at once, with file, line, column, dotted path and the nearest valid name. A catalog that loaded is complete and valid.
//
// Files are read side by side, each turned into its workflows, schedules and monitors at once, so that the YAML of one
// file can go before the next is read; equal cadences are shared. Then one pass over all of them looks at names:
// references, keys, and what needs the neighbours.
package catalog

import (
	"iter"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
	"marbles/monitor/filter"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// Options are how to load.
type Options struct {
	// Running refuses files that others may write, when this process is root (cron's rule, design §5).
	Running bool
	Now     time.Time // for warnings about the next clock change; zero: no such warnings
	// Local is the machine's zone for those warnings; nil: time.Local.
	Local *time.Location
	// Credentials is the directory of the service's systemd credentials ($CREDENTIALS_DIRECTORY), "" for none.
	Credentials string
	// Env is the service's own environment, NAME=value, in which a workflow's secrets may stand.
	Env []string
	// Shared is what sources have in common; nil: this load's own.
	Shared *Shared
}

// Catalog is what the definition files of one workspace declare.
type Catalog struct {
	Sources   []Source
	Files     []string // absolute, in reading order
	Workflows []*Workflow
	Schedules []*Schedule
	Monitors  []*Monitor
	Warnings  []Diagnostic

	workflows map[string]*Workflow
	keys      map[string]int // an index into Schedules, or ^index into Monitors
}

// Workflow finds a workflow by name, Schedule and Monitor find a key; nil where there is none.
func (c *Catalog) Workflow(name string) *Workflow { return c.workflows[name] }

// Schedule finds a schedule by key; nil where there is none.
func (c *Catalog) Schedule(key string) *Schedule {
	if i, ok := c.keys[key]; ok && i >= 0 {
		return c.Schedules[i]
	}
	return nil
}

// Monitor finds a monitor by key; nil where there is none.
func (c *Catalog) Monitor(key string) *Monitor {
	if i, ok := c.keys[key]; ok && i < 0 {
		return c.Monitors[^i]
	}
	return nil
}

// Nearest is the known workflow name or key that is most like text, "" where none is near.
func (c *Catalog) Nearest(text string) string { return strict.Nearest(text, c.names()) }

// names ranges over workflow names and keys, in catalog order.
func (c *Catalog) names() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, w := range c.Workflows {
			if !yield(w.Name) {
				return
			}
		}
		for _, s := range c.Schedules {
			if !yield(s.Key) {
				return
			}
		}
		for _, m := range c.Monitors {
			if !yield(m.Key) {
				return
			}
		}
	}
}

// Position is where something is declared. Its file is relative to the workspace where it lies in it, else absolute.
type Position = strict.Position

// Diagnostic is one error or warning.
type Diagnostic = strict.Diagnostic

// Diagnostics are all errors of a catalog, by file, line and column.
type Diagnostics = strict.Diagnostics

// Workflow is a declared workflow, ready to be launched.
type Workflow struct {
	runner.Workflow
	Hooks    Hooks
	Keep     state.Keep // its own retention; zero members are the settings'
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
	Hooks      Hooks
	Ping       Ping
	Position   Position
}

// Monitor polls a source on a cadence.
type Monitor struct {
	Key, Label string
	Source     *monitor.Source
	Cadence    scheduler.Cadence
	Jitter     time.Duration
	Enabled    bool
	Timeout    time.Duration // for one look; 0: the source's default
	Silent     bool          // baseline: silent
	Live       bool          // the system's file notifications are a hint to look early
	CertDays   int           // a URL: how many days ahead the end of the server's certificate is noticed; 0: never
	// Handler is a workflow of one step made from `do`, named by the key; nil where there is only `start`.
	Handler *runner.Workflow
	Start   string // workflow launched after the handler succeeded; "" for none
	// Input is the literal input of that launch, or InputProgram makes it from the change: one result, an object or
	// null. Both nil: none.
	Input        jsontext.Value
	InputProgram *filter.Program
	// FailAfter failed looks in a row and the source is down, RecoverAfter good ones and it is up; both at least 1.
	FailAfter, RecoverAfter int
	OnDown, OnUp            *runner.Workflow // as Handler; nil for none
	Ping                    Ping             // of its handler's runs
	Position                Position
}
