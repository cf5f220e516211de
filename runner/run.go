package runner

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

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
	dir     string        // private to the run
	resumed bool          // it was parked before
	late    bool          // the tick that it is of has ended: it brings the key's history up to date itself
	asked   state.Request // of the cancel that was acted on, where it has units; guarded by Worker.mu
	parking bool          // it is being written down as parked; guarded by Worker.mu
	claim   *state.Lock
	brief   bool   // a tick's: it may wait a moment unrecorded, since its slot is on record as due
	written bool   // there is a run file
	claimed bool   // the caller was told that it is about to start
	refused error  // what the caller said to that
	fresh   bool   // the id is new: nothing of such a run can be on disk
	limit   *limit // nil where the workflow has none

	ctx     context.Context
	cancel  context.CancelCauseFunc // its cause is a *stopped
	insist  chan struct{}           // holds a value after Cancel; see save
	ended   chan struct{}           // closed when its end is known and durable in the journal; its file may not say so yet
	done    chan struct{}
	result  Result         // complete once ended is closed
	outcome jsontext.Value // the last step's result
	who     *identity      // whose its processes are; nil: the service's
	secrets secrets        // that its steps were given
	output  outputCap

	wait    *turn // the run's place in its workflow's line
	turn    heldTurn
	queued  *list.Element // the run's place in the worker's queue; guarded by Worker.mu
	granted chan struct{} // closed when it got a place
	lined   *list.Element // its turn for room for its processes; guarded by Worker.mu
	begun   bool          // it is written down, and may have room; guarded by Worker.mu
	room    chan struct{} // closed when it got room

	placeMu    sync.Mutex // guards what follows; see hold
	placed     bool       // it has a place
	holders    int        // steps that have a process
	idle       *time.Timer
	getting    chan struct{} // closed when it was tried to get a place again; nil where nobody tries
	pauseAsked *pauseAsk
	pausing    chan struct{} // closed when somebody paused it
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
	return failed("TimeoutError", "timed out after %s", Brief(limit))
}

// Brief is a duration without the units that are zero: 1h, not 1h0m0s.
func Brief(d time.Duration) string {
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
func (r *Run) Cancel(reason string) {
	r.cancel(cancelled(reason))
	select {
	case r.insist <- struct{}{}:
	default:
	}
}

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
	if l.Workflow.Schema != nil {
		if err := l.Workflow.Schema.Validate(object(input)); err != nil {
			return nil, fmt.Errorf("cannot start %s: input does not fit its input_schema: %w", l.Workflow.Name, err)
		}
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
	if f.Run.Status == state.Cancelled { // while it waited to be started
		return nil, &SkipError{Reason: "run " + f.Run.ID + " was cancelled"}
	}
	if never, err := w.neverBegan(l.Workspace, f); err != nil {
		return fail(err)
	} else if !never && !w.takeHanded(l.Workspace, f) {
		return fail(fmt.Errorf("it is %s, and its owner is pid %d", f.Run.Status, f.PID))
	}
	defer func() { // it is at work now, or cannot be
		w.mu.Lock()
		delete(w.handed, runRef{l.Workspace.Dir(), l.RunID})
		w.mu.Unlock()
	}()
	l.Input = f.Run.Input
	input, err := launchInput(nil, f.Run.Input)
	if err != nil {
		return fail(err)
	}
	r := w.newRun(l, input)
	r.file, r.written, r.brief = f, true, false
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
		echo:    &echo{to: l.Echo},
		limit:   w.limitOf(l.Workspace, l.Workflow),
		ended:   make(chan struct{}),
		done:    make(chan struct{}),
		insist:  make(chan struct{}, 1),
		brief:   l.brief,
		pausing: make(chan struct{}),
		output:  outputCap{limit: w.o.OutputLimit},
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.journal = &journal{log: r.log()}
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
	f.Run.Extensions.RestartOf, f.Run.Extensions.RetryOf = l.RestartOf, l.RetryOf
	if l.Parent != "" {
		f.Run.Links = &state.RunLinks{ParentRunID: l.Parent}
	}
	if f.Run.Extensions.Kind == "" {
		f.Run.Extensions.Kind = kindWorkflow
	}
	return f
}

// accept finds the run a place, or one in a queue; has it written; and sets it going.
func (r *Run) accept(write func(placed bool) error) error {
	w := r.w
	if err := w.enter(func() {
		w.live[r] = struct{}{}
		w.lookAfter(r.ws)
	}); err != nil {
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
	if err == nil && (placed || !r.brief) {
		err = write(placed)
		r.written = err == nil
	}
	if err == nil {
		if r.resumed {
			r.leaveCare()
		}
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
		r.w.freePlace(r)
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
		r.log().Warn("lock of a workflow cannot be released", "error", err)
	}
}

// isolates reports whether a step of the run has a unit of its own.
func (r *Run) isolates() bool {
	return slices.ContainsFunc(r.launch.Workflow.Steps, func(s Step) bool { return s.Isolate != nil })
}

// mark writes that a run which waits for room is queued after all, or running.
func (r *Run) mark(status state.Status) error {
	if r.resumed {
		return nil // that it goes on is on record, and no record says that a run that has begun is queued
	}
	r.file.Run.Status, r.file.Run.Timestamps.StartedAt = status, 0
	if status == state.Running {
		r.file.Run.Timestamps.StartedAt = state.Millis(time.Now().UnixMilli())
	}
	return r.ws.WriteRun(r.file)
}

// begin opens the journal, writes the run file as running, and tells the caller, which writes the key's record: the two
// records side by side, for a start waits for both. The run is refused where the caller failed.
//
// The journal comes first: a run file that says running beside a journal without a spawn record, both of this boot,
// proves that no process was started (see Recover). A journal that cannot be opened costs only the output; but one that
// may be there already, from an attempt that died, would prove something false, and must be continued.
func (r *Run) begin(write func(*state.RunFile) error) error {
	now := time.Now()
	j, err := r.ws.OpenJournal(r.id, runName(r.launch), now)
	if err != nil && !r.fresh && !r.resumed {
		return err
	}
	r.journal.warn(err)
	r.journal.j = j
	r.w.at("journal")
	r.file.Run.Status = state.Running
	if r.isolates() {
		r.putLiterals() // it may go on under another definition, without having parked
	}
	if !r.resumed {
		r.file.Run.Timestamps.StartedAt = state.Millis(now.UnixMilli())
	}
	var claim sync.WaitGroup
	if !r.claimed {
		claim.Go(func() {
			r.w.at("claim")
			r.refused = r.started(now)
		})
	}
	r.w.at("run file")
	err = write(r.file)
	r.w.at("running")
	claim.Wait()
	if err != nil {
		if j != nil && r.fresh {
			_ = j.Remove() // nobody will ask for it
		} else if j != nil {
			_ = j.Close()
		}
		r.journal.j = nil
		return err
	}
	r.claimed = true
	return nil
}
