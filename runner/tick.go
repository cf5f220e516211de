package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"marbles/state"
)

// Overlap is what a tick does while the key's older run is at work in this process.
type Overlap string

// The overlap rules of design §6.
const (
	OverlapSkip    Overlap = "skip"
	OverlapQueue   Overlap = "queue"
	OverlapReplace Overlap = "replace"
)

// Tick is one firing of a key.
type Tick struct {
	Workspace *state.Workspace
	Key       string
	Kind      string // state.KindSchedule | state.KindMonitor
	Label     string
	Slot      time.Time // zero where it has none (a forced tick)
	SlotLocal string
	Forced    bool    // by a person: no due test, no slot
	Overlap   Overlap // default OverlapSkip
	// Due is asked under the lock whether the tick is still due, given the key's history (nil for none).
	Due func(rec *state.KeyRecord) bool
	// NextDue is the next due instant after a finish; zero for none.
	NextDue func(finish time.Time) time.Time
	// Body does the tick under the lock. A panic in it is a failed tick.
	Body func(ctx context.Context, t *Ticking) error
}

// SkipError is returned by a body that had a reason not to do anything: the tick is skipped, which is no failure.
type SkipError struct{ Reason string }

func (e *SkipError) Error() string { return e.Reason }

// TickResult is how a tick ended.
type TickResult struct {
	// Outcome is SlotRan, SlotSkipped (Holder says who), SlotFailed, or "" where it was no longer due, or was stopped
	// before it did anything.
	Outcome state.Outcome
	Holder  string
	Reason  string // of a skipped tick that no holder stood in the way of
	Result  Result // of the last launch, if any; of a skipped tick the RunID of the run in its way, if known
	// Quiet is a tick that started no run and did not fail: a poll that saw nothing. Its Outcome is SlotRan.
	Quiet    bool
	Err      error
	Finished time.Time
}

// Ticking is a tick in progress, given to its body.
type Ticking struct {
	Tick
	Record *state.KeyRecord // as it was before, never nil

	orphan  *state.RunFile // a run the record names that never began; see settleKey
	w       *Worker
	ctx     context.Context
	cancel  context.CancelCauseFunc
	turn    chan bool // see seat
	started time.Time

	mu     sync.Mutex // guards what follows
	run    *Run       // the latest
	runs   []*Run     // all
	result Result     // its end
	rec    *state.KeyRecord
	begun  bool  // the key's record names a run of this tick
	undone error // why a launch could not be started

	launched string // see Launched
	looked   bool   // it was a poll, whether it succeeded or failed
}

// Tick does one firing: overlap rule, lock, recovery of what a dead owner left under this key, due test, body, history,
// ledger. It blocks until the tick has ended. A body that started no run and did not fail writes its history lazily.
func (w *Worker) Tick(ctx context.Context, tick Tick) TickResult {
	tick.Slot = tick.Slot.Truncate(time.Millisecond) // as records keep it
	t := &Ticking{Tick: tick, w: w, turn: make(chan bool, 1)}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	defer t.cancel(nil)
	if err := w.enter(func() { w.ticking[t] = struct{}{} }); err != nil {
		return TickResult{Err: err, Finished: time.Now()}
	}
	defer w.leave(func() { delete(w.ticking, t) })
	if res, ok := t.sit(); !ok {
		return res
	}
	defer t.rise()
	lock, err := t.lock()
	if held := (*state.HeldError)(nil); errors.As(err, &held) {
		return t.heldBy(held)
	}
	if err != nil {
		return t.early(err)
	}
	// Given back whatever fails, before the turn of this process is handed on.
	defer func() {
		if lock == nil {
			return
		}
		if err := lock.Release(); err != nil {
			w.o.Log.Error("lock of a key cannot be released", "key", t.Key, "error", err)
		}
	}()
	w.at("locked")
	return t.underLock(&lock)
}

const (
	// takingTime is how long a lock may be without a holder's name before it counts as abandoned, and a little more.
	takingTime = 31 * time.Second
	takingPoll = 100 * time.Millisecond
)

// lock takes the key's lock. One of ours names its holder from its first moment. One that names nobody is being taken by
// another program that keeps the lock protocol, or was left by that one's death or a power cut: a slot is not given up
// for that, so the tick waits until it is known who has the lock.
func (t *Ticking) lock() (*state.Lock, error) {
	deadline := time.Now().Add(takingTime)
	for {
		lock, err := t.Workspace.TryLock("schedule:" + t.Key)
		held := (*state.HeldError)(nil)
		if !errors.As(err, &held) || held.PID != 0 || t.Forced || time.Now().After(deadline) {
			return lock, err
		}
		pause := time.NewTimer(takingPoll)
		select {
		case <-pause.C:
		case <-t.ctx.Done():
			pause.Stop()
			return nil, context.Cause(t.ctx)
		case <-t.w.stop:
			pause.Stop()
			return nil, ErrDraining
		}
	}
}

// heldBy ends a tick whose lock another process holds. Where that one runs the very slot, it has not been skipped.
func (t *Ticking) heldBy(held *state.HeldError) TickResult {
	rec, err := t.Workspace.Key(t.Key)
	if err != nil || rec == nil {
		return t.skipped("another process holds the key", held.Holder, "", true)
	}
	run := ""
	if rec.LastFinish.Before(rec.LastStart.Time) {
		run = rec.Run
	}
	taken := !t.Slot.IsZero() && !rec.Slot.Before(t.Slot)
	return t.skipped("another process holds the key", held.Holder, run, !taken)
}

func (t *Ticking) underLock(lock **state.Lock) TickResult {
	rec, err := t.settledRecord()
	if err != nil {
		return t.early(err)
	}
	for older := t.parked(rec); older != nil; older = t.parked(rec) {
		// The slot that it is of is not due, whatever becomes of it.
		if !t.Forced && t.Due != nil && !t.Due(rec) {
			return TickResult{Finished: time.Now()}
		}
		if res, ok := t.pass(older, lock); !ok {
			return res
		}
		if rec, err = t.settledRecord(); err != nil {
			return t.early(err)
		}
	}
	if !t.Forced && t.Due != nil && !t.Due(rec) {
		return TickResult{Finished: time.Now()}
	}
	if res, ok := t.replaced(); ok {
		return res
	}
	if rec == nil {
		rec = &state.KeyRecord{}
	}
	before := *rec
	t.Record, t.rec = rec, &before
	t.started = time.Now()
	defer t.settled()
	err = t.body()
	if derr := t.disown(); derr != nil {
		t.log().Error("run that never began cannot be settled", "error", derr)
	}
	return t.finish(err)
}

func (t *Ticking) body() (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.log().Error("panic in a tick", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return t.Tick.Body(t.ctx, t)
}

// Launch starts a run on behalf of the tick and waits for its end, which is in the journal then; the tick itself does not
// end before the run file says so too. The key's record names the slot and the run before the process is spawned, and the
// slot ledger says "ran". A run that did not complete is an error as well as a Result.
// Workspace, Key, Slot and Trigger are the tick's where l does not say.
func (t *Ticking) Launch(ctx context.Context, l Launch) (Result, error) {
	t.mu.Lock()
	rec, begun := t.rec, t.begun
	t.mu.Unlock()
	run, err := t.start(l)
	t.mu.Lock()
	t.run, t.undone = run, err
	if err != nil {
		t.rec, t.begun = rec, begun // it may have been claimed for a run that could not be written down
	} else {
		t.runs = append(t.runs, run)
	}
	t.mu.Unlock()
	if err != nil {
		return Result{}, err
	}
	select {
	case <-run.ended:
	case <-t.ctx.Done():
		run.Cancel(reasonOf(t.ctx))
	case <-ctx.Done():
		run.Cancel(reasonOf(ctx))
	}
	<-run.ended
	res := run.result
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result = res
	if res.RunID == "" {
		t.rec, t.begun = rec, begun
	}
	return res, res.Err()
}

// settled waits until the files of the tick's runs say how they ended. Only a stop that comes now cuts it short: one that
// came before is what may have ended them.
func (t *Ticking) settled() {
	t.mu.Lock()
	runs := t.runs
	t.mu.Unlock()
	stop := t.ctx.Done()
	if t.ctx.Err() != nil {
		stop = nil
	}
	for _, r := range runs {
		select {
		case <-r.Done():
		case <-stop:
			r.Cancel(reasonOf(t.ctx))
			<-r.Done()
		}
	}
}

// Launched says that the body started a run of its own, with Worker.Start, which the tick does not wait for. The tick is
// not quiet then, and where it has no run that is its own, the ledger and the history name that one.
func (t *Ticking) Launched(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.launched = run
}

// start starts the run. What the key's last owner accepted and never began, it stands for.
func (t *Ticking) start(l Launch) (*Run, error) {
	if l.Queued != nil && t.orphan != nil && l.Queued.Run.ID == t.orphan.Run.ID {
		t.orphan = nil
	}
	if err := t.disown(); err != nil {
		return nil, err
	}
	l = t.launch(l)
	l.brief = !t.Forced && !t.Slot.IsZero() && l.Workflow.Concurrency == 0
	return t.w.Start(l)
}

// disown settles the run that never began and that the key's record names, where there is one.
func (t *Ticking) disown() error {
	f := t.orphan
	if f == nil {
		return nil
	}
	t.orphan = nil
	reason := fmt.Sprintf("it never began: the process that accepted it (pid %d) died", f.PID)
	if err := t.w.Abandon(t.Workspace, f, reason); err != nil {
		return err
	}
	slot := f.Run.Extensions.Slot
	if slot.IsZero() || slot.Equal(t.Slot) {
		return nil
	}
	return t.Workspace.AppendSlot(t.Key, state.SlotEntry{
		Slot: slot, At: state.Stamp{Time: time.Now()}, Outcome: state.SlotFailed, Run: f.Run.ID, Reason: reason,
	}, true)
}

func (t *Ticking) launch(l Launch) Launch {
	l.Workspace, l.Key = t.Workspace, t.Key
	if l.Slot.IsZero() && !t.Forced {
		l.Slot = t.Slot
	}
	if l.Trigger == "" {
		l.Trigger = t.Kind
	}
	next := l.Started
	l.Started = func(run string, at time.Time) error {
		if err := t.claim(run, at); err != nil {
			return err
		}
		if next != nil {
			return next(run, at)
		}
		return nil
	}
	return l
}

// reasonOf is why a context ended, as a run's reason.
func reasonOf(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	return "cancelled"
}

func (t *Ticking) runID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.run != nil:
		return t.run.id
	case t.begun: // it is being written down
		return t.rec.Run
	}
	return ""
}

// claim writes the key's record before the run's process is spawned: from here on the slot is started.
func (t *Ticking) claim(run string, at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := *t.rec
	t.label(&rec)
	rec.LastStart, rec.Run = state.Stamp{Time: at}, run
	if !t.Forced && !t.Slot.IsZero() {
		rec.Slot, rec.SlotLocal = state.Stamp{Time: t.Slot}, t.SlotLocal
	}
	if err := t.Workspace.WriteKey(t.Key, &rec); err != nil {
		return err
	}
	t.rec, t.begun = &rec, true
	return nil
}

// ledger appends how the tick's slot ended; a tick without a slot has none. Of one that ran the run file and the key's
// record know it too, so that line alone need not be durable at once.
func (t *Ticking) ledger(e state.SlotEntry) {
	if t.Forced || t.Slot.IsZero() {
		return
	}
	e.Slot = state.Stamp{Time: t.Slot}
	if err := t.Workspace.KeepSlot(t.Key, e, e.Outcome != state.SlotRan); err != nil {
		t.log().Error("slot ledger cannot be written", "slot", t.Slot, "outcome", e.Outcome, "error", err)
	}
}

// early ends a tick that could not get to its body. One that was stopped on its way there leaves its slot due.
func (t *Ticking) early(err error) TickResult {
	now := time.Now()
	if res, ok := t.replaced(); ok {
		return res
	}
	if errors.Is(err, ErrDraining) || t.ctx.Err() != nil {
		return TickResult{Err: err, Finished: now}
	}
	t.ledger(state.SlotEntry{At: state.Stamp{Time: now}, Outcome: state.SlotFailed, Reason: err.Error()})
	return TickResult{Outcome: state.SlotFailed, Err: err, Finished: now}
}

// finish records how the tick ended: the ledger, then the key's history.
func (t *Ticking) finish(err error) TickResult {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.result.Started.IsZero() {
		t.begun = false // it was claimed for a run that never left the queue
	}
	if t.result.Status == state.Suspended {
		return t.finishParked(now)
	}
	ran := t.begun || t.launched != ""
	if ran && errors.Is(err, ErrDraining) {
		// What the tick has run counts. What it could not go on with is no failure: a later marbles does it.
		err = nil
		if t.begun {
			err = t.result.Err()
		}
	}
	res := TickResult{Outcome: state.SlotRan, Result: t.result, Err: err, Finished: now}
	entry := state.SlotEntry{At: state.Stamp{Time: now}, Outcome: state.SlotRan, Run: t.result.RunID}
	if !t.begun && ran {
		entry.Run = t.launched
	}
	record := ran
	skip := (*SkipError)(nil)
	switch {
	case ran:
	case t.run == nil && errors.As(err, &skip):
		return t.skipped(skip.Reason, "", "", true)
	case err != nil && t.run == nil && errors.Is(context.Cause(t.ctx), errReplaced):
		res, _ = t.replaced()
		return res
	case errors.Is(err, ErrDraining), err != nil && t.run == nil && t.ctx.Err() != nil:
		// It was stopped before it did anything: no failure, and the slot is still due.
		res.Outcome = ""
		return res
	case t.result.Status == state.Cancelled: // in the queue
		res.Outcome = state.SlotSkipped
		entry.Outcome, entry.Reason, record = state.SlotSkipped, t.result.Error.Message, true
	case err != nil:
		res.Outcome = state.SlotFailed
		entry.Outcome, entry.Reason = state.SlotFailed, err.Error()
		// A poll that failed is no slot that could not be started: its failure stands in the history alone.
		record = t.undone != nil || t.run != nil || t.Kind != state.KindMonitor
		t.looked = !record
	default:
		res.Quiet, t.looked = true, true
	}
	if ran {
		defer t.w.afterStarts()()
	}
	if record {
		t.ledger(entry)
	}
	t.w.at("ledger")
	if werr := t.history(now, err, res.Quiet); werr != nil {
		t.log().Error("history cannot be written", "error", werr)
	}
	t.w.at("history")
	return res
}
