package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"marbles/state"
)

// shownRun is `show <run> --json`: the run file as it is on disk, and where its parts are.
type shownRun struct {
	Project  string         `json:"project"`
	File     string         `json:"file"`
	Journal  string         `json:"journal"`
	Orphaned bool           `json:"orphaned"`
	Run      *state.RunFile `json:"run"`
}

// shownKey is `show <key> --json`.
type shownKey struct {
	Project string            `json:"project"`
	Key     string            `json:"key"`
	History *state.KeyRecord  `json:"history"`
	Holder  string            `json:"holder,omitempty"`
	Pending string            `json:"pending,omitempty"`
	Slots   []state.SlotEntry `json:"slots"` // the newest 20, oldest first
}

func newShow(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "show <run or key>",
		Short:             "Show one run, or the history of one key, whole",
		Long:              "Show one run, or the history of one key, whole: the key of this workspace, or where it has none, of every workspace.",
		Args:              oneArg("show", "run id or key"),
		ValidArgsFunction: a.completeRunsAndKeys,
		RunE: func(c *cobra.Command, args []string) error {
			s, root, err := a.reader(c)
			if err != nil {
				return err
			}
			keys, unread := a.findKey(root, args[0])
			here := a.here(s)
			for _, k := range keys {
				if k.ws.Project() == here {
					keys = []foundKey{k}
					break
				}
			}
			if len(keys) > 0 {
				return a.showKeys(keys, asJSON)
			}
			ws, id, err := a.findRun(root, args[0])
			if err != nil && unread != nil {
				return unread // it may well be that key
			}
			if err != nil {
				return err
			}
			return a.showRun(ws, id, asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) showRun(ws *state.Workspace, id string, asJSON bool) error {
	f, err := ws.Run(id)
	if err != nil {
		return unknownRun(id, err)
	}
	sum := f.Summary()
	line := newRunLine(ws, sum)
	shown := shownRun{
		Project: ws.Project(), File: filepath.Join(ws.Dir(), "runs", id+".json"),
		Journal: filepath.Join(ws.Dir(), "output", id+".jsonl"), Orphaned: line.Orphaned, Run: f,
	}
	if asJSON {
		return printJSON(a.Stdout, shown)
	}
	status := line.Status
	if line.Orphaned {
		status += " orphaned (pid gone)"
	}
	rows := [][]string{
		{"run", id}, {"workflow", clean(sum.Name, 200)}, {"status", status},
		{"project", clean(ws.Project(), 300)}, {"trigger", f.Run.Extensions.Trigger},
		{"key", sum.Key}, {"slot", clock(f.Run.Extensions.Slot.Time)},
		{"created", clock(sum.Created)}, {"started", clock(sum.Started)}, {"ended", clock(sum.Ended)},
		{"took", took(sum.Started, sum.Ended)}, {"input", clean(compact(f.Run.Input), 500)},
		{"result", clean(compact(f.Run.Output), 500)}, {"pid", fmt.Sprint(f.PID)},
		{"file", clean(shown.File, 500)}, {"journal", clean(shown.Journal, 500)},
	}
	if f.Run.Error != nil {
		rows = append(rows, []string{"error", clean(f.Run.Error.Message, 500)})
	}
	if err := a.paint(a.Stdout).facts(a.Stdout, rows); err != nil {
		return err
	}
	if len(f.Steps) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return printSteps(a, f.Steps)
}

// compact is a JSON value in one line, without the indentation that its record gives it.
func compact(v jsontext.Value) string {
	v = v.Clone()
	_ = v.Compact(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)) // else it stays as it is
	return string(v)
}

func printSteps(a *app, steps []state.StepRecord) error {
	rows := [][]string{{"STEP", "STATUS", "TOOK", "CPU", "MEMORY", ""}}
	for _, s := range steps {
		cpu, memory, note := "-", "-", ""
		if ms := s.UserMS + s.SystemMS; ms > 0 {
			cpu = (time.Duration(ms) * time.Millisecond).String()
		}
		if s.MaxRSS > 0 {
			memory = fmt.Sprintf("%.1f MiB", float64(s.MaxRSS)/(1<<20))
			if cpu == "-" { // it was measured, and is less than a millisecond
				cpu = "0s"
			}
		}
		if s.Error != nil {
			note = clean(s.Error.Message, 100)
		}
		if len(s.Leftover) > 0 {
			note += " left behind and ended: " + clean(strings.Join(s.Leftover, ", "), 100)
		}
		rows = append(rows, []string{
			clean(s.Name, 40), string(s.Status), took(millis(s.StartedAt), millis(s.FinishedAt)),
			cpu, memory, note,
		})
	}
	return a.paint(a.Stdout).table(a.Stdout, rows)
}

func millis(m state.Millis) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m))
}

// foundKey is a key with a history.
type foundKey struct {
	ws  *state.Workspace
	key string
	rec *state.KeyRecord
}

// findKey finds the workspaces that have a history of a key. A history that cannot be read costs only itself where
// another workspace has one.
func (a *app) findKey(root *state.Root, key string) ([]foundKey, error) {
	if state.PlainName("key", key) != nil {
		return nil, nil
	}
	workspaces, _, err := root.Survey() // where nothing is found, findRun names the damaged ones
	if err != nil {
		return nil, err
	}
	var found []foundKey
	var errs []error
	for _, ws := range workspaces {
		rec, err := ws.Key(key)
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return nil, nil // no key is called that
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
			continue
		}
		if rec != nil {
			found = append(found, foundKey{ws, key, rec})
		}
	}
	if len(found) == 0 {
		return nil, errors.Join(errs...)
	}
	for _, err := range errs {
		a.warnDamaged([]string{err.Error()})
	}
	return found, nil
}

func (a *app) showKeys(keys []foundKey, asJSON bool) error {
	shown := make([]shownKey, 0, len(keys))
	for _, k := range keys {
		slots, err := k.ws.Slots(k.key, 20)
		if err != nil {
			return err
		}
		s := shownKey{Project: k.ws.Project(), Key: k.key, History: k.rec, Slots: append([]state.SlotEntry{}, slots...)}
		if k.rec.Kind == state.KindMonitor {
			m, err := k.ws.Monitor(k.key)
			if err != nil {
				return err
			}
			if m != nil && m.Pending != nil {
				s.Pending = m.Pending.Workflow
			}
		}
		shown = append(shown, s)
	}
	if asJSON {
		if len(shown) == 1 {
			return printJSON(a.Stdout, shown[0])
		}
		return printJSON(a.Stdout, shown)
	}
	for i, s := range shown {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		if err := s.print(a); err != nil {
			return err
		}
	}
	return nil
}

func (s shownKey) print(a *app) error {
	h := s.History
	rows := [][]string{
		{"key", s.Key}, {"kind", h.Kind}, {"label", clean(h.Label, 200)}, {"project", clean(s.Project, 300)},
		{"last status", h.LastStatus}, {"last start", clock(h.LastStart.Time)},
		{"last finish", clock(h.LastFinish.Time)}, {"last slot", clock(h.Slot.Time)}, {"next due", clock(h.NextDue.Time)},
		{"last run", h.Run}, {"last error", clean(h.LastError, 500)}, {"pending launch", clean(s.Pending, 200)},
	}
	if h.Failures > 0 {
		rows = append(rows, []string{"failures", fmt.Sprintf("%d in a row", h.Failures)})
	}
	if err := a.paint(a.Stdout).facts(a.Stdout, rows); err != nil || len(s.Slots) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout)
	out := [][]string{{"SLOT", "ENDED AS", "RUN", ""}}
	for _, e := range s.Slots {
		what := string(e.Outcome)
		if e.Count > 1 {
			what = fmt.Sprintf("%s ×%d", what, e.Count)
			if e.More {
				what += "+"
			}
		}
		note := clean(e.Reason, 100)
		if e.Holder != "" {
			note += " (" + clean(e.Holder, 80) + ")"
		}
		run := e.Run
		if run == "" {
			run = "-"
		}
		out = append(out, []string{clock(e.Slot.Time), what, run, note})
	}
	return a.paint(a.Stdout).table(a.Stdout, out)
}
