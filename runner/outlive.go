package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// openSteps are the steps that were at work when the owner of a run died, by their labels.
type openSteps map[string]openStep

// openStep is what did a step: a unit, a run, or, with neither, a process that died with its owner.
type openStep struct {
	unit  *state.UnitRef
	child *state.StepRecord
}

func (o openSteps) ended(rec *state.StepRecord) {
	s := step{Step: Step{Name: rec.Name}, item: rec.Item}
	if rec.Status == state.Running && rec.Child != "" {
		o[s.label()] = openStep{child: rec}
		return
	}
	delete(o, s.label())
}

// outlive reports whether everything that was at work of a run outlived its owner.
func (o openSteps) outlive() bool {
	for _, s := range o {
		if s.unit == nil && s.child == nil {
			return false
		}
	}
	return len(o) > 0
}

// outlive parks a run whose owner was killed, where nothing was at work of it but units, which live on, and runs that do:
// then it goes on like one that a service left. It reports whether that is so. A manager that cannot be asked is an error, and
// nothing must be settled then.
//
// A crash before the file is written leaves the run as it was, one after it a parked run.
func (w *Worker) outlive(ctx context.Context, ws *state.Workspace, f *state.RunFile) (bool, error) {
	if f.Run.Status != state.Running || f.BootID == "" || f.BootID != w.self.BootID {
		return false, nil
	}
	tr, err := readTrace(ws, f.Run.ID, f.Owner())
	if err != nil || tr.end != nil || !tr.open.outlive() {
		return false, nil // settleDead says what is wrong
	}
	for _, s := range tr.open {
		alive, err := w.livesOn(ctx, ws, f.Run.ID, s)
		if !alive || err != nil {
			return false, err
		}
	}
	lock, err := ws.LockEdit(ctx, f.Run.ID)
	if err != nil {
		return false, err
	}
	defer lock.Release()
	now, err := ws.Run(f.Run.ID)
	if err != nil || now.Run.Status != state.Running || now.Owner() != f.Owner() {
		return err == nil && now.Run.Status == state.Suspended, err
	}
	mergeSteps(now, tr.steps)
	for _, o := range now.Open() { // taken over, and done
		if u := o.Unit(); u != nil && slices.ContainsFunc(tr.steps, func(rec state.StepRecord) bool { return stepOf(u.Path, &rec) }) {
			o.Close(time.Now())
		}
	}
	for _, s := range tr.open {
		addWait(now, s)
	}
	now.Run.Status = state.Suspended
	if now.Marbles == nil {
		now.Marbles = &state.RunMarbles{}
	}
	noteWaits(now)
	noteLeft(now, tr.start)
	w.at("outliving")
	if err := ws.WriteRun(now); err != nil {
		return false, err
	}
	w.at("outlived")
	if err := ws.Ask(state.Request{Run: now.Run.ID, Action: state.ActionLook}); err != nil { // a service that is up takes it
		w.logOf(ws, now).Warn("service cannot be told of a parked run", "error", err)
	}
	for _, u := range tr.units { // the end of its step is on record, and its owner died before it was freed
		if !tr.open.has(u.Unit) && w.stopUnit(now.Run.ID, u) {
			w.removeUnit(u)
		}
	}
	w.logOf(ws, f).Info("run of a dead process goes on: its units live on", "pid", f.PID)
	return true, nil
}

func (o openSteps) has(unit string) bool {
	for _, s := range o {
		if s.unit != nil && s.unit.Unit == unit {
			return true
		}
	}
	return false
}

// stepOf reports whether a path is that of the step, or the item, that a record is of.
func stepOf(path []string, rec *state.StepRecord) bool {
	if len(path) < 2 || path[1] != rec.Name || (len(path) > 2) != (rec.Item != nil) {
		return false
	}
	return rec.Item == nil || path[2] == fmt.Sprint(*rec.Item)
}

// livesOn reports whether what did a step is still there, as a unit that may have ended, or as a run that has not settled without
// its parent.
func (w *Worker) livesOn(ctx context.Context, ws *state.Workspace, run string, s openStep) (bool, error) {
	if s.unit != nil {
		return w.hasUnit(ctx, run, *s.unit)
	}
	child, err := ws.Run(s.child.Child)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case orphaned(child):
		return w.outlive(ctx, ws, child)
	}
	return child.Run.Status == state.Suspended, nil
}

// hasUnit reports whether the manager still knows a unit of a run.
func (w *Worker) hasUnit(ctx context.Context, run string, u state.UnitRef) (bool, error) {
	switch {
	case !ourUnit(run, u):
		return false, nil
	case w.o.Units == nil:
		return false, fmt.Errorf("cannot tell what became of unit %s: this process cannot ask the init system", u.Unit)
	}
	ctx, cancel := context.WithTimeout(ctx, askUnits)
	defer cancel()
	st, err := w.o.Units.Look(ctx, u.Unit)
	if err != nil {
		return false, fmt.Errorf("cannot tell what became of unit %s: %w", u.Unit, err)
	}
	return st.Loaded, nil
}

// addWait lets a run wait for what does one of its steps, where it does not yet.
func addWait(f *state.RunFile, s openStep) {
	var request any = s.unit
	sus := state.Suspension{Kind: state.SuspendUnit}
	if s.unit != nil {
		sus.StepPath, sus.Reason = s.unit.Path, "unit "+s.unit.Unit
	} else {
		sus.Kind, sus.StepPath, sus.Reason = state.SuspendChild, []string{f.Run.Step, s.child.Name}, "run "+s.child.Child
		if s.child.Item != nil {
			sus.StepPath = append(sus.StepPath, fmt.Sprint(*s.child.Item))
		}
		request = struct {
			Run string `json:"run"`
		}{s.child.Child}
	}
	for _, o := range f.Open() {
		if u := o.Unit(); u != nil && s.unit != nil && u.Unit == s.unit.Unit || s.child != nil && o.Child() == s.child.Child {
			return
		}
		if o.Kind == sus.Kind && slices.Equal(o.StepPath, sus.StepPath) { // an attempt before this one
			o.Close(time.Now())
		}
	}
	for _, o := range f.Suspensions {
		if o.Kind == sus.Kind && slices.Equal(o.StepPath, sus.StepPath) {
			sus.Occurrence++
		}
	}
	now := time.Now()
	sus.ID, sus.RunID = "su-"+strings.TrimPrefix(state.NewRunID(now), "rn-"), f.Run.ID
	if len(sus.StepPath) > 1 {
		sus.Name = sus.StepPath[1]
	}
	sus.Request, _ = json.Marshal(request, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	sus.Resolution, sus.Status = jsontext.Value("null"), state.Pending
	sus.Timestamps.CreatedAt = state.Millis(now.UnixMilli())
	f.Suspensions = append(f.Suspensions, sus)
}

// bereft reports whether a parked run of a dead owner waits for units none of which is there any more: the machine was restarted,
// or somebody stopped them.
func (w *Worker) bereft(ctx context.Context, f *state.RunFile) (bool, error) {
	if f.Run.Status != state.Suspended || w.elses(f) {
		return false, nil
	}
	units := 0
	for _, s := range f.Open() {
		u := s.Unit()
		if u == nil {
			continue
		}
		units++
		if f.BootID != "" && f.BootID != w.self.BootID {
			continue
		}
		if there, err := w.hasUnit(ctx, f.Run.ID, *u); there || err != nil {
			return false, err
		}
	}
	return units > 0, nil
}

// sweepUnits ends what units are left of runs that have settled, and removes their directories.
func (w *Worker) sweepUnits(ws *state.Workspace) error {
	for _, parent := range []string{ws.Units(), w.o.TempDir} { // see newUnit
		entries, err := os.ReadDir(parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot list %s: %w", parent, bare(err))
		}
		for _, e := range entries {
			name := strings.TrimSuffix(e.Name(), "."+secretsFile)
			rest, ok := strings.CutPrefix(name, unitName)
			run, _, found := strings.Cut(rest, "-")
			if run = "rn-" + run; !ok || !found {
				continue
			}
			f, err := ws.Run(run)
			gone := errors.Is(err, fs.ErrNotExist) && parent == ws.Units() // in the other one it may be another workspace's
			if err == nil && f.Run.Status.Settled() || gone {
				if u := (state.UnitRef{Unit: name + ".service", Dir: filepath.Join(parent, name)}); w.stopUnit(run, u) {
					w.removeUnit(u)
				}
			}
		}
	}
	return nil
}

// alone is how long a run that was left to its units was at work without a process: until now, or until the last of them ended.
func (w *Worker) alone(f *state.RunFile) time.Duration {
	left := f.Marbles.LeftAt.Time
	var end time.Time
	for _, s := range f.Open() {
		u := s.Unit()
		if u == nil || w.o.Units == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), askUnits)
		st, err := w.o.Units.Look(ctx, u.Unit)
		cancel()
		if err != nil || !st.Ended {
			return max(0, time.Since(left))
		}
		if st.StateChanged.After(end) {
			end = st.StateChanged
		}
	}
	return max(0, end.Sub(left))
}

// endUnits ends the units of a run that is settled for its dead owner, and keeps what they have put out. Where the manager cannot
// be asked they go on, and the run must not be settled.
func (w *Worker) endUnits(ctx context.Context, ws *state.Workspace, f *state.RunFile, tr trace) error {
	sameBoot := f.BootID == "" || f.BootID == w.self.BootID
	for _, u := range tr.units {
		if !sameBoot || !ourUnit(f.Run.ID, u) {
			continue
		}
		there, err := w.hasUnit(ctx, f.Run.ID, u)
		if err != nil {
			return err
		}
		if there && !w.stopUnit(f.Run.ID, u) {
			return fmt.Errorf("cannot end unit %s", u.Unit)
		}
	}
	r := w.newRun(Launch{Workspace: ws, Workflow: &Workflow{Name: f.Run.Step}, RunID: f.Run.ID, Key: f.Run.Extensions.TriggerID}, nil)
	defer r.cancel(nil)
	for _, u := range tr.units {
		if _, err := os.Stat(u.Dir); err != nil || !ourUnit(f.Run.ID, u) {
			continue
		}
		if r.journal.j == nil && tr.end == nil {
			j, err := ws.OpenJournal(f.Run.ID, f.Run.Step, time.Now())
			r.journal.warn(err)
			r.journal.j = j
		}
		if r.journal.j != nil {
			r.salvage(u)
		}
		w.removeUnit(u)
	}
	r.journal.sync()
	return nil
}

// elses reports whether another live process owns a run.
func (w *Worker) elses(f *state.RunFile) bool { return f.Owner() != w.self && f.Owner().Alive() }
