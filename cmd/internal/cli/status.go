package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/strict"
	"marbles/scheduler"
	"marbles/state"
)

// statusReport is `status --json`.
type statusReport struct {
	Root       string            `json:"root"`
	Workspaces []workspaceStatus `json:"workspaces"`
	Damaged    []string          `json:"damaged"` // workspaces that cannot be told
}

type workspaceStatus struct {
	ID       string         `json:"id"`
	Project  string         `json:"project"`
	Config   *string        `json:"config"`
	Here     bool           `json:"here"`
	LastSeen *string        `json:"lastSeen"`
	Service  *serviceStatus `json:"service"`         // null when none runs
	Paused   *pauseStatus   `json:"paused,omitzero"` // everything is, in this workspace or under the state root
	Keys     []keyStatus    `json:"keys"`
	Waiting  []waitStatus   `json:"waiting"` // what parked runs wait for
	Runs     runsStatus     `json:"runs"`
	Damaged  []string       `json:"damaged"`
	// Definitions says what is wrong with the definition files, "" for nothing.
	Definitions string `json:"definitions,omitempty"`
}

type serviceStatus struct {
	PID       int     `json:"pid"`
	StartedAt *string `json:"startedAt"`
}

// pauseStatus is a pause that lasts.
type pauseStatus struct {
	Since  *string `json:"since"`
	Reason string  `json:"reason,omitempty"`
	By     string  `json:"by,omitempty"`
}

// waitStatus is one thing that a parked run waits for.
type waitStatus struct {
	Run   string  `json:"run"`
	Name  string  `json:"workflow"`
	Key   string  `json:"key,omitempty"`
	Step  string  `json:"step"`
	Kind  string  `json:"kind"` // question | pause | wait | child
	What  string  `json:"what"`
	Since *string `json:"since"`
	Until *string `json:"until"`
	// Of a question: what answers it takes; none for any text.
	Choices []string `json:"choices,omitempty"`
}

type keyStatus struct {
	Key        string       `json:"key"`
	Kind       string       `json:"kind"`
	Label      string       `json:"label"`
	LastStatus string       `json:"lastStatus"` // complete | failed | "" for never
	LastStart  *string      `json:"lastStart"`
	LastFinish *string      `json:"lastFinish"`
	NextDue    *string      `json:"nextDue"`
	Cadence    string       `json:"cadence,omitempty"` // as a service has seen it
	Failures   int          `json:"failures"`
	LastError  string       `json:"lastError,omitempty"`
	Holder     string       `json:"holder,omitempty"`  // who holds the key's lock now
	Pending    string       `json:"pending,omitempty"` // workflow of a launch that has not been started
	Paused     *pauseStatus `json:"paused,omitzero"`   // the key itself
	Clock      *handedClock `json:"clock,omitzero"`    // whose it is, where it was handed to an init system
	stale      string
	// Of a monitor: its source is down, or it sees only a part of it, and since when.
	Down     bool     `json:"down,omitzero"`
	Degraded []string `json:"degraded,omitempty"`
	Since    *string  `json:"since,omitempty"`
}

type runsStatus struct {
	Total     int       `json:"total"`
	Unsettled []runLine `json:"unsettled"`
	Newest    []runLine `json:"newest"`
}

func newStatus(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "status",
		Short:             "Show every workspace under the state root: service, keys, runs",
		Args:              noArgs("status"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			s, root, err := a.reader(c)
			if err != nil {
				return err
			}
			workspaces, damaged, err := root.Survey()
			if err != nil {
				return err
			}
			here := a.here(s)
			report := statusReport{Root: root.Dir(), Workspaces: []workspaceStatus{}, Damaged: []string{}}
			for _, err := range damaged {
				report.Damaged = append(report.Damaged, err.Error())
			}
			for _, ws := range workspaces {
				report.Workspaces = append(report.Workspaces, readStatus(ws, ws.Project() == here))
			}
			if asJSON {
				return printJSON(a.Stdout, report)
			}
			return report.print(a)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// readStatus reads one workspace. What is damaged is named and costs only itself.
func readStatus(ws *state.Workspace, here bool) workspaceStatus {
	st := workspaceStatus{
		ID: ws.ID(), Project: ws.Project(), Here: here,
		Keys: []keyStatus{}, Waiting: []waitStatus{}, Damaged: []string{},
		Runs: runsStatus{Unsettled: []runLine{}, Newest: []runLine{}},
	}
	damaged := func(err error) { st.Damaged = append(st.Damaged, err.Error()) }
	if rec, err := ws.Record(); err != nil {
		damaged(err)
	} else if rec != nil {
		st.Config, st.LastSeen = rec.Config, instant(rec.LastSeen.Time)
	}
	if hb, err := ws.Heartbeat(); err != nil {
		damaged(err)
	} else if hb != nil && hb.Owner().Alive() {
		st.Service = &serviceStatus{hb.PID, instant(hb.StartedAt.Time)}
	}
	st.addKeys(ws, damaged)
	st.addUpcoming(ws, damaged)
	st.addPauses(ws, damaged)
	st.addClocks(ws, damaged)
	slices.SortFunc(st.Keys, func(x, y keyStatus) int { return strings.Compare(x.Key, y.Key) })
	newest, unsettled, err := ws.Overview(5)
	if err != nil {
		damaged(err)
		return st
	}
	st.Runs.Total = newest.Total
	for _, r := range newest.Runs {
		st.Runs.Newest = append(st.Runs.Newest, newRunLine(ws, r))
	}
	for _, r := range unsettled.Runs {
		line := newRunLine(ws, r)
		if r.Status == state.Suspended {
			line.Waits = st.addWaiting(ws, r.ID, damaged)
		}
		st.Runs.Unsettled = append(st.Runs.Unsettled, line)
	}
	for i, l := range st.Runs.Newest {
		if j := slices.IndexFunc(st.Runs.Unsettled, func(u runLine) bool { return u.ID == l.ID }); j >= 0 {
			st.Runs.Newest[i].Waits = st.Runs.Unsettled[j].Waits
		}
	}
	for _, err := range unsettled.Damaged {
		damaged(err)
	}
	return st
}

// addWaiting adds what a parked run waits for, and says it in a few words.
func (st *workspaceStatus) addWaiting(ws *state.Workspace, id string, damaged func(error)) string {
	f, err := ws.Run(id)
	if err != nil {
		damaged(err)
		return ""
	}
	if f.Run.Status != state.Suspended {
		return ""
	}
	for _, s := range f.Open() {
		w := waitStatus{
			Run: id, Name: f.Run.Step, Key: f.Run.Extensions.TriggerID, Step: s.Name, Kind: suspensionKinds[s.Kind],
			What: s.Text(), Since: instant(millis(s.Timestamps.CreatedAt)), Until: instant(s.Due()),
		}
		if s.Kind == state.SuspendInput {
			q, err := s.Question()
			if err != nil {
				damaged(err)
				continue
			}
			w.Choices = choices(q)
		}
		st.Waiting = append(st.Waiting, w)
	}
	return waitsText(f)
}

// suspensionKinds are the kinds of a suspension as --json has them.
var suspensionKinds = map[string]string{
	state.SuspendInput: "question", state.SuspendPause: "pause", state.SuspendWait: "wait", state.SuspendChild: "child",
	state.SuspendUnit: "unit",
}

// addPauses adds what is paused.
func (st *workspaceStatus) addPauses(ws *state.Workspace, damaged func(error)) {
	pauses, err := ws.Pauses()
	if err != nil {
		damaged(err)
		return
	}
	if p := pauses.Everything(); p != nil {
		st.Paused = newPauseStatus(*p)
	}
	for key, p := range pauses.Keys {
		if !p.On() {
			continue
		}
		i := slices.IndexFunc(st.Keys, func(k keyStatus) bool { return k.Key == key })
		if i < 0 {
			i = len(st.Keys)
			st.Keys = append(st.Keys, keyStatus{Key: key})
		}
		st.Keys[i].Paused = newPauseStatus(p)
	}
}

// addClocks adds whose clock was handed to an init system.
func (st *workspaceStatus) addClocks(ws *state.Workspace, damaged func(error)) {
	keys, err := ws.HandedKeys()
	if err != nil {
		damaged(err)
	}
	for _, key := range keys {
		h, err := ws.Handed(key)
		if err != nil {
			damaged(err)
			continue
		}
		if h == nil {
			continue
		}
		i := slices.IndexFunc(st.Keys, func(k keyStatus) bool { return k.Key == key })
		if i < 0 {
			i = len(st.Keys)
			st.Keys = append(st.Keys, keyStatus{Key: key})
		}
		k := &st.Keys[i]
		if h.Idle {
			k.stale = fmt.Sprintf("%s is not in force, but files of it may be left: marbles %s uninstall %s --%s, or install", h.Unit, h.Manager, key, h.Scope)
			continue
		}
		if off := h.Off(); off != "" {
			k.stale = fmt.Sprintf("%s is %s, so its clock is the service's: marbles %s install %s --%s, or uninstall", h.Unit, off, h.Manager, key, h.Scope)
			continue
		}
		k.Clock = clockOf(ws, key)
		if k.Clock != nil && k.Cadence != "" && h.Cadence != "" && h.Cadence != k.Cadence {
			k.stale = fmt.Sprintf("made from %s: marbles %s install %s --%s", h.Cadence, h.Manager, key, h.Scope)
		}
	}
}

func newPauseStatus(p state.Pause) *pauseStatus {
	return &pauseStatus{Since: instant(p.Since.Time), Reason: p.Reason, By: p.By}
}

func (p *pauseStatus) text() string {
	text := "paused since " + localText(p.Since)
	if p.Reason != "" {
		text += ": " + clean(p.Reason, 80)
	}
	return text
}

// addKeys adds the keys that have a history, or a live lock.
func (st *workspaceStatus) addKeys(ws *state.Workspace, damaged func(error)) {
	holders := map[string]string{}
	locks, err := ws.Locks()
	if err != nil {
		damaged(err)
	}
	for _, l := range locks {
		if key, ok := strings.CutPrefix(l.Name, "schedule:"); ok && l.Alive {
			holders[key] = l.Holder
		}
	}
	keys, err := ws.Keys()
	if err != nil {
		damaged(err)
	}
	for _, key := range keys {
		k := keyStatus{Key: key, Holder: holders[key]}
		delete(holders, key)
		rec, err := ws.Key(key)
		switch {
		case err != nil:
			damaged(err)
		case rec == nil: // it went away since it was listed
			continue
		default:
			k.fill(ws, rec, damaged)
		}
		st.Keys = append(st.Keys, k)
	}
	for key, holder := range holders { // known only by its live lock
		st.Keys = append(st.Keys, keyStatus{Key: key, Holder: holder})
	}
}

// addUpcoming adds what is next: of the keys a service has seen, with a history or not, and that are still defined where the
// definitions can be read. Broken definitions cost nothing but this.
func (st *workspaceStatus) addUpcoming(ws *state.Workspace, damaged func(error)) {
	since, err := ws.Since()
	if err != nil {
		damaged(err)
		return
	}
	known := map[string]int{}
	for i, k := range st.Keys {
		known[k.Key] = i
	}
	next := func(key, kind, label string, c scheduler.Cadence, enabled bool) {
		seen, ok := since[key]
		if !ok || !enabled || seen.Cadence != c.String() {
			return
		}
		i, ok := known[key]
		if !ok {
			i = len(st.Keys)
			st.Keys = append(st.Keys, keyStatus{Key: key, Kind: kind, Label: label})
		}
		k := &st.Keys[i]
		k.Cadence = seen.Cadence
		if c.Interval() > 0 {
			k.NextDue = st.nextLook(k, kind, seen.At.Time, c.Interval())
		} else if slot, ok := c.Next(time.Now(), scheduler.NewZone("").Location()); ok {
			k.NextDue = instant(slot.At)
		}
	}
	if st.Config == nil {
		return
	}
	cat, err := catalog.Load([]catalog.Source{{Workspace: ws.Project(), Path: *st.Config}}, catalog.Options{})
	if err != nil {
		st.Definitions = "they have errors: marbles check"
		return
	}
	for _, s := range cat.Schedules {
		next(s.Key, state.KindSchedule, s.Label, s.Cadence, s.Enabled)
	}
	for _, m := range cat.Monitors {
		next(m.Key, state.KindMonitor, m.Label, m.Cadence, m.Enabled)
	}
}

// nextLook is when an interval is due next. The history of looks that see nothing is written a minute late, so that of a
// monitor that is served is carried on from what is on record.
func (st *workspaceStatus) nextLook(k *keyStatus, kind string, since time.Time, every time.Duration) *string {
	if k.LastFinish == nil {
		return instant(since.Add(every))
	}
	if k.NextDue == nil || kind != state.KindMonitor || st.Service == nil || k.Holder != "" {
		return k.NextDue
	}
	next, err := time.Parse(time.RFC3339Nano, *k.NextDue)
	late := time.Since(next)
	if err != nil || late <= 0 {
		return k.NextDue
	}
	return instant(next.Add((late/every + 1) * every))
}

func (k *keyStatus) fill(ws *state.Workspace, rec *state.KeyRecord, damaged func(error)) {
	k.Kind, k.Label, k.LastStatus = rec.Kind, rec.Label, rec.LastStatus
	k.LastStart, k.LastFinish, k.NextDue = instant(rec.LastStart.Time), instant(rec.LastFinish.Time), instant(rec.NextDue.Time)
	k.Failures, k.LastError = rec.Failures, rec.LastError
	if rec.Kind == state.KindMonitor {
		m, err := ws.Monitor(k.Key)
		if err != nil {
			damaged(err)
		} else if m != nil && m.Pending != nil {
			k.Pending = m.Pending.Workflow
		}
		h, err := ws.Health(k.Key)
		if err != nil {
			damaged(err)
		}
		k.fillHealth(h)
	}
}

func (r statusReport) print(a *app) error {
	w, p := a.Stdout, a.paint(a.Stdout)
	for _, d := range r.Damaged {
		fmt.Fprintf(w, "damaged: %s\n", clean(d, 500))
	}
	if len(r.Workspaces) == 0 {
		_, err := fmt.Fprintf(w, "no workspaces under %s\n", strict.OneLine(r.Root))
		return err
	}
	for i, ws := range r.Workspaces {
		if i > 0 {
			fmt.Fprintln(w)
		}
		mark := ""
		if ws.Here {
			mark = " (here)"
		}
		fmt.Fprintf(w, "%s%s\n", clean(ws.Project, 200), mark)
		config := "none"
		if ws.Config != nil {
			config = clean(*ws.Config, 200)
		}
		service := "not running"
		if ws.Service != nil {
			service = fmt.Sprintf("pid %d", ws.Service.PID)
		}
		fmt.Fprintf(w, "id: %s\nconfig: %s\nlast seen: %s\nservice: %s\n", ws.ID, config, localText(ws.LastSeen), service)
		if ws.Paused != nil {
			fmt.Fprintf(w, "everything is %s\n", ws.Paused.text())
		}
		if err := ws.printKeys(a, p); err != nil {
			return err
		}
		if err := ws.printWaiting(a, p); err != nil {
			return err
		}
		if err := ws.printRuns(a, p); err != nil {
			return err
		}
		if ws.Definitions != "" {
			fmt.Fprintf(w, "definitions: %s\n", ws.Definitions)
		}
		for _, d := range ws.Damaged {
			fmt.Fprintf(w, "damaged: %s\n", clean(d, 500))
		}
	}
	return nil
}

func (st workspaceStatus) printKeys(a *app, p paint) error {
	if len(st.Keys) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "keys: none recorded")
		return err
	}
	rows := [][]string{{"KEY", "KIND", "LAST", "FINISHED", "NEXT", "NOTE"}}
	for _, k := range st.Keys {
		last := k.LastStatus
		if last == "" {
			last = "never"
		}
		if k.Failures > 1 {
			last = fmt.Sprintf("%s ×%d", last, k.Failures)
		}
		kind := k.Kind
		if kind == "" {
			kind = "-"
		}
		rows = append(rows, []string{k.Key, kind, last, localText(k.LastFinish), localText(k.NextDue), k.note()})
	}
	return p.table(a.Stdout, rows)
}

// note is what else there is to say of a key, the most pressing first.
func (k *keyStatus) note() string {
	var notes []string
	if k.Paused != nil {
		notes = append(notes, k.Paused.text())
	}
	if k.Clock != nil {
		notes = append(notes, k.Clock.text())
	}
	if k.stale != "" {
		notes = append(notes, k.stale)
	}
	if k.Holder != "" {
		notes = append(notes, "running ("+k.Holder+")")
	}
	if k.Pending != "" {
		notes = append(notes, "pending launch of "+clean(k.Pending, 60))
	}
	if k.Down {
		notes = append(notes, "down since "+localText(k.Since))
	}
	if len(k.Degraded) > 0 {
		note := "degraded: " + clean(k.Degraded[0], 80)
		if more := len(k.Degraded) - 1; more > 0 {
			note += fmt.Sprintf(" (and %d more)", more)
		}
		notes = append(notes, note)
	}
	if k.LastError != "" && !slices.Contains(k.Degraded, k.LastError) {
		notes = append(notes, clean(k.LastError, 80))
	}
	return strings.Join(notes, "; ")
}

// printWaiting lists what waits for somebody or something; what waits for an answer first.
func (st workspaceStatus) printWaiting(a *app, p paint) error {
	if len(st.Waiting) == 0 {
		return nil
	}
	rows := [][]string{{"WAITING", "STEP", "FOR", "SINCE", "UNTIL", "TO GO ON"}}
	for _, questions := range []bool{true, false} {
		for _, w := range st.Waiting {
			if (w.Kind == "question") != questions {
				continue
			}
			next := ""
			switch {
			case w.Kind == "pause":
				next = a.command("resume", w.Run)
			case w.Kind == "question" && len(w.Choices) == 0:
				next = a.command("answer", w.Run, "TEXT")
			case w.Kind == "question":
				next = a.command("answer", w.Run) + " " + clean(strings.Join(w.Choices, "|"), 60)
			}
			rows = append(rows, []string{w.Run, clean(w.Step, 40), clean(w.What, 80), localText(w.Since), localText(w.Until), next})
		}
	}
	return p.table(a.Stdout, rows)
}

func (st workspaceStatus) printRuns(a *app, p paint) error {
	fmt.Fprintf(a.Stdout, "runs (%d)\n", st.Runs.Total)
	if st.Runs.Total == 0 {
		return nil
	}
	shown := map[string]bool{}
	lines := append([]runLine{}, st.Runs.Newest...)
	for _, l := range lines {
		shown[l.ID] = true
	}
	for _, l := range st.Runs.Unsettled {
		if !shown[l.ID] {
			lines = append(lines, l)
		}
	}
	return printRunLines(a.Stdout, p, lines, false)
}

// localText renders an RFC 3339 text for people.
func localText(s *string) string {
	if s == nil {
		return "-"
	}
	t, err := time.Parse(time.RFC3339Nano, *s)
	if err != nil {
		return *s
	}
	return clock(t)
}
