package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"marbles/state"
)

// maxClaims is how many claims of parked runs are kept as locks. Each is an open file; what is above that is claimed by
// the owner in its file alone, which names the process by more than its pid.
const maxClaims = 256

var (
	errNothingResumes = errors.New("run is suspended; nothing here can resume it")
	errNotParked      = errors.New("run is not suspended any more")
)

// Adopt takes the parked runs of a workspace whose owners are gone into this process's care, as far as their workflows are
// defined, and looks after the workspace's requests from then on. Each run that is not taken is named in the log. ctx ends
// it early. A run is ours once its file says so:
//
//   - a crash between the claim and the file leaves an abandoned lock and the file as it was: the next one adopts it
//   - a crash after the file leaves a suspended run of a dead owner: the same
func (w *Worker) Adopt(ctx context.Context, ws *state.Workspace) error {
	return w.adoptAll(ctx, ws, func(*state.RunFile) bool { return true })
}

// AdoptUnits is Adopt for the runs that wait for units alone. They have not stopped: call it before anything else is started, which
// would take their turn among the runs of their workflow.
func (w *Worker) AdoptUnits(ctx context.Context, ws *state.Workspace) error {
	return w.adoptAll(ctx, ws, waitsForUnit)
}

func (w *Worker) adoptAll(ctx context.Context, ws *state.Workspace, which func(*state.RunFile) bool) error {
	w.mu.Lock()
	w.lookAfter(ws)
	w.mu.Unlock()
	files, damaged, err := ws.Unsettled()
	if err != nil {
		return err
	}
	for _, d := range damaged {
		w.o.Log.Warn("[state] skipped a run file", "workspace", ws.ID(), "error", d)
	}
	slices.SortFunc(files, func(a, b *state.RunFile) int { return cmp.Compare(a.Run.ID, b.Run.ID) })
	var wait sync.WaitGroup
	turn := make(chan struct{}, defaultConcurrency)
	for _, f := range files {
		if f.Run.Status != state.Suspended || !which(f) || ctx.Err() != nil {
			continue
		}
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			if err := w.adopt(ctx, ws, f); err != nil && !errors.Is(err, errNotParked) {
				w.logOf(ws, f).Warn(fmt.Sprintf("[state] skipped runs/%s.json: %v", f.Run.ID, err))
			}
		})
	}
	wait.Wait()
	return nil
}

// adopt takes one parked run into this process's care.
func (w *Worker) adopt(ctx context.Context, ws *state.Workspace, f *state.RunFile) error {
	if w.keeps(runRef{ws.Dir(), f.Run.ID}) {
		return nil
	}
	if _, err := w.definition(ws, f); err != nil {
		return err
	}
	if f.Owner() != w.self && f.Owner().Alive() {
		return fmt.Errorf("run is suspended in pid %d", f.PID)
	}
	f, claim, err := w.claimRun(ctx, ws, f.Run.ID)
	if err != nil {
		return err
	}
	w.logOf(ws, f).Info(fmt.Sprintf("[run] %s recovered %s", f.Run.Step, f.Run.ID))
	if w.claims.Load() >= maxClaims {
		w.release(claim, f.Run.ID)
		claim = nil
	}
	w.keep(ws, f, claim)
	w.wakeParent(ws, f)
	return w.look(ctx, ws, f.Run.ID)
}

// wakeParent looks whether the children that a parent waits for have settled while nobody watched.
func (w *Worker) wakeParent(ws *state.Workspace, f *state.RunFile) {
	for _, s := range f.Open() {
		if child := s.Child(); child != "" {
			if c, err := ws.Run(child); err == nil && c.Run.Status.Settled() {
				w.childSettled(ws, c)
			}
		}
	}
}

func (w *Worker) keeps(ref runRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked[ref] != nil
}

// definition is what a parked run goes on with: what it was started with, made whole by what is defined now.
func (w *Worker) definition(ws *state.Workspace, f *state.RunFile) (*Workflow, error) {
	if w.o.Workflow == nil {
		return nil, errNothingResumes
	}
	now := w.o.Workflow(ws, f.Run.Step)
	if now == nil && f.Marbles != nil && f.Marbles.Literals != nil && waitsForUnit(f) {
		now = &Workflow{Name: f.Run.Step} // it has not stopped at all, and goes on as one does whose definition is removed
	}
	if now == nil {
		return nil, errNothingResumes
	}
	wf, err := workflowOf(f, now, w.o.Compile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNothingResumes, err)
	}
	return wf, nil
}

// claimRun makes a parked run this process's: the lock first, then, with the file read again, the owner in it. Where that
// fails the lock is given back and the file is as it was.
func (w *Worker) claimRun(ctx context.Context, ws *state.Workspace, id string) (f *state.RunFile, claim *state.Lock, err error) {
	claim, err = ws.TryLock("run-" + id)
	if held := (*state.HeldError)(nil); errors.As(err, &held) {
		return nil, nil, fmt.Errorf("run is suspended in %w", held)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			w.release(claim, id)
		}
	}()
	w.at("claimed")
	edit, err := ws.LockEdit(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	defer edit.Release()
	f, err = ws.Run(id)
	switch {
	case err != nil:
		return nil, nil, err
	case f.Run.Status != state.Suspended:
		return nil, nil, errNotParked
	case f.Owner() != w.self && f.Owner().Alive():
		return nil, nil, fmt.Errorf("run is suspended in pid %d", f.PID)
	}
	if err = ws.WriteRun(f); err != nil {
		return nil, nil, err
	}
	w.at("adopted")
	return f, claim, nil
}

// Continue adopts a parked run and goes on with it. One that another process has is a *state.HeldError, or an error that
// names its pid. One that has nothing to do yet stays parked, and is parked in the result.
func (w *Worker) Continue(ws *state.Workspace, run string, echo io.Writer) (*Run, error) {
	return w.carryOn(ws, run, goingOn{echo: echo})
}

func (w *Worker) carryOn(ws *state.Workspace, run string, how goingOn) (*Run, error) {
	f, err := ws.Run(run)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("cannot go on with run %s: %w", run, err) }
	wf, err := w.definition(ws, f)
	if err != nil {
		return fail(err)
	}
	f, claim, err := w.claimRun(context.Background(), ws, run)
	if err != nil {
		return fail(err)
	}
	if !canGoOn(f) {
		w.release(claim, run)
		return parkedRun(w, ws, f), nil
	}
	how.claim = claim
	r, err := w.goOn(ws, f, wf, how)
	if err != nil {
		w.release(claim, run)
		return fail(err)
	}
	return r, nil
}

// parkedRun is a run that is parked and stays so.
func parkedRun(w *Worker, ws *state.Workspace, f *state.RunFile) *Run {
	r := &Run{w: w, id: f.Run.ID, ws: ws, file: f, ended: make(chan struct{}), done: make(chan struct{}), insist: make(chan struct{}, 1)}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.result = Result{RunID: r.id, Status: state.Suspended, File: f, Finished: time.Now()}
	close(r.ended)
	close(r.done)
	return r
}
