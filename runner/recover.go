package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"marbles/state"
)

// interrupted is the error of a run whose process died.
func interrupted(pid int) state.RunError {
	return state.RunError{Name: "InterruptedError", Message: fmt.Sprintf("the process that ran it (pid %d) died", pid)}
}

// Recover settles what dead processes left in a workspace: it ends their processes, settles runs that were running as
// failed (InterruptedError), and returns the runs that never began, oldest first, for the caller to start again (Resume)
// or to settle with Abandon. Call it while holding the service lock, before the loop is armed.
//
// For each run file that is not settled, whose owner is gone:
//
//   - suspended: it waits for an answer, with no process behind it; left alone, see Adopt. One that waits for units none of
//     which is there any more: interrupted.
//   - queued: the owner died before step 4 of the package comment; it never began.
//   - running, and the journal has an end: the owner died within step 5; settled as the journal says.
//   - running, written in this boot, and the journal has no spawn record since it last started: the owner died before it started a process;
//     it never began. After a reboot that would prove nothing: the journal is not synced before its end.
//   - running, with nothing at work but units of the init system that are still there: parked, waiting for them; see outlive.
//   - running otherwise: interrupted.
//
// What belongs to one run costs only that run: the error joins what could not be settled.
func (w *Worker) Recover(ctx context.Context, ws *state.Workspace) (neverBegan []*state.RunFile, err error) {
	w.scratch.sweep()
	files, damaged, err := ws.Unsettled()
	if err != nil {
		return nil, err
	}
	for _, d := range damaged {
		w.o.Log.Warn("run file cannot be read", "workspace", ws.ID(), "error", d)
	}
	byKey := map[string][]*state.RunFile{} // of one key one after the other: they need its lock
	for _, f := range files {
		key := f.Run.Extensions.TriggerID
		if key == "" {
			key = "\x00" + f.Run.ID
		}
		byKey[key] = append(byKey[key], f)
	}
	var (
		mu   sync.Mutex // guards errs and neverBegan
		errs []error
		wait sync.WaitGroup
		turn = make(chan struct{}, defaultConcurrency)
	)
	for _, group := range byKey {
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			for _, f := range group {
				never, err := w.recoverRun(ctx, ws, f)
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("cannot recover run %s: %w", f.Run.ID, err))
				}
				if never != nil {
					neverBegan = append(neverBegan, never)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	errs = append(errs, w.recoverLocks(ctx, ws), w.sweepWorktrees(ws), w.sweepUnits(ws))
	slices.SortFunc(neverBegan, func(a, b *state.RunFile) int { return strings.Compare(a.Run.ID, b.Run.ID) })
	return neverBegan, errors.Join(errs...)
}

// recoverRun settles one run, or returns it where it never began.
func (w *Worker) recoverRun(ctx context.Context, ws *state.Workspace, f *state.RunFile) (never *state.RunFile, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lost, err := w.bereft(ctx, f)
	if err != nil {
		return nil, err
	}
	if !orphaned(f) && !lost {
		return nil, nil
	}
	key, locked := f.Run.Extensions.TriggerID, false
	if key != "" {
		lock, err := ws.TryLock("schedule:" + key)
		switch {
		case err == nil:
			locked = true
			defer lock.Release()
		case !errors.Is(err, state.ErrHeld):
			return nil, err
		default:
			if rec, err := ws.Key(key); err == nil && rec != nil && rec.Run == f.Run.ID && !launched(f) {
				// Whoever ticks the key settles it first. But the lock can be one that nobody may take for a while: an
				// empty one of another program, or one that was being broken at a kill. No process of a dead owner runs
				// on for as long.
				if on, err := w.outlive(ctx, ws, f); on || err != nil {
					return nil, err
				}
				return nil, w.endProcesses(ctx, ws, f)
			}
		}
	}
	f, err = ws.Run(f.Run.ID) // again: someone else may have settled it
	if err == nil && lost {
		lost, err = w.bereft(ctx, f)
	}
	if err != nil || !orphaned(f) && !lost {
		return nil, err
	}
	if ok, err := w.neverBegan(ws, f); ok || err != nil {
		if q, qerr := ws.RequestOf(f.Run.ID); ok && qerr == nil && q != nil && q.Action == state.ActionCancel {
			return nil, errors.Join(w.Abandon(ws, f, cancelled(q.Reason).err.Message), ws.Done(*q))
		}
		return f, err
	}
	if on, err := w.outlive(ctx, ws, f); on || err != nil {
		return nil, err
	}
	if err := w.settleDead(ctx, ws, f); err != nil || !locked || launched(f) {
		return nil, err
	}
	return nil, w.settleHistory(ws, key, f, nil)
}

// recoverLocks brings the history of keys up to date whose ticks died between the run file and the history: their locks
// are still there.
func (w *Worker) recoverLocks(ctx context.Context, ws *state.Workspace) error {
	locks, err := ws.Locks()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range locks {
		key, ok := strings.CutPrefix(l.Name, "schedule:")
		ofRun := strings.HasPrefix(l.Name, "run-") || strings.HasPrefix(l.Name, "edit-")
		if !ok && !ofRun || l.Alive || l.PID == 0 || ctx.Err() != nil {
			continue
		}
		lock, err := ws.TryLock(l.Name)
		if err != nil {
			continue // someone is faster
		}
		if ofRun { // nobody may ask for it again
			errs = append(errs, lock.Release())
			continue
		}
		rec, err := ws.Key(key)
		if err == nil && rec != nil {
			_, _, err = w.settleKey(ctx, ws, key, rec, nil)
		}
		errs = append(errs, err, lock.Release())
	}
	return errors.Join(errs...)
}

// orphaned reports whether a run should be at work and its owner is gone.
func orphaned(f *state.RunFile) bool {
	return (f.Run.Status == state.Queued || f.Run.Status == state.Running) && !f.Owner().Alive()
}

// launched reports whether a run was asked for by a tick that did not wait for it: the tick's history is not that run's,
// even where it names it.
func launched(f *state.RunFile) bool { return f.Run.Extensions.Trigger == triggerLaunch }

const triggerLaunch = "launch"

// trace is what a journal says of a run.
type trace struct {
	began, spawned bool
	since          bool   // spawned since the last start
	step           string // of the last spawn
	at             time.Time
	groups         []state.Process
	cgroups        []string
	steps          []state.StepRecord // that have ended
	end            *state.Entry       // after the last start
	start          time.Time          // the last of the owner
	open           openSteps          // since then
	units          []state.UnitRef    // all
}

// readTrace reads it. owner is the process that the run's file names: the start of another one, which came to settle the
// run and died in that, is no new beginning.
func readTrace(ws *state.Workspace, run string, owner state.Process) (tr trace, err error) {
	tr.open = openSteps{}
	err = ws.ReadJournal(run, func(e state.Entry) error {
		switch e.Kind {
		case "start":
			if tr.began, tr.end = true, nil; e.Process == owner {
				tr.since, tr.steps = false, nil // what came before it is in the run file
				tr.start = e.At
				clear(tr.open)
			}
		case "spawn":
			tr.spawned, tr.since, tr.step, tr.at = true, true, e.Step, e.At
			tr.open[e.Step] = openStep{unit: e.Unit}
			if e.Unit != nil {
				tr.units = append(tr.units, *e.Unit)
			}
		case "step":
			if e.Record != nil {
				tr.steps = append(tr.steps, *e.Record)
				tr.open.ended(e.Record)
			}
		case "process":
			tr.spawned, tr.since = true, true
			tr.groups = append(tr.groups, e.Process)
			if e.Cgroup != "" {
				tr.cgroups = append(tr.cgroups, e.Cgroup)
			}
		case "end":
			tr.end = &e
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return tr, err
}

// neverBegan reports whether it is certain that no process of a run was ever started, and its owner is gone.
func (w *Worker) neverBegan(ws *state.Workspace, f *state.RunFile) (bool, error) {
	switch {
	case !orphaned(f):
		return false, nil
	case f.Run.Status == state.Queued:
		return true, nil
	case f.BootID == "" || f.BootID != w.self.BootID:
		return false, nil
	}
	tr, err := readTrace(ws, f.Run.ID, f.Owner())
	spawned := tr.spawned
	if m := f.Marbles; m != nil && (len(m.Waits) > 0 || m.Attempt > 0) {
		spawned = tr.since // what came before it parked, or was retried, is in its file
	}
	return err == nil && tr.began && !spawned && len(tr.steps) == 0 && tr.end == nil, err
}

// takeHanded takes a run that another process wrote down for this one to start, and reports whether it may be: it is being started then.
func (w *Worker) takeHanded(ws *state.Workspace, f *state.RunFile) bool {
	if f.Run.Status != state.Queued || f.Owner() != w.self || w.atWork(ws, f.Run.ID) != nil {
		return false
	}
	ref := runRef{ws.Dir(), f.Run.ID}
	w.mu.Lock()
	defer w.mu.Unlock()
	starting, known := w.handed[ref]
	if !known || starting {
		return false
	}
	w.handed[ref] = true
	return true
}

// endProcesses ends what a run whose owner is gone has left.
func (w *Worker) endProcesses(ctx context.Context, ws *state.Workspace, f *state.RunFile) error {
	tr, err := readTrace(ws, f.Run.ID, f.Owner())
	if err != nil || !tr.spawned || f.BootID != "" && f.BootID != w.self.BootID {
		return err
	}
	return w.endRun(ctx, f.Run.ID, tr)
}

// settleDead settles a run that began and whose owner is gone. Its processes end first.
func (w *Worker) settleDead(ctx context.Context, ws *state.Workspace, f *state.RunFile) error {
	tr, err := readTrace(ws, f.Run.ID, f.Owner())
	if err != nil {
		w.logOf(ws, f).Warn("journal cannot be read", "error", err)
	}
	if f.BootID == "" || f.BootID == w.self.BootID {
		if err := w.endRun(ctx, f.Run.ID, tr); err != nil {
			return err
		}
	}
	if err := w.endUnits(ctx, ws, f, tr); err != nil {
		return err
	}
	mergeSteps(f, tr.steps)
	run, now := &f.Run, time.Now()
	if tr.end != nil && tr.end.Status.Settled() {
		run.Status, run.Output, run.Error, now = tr.end.Status, tr.end.Result, tr.end.Error, tr.end.At
	} else {
		why := interrupted(f.PID)
		if run.Status == state.Suspended { // bereft
			why.Message = "its unit is gone: it was stopped, or the machine was restarted"
		}
		run.Status, run.Error = state.Failed, &why
		if err := w.restart(ws, f); err != nil {
			return err
		}
		w.endJournal(ws, f, tr.step)
		if tr.step != "" && !slices.ContainsFunc(f.Steps, func(s state.StepRecord) bool { return s.Name == tr.step }) {
			f.Steps = append(f.Steps, state.StepRecord{
				Name: tr.step, Status: state.Failed, Error: &why,
				StartedAt: state.Millis(tr.at.UnixMilli()), FinishedAt: state.Millis(now.UnixMilli()),
			})
		}
	}
	stampEnd(run, now)
	closeOpen(f)
	if err := ws.WriteRun(f); err != nil {
		return err
	}
	w.at("interrupted")
	w.cancelChildren(ws, f, tr.open)
	w.settled(ws, f)
	w.logOf(ws, f).Warn("run of a dead process settled", "pid", f.PID, "status", run.Status)
	return nil
}

// cancelChildren cancels the runs that the steps of an interrupted run had started, and that may live on.
func (w *Worker) cancelChildren(ws *state.Workspace, f *state.RunFile, open openSteps) {
	for _, s := range open {
		if s.child == nil {
			continue
		}
		err := ws.Ask(state.Request{Run: s.child.Child, Action: state.ActionCancel, Reason: fmt.Sprintf("run %s, which started it, was interrupted", f.Run.ID)})
		if err != nil {
			w.logOf(ws, f).Error("run whose parent was interrupted cannot be cancelled", "child", s.child.Child, "error", err)
		}
	}
}

// mergeSteps puts the steps that a journal knows to have ended into the file, so that a retry does none of them again.
func mergeSteps(f *state.RunFile, ended []state.StepRecord) {
	type place struct {
		name string
		item int
	}
	of := func(s *state.StepRecord) place {
		if s.Item == nil {
			return place{s.Name, -1}
		}
		return place{s.Name, *s.Item}
	}
	known := make(map[place]int, len(f.Steps))
	for i := range f.Steps {
		known[of(&f.Steps[i])] = i
	}
	for _, rec := range ended {
		if i, ok := known[of(&rec)]; ok {
			f.Steps[i] = rec
			continue
		}
		known[of(&rec)] = len(f.Steps)
		f.Steps = append(f.Steps, rec)
	}
}

func stampEnd(run *state.Run, now time.Time) {
	at, t := state.Millis(now.UnixMilli()), &run.Timestamps
	switch run.Status {
	case state.Complete:
		t.CompletedAt = at
	case state.Cancelled:
		t.CancelledAt = at
	default:
		t.FailedAt = at
	}
}

// endJournal appends to the journal of a dead owner how the run ended.
func (w *Worker) endJournal(ws *state.Workspace, f *state.RunFile, step string) {
	now := time.Now()
	j := &journal{log: w.logOf(ws, f)}
	s, err := ws.OpenJournal(f.Run.ID, f.Run.Step, now)
	j.warn(err)
	j.j = s
	if step != "" && f.Run.Status == state.Failed {
		j.line(step, "failed: "+f.Run.Error.Message)
	}
	j.end(now, f.Run.Status, f.Run.Output, f.Run.Error)
	j.sync()
}

// settleKey settles what a dead owner left under a key whose lock is held, and returns the key's record as it is then.
//
//   - Its run has settled, and the record does not know: the owner died between the two writes of step 5.
//   - Its run began: interrupted, unless units of it live on.
//   - Its run is on no record: the owner died within 3. The slot is free again, in the record that is returned.
//   - Its run never began: the owner died between 3 and 4. The slot is free again, in the record that is returned. The
//     run is returned too: a tick goes on with it, or settles it and stands for it.
func (w *Worker) settleKey(ctx context.Context, ws *state.Workspace, key string, rec *state.KeyRecord, nextDue func(time.Time) time.Time) (
	now *state.KeyRecord, orphan *state.RunFile, err error,
) {
	if rec == nil || rec.Run == "" {
		return rec, nil, nil
	}
	free := func() *state.KeyRecord {
		now := *rec
		now.Slot, now.SlotLocal = slotBefore(ws, key, rec.Slot), ""
		return &now
	}
	f, err := ws.Run(rec.Run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !Unwritten(ws, rec) {
			return rec, nil, nil
		}
		now := free()
		now.Run, now.LastStart = "", rec.LastFinish
		return now, nil, ws.WriteKey(key, now)
	case err != nil:
		w.o.Log.Warn("run file cannot be read", "workspace", ws.ID(), "error", err)
		return rec, nil, nil
	}
	switch {
	case launched(f):
		return rec, nil, nil
	case f.Run.Status.Settled():
		switch {
		case !rec.LastFinish.Before(endOf(f)):
			return rec, nil, nil
		case f.Run.Timestamps.StartedAt == 0: // settled because it never began
			return free(), nil, nil
		}
	case !orphaned(f):
		lost, err := w.bereft(ctx, f)
		if !lost || err != nil {
			return rec, nil, err
		}
		if err := w.settleDead(ctx, ws, f); err != nil {
			return nil, nil, err
		}
	default:
		never, err := w.neverBegan(ws, f)
		if err != nil {
			return nil, nil, err
		}
		if never {
			return free(), f, nil
		}
		on, err := w.outlive(ctx, ws, f)
		if err != nil {
			return nil, nil, err
		}
		if on {
			return rec, nil, nil
		}
		if err := w.settleDead(ctx, ws, f); err != nil {
			return nil, nil, err
		}
	}
	if err := w.settleHistory(ws, key, f, nextDue); err != nil {
		return nil, nil, err
	}
	rec, err = ws.Key(key)
	return rec, nil, err
}

// slotBefore is the latest slot of a key that was started before another one, as far as its ledger goes back; zero for none.
// A slot that is free again must not make free what was started before it.
func slotBefore(ws *state.Workspace, key string, slot state.Stamp) (last state.Stamp) {
	const recent = 50
	entries, err := ws.Slots(key, recent)
	if err != nil {
		return last
	}
	for _, e := range entries {
		started := e.Outcome == state.SlotRan || e.Outcome == state.SlotParked
		if started && e.Slot.Before(slot.Time) && e.Slot.After(last.Time) {
			last = e.Slot
		}
	}
	return last
}

// Unwritten reports whether a key's record names a run that was never written down, because its owner died while it wrote
// the two side by side: nothing was started then, and the slot is free.
func Unwritten(ws *state.Workspace, rec *state.KeyRecord) bool {
	if rec.Run == "" || !rec.LastFinish.Before(rec.LastStart.Time) {
		return false
	}
	if _, err := ws.Run(rec.Run); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	tr, err := readTrace(ws, rec.Run, state.Process{}) // says more where someone removed the run file
	return err == nil && !tr.spawned && tr.end == nil
}

func endOf(f *state.RunFile) time.Time { return time.UnixMilli(int64(f.Run.Timestamps.Ended())) }

// settleHistory brings the ledger and the record of a key up to date with a run that has settled. The key's lock is held.
func (w *Worker) settleHistory(ws *state.Workspace, key string, f *state.RunFile, nextDue func(time.Time) time.Time) error {
	rec, err := ws.Key(key)
	if err != nil || rec == nil || rec.Run != f.Run.ID {
		return err
	}
	end := endOf(f)
	if !rec.LastFinish.Before(end) {
		return nil // the tick got that far
	}
	if slot := f.Run.Extensions.Slot; !slot.IsZero() {
		const recent = 20
		entries, err := ws.Slots(key, recent)
		if err != nil {
			return err
		}
		known := slices.ContainsFunc(entries, func(e state.SlotEntry) bool { return e.Run == f.Run.ID && e.Outcome == state.SlotRan })
		if !known {
			e := state.SlotEntry{Slot: slot, At: state.Stamp{Time: time.Now()}, Outcome: state.SlotRan, Run: f.Run.ID}
			if err := ws.AppendSlot(key, e, true); err != nil {
				return err
			}
		}
	}
	var failure error
	if f.Run.Status != state.Complete {
		failure = Result{Status: f.Run.Status, Error: f.Run.Error}.Err()
	}
	ended(rec, end, f.Run.Status, failure, nextDue)
	return ws.WriteKey(key, rec)
}

// Abandon settles a run that never began as cancelled, with a reason.
func (w *Worker) Abandon(ws *state.Workspace, f *state.RunFile, reason string) error {
	fail := func(err error) error { return fmt.Errorf("cannot abandon run %s: %w", f.Run.ID, err) }
	f, err := ws.Run(f.Run.ID)
	if err != nil {
		return err
	}
	if never, err := w.neverBegan(ws, f); err != nil {
		return fail(err)
	} else if !never {
		return fail(fmt.Errorf("it is %s, and its owner is pid %d", f.Run.Status, f.PID))
	}
	tr, err := readTrace(ws, f.Run.ID, f.Owner())
	if err != nil {
		return fail(err)
	}
	f.Run.Status, f.Run.Error = state.Cancelled, &cancelled(reason).err
	f.Run.Timestamps.StartedAt = 0
	stampEnd(&f.Run, time.Now())
	if err := w.endUnits(context.Background(), ws, f, tr); err != nil { // that it would have taken over
		return fail(err)
	}
	if tr.began { // also one that still says queued: the journal is there before the file says running
		w.endJournal(ws, f, "")
	}
	closeOpen(f)
	if err := ws.WriteRun(f); err != nil {
		return fail(err)
	}
	w.settled(ws, f)
	return nil
}
