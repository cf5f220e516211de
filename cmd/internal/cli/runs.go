package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/settings"
	"marbles/cmd/internal/strict"
	"marbles/scheduler"
	"marbles/state"
)

// runLine is one run in a list.
type runLine struct {
	ID        string  `json:"id"`
	Workflow  string  `json:"workflow"`
	Key       string  `json:"key,omitempty"`
	Trigger   string  `json:"trigger,omitempty"`
	Status    string  `json:"status"`
	Orphaned  bool    `json:"orphaned,omitzero"` // queued or running, and its process is gone
	CreatedAt *string `json:"createdAt"`
	StartedAt *string `json:"startedAt"`
	EndedAt   *string `json:"endedAt"`
	Error     string  `json:"error,omitempty"`
	Waits     string  `json:"waits,omitempty"` // what a suspended run waits for
	Project   string  `json:"project"`
}

// runPage is `runs --json`. Before is the value for --before that gives the next page, "" at the end.
type runPage struct {
	Runs    []runLine `json:"runs"`
	Total   int       `json:"total"`
	Before  string    `json:"before"`
	Damaged []string  `json:"damaged"` // runs, and workspaces, that cannot be told
}

type runsFlags struct {
	n                     int
	before, workflow, key string
	status                []string
	since                 string
	all, json             bool
}

func newRuns(a *app) *cobra.Command {
	var f runsFlags
	c := &cobra.Command{
		Use:   "runs",
		Short: "List runs, newest first",
		Long: `List runs, newest first: those of this workspace where it has any state, else (or with --all) those of every
workspace under the state root.`,
		Args:              noArgs("runs"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return a.runs(c, f) },
	}
	c.Flags().IntVarP(&f.n, "number", "n", 50, "at most this many")
	c.Flags().StringVar(&f.before, "before", "", "only runs older than this `run` id (the next page)")
	c.Flags().StringVar(&f.workflow, "workflow", "", "only runs of this `workflow`")
	c.Flags().StringVar(&f.key, "key", "", "only runs of this `key`")
	c.Flags().StringSliceVar(&f.status, "status", nil, "only these `states`: queued, running, suspended, complete, failed, cancelled")
	c.Flags().StringVar(&f.since, "since", "", "only runs created since: an `instant` or an age, as 24h or 7d")
	c.Flags().BoolVarP(&f.all, "all", "a", false, "runs of every workspace")
	jsonFlag(c, &f.json)
	completeFlag(c, "status", fixed("queued", "running", "suspended", "complete", "failed", "cancelled"))
	completeFlag(c, "key", a.completeNames(false))
	completeFlag(c, "workflow", a.completeWorkflows())
	return c
}

func (a *app) runs(c *cobra.Command, f runsFlags) error {
	s, root, err := a.reader(c)
	if err != nil {
		return err
	}
	q, err := f.query()
	if err != nil {
		return err
	}
	workspaces, damaged, err := root.Survey()
	if err != nil {
		return err
	}
	if here := a.here(s); !f.all {
		for _, ws := range workspaces {
			if ws.Project() == here {
				workspaces, damaged = []*state.Workspace{ws}, nil
				break
			}
		}
	}
	if q.Before != "" && !state.IsRunID(q.Before) { // a whole one may have been deleted since: the next page goes on below it
		if _, q.Before, err = a.findRun(root, q.Before); err != nil {
			return err
		}
	}
	if err := a.knownKey(s, workspaces, f.key); err != nil {
		return err
	}
	page := runPage{Runs: []runLine{}, Damaged: []string{}}
	for _, err := range damaged {
		page.Damaged = append(page.Damaged, err.Error())
	}
	for _, ws := range workspaces {
		list, err := ws.Runs(q)
		if err != nil {
			page.Damaged = append(page.Damaged, err.Error())
			continue
		}
		page.Total += list.Total
		for _, r := range list.Runs {
			page.Runs = append(page.Runs, newRunLine(ws, r))
		}
		for _, err := range list.Damaged {
			page.Damaged = append(page.Damaged, err.Error())
		}
	}
	page.cut(f.n, len(workspaces) > 1)
	addWaits(workspaces, page.Runs)
	if f.json {
		return printJSON(a.Stdout, page)
	}
	a.warnDamaged(page.Damaged)
	if len(page.Runs) == 0 {
		fmt.Fprintln(a.Stdout, "no runs")
		return nil
	}
	if err := printRunLines(a.Stdout, a.paint(a.Stdout), page.Runs, len(workspaces) > 1); err != nil {
		return err
	}
	if page.Before != "" {
		fmt.Fprintf(a.Stderr, "hint: older ones: marbles runs%s --before %s\n", f.repeat(), page.Before)
	}
	return nil
}

func (f runsFlags) query() (state.RunQuery, error) {
	if f.n < 1 {
		return state.RunQuery{}, usage("-n takes a number from 1")
	}
	// One more than is shown tells whether there is a next page.
	q := state.RunQuery{Limit: f.n + 1, Before: f.before, Name: f.workflow, Key: f.key}
	for _, s := range f.status {
		switch st := state.Status(s); st {
		case state.Queued, state.Running, state.Suspended, state.Complete, state.Failed, state.Cancelled:
			q.Statuses = append(q.Statuses, st)
		default:
			return q, usage("unknown status %q (want queued, running, suspended, complete, failed or cancelled)", s)
		}
	}
	if f.since != "" {
		t, err := parseSince(f.since)
		if err != nil {
			return q, err
		}
		q.Since = t
	}
	return q, nil
}

// knownKey is an error for the name of a key that is not defined, and has neither a history nor a run.
func (a *app) knownKey(s *settings.Settings, workspaces []*state.Workspace, key string) error {
	if key == "" {
		return nil
	}
	var names []string
	if catalogs, err := a.catalogs(s, false); err == nil {
		for _, cat := range catalogs {
			for _, sch := range cat.Schedules {
				names = append(names, sch.Key)
			}
			for _, m := range cat.Monitors {
				names = append(names, m.Key)
			}
		}
	}
	for _, ws := range workspaces {
		keys, err := ws.Keys()
		if err != nil {
			continue // the list of runs says what is wrong
		}
		names = append(names, keys...)
	}
	if slices.Contains(names, key) {
		return nil
	}
	for _, ws := range workspaces {
		if list, err := ws.Runs(state.RunQuery{Key: key, Limit: 1}); err == nil && len(list.Runs) > 0 {
			return nil
		}
	}
	err := usage("no schedule or monitor has the key %q", key)
	if near := strict.Nearest(key, slices.Values(names)); near != "" {
		return state.Hint(err, fmt.Sprintf("did you mean %q?", near))
	}
	return state.Hint(err, "marbles list")
}

// addWaits says of suspended runs what they wait for, which only their files know.
func addWaits(workspaces []*state.Workspace, lines []runLine) {
	for i := range lines {
		l := &lines[i]
		if l.Status != string(state.Suspended) {
			continue
		}
		for _, ws := range workspaces {
			if ws.Project() == l.Project {
				l.Waits = waits(ws, l.ID)
			}
		}
	}
}

// waits is what a run waits for; "" where that cannot be told.
func waits(ws *state.Workspace, id string) string {
	f, err := ws.Run(id)
	if err != nil || f.Run.Status != state.Suspended {
		return ""
	}
	return waitsText(f)
}

func waitsText(f *state.RunFile) string {
	var texts []string
	for _, s := range f.Open() {
		texts = append(texts, s.Text())
	}
	return strings.Join(texts, " and ")
}

// cut keeps the newest n of all workspaces.
func (p *runPage) cut(n int, merge bool) {
	if merge {
		// Ids begin with their time of creation.
		slices.SortFunc(p.Runs, func(x, y runLine) int { return strings.Compare(y.ID, x.ID) })
	}
	if len(p.Runs) > n {
		p.Runs = p.Runs[:n]
		p.Before = p.Runs[n-1].ID
	}
}

func newRunLine(ws *state.Workspace, r state.RunSummary) runLine {
	return runLine{
		ID: r.ID, Workflow: r.Name, Key: r.Key, Trigger: r.Trigger, Status: string(r.Status),
		Orphaned:  (r.Status == state.Queued || r.Status == state.Running) && !r.Owner.Alive(),
		CreatedAt: instant(r.Created), StartedAt: instant(r.Started), EndedAt: instant(r.Ended),
		Error: r.Error, Project: ws.Project(),
	}
}

func printRunLines(w io.Writer, p paint, lines []runLine, project bool) error {
	rows := [][]string{{"RUN", "WORKFLOW", "STATUS", "STARTED", "TOOK", "KEY", "NOTE"}}
	for _, l := range lines {
		status := l.Status
		if l.Orphaned {
			status += " orphaned (pid gone)"
		}
		note := clean(l.Error, 80)
		if l.Waits != "" {
			note = "waits for " + clean(l.Waits, 80)
		}
		if project {
			note = clean(l.Project, 60) + " " + note
		}
		key := l.Key
		if key == "" {
			key = "-"
		}
		started := l.StartedAt
		if started == nil {
			started = l.CreatedAt
		}
		rows = append(rows, []string{l.ID, clean(l.Workflow, 40), status, localText(started), tookText(l), key, note})
	}
	return p.table(w, rows)
}

func tookText(l runLine) string {
	if l.StartedAt == nil || l.EndedAt == nil {
		return "-"
	}
	from, _ := time.Parse(time.RFC3339Nano, *l.StartedAt)
	to, _ := time.Parse(time.RFC3339Nano, *l.EndedAt)
	return took(from, to)
}

// warnDamaged names on stderr what could not be read.
func (a *app) warnDamaged(damaged []string) {
	for _, d := range damaged {
		fmt.Fprintf(a.Stderr, "damaged: %s\n", safe(d))
	}
}

// findRun looks a run up in every workspace by its id, or a unique prefix or suffix. Where none has it, the workspaces
// that cannot be told are named, because it may be in one of them.
func (a *app) findRun(root *state.Root, text string) (*state.Workspace, string, error) {
	workspaces, errs, err := root.Survey()
	if err != nil {
		return nil, "", err
	}
	var damaged []string
	for _, err := range errs {
		damaged = append(damaged, err.Error())
	}
	var found *state.Workspace
	var id string
	for _, ws := range workspaces {
		match, err := ws.FindRun(text)
		switch {
		case errors.Is(err, state.ErrUnknownRun):
			continue
		case errors.Is(err, state.ErrAmbiguousRun):
			return nil, "", &codedError{code: exitUsage, err: err}
		case err != nil:
			damaged = append(damaged, err.Error())
			continue
		case found != nil:
			return nil, "", usage("run id %q is ambiguous: %s, %s", text, id, match)
		}
		found, id = ws, match
	}
	if found == nil {
		a.warnDamaged(damaged)
		return nil, "", unknownRun(text, fs.ErrNotExist)
	}
	return found, id, nil
}

func parseSince(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	every, err := scheduler.ParseEvery(text)
	if err != nil {
		return time.Time{}, usage("cannot read --since %q (want an instant as 2006-01-02T15:04:05Z, or an age as 24h or 7d)", text)
	}
	return time.Now().Add(-every.Interval()), nil
}

// repeat is the flags that select, as they were given.
func (f runsFlags) repeat() string {
	var b strings.Builder
	for _, s := range [][2]string{{"workflow", f.workflow}, {"key", f.key}, {"status", strings.Join(f.status, ",")}, {"since", f.since}} {
		if s[1] != "" {
			fmt.Fprintf(&b, " --%s %q", s[0], s[1])
		}
	}
	if f.all {
		b.WriteString(" --all")
	}
	return b.String()
}
