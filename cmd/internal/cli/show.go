package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/settings"
	"marbles/state"
)

// shownKey is `show <key> --json`.
type shownKey struct {
	Project string            `json:"project"`
	Key     string            `json:"key"`
	History *state.KeyRecord  `json:"history"`
	Holder  string            `json:"holder,omitempty"`
	Pending string            `json:"pending,omitempty"`
	Slots   []state.SlotEntry `json:"slots"` // the newest 20, oldest first
	// Of a monitor: what it watches where it has no history that says so, what it committed, and how it gets on.
	Watch       string        `json:"watch,omitempty"`
	Observation *observation  `json:"observation,omitzero"`
	Health      *state.Health `json:"health,omitzero"`
}

func newShow(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "show <run or key>",
		Short: "Show one run, or one key, whole",
		Long: `Show one run, or one key, whole: the key of this workspace, or where it has none, of every workspace.

A key's history, and of a monitor what it committed last, how its source gets on, and what is waiting.`,
		Args:              oneArg("show", "run id or key"),
		ValidArgsFunction: a.completeRunsAndKeys,
		RunE: func(c *cobra.Command, args []string) error {
			return a.show(c, args[0], asJSON)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) show(c *cobra.Command, name string, asJSON bool) error {
	s, root, err := a.reader(c)
	if err != nil {
		return err
	}
	keys, unread := a.findKey(root, name)
	here := a.here(s)
	if i := slices.IndexFunc(keys, func(k foundKey) bool { return k.ws.Project() == here }); i >= 0 {
		return a.showKeys(keys[i:i+1], asJSON)
	}
	var ws *state.Workspace
	var id string
	if len(keys) == 0 {
		if ws, id, err = a.findRun(root, name); err == nil {
			return a.showRun(&actor{app: a, s: s, root: root, reading: true}, ws, id, asJSON)
		}
	}
	// Only now, because it reads every definition.
	if defined := a.defined(s, root, name); len(defined) > 0 {
		keys = defined
	}
	switch {
	case len(keys) > 0:
		return a.showKeys(keys, asJSON)
	case unread != nil:
		return unread // it may well be that key
	}
	return err
}

func millis(m state.Millis) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m))
}

// foundKey is a key that has left something in a workspace, or a monitor that is defined here.
type foundKey struct {
	ws    *state.Workspace
	key   string
	rec   *state.KeyRecord // nil: never ticked
	watch string           // what a monitor watches that is only defined
}

// findKey finds the workspaces that know a key. One that cannot be read costs only itself where another workspace knows
// it.
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
		rec, known, err := knows(ws, key)
		if errors.Is(err, syscall.ENAMETOOLONG) {
			return nil, nil // no key is called that
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if known {
			found = append(found, foundKey{ws: ws, key: key, rec: rec})
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

// knows reads a key's history, and tells whether a workspace has that or, of a monitor, anything else.
func knows(ws *state.Workspace, key string) (rec *state.KeyRecord, known bool, err error) {
	rec, err = ws.Key(key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	if rec != nil {
		return rec, true, nil
	}
	for _, stamp := range []func(string) (state.FileStamp, error){ws.MonitorStamp, ws.HealthStamp} {
		if s, err := stamp(key); err != nil || s != (state.FileStamp{}) {
			return nil, err == nil, err
		}
	}
	return nil, false, nil
}

// defined finds a monitor that has left nothing yet in the definitions here; broken ones define nothing.
func (a *app) defined(s *settings.Settings, root *state.Root, key string) []foundKey {
	catalogs, err := a.catalogs(s, false)
	if err != nil {
		return nil
	}
	for _, c := range catalogs {
		m := c.Monitor(key)
		if m == nil {
			continue
		}
		ws, err := root.Workspace(c.Sources[0].Workspace)
		if err != nil {
			return nil
		}
		return []foundKey{{ws: ws, key: key, watch: m.Source.String()}}
	}
	return nil
}

func (a *app) showKeys(keys []foundKey, asJSON bool) error {
	shown := make([]shownKey, 0, len(keys))
	for _, k := range keys {
		s, err := k.show()
		if err != nil {
			return err
		}
		if s.Health, err = k.ws.Health(k.key); err != nil { // it costs only itself
			a.warnDamaged([]string{err.Error()})
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

// show reads all there is of a key but its health.
func (k foundKey) show() (shownKey, error) {
	slots, err := k.ws.Slots(k.key, 20)
	if err != nil {
		return shownKey{}, err
	}
	s := shownKey{
		Project: k.ws.Project(), Key: k.key, History: k.rec, Slots: append([]state.SlotEntry{}, slots...), Watch: k.watch,
	}
	if k.rec != nil && k.rec.Kind != state.KindMonitor {
		return s, nil
	}
	m, err := k.ws.Monitor(k.key)
	if err != nil {
		return shownKey{}, err
	}
	if m != nil {
		if m.Pending != nil {
			s.Pending = m.Pending.Workflow
		}
		stamp, err := k.ws.MonitorStamp(k.key)
		if err != nil {
			return shownKey{}, err
		}
		s.Observation = newObservation(m, stamp)
	}
	return s, nil
}

func (s shownKey) print(a *app) error {
	h := s.History
	if h == nil {
		h = &state.KeyRecord{Kind: state.KindMonitor}
	}
	rows := [][]string{
		{"key", s.Key}, {"kind", h.Kind}, {"label", clean(h.Label, 200)}, {"watch", clean(s.Watch, 200)},
		{"project", clean(s.Project, 300)},
		{"last status", h.LastStatus}, {"last start", clock(h.LastStart.Time)},
		{"last finish", clock(h.LastFinish.Time)}, {"last slot", clock(h.Slot.Time)}, {"next due", clock(h.NextDue.Time)},
		{"last run", h.Run}, {"last error", clean(h.LastError, 500)}, {"pending launch", clean(s.Pending, 200)},
	}
	if h.Failures > 0 {
		rows = append(rows, []string{"failures", fmt.Sprintf("%d in a row", h.Failures)})
	}
	if s.History == nil {
		rows = append(rows, []string{"history", "none yet"})
	}
	rows = append(append(rows, s.Observation.facts()...), healthFacts(s.Health)...)
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
