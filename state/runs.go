package state

import "time"

// NewRunID returns "rn-" and a lower-case ULID for the instant, with entropy from crypto/rand.
func NewRunID(now time.Time) string { panic("todo") }

// Run reads one run file. A missing file is [fs.ErrNotExist]; a damaged one, or a
// version we do not know, is an error that names the file.
func (w *Workspace) Run(id string) (*RunFile, error) { panic("todo") }

// CreateRun writes a run file that must not exist yet ([fs.ErrExist] otherwise).
func (w *Workspace) CreateRun(f *RunFile) error { panic("todo") }

// WriteRun replaces a run file durably; of a settled run it then also appends to
// the index. It stamps PID, BootID and StartTicks with this process.
func (w *Workspace) WriteRun(f *RunFile) error { panic("todo") }

// RunList is the history of a workspace, newest first.
type RunList struct {
	Runs  []RunSummary
	Total int // all run files there are, before filters
	// Damaged names the run files that cannot be read, with why.
	Damaged []error
}

// RunQuery selects runs. Zero values select everything.
type RunQuery struct {
	Limit    int    // at most this many; 0 is all
	Before   string // only runs with a smaller id (paging)
	Name     string // workflow
	Key      string
	Statuses []Status
	Since    time.Time // created at or after
}

// Runs lists runs, newest first. Settled runs come from the index where it has
// them, the others from their files. A page of 50 of 100,000 is read well under 100 ms.
func (w *Workspace) Runs(q RunQuery) (*RunList, error) { panic("todo") }

// Unsettled reads every run file that the index does not know to be settled and
// that is not settled. Damaged files are returned as errors beside the rest.
func (w *Workspace) Unsettled() (files []*RunFile, damaged []error, err error) { panic("todo") }

// RebuildIndex writes the index afresh from the run files where it is missing,
// stale or mostly dead lines.
func (w *Workspace) RebuildIndex() error { panic("todo") }

// FindRun resolves a run id given whole, or by a unique prefix or suffix, with or
// without "rn-". An ambiguous text is an error that lists up to five matches.
func (w *Workspace) FindRun(text string) (string, error) { panic("todo") }
