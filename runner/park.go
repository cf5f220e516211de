package runner

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// errPaused ends the steps of a run that somebody paused.
var errPaused = &stopped{status: state.Cancelled, err: state.RunError{Name: "CancelledError", Message: "paused"}}

// idlePlace is how long a run keeps its place while none of its steps has a process.
const idlePlace = time.Second

// hold says that a step of the run is about to have a process, and letGo that it has none any more. A run all of whose
// steps wait for more than a second gives its place to another one, and hold waits for one again; ctx ends that wait.
func (r *Run) hold(ctx context.Context) error {
	for {
		r.placeMu.Lock()
		if r.placed {
			r.holders++
			if r.idle != nil {
				r.idle.Stop()
			}
			r.placeMu.Unlock()
			return nil
		}
		if r.getting == nil {
			r.getting = make(chan struct{})
			go r.placeAgain(ctx, r.getting) // hold waits for it
		}
		getting := r.getting
		r.placeMu.Unlock()
		<-getting
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
}

func (r *Run) letGo() {
	r.placeMu.Lock()
	defer r.placeMu.Unlock()
	if r.holders--; r.holders > 0 || !r.placed {
		return
	}
	if r.idle == nil {
		r.idle = time.AfterFunc(idlePlace, r.giveIdlePlace)
	} else {
		r.idle.Reset(idlePlace)
	}
}

func (r *Run) giveIdlePlace() {
	r.placeMu.Lock()
	defer r.placeMu.Unlock()
	if r.placed && r.holders == 0 {
		r.placed = false
		r.w.freePlace(r)
	}
}

// givePlace gives the place back for good.
func (r *Run) givePlace() {
	r.placeMu.Lock()
	defer r.placeMu.Unlock()
	if r.idle != nil {
		r.idle.Stop()
	}
	if r.placed {
		r.placed = false
		r.w.freePlace(r)
	}
}

// placeAgain gets a run that is at work a place. While the worker drains it takes one that is not there: what has begun
// goes on to its end.
func (r *Run) placeAgain(ctx context.Context, done chan struct{}) {
	w := r.w
	defer func() {
		r.placeMu.Lock()
		r.getting = nil
		r.placeMu.Unlock()
		close(done)
	}()
	if !w.takePlace(r) {
		select {
		case <-r.granted:
		case <-ctx.Done():
			if !w.leaveQueue(r) {
				return
			}
		case <-w.stop:
			if !w.leaveQueue(r) {
				w.mu.Lock()
				w.place(r)
				w.mu.Unlock()
			}
		}
	}
	w.mu.Lock()
	r.begun = true
	w.admit()
	w.mu.Unlock()
	select {
	case <-r.room:
	case <-ctx.Done():
		w.freePlace(r)
		return
	}
	r.placeMu.Lock()
	r.placed = true
	r.placeMu.Unlock()
}

// pauseAsk is who paused a run, and why.
type pauseAsk struct{ reason, by string }

// pause stops the steps of a run at work, which parks then.
func (r *Run) pause(reason, by string) {
	r.placeMu.Lock()
	defer r.placeMu.Unlock()
	if r.pauseAsked == nil {
		r.pauseAsked = &pauseAsk{reason, by}
		close(r.pausing)
	}
}

func (r *Run) pauseAsk() *pauseAsk {
	r.placeMu.Lock()
	defer r.placeMu.Unlock()
	return r.pauseAsked
}

// newPause is the suspension of a pause.
func newPause(f *state.RunFile, p pauseAsk) state.Suspension {
	now := time.Now()
	request, _ := jsontext.AppendQuote([]byte(`{"reason":`), p.reason)
	if p.by != "" {
		request, _ = jsontext.AppendQuote(append(request, `,"by":`...), p.by)
	}
	occurrence := 0
	for _, s := range f.Suspensions {
		if s.Kind == state.SuspendPause {
			occurrence++
		}
	}
	return state.Suspension{
		ID: "su-" + state.NewRunID(now)[len("rn-"):], RunID: f.Run.ID, Kind: state.SuspendPause, Name: f.Run.Step,
		Occurrence: occurrence, Reason: p.reason, Request: append(request, '}'), Status: state.Pending,
		StepPath: []string{f.Run.Step}, Timestamps: state.SuspensionTimes{CreatedAt: state.Millis(now.UnixMilli())},
	}
}

// noteWaits writes down what the run waits for; see [state.RunMarbles].
func noteWaits(f *state.RunFile) {
	if f.Marbles == nil {
		f.Marbles = &state.RunMarbles{}
	}
	f.Marbles.Waits = nil
	for _, s := range f.Open() {
		f.Marbles.Waits = append(f.Marbles.Waits, s.ID)
	}
}

// noteLeft writes down since when units have been at work without a process of ours; see [state.RunMarbles].
func noteLeft(f *state.RunFile, since time.Time) {
	for _, s := range f.Open() {
		if s.Kind == state.SuspendUnit {
			f.Marbles.LeftAt = state.Stamp{Time: since}
		}
	}
}

// waitsForUnit reports whether a run waits for a unit.
func waitsForUnit(f *state.RunFile) bool {
	return slices.ContainsFunc(f.Open(), func(s *state.Suspension) bool { return s.Kind == state.SuspendUnit })
}

// canGoOn reports whether a parked run has something to do.
func canGoOn(f *state.RunFile) bool {
	pending := map[string]bool{}
	for _, s := range f.Open() {
		if s.Kind == state.SuspendPause {
			return false
		}
		pending[s.ID] = true
	}
	if waitsForUnit(f) { // it has not stopped at all: somebody has to look after it
		return true
	}
	if f.Marbles == nil || len(f.Marbles.Waits) == 0 {
		return len(pending) == 0
	}
	for _, id := range f.Marbles.Waits {
		if !pending[id] {
			return true
		}
	}
	return false
}

// nextDue is when the first suspension of a run ends by itself; zero for none.
func nextDue(f *state.RunFile) (due time.Time) {
	for _, s := range f.Open() {
		if at := s.Due(); !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	return due
}

// park writes a run down that waits, and lets go of it: of its place, its workflow's turn, and this goroutine.
func (r *Run) park() {
	r.w.mu.Lock()
	r.parking = true
	r.w.mu.Unlock()
	f := r.file
	if p := r.pauseAsk(); p != nil {
		f.Suspensions = append(f.Suspensions, newPause(f, *p))
	}
	f.Run.Status = state.Suspended
	noteWaits(f)
	noteLeft(f, time.Now())
	r.journal.sync()
	r.w.at("parking")
	if err := r.write(); err != nil && !r.save(err) {
		// The next marbles finds a run that was running, and settles it as interrupted.
		r.result.Status, r.result.Error = state.Failed, &failed("Error", "cannot be parked: %v", err).err
		return
	}
	r.w.at("parked")
	r.result.Status, r.result.File, r.result.Finished = state.Suspended, f, time.Now()
	come := canGoOn(f) && !waitsForUnit(f) // what it waits for has come while it was at work, when nobody could go on with it
	if r.w.o.Parks {
		r.w.keep(r.ws, f, r.claim)
		r.claim = nil
	}
	if come || !r.w.o.Parks { // else whoever ends what it waits for says so
		if err := r.ws.Ask(state.Request{Run: r.id, Action: state.ActionLook}); err != nil {
			r.log().Warn("service cannot be told of a parked run", "error", err)
		}
	}
	if r.w.o.Parked != nil {
		r.w.o.Parked(r.ws, f)
	}
	if cause := context.Cause(r.ctx); cause != nil && cause.Error() != stopReason {
		_ = r.ws.Ask(state.Request{Run: r.id, Action: state.ActionCancel, Reason: cause.Error()})
	}
}

// write replaces the run file. One that others may change meanwhile, by answers, is changed under its lock, and keeps what
// they have written.
func (r *Run) write() error {
	if len(r.file.Suspensions) == 0 {
		return r.ws.WriteRun(r.file)
	}
	lock, err := r.ws.LockEdit(context.Background(), r.id)
	if err != nil {
		return err
	}
	defer lock.Release()
	if f, err := r.ws.Run(r.id); err == nil {
		mergeSuspensions(r.file, f)
	}
	if r.file.Run.Status.Settled() {
		closeOpen(r.file)
	}
	return r.ws.WriteRun(r.file)
}

// mergeSuspensions takes over what others wrote of a run's suspensions.
func mergeSuspensions(f, disk *state.RunFile) {
	for _, theirs := range disk.Suspensions {
		known := false
		for i := range f.Suspensions {
			ours := &f.Suspensions[i]
			if ours.ID == theirs.ID {
				known = true
				if theirs.Revision > ours.Revision {
					*ours = theirs
				}
			}
		}
		if !known {
			f.Suspensions = append(f.Suspensions, theirs)
		}
	}
}

// closeOpen ends what nobody waits for any more, with the run.
func closeOpen(f *state.RunFile) {
	now := time.Now()
	for _, s := range f.Open() {
		s.Close(now)
	}
}

// runRef names a run of a workspace.
type runRef struct{ dir, id string }

// waiting is a parked run that this process keeps. There can be very many of them.
type waiting struct {
	ws    *state.Workspace
	id    string
	due   time.Time   // zero for none
	at    int         // in the heap; -1 where it is not
	claim *state.Lock // nil where its file alone says whose it is
}

// dueHeap has the parked runs that end by themselves, the next first.
type dueHeap []*waiting

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *dueHeap) Push(x any) {
	e := x.(*waiting)
	e.at = len(*h)
	*h = append(*h, e)
}
func (h *dueHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.at = -1
	return e
}

// keep takes a parked run into this process's care.
func (w *Worker) keep(ws *state.Workspace, f *state.RunFile, claim *state.Lock) {
	due := nextDue(f).Round(0) // by the clock on the wall
	w.mu.Lock()
	defer w.mu.Unlock()
	ref := runRef{ws.Dir(), f.Run.ID}
	e := w.parked[ref]
	if e == nil {
		e = &waiting{ws: ws, id: f.Run.ID, at: -1}
		w.parked[ref] = e
	}
	if claim != nil {
		e.claim = claim
		w.claims.Add(1)
	}
	if e.at >= 0 {
		heap.Remove(&w.dues, e.at)
	}
	if e.due = due; !due.IsZero() {
		heap.Push(&w.dues, e)
	}
	w.lookAfter(ws)
}

// fixHead puts the first of the heap where it belongs now.
func fixHead(h *dueHeap) { heap.Fix(h, 0) }

// lose ends the care for a parked run. mu is held.
func (w *Worker) lose(ref runRef) (claim *state.Lock) {
	e := w.parked[ref]
	if e == nil {
		return nil
	}
	delete(w.parked, ref)
	if e.at >= 0 {
		heap.Remove(&w.dues, e.at)
	}
	if e.claim != nil {
		w.claims.Add(-1)
	}
	return e.claim
}

// releaseClaims gives back every claim when the worker ends; the files say suspended.
func (w *Worker) releaseClaims() {
	w.mu.Lock()
	all := w.parked
	w.parked, w.dues = map[runRef]*waiting{}, nil
	w.mu.Unlock()
	for _, e := range all {
		w.release(e.claim, e.id)
	}
}

func (w *Worker) release(claim *state.Lock, run string) {
	if claim == nil {
		return
	}
	if err := claim.Release(); err != nil {
		w.o.Log.Warn("claim of a run cannot be given back", "run", run, "error", err)
	}
}

// leaveCare takes a run that goes on out of the parked ones; it has their claim now.
func (r *Run) leaveCare() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if claim := r.w.lose(runRef{r.ws.Dir(), r.id}); claim != nil {
		r.claim = claim
	}
}
