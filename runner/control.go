package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"marbles/state"
)

const (
	// pollRequests is how often the requests of a workspace, and the parked runs that are due, are looked for.
	pollRequests = 250 * time.Millisecond
	// settledStamp is how old the latest change of requests/ has to be for its stamp to tell of the next one.
	settledStamp = 2 * time.Second
)

// watched is a workspace whose requests are looked after.
type watched struct {
	ws    *state.Workspace
	stamp state.FileStamp
	again bool              // something could not be done yet
	told  map[string]string // what was logged of a request that cannot be acted on, by its run
}

// lookAfter lets the poller look at a workspace's requests. mu is held.
func (w *Worker) lookAfter(ws *state.Workspace) {
	if w.watched[ws.Dir()] == nil {
		w.watched[ws.Dir()] = &watched{ws: ws, again: true}
	}
	if !w.polling && !w.draining {
		w.polling = true
		w.polls.Go(w.poll)
	}
}

// poll acts on requests and on the clock until nothing is at work any more. Drain waits for it.
func (w *Worker) poll() {
	tick := time.NewTicker(pollRequests)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.lookRound(time.Now().Round(0))
		case <-w.empty:
			return
		}
	}
}

// lookRound is one look at everything there is to look at.
func (w *Worker) lookRound(now time.Time) {
	w.mu.Lock()
	var due []*waiting
	for !w.draining && len(w.dues) > 0 && !w.dues[0].due.After(now) {
		e := w.dues[0]
		w.dues[0].due = now.Add(time.Minute) // looked at again then, where it could not be written
		fixHead(&w.dues)
		due = append(due, e)
	}
	spaces := make([]*watched, 0, len(w.watched))
	for _, s := range w.watched {
		spaces = append(spaces, s)
	}
	w.mu.Unlock()
	w.many(len(due), func(i int) {
		if err := w.resolveDue(due[i].ws, due[i].id); err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.o.Log.Error("parked run cannot go on", "run", due[i].id, "error", err)
		}
	})
	for _, s := range spaces {
		w.lookAt(s, now)
	}
}

// many does n things, a few of them at once.
func (w *Worker) many(n int, do func(i int)) {
	var wait sync.WaitGroup
	turn := make(chan struct{}, defaultConcurrency)
	for i := range n {
		turn <- struct{}{}
		wait.Go(func() {
			defer func() { <-turn }()
			do(i)
		})
	}
	wait.Wait()
}

// lookAt acts on the requests of a workspace, where there can be new ones.
func (w *Worker) lookAt(s *watched, now time.Time) {
	stamp, err := s.ws.RequestStamp()
	if err != nil || stamp == s.stamp && !s.again {
		return
	}
	list, err := s.ws.Requests()
	if err != nil {
		w.o.Log.Warn("request cannot be read", "workspace", s.ws.ID(), "error", err)
	}
	s.stamp, s.again = stamp, now.Sub(time.Unix(0, int64(stamp.Mtime))).Abs() < settledStamp
	var mu sync.Mutex // guards s.again and told
	told := map[string]string{}
	defer func() { s.told = told }()
	w.many(len(list), func(i int) {
		q := list[i]
		done, err := w.act(s.ws, q)
		if err == nil && done {
			err = s.ws.Done(q)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if s.told[q.Run] != err.Error() {
				w.o.Log.Warn("request cannot be acted on yet", "run", q.Run, "workspace", s.ws.ID(), "action", q.Action, "error", err)
			}
			told[q.Run] = err.Error()
		}
		if err != nil || !done {
			s.again = s.again || w.ours(s.ws, q.Run)
		}
	})
}

// ours reports whether this process has a run, at work or parked.
func (w *Worker) ours(ws *state.Workspace, id string) bool {
	return w.o.Parks || w.atWork(ws, id) != nil || w.keeps(runRef{ws.Dir(), id})
}

// atWork is the run of an id that is at work here; nil for none.
func (w *Worker) atWork(ws *state.Workspace, id string) *Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.live {
		if r.id == id && r.ws.Dir() == ws.Dir() {
			return r
		}
	}
	return nil
}

// act does what a request asks for; done is false where it is not this process's to do, or not yet.
func (w *Worker) act(ws *state.Workspace, q state.Request) (done bool, err error) {
	if r := w.atWork(ws, q.Run); r != nil {
		return w.actLive(r, q), nil
	}
	ctx := context.Background()
	f, err := ws.Run(q.Run)
	switch {
	case q.Action == state.ActionRestart || q.Action == state.ActionStart && err == nil && f.Run.Status == state.Queued:
		if w.o.Asked == nil || w.isDraining() {
			return false, nil
		}
		if q.Action == state.ActionStart {
			w.mu.Lock()
			w.handed[runRef{ws.Dir(), q.Run}] = false
			w.mu.Unlock()
		}
		return w.o.Asked(ws, q), nil
	case errors.Is(err, fs.ErrNotExist):
		return w.o.Parks, nil
	case err != nil:
		return false, err
	case f.Run.Status.Settled():
		return true, nil
	case w.isDraining():
		return false, nil
	}
	mine := f.Owner() == w.self
	if !mine && f.Owner().Alive() || !mine && !w.o.Parks {
		return false, nil
	}
	if f.Run.Status != state.Suspended {
		if mine {
			return w.actHanded(ctx, ws, f, q)
		}
		if err := w.actDead(ctx, ws, f, q); err != nil {
			return true, err
		}
		now, err := ws.Run(q.Run)
		return err == nil && now.Run.Status != state.Suspended, err // its units live on: then it is acted on as a parked one
	}
	if !w.keeps(runRef{ws.Dir(), q.Run}) {
		if !w.o.Parks {
			return false, nil
		}
		if err := w.adopt(ctx, ws, f); err != nil {
			if !errors.Is(err, errNothingResumes) || q.Action != state.ActionCancel {
				return errors.Is(err, errNothingResumes), err
			}
		}
		if r := w.atWork(ws, q.Run); r != nil { // it could go on at once
			return w.actLive(r, q), nil
		}
	}
	return true, w.actParked(ctx, ws, q)
}

// actHanded acts on a run of ours that is not at work: one that another process wrote down for us to start, whose request to start it
// was replaced by this one or is being acted on. Any other is being written down.
func (w *Worker) actHanded(ctx context.Context, ws *state.Workspace, f *state.RunFile, q state.Request) (done bool, err error) {
	ref := runRef{ws.Dir(), q.Run}
	w.mu.Lock()
	starting, known := w.handed[ref]
	switch {
	case f.Run.Status != state.Queued || starting:
		w.mu.Unlock()
		return false, nil
	case q.Action == state.ActionCancel:
		delete(w.handed, ref) // from now on it is not started
	case !known:
		w.handed[ref] = false
	}
	w.mu.Unlock()
	if q.Action != state.ActionCancel {
		if !known && w.o.Asked != nil {
			w.o.Asked(ws, state.Request{Run: q.Run, Action: state.ActionStart})
		}
		return false, nil // once it is at work
	}
	edit, err := ws.LockEdit(ctx, q.Run)
	if err != nil {
		return false, err
	}
	defer edit.Release()
	if f, err = ws.Run(q.Run); err != nil || f.Run.Status != state.Queued || w.atWork(ws, q.Run) != nil {
		return false, err
	}
	f.Run.Status, f.Run.Error = state.Cancelled, &cancelled(q.Reason).err
	stampEnd(&f.Run, time.Now())
	if err := ws.WriteRun(f); err != nil {
		return false, err
	}
	w.settled(ws, f)
	return true, nil
}

func (w *Worker) isDraining() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}

// actLive acts on a run that is at work here.
func (w *Worker) actLive(r *Run, q state.Request) (done bool) {
	w.mu.Lock()
	parking := r.parking
	w.mu.Unlock()
	if parking {
		return false
	}
	switch q.Action {
	case state.ActionCancel:
		if r.isolates() {
			// Its units outlive this process: a successor has to know of the cancel. The request stays until the run has settled.
			w.mu.Lock()
			again := r.asked.At.Equal(q.At.Time)
			r.asked = q
			w.mu.Unlock()
			if !again {
				r.Cancel(q.Reason)
			}
			return false
		}
		r.Cancel(q.Reason)
	case state.ActionPause:
		r.pause(q.Reason, q.By)
	case state.ActionResume:
		return r.pauseAsk() == nil // else once it is parked
	}
	return true
}

// actParked acts on a run that is parked in this process's care.
func (w *Worker) actParked(ctx context.Context, ws *state.Workspace, q state.Request) error {
	switch q.Action {
	case state.ActionCancel:
		_, err := w.cancelParked(ctx, ws, q.Run, q.Reason, nil)
		return err
	case state.ActionPause:
		return pauseParked(ctx, ws, q)
	case state.ActionResume:
		if err := resumeParked(ctx, ws, q.Run); err != nil {
			return err
		}
	}
	return w.look(ctx, ws, q.Run)
}

// actDead acts on a run whose owner died while it was at work, or queued.
func (w *Worker) actDead(ctx context.Context, ws *state.Workspace, f *state.RunFile, q state.Request) error {
	if q.Action == state.ActionLook {
		return nil
	}
	never, err := w.recoverRun(ctx, ws, f)
	if err != nil || never == nil || q.Action != state.ActionCancel {
		return err
	}
	return w.Abandon(ws, never, cancelled(q.Reason).err.Message)
}

// pauseParked adds a pause to a parked run.
func pauseParked(ctx context.Context, ws *state.Workspace, q state.Request) error {
	return ws.EditRun(ctx, q.Run, nil, func(f *state.RunFile) error {
		if f.Run.Status != state.Suspended {
			return errNotParked
		}
		for _, s := range f.Open() {
			if s.Kind == state.SuspendPause {
				return nil
			}
		}
		s := newPause(f, pauseAsk{q.Reason, q.By})
		f.Suspensions = append(f.Suspensions, s)
		if f.Marbles == nil {
			f.Marbles = &state.RunMarbles{}
		}
		f.Marbles.Waits = append(f.Marbles.Waits, s.ID)
		return nil
	})
}

// resumeParked ends every pause of a parked run.
func resumeParked(ctx context.Context, ws *state.Workspace, run string) error {
	return ws.EditRun(ctx, run, nil, func(f *state.RunFile) error {
		for _, s := range f.Open() {
			if s.Kind == state.SuspendPause {
				if err := s.Resolve(time.Now(), resolution{state.Stamp{Time: time.Now()}}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// resolution is the one of a pause or a wait.
type resolution struct {
	At state.Stamp `json:"at"`
}

// resolveDue ends what a parked run waits for by the clock, and goes on with it. A clock that was set back makes it wait
// on, one that was set forward ends the wait.
func (w *Worker) resolveDue(ws *state.Workspace, run string) error {
	ctx, now := context.Background(), time.Now().Round(0)
	err := ws.EditRun(ctx, run, nil, func(f *state.RunFile) error {
		if f.Run.Status != state.Suspended {
			return errNotParked
		}
		for _, s := range f.Open() {
			if at := s.Due(); at.IsZero() || at.After(now) {
				continue
			}
			if err := byClock(s, now); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, errNotParked) {
		return nil
	}
	if err != nil {
		return err
	}
	w.at("resolved")
	return w.look(ctx, ws, run)
}

// byClock resolves a suspension whose time has come.
func byClock(s *state.Suspension, now time.Time) error {
	if s.Kind != state.SuspendInput {
		return s.Resolve(now, resolution{state.Stamp{Time: now}})
	}
	q, err := s.Question()
	if err != nil {
		return err
	}
	if q.Default != nil {
		return s.Resolve(now, state.Answer{Answer: *q.Default, At: state.Stamp{Time: now}, By: "default"})
	}
	return s.Resolve(now, state.Answer{At: state.Stamp{Time: now}, By: "deadline"})
}

// look goes on with a parked run of ours where its file says that it can.
func (w *Worker) look(ctx context.Context, ws *state.Workspace, run string) error {
	f, err := ws.Run(run)
	if err != nil || f.Run.Status != state.Suspended {
		return err
	}
	w.keep(ws, f, nil) // it may be due at another time
	if !canGoOn(f) {
		return nil
	}
	wf, err := w.definition(ws, f)
	if err != nil {
		return err
	}
	_, err = w.goOn(ws, f, wf, goingOn{})
	if errors.Is(err, ErrDraining) {
		return nil // its file says all of it
	}
	return err
}

// goingOn is how a parked run goes on.
type goingOn struct {
	claim  *state.Lock
	echo   io.Writer
	cancel *stopped // it goes on only to its final steps
	locked bool     // the caller has the key's lock, and brings its history up to date
}

// goOn sets a parked run of ours going again.
func (w *Worker) goOn(ws *state.Workspace, f *state.RunFile, wf *Workflow, how goingOn) (*Run, error) {
	input, err := launchInput(nil, f.Run.Input)
	if err != nil {
		return nil, err
	}
	ext := f.Run.Extensions
	l := Launch{
		Workspace: ws, Workflow: wf, RunID: f.Run.ID, Input: f.Run.Input, Trigger: ext.Trigger, Kind: ext.Kind,
		Key: ext.TriggerID, Slot: ext.Slot.Time, Echo: how.echo, Parent: parentOf(f), RestartOf: ext.RestartOf, RetryOf: ext.RetryOf,
	}
	r := w.newRun(l, input)
	r.file, r.written, r.claimed, r.resumed, r.late = f, true, true, true, !how.locked
	r.claim = how.claim
	if m := f.Marbles; m != nil && !m.LeftAt.IsZero() {
		r.spent(w.alone(f))
		m.LeftAt = state.Stamp{}
	}
	if how.cancel != nil {
		r.cancel(how.cancel)
	}
	err = r.accept(func(placed bool) error {
		if !placed {
			return nil // suspended until it has a place
		}
		return r.begin(func(*state.RunFile) error { return r.continued() })
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// continued writes that a parked run goes on, before anything of it does.
func (r *Run) continued() error {
	lock, err := r.ws.LockEdit(context.Background(), r.id)
	if err != nil {
		return err
	}
	defer lock.Release()
	f, err := r.ws.Run(r.id)
	switch {
	case err != nil:
		return err
	case f.Run.Status != state.Suspended:
		return fmt.Errorf("it is %s", f.Run.Status)
	}
	mergeSuspensions(r.file, f)
	r.w.at("continuing")
	if err := r.ws.WriteRun(r.file); err != nil {
		return err
	}
	r.w.at("continued")
	return nil
}

func parentOf(f *state.RunFile) string {
	if f.Run.Links == nil {
		return ""
	}
	return f.Run.Links.ParentRunID
}

// cancelParked ends a parked run: its final steps are done, its questions closed.
func (w *Worker) cancelParked(ctx context.Context, ws *state.Workspace, run, reason string, claim *state.Lock) (*Run, error) {
	f, err := ws.Run(run)
	if err != nil || f.Run.Status != state.Suspended {
		return nil, err
	}
	wf, err := w.definition(ws, f)
	if err != nil { // nobody knows its final steps
		wf = &Workflow{Name: f.Run.Step}
	}
	r, err := w.goOn(ws, f, wf, goingOn{claim: claim, cancel: cancelled(reason)})
	return r, err
}

// childSettled lets a parent that waits for a parked child go on, whoever has it.
func (w *Worker) childSettled(ws *state.Workspace, f *state.RunFile) {
	parent := parentOf(f)
	if parent == "" {
		return
	}
	ctx := context.Background()
	err := ws.EditRun(ctx, parent, &state.Request{Run: parent, Action: state.ActionLook}, func(p *state.RunFile) error {
		found := false
		for _, s := range p.Open() {
			if s.Child() != f.Run.ID {
				continue
			}
			found = true
			if err := s.Resolve(time.Now(), childEnd{f.Run.ID, f.Run.Status}); err != nil {
				return err
			}
		}
		if !found {
			return errNotParked
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNotParked) && !errors.Is(err, fs.ErrNotExist) {
		w.o.Log.Error("run that waits for another one cannot be told of its end", "run", parent, "workspace", ws.ID(), "child", f.Run.ID, "error", err)
	}
}

// childEnd is the resolution of a wait for a child.
type childEnd struct {
	Run    string       `json:"run"`
	Status state.Status `json:"status"`
}

// orphanChildren cancels the parked children of a run that has settled without them.
func (w *Worker) orphanChildren(ws *state.Workspace, f *state.RunFile) {
	for i := range f.Suspensions {
		s := &f.Suspensions[i]
		child := s.Child()
		if child == "" || s.Status == state.Resolved {
			continue
		}
		err := ws.Ask(state.Request{Run: child, Action: state.ActionCancel, Reason: fmt.Sprintf("run %s, which started it, is %s", f.Run.ID, f.Run.Status)})
		if err != nil {
			w.o.Log.Error("run whose parent has ended cannot be cancelled", "run", child, "workspace", ws.ID(), "error", err)
		}
	}
}

// settled tells everybody who waits for it that a run has settled, once its file says so.
func (w *Worker) settled(ws *state.Workspace, f *state.RunFile) {
	w.orphanChildren(ws, f)
	w.childSettled(ws, f)
	if w.o.Settled != nil {
		w.o.Settled(ws, f)
	}
}

// ActOn does what a request asks for with a run that no live process has. The result is nil where it has settled or is
// parked then, and a Run where it goes on here.
func (w *Worker) ActOn(ctx context.Context, ws *state.Workspace, q state.Request) (*Run, error) {
	f, err := ws.Run(q.Run)
	if err != nil {
		return nil, err
	}
	r, err := w.actHere(ctx, ws, f, q)
	if err != nil {
		return nil, err
	}
	if err := ws.Done(q); err != nil {
		return nil, err
	}
	if r != nil && q.Action != state.ActionResume {
		r.Wait()
		r = nil
	}
	return r, nil
}

func (w *Worker) actHere(ctx context.Context, ws *state.Workspace, f *state.RunFile, q state.Request) (_ *Run, err error) {
	if f.Run.Status.Settled() {
		return nil, nil
	}
	if f.Run.Status != state.Suspended {
		if f.Owner().Alive() {
			return nil, fmt.Errorf("run is %s in pid %d", f.Run.Status, f.PID)
		}
		if err := w.actDead(ctx, ws, f, q); err != nil {
			return nil, err
		}
		if f, err = ws.Run(q.Run); err != nil || f.Run.Status != state.Suspended { // else its units live on
			return nil, err
		}
	}
	_, claim, err := w.claimRun(ctx, ws, q.Run)
	if err != nil {
		return nil, err
	}
	switch q.Action {
	case state.ActionCancel:
		r, err := w.cancelParked(ctx, ws, q.Run, q.Reason, claim)
		if r == nil {
			w.release(claim, q.Run)
		}
		return r, err
	case state.ActionPause:
		err = pauseParked(ctx, ws, q)
	case state.ActionResume:
		err = resumeParked(ctx, ws, q.Run)
	}
	w.release(claim, q.Run)
	if err != nil || q.Action == state.ActionPause {
		return nil, err
	}
	if f, err = ws.Run(q.Run); err != nil || !canGoOn(f) {
		return nil, err
	}
	return w.Continue(ws, q.Run, nil)
}
