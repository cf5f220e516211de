package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"marbles/cmd/internal/strict"
)

// Place is where something was written. Line counts from 1; 0 is the file as a whole.
type Place struct {
	File string
	Line int
}

func (p Place) String() string {
	if p.Line == 0 {
		return strict.OneLine(p.File)
	}
	return fmt.Sprintf("%s:%d", strict.OneLine(p.File), p.Line)
}

// Effect is what became of a part of the input that is not simply carried over.
type Effect string

const (
	Lost    Effect = "lost"    // it had an effect, and has none any more
	Changed Effect = "changed" // it is carried over, and works otherwise
	Dropped Effect = "dropped" // it is left out, and nothing is lost by that
)

// Note names a part of the input that is not simply carried over.
type Note struct {
	Place
	Effect Effect
	What   string // what it is, and what becomes of it
	Next   string // what to do about it; "" for nothing
}

// Plan is what was read.
type Plan struct {
	Files   []string
	Jobs    []*Job
	Notes   []Note
	Text    string // the definition file
	Compare []Comparison
}

// Job is a workflow to be, with what starts it.
type Job struct {
	Place
	Origin      string // what it was made from, as it stood there
	Name        string
	Describe    string
	Env         []Variable
	Shell       string
	Workdir     string
	User, Group string
	Timeout     time.Duration
	Memory      string // as strict.Size reads it; "" for no limit
	CPU         string
	Tasks       string
	Steps       []Step
	Triggers    []*Trigger
	Watches     []*Watch
}

// Variable is one of a job's environment.
type Variable struct{ Name, Value string }

// Step is one command: a text for the shell, or an argv.
type Step struct {
	Name     string
	Shell    string
	Argv     []string
	Continue bool // go on when it failed
	Always   bool // run it however the others ended
}

// Trigger is a schedule to be.
type Trigger struct {
	Place
	Origin   string
	Key      string // "": the workflow's name
	Every    time.Duration
	Cron     string
	Zone     string // "": the machine's
	Jitter   time.Duration
	Never    bool // catch_up: false
	Disabled bool
	// Old is the next instants by the old program's rule, strictly after from; nil: it counts as we do.
	Old      func(from time.Time, n int) ([]time.Time, error)
	Calendar string // what systemd itself can be asked for
	Why      string // where old and new are known to differ: why; "" otherwise
}

// Watch is a monitor to be.
type Watch struct {
	Place
	Glob string // below the workspace
	Key  string
}

// reading is one import at work.
type reading struct {
	Options
	notes []Note
	jobs  []*Job
	names map[string]bool // workflows and keys
	taken map[string]int  // how often a name was asked for
	homes map[string]account
	asked int // how often systemd was asked
	units map[string]source
}

func (r *reading) note(p Place, e Effect, next, format string, args ...any) {
	r.notes = append(r.notes, Note{Place: p, Effect: e, What: fmt.Sprintf(format, args...), Next: next})
}

// account is what is known of an account.
type account struct {
	home  string
	known bool
}

// account looks an account up, once.
func (r *reading) account(name string) account {
	a, ok := r.homes[name]
	if !ok {
		a.home, a.known = r.Account(name)
		r.homes[name] = a
	}
	return a
}

// unique makes a readable name that nothing else has: lower case, digits and dashes.
func (r *reading) unique(text string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(text)) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
	}
	const longest = 60
	name := b.String()
	name = strings.Trim(name[:min(len(name), longest)], "-")
	if name == "" {
		name = "job"
	}
	base := name
	for r.names[name] {
		r.taken[base]++
		name = fmt.Sprintf("%s-%d", base, r.taken[base]+1)
	}
	r.names[name] = true
	return name
}

// add takes a job; its triggers beyond the first get keys of their own.
func (r *reading) add(j *Job, name string) {
	j.Name = r.unique(name)
	for i, t := range j.Triggers {
		if i > 0 {
			t.Key = r.unique(j.Name)
		}
	}
	for i, w := range j.Watches {
		w.Key = j.Name + "-changes"
		if i > 0 {
			w.Key = j.Name + "-changes-" + fmt.Sprint(i+1)
		}
		w.Key = r.unique(w.Key)
	}
	r.jobs = append(r.jobs, j)
}

// sortNotes orders notes by file and line; what stands at one place keeps its order.
func sortNotes(notes []Note, files []string) {
	order := make(map[string]int, len(files))
	for i, f := range files {
		order[f] = i + 1
	}
	slices.SortStableFunc(notes, func(a, b Note) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}
