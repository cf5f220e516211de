package runner

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"marbles/state"
)

// Run is an accepted run.
type Run struct {
	w       *Worker
	id      string
	ws      *state.Workspace
	launch  Launch
	input   []member // the workflow's defaults with the launch's input laid over them
	file    *state.RunFile
	journal *journal
	echo    *echo
	dir     string // private to the run
	fresh   bool   // the id is new: nothing of such a run can be on disk
	limit   *limit // nil where the workflow has none

	ctx    context.Context
	cancel context.CancelCauseFunc // its cause is a *stopped
	done   chan struct{}
	result Result // complete once done is closed

	wait    *turn // the run's place in its workflow's line
	turn    heldTurn
	queued  *list.Element // the run's place in the worker's queue; guarded by Worker.mu
	granted chan struct{} // closed when it got a place
}

// stopped is why a run is made to stop before its end.
type stopped struct {
	status state.Status
	err    state.RunError
	whole  bool // it is the run that has to stop, not one step
}

func (s *stopped) Error() string { return s.err.Message }

func cancelled(reason string) *stopped {
	if reason == "" {
		reason = "cancelled"
	}
	return &stopped{status: state.Cancelled, err: state.RunError{Name: "CancelledError", Message: reason}, whole: true}
}

func failed(name, format string, args ...any) *stopped {
	return &stopped{status: state.Failed, err: state.RunError{Name: name, Message: fmt.Sprintf(format, args...)}}
}

func timedOut(limit time.Duration) *stopped {
	return failed("TimeoutError", "timed out after %s", brief(limit))
}

// brief is a duration without the units that are zero: 1h, not 1h0m0s.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ID is the run's id.
func (r *Run) ID() string { return r.id }

// Done is closed when the run has settled, or when Drain has left it queued on disk.
func (r *Run) Done() <-chan struct{} { return r.done }

// Wait waits for Done and returns how the run ended.
func (r *Run) Wait() Result {
	<-r.done
	return r.result
}

// Cancel asks the run to stop (SIGTERM, then SIGKILL after the grace), with a reason; a queued run never starts then. It
// returns at once.
func (r *Run) Cancel(reason string) { r.cancel(cancelled(reason)) }

// Start accepts a launch: when it returns without error the run is on disk. It never waits for a place.
// A RunID whose file exists already is fs.ErrExist. After Drain it is ErrDraining.
func (w *Worker) Start(l Launch) (*Run, error) {
	if l.Queued != nil {
		return w.Resume(l.Queued, l)
	}
	input, err := launchInput(l.Workflow.Input, l.Input)
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", l.Workflow.Name, err)
	}
	now := time.Now()
	fresh := l.RunID == ""
	if fresh {
		l.RunID = state.NewRunID(now)
	} else if _, err := l.Workspace.Run(l.RunID); !errors.Is(err, fs.ErrNotExist) {
		// Also one that cannot be read is there, and its journal must not be continued.
		if err == nil {
			err = fs.ErrExist
		}
		return nil, fmt.Errorf("cannot start %s as run %s: %w", l.Workflow.Name, l.RunID, err)
	}
	r := w.newRun(l, input)
	r.fresh = fresh
	r.file = r.newFile(now)
	err = r.accept(func(placed bool) error {
		if !placed {
			return r.ws.CreateRun(r.file)
		}
		return r.begin(r.ws.CreateRun)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", l.Workflow.Name, err)
	}
	return r, nil
}

// Resume accepts a run that Recover returned: the same run file and id, this process as the owner. Launch's RunID is set
// from the file; its Input is the file's. A run that meanwhile is someone else's, or has settled, is an error.
func (w *Worker) Resume(f *state.RunFile, l Launch) (*Run, error) {
	l.RunID = f.Run.ID
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("cannot resume run %s: %w", f.Run.ID, err) }
	f, err := l.Workspace.Run(f.Run.ID)
	if err != nil {
		return fail(err)
	}
	if never, err := w.neverBegan(l.Workspace, f); err != nil {
		return fail(err)
	} else if !never {
		return fail(fmt.Errorf("it is %s, and its owner is pid %d", f.Run.Status, f.PID))
	}
	l.Input = f.Run.Input
	input, err := launchInput(nil, f.Run.Input)
	if err != nil {
		return fail(err)
	}
	r := w.newRun(l, input)
	r.file = f
	f.Run.Status = state.Queued
	f.Run.Timestamps.StartedAt = 0
	err = r.accept(func(placed bool) error {
		if !placed {
			return r.ws.WriteRun(r.file)
		}
		return r.begin(r.ws.WriteRun)
	})
	if err != nil {
		return fail(err)
	}
	return r, nil
}

func (w *Worker) newRun(l Launch, input []member) *Run {
	r := &Run{
		w:       w,
		id:      l.RunID,
		ws:      l.Workspace,
		launch:  l,
		input:   input,
		journal: &journal{log: w.o.Log.With("run_id", l.RunID)},
		echo:    &echo{to: l.Echo},
		limit:   w.limitOf(l.Workspace, l.Workflow),
		done:    make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.result.RunID = r.id
	return r
}

func (r *Run) newFile(now time.Time) *state.RunFile {
	l, created := r.launch, state.Millis(now.UnixMilli())
	empty := jsontext.Value("{}")
	input := jsontext.Value("null")
	if len(r.input) > 0 {
		input = object(r.input)
	}
	f := &state.RunFile{
		Version: 2, PID: r.w.self.PID, BootID: r.w.self.BootID, StartTicks: r.w.self.StartTicks,
		Queue: state.RunQueue{ID: "qu-marbles", Name: "marbles", Status: "active", CreatedAt: created, Extensions: empty},
	}
	f.Run = state.Run{
		ID: r.id, Step: runName(l), QueueID: f.Queue.ID, Status: state.Queued, Input: input,
		Tags: map[string]string{}, Metadata: empty, Snapshot: empty,
		Extensions: state.RunExtensions{TriggerID: l.Key, Trigger: l.Trigger, Kind: l.Kind, Slot: state.Stamp{Time: l.Slot}},
		Timestamps: state.RunTimes{CreatedAt: created},
	}
	if f.Run.Extensions.Kind == "" {
		f.Run.Extensions.Kind = kindWorkflow
	}
	return f
}

// accept finds the run a place, or one in a queue; has it written; and sets it going.
func (r *Run) accept(write func(placed bool) error) error {
	w := r.w
	if err := w.enter(func() { w.live[r] = struct{}{} }); err != nil {
		return err
	}
	placed := false
	if r.limit != nil {
		r.turn, r.wait = r.limit.take(r.launch.Workflow.Concurrency)
	}
	err := r.turn.err
	if err == nil && r.wait == nil {
		placed = w.takePlace(r)
	}
	if err == nil {
		err = write(placed)
	}
	if err == nil {
		go r.main(placed) // Drain waits for it
		return nil
	}
	r.withdraw(placed)
	r.cancel(nil)
	w.leave(func() { delete(w.live, r) })
	return err
}

// withdraw gives back what accept took.
func (r *Run) withdraw(placed bool) {
	if !placed && r.granted != nil {
		r.cancel(nil)
		placed = r.w.awaitPlace(r)
	}
	if placed {
		r.w.freePlace()
	}
	r.freeTurn()
}

func (r *Run) freeTurn() {
	if r.limit == nil {
		return
	}
	var err error
	if r.wait != nil && r.turn.lock == nil {
		err = r.limit.forget(r.wait)
	} else {
		err = r.limit.giveBack(r.turn)
	}
	if err != nil {
		r.w.o.Log.Warn("lock of a workflow cannot be released", "run_id", r.id, "error", err)
	}
}

// begin opens the journal and writes the run file as running.
//
// The journal comes first: a run file that says running beside a journal without a spawn record, both of this boot,
// proves that no process was started (see Recover). A journal that cannot be opened costs only the output; but one that
// may be there already, from an attempt that died, would prove something false, and must be continued.
func (r *Run) begin(write func(*state.RunFile) error) error {
	now := time.Now()
	j, err := r.ws.OpenJournal(r.id, runName(r.launch), now)
	if err != nil && !r.fresh {
		return err
	}
	r.journal.warn(err)
	r.journal.j = j
	r.w.at("journal")
	r.file.Run.Status = state.Running
	r.file.Run.Timestamps.StartedAt = state.Millis(now.UnixMilli())
	r.result.Started = now
	if err := write(r.file); err != nil {
		if j != nil && r.fresh {
			_ = j.Remove() // nobody will ask for it
		} else if j != nil {
			_ = j.Close()
		}
		r.journal.j = nil
		return err
	}
	r.w.at("running")
	return nil
}

// main takes a run from its place in the queue to its end.
func (r *Run) main(placed bool) {
	w := r.w
	defer func() {
		r.cancel(nil)
		close(r.done)
		w.leave(func() { delete(w.live, r) })
	}()
	if !placed {
		ok, err := r.await()
		switch {
		case ok:
			err = r.begin(r.ws.WriteRun)
			if err != nil {
				w.freePlace()
			}
		case err == nil:
			r.freeTurn()
			r.result.Status = state.Queued
			return
		}
		if err != nil {
			r.settle(asStopped(err))
			r.freeTurn()
			return
		}
	}
	why := r.work()
	// The processes have ended. What is left is to write so, which needs no place.
	w.freePlace()
	r.settle(why)
	r.freeTurn()
}

func asStopped(err error) *stopped {
	if s := (*stopped)(nil); errors.As(err, &s) {
		return s
	}
	return failed("Error", "%v", err)
}

// await waits for the run's turn and for a place. It is not ok where the run was cancelled first, or failed, which is
// the error, or where Drain leaves it in the queue.
func (r *Run) await() (ok bool, err error) {
	if r.wait != nil {
		select {
		case r.turn = <-r.wait.given:
		case <-r.ctx.Done():
			return false, context.Cause(r.ctx)
		case <-r.w.stop:
			return false, nil
		}
		if r.turn.err != nil {
			return false, r.turn.err
		}
		if r.w.takePlace(r) {
			return true, nil
		}
	}
	if r.w.awaitPlace(r) {
		return true, nil
	}
	return false, context.Cause(r.ctx)
}

// work does the steps; nil is success.
func (r *Run) work() *stopped {
	ctx := r.ctx
	if limit := r.launch.Workflow.Timeout; limit > 0 {
		var cancel context.CancelFunc
		late := timedOut(limit)
		late.whole = true
		ctx, cancel = context.WithTimeoutCause(ctx, limit, late)
		defer cancel()
	}
	if err := r.started(); err != nil {
		return asStopped(err)
	}
	r.w.at("keyed")
	if err := r.makeDir(); err != nil {
		if r.dir != "" {
			r.removeDir()
		}
		return asStopped(err)
	}
	why := r.steps(ctx)
	if err := r.collectFiles(); err != nil && why == nil {
		why = asStopped(err)
	}
	r.removeDir()
	return why
}

// removeDir removes the private directory. As a rule it is empty by then.
func (r *Run) removeDir() {
	err := unix.Rmdir(r.dir)
	if err != nil {
		err = os.RemoveAll(r.dir)
	}
	if err != nil {
		r.w.o.Log.Warn("private directory of a run cannot be removed", "run_id", r.id, "error", err)
	}
}

// started tells the caller that the run is about to start.
func (r *Run) started() (err error) {
	if r.launch.Started == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			r.w.o.Log.Error("panic at the start of a run", "run_id", r.id, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.launch.Started(r.id, r.result.Started)
}

// makeDir makes the run's private directory, with the handler's files in it.
func (r *Run) makeDir() error {
	dir, err := os.MkdirTemp(r.w.o.TempDir, tempPrefix(r.id)) // 0700
	if err != nil {
		return fmt.Errorf("cannot make a private directory: %w", err)
	}
	r.dir = dir
	for name, data := range r.launch.Files {
		if err := os.WriteFile(r.filePath(name), data, 0o600); err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	return nil
}

// tempPrefix begins the name of a run's private directory, so that recovery finds it.
func tempPrefix(id string) string { return "marbles-" + id + "-" }

// filePath is where a handler's file lies: change for MARBLES_CHANGE_FILE.
func (r *Run) filePath(name string) string {
	return filepath.Join(r.dir, "file-"+fileName(strings.ToLower(strings.TrimPrefix(name, "MARBLES_"))))
}

// collectFiles reads the launch file and removes the handler's files.
func (r *Run) collectFiles() error {
	for name := range r.launch.Files {
		defer os.Remove(r.filePath(name))
	}
	if _, ok := r.launch.Files[LaunchFile]; !ok {
		return nil
	}
	data, err := readResult(r.filePath(LaunchFile))
	if err != nil {
		return fmt.Errorf("cannot read what was put into %s: %w", LaunchFile, err)
	}
	r.result.Files = map[string][]byte{LaunchFile: data}
	return nil
}

// saveRetries is how long a settled run waits before it tries again to write its file.
var saveRetries = [...]time.Duration{50 * time.Millisecond, 250 * time.Millisecond, time.Second}

// settle records how the run ended: the end of the journal, durably, then the run file. A file that cannot be written
// is tried a few times; a later marbles settles it from the journal.
func (r *Run) settle(why *stopped) {
	now, t := time.Now(), &r.file.Run.Timestamps
	at := state.Millis(now.UnixMilli())
	run := &r.file.Run
	switch {
	case why == nil:
		run.Status, run.Output, t.CompletedAt = state.Complete, r.output(), at
	case why.status == state.Cancelled:
		run.Status, run.Error, t.CancelledAt = state.Cancelled, &why.err, at
	default:
		run.Status, run.Error, t.FailedAt = state.Failed, &why.err, at
	}
	r.journal.end(now, run.Status, run.Output, run.Error)
	r.w.at("ended")
	r.result.Status, r.result.Output, r.result.Error, r.result.Finished = run.Status, run.Output, run.Error, now
	err := r.ws.WriteRun(r.file)
	for _, pause := range saveRetries {
		if err == nil {
			break
		}
		r.w.o.Log.Warn("run cannot be saved, trying again", "run_id", r.id, "error", err)
		time.Sleep(pause)
		err = r.ws.WriteRun(r.file)
	}
	if err != nil {
		r.w.o.Log.Error("run is not saved", "run_id", r.id, "status", run.Status, "error", err)
	}
	r.w.at("settled")
}

// output is the result of the last step.
func (r *Run) output() jsontext.Value {
	if n := len(r.file.Steps); n > 0 {
		return r.file.Steps[n-1].Result
	}
	return nil
}
