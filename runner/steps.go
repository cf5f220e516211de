package runner

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// errSibling ends the steps of a run one of which has failed.
var errSibling = &stopped{status: state.Cancelled, err: state.RunError{Name: "CancelledError", Message: "another step failed"}}

// work does what can be done of the run's steps now, from what its file says of them. parked says that what is left
// waits for somebody or something, as the file's suspensions say; else nil is success. Nothing of the run is at work any
// more when it returns.
func (r *Run) work() (why *stopped, parked bool) {
	begin := time.Now()
	ctx := r.ctx
	if limit := r.launch.Workflow.Timeout; limit > 0 {
		limit -= r.elapsed()
		var cancel context.CancelFunc
		late := timedOut(r.launch.Workflow.Timeout)
		late.whole = true
		ctx, cancel = context.WithTimeoutCause(ctx, max(limit, 0), late)
		defer cancel()
	}
	if r.refused != nil {
		return asStopped(r.refused), false
	}
	r.w.at("keyed")
	var err error
	if r.who, err = identityOf(r.launch.Workflow); err != nil {
		return failed("SpawnError", "%v", err), false
	}
	dir, err := r.w.scratch.take(r.who)
	if err != nil {
		return asStopped(err), false
	}
	r.dir = dir
	defer func() {
		if err := r.w.scratch.give(dir, r.who); err != nil {
			r.log().Warn("private directory of a run cannot be removed", "error", err)
		}
	}()
	if err := r.putFiles(); err != nil {
		return asStopped(err), false
	}
	e, err := newEngine(r, ctx)
	if err != nil {
		return asStopped(err), false
	}
	why, parked = e.run()
	if parked && why == nil {
		r.spent(time.Since(begin))
		r.putLiterals()
		return nil, true
	}
	r.dropUnits() // final steps come when nothing else is at work
	if ferr := e.finals(why); why == nil {
		why = ferr
	}
	r.outcome = e.output()
	if err := r.collectFiles(); err != nil && why == nil {
		why = asStopped(err)
	}
	return r.hideSecrets(why), false
}

// hideSecrets masks what a run ends with.
func (r *Run) hideSecrets(why *stopped) *stopped {
	if len(r.secrets.now()) == 0 {
		return why
	}
	r.outcome = r.secrets.value(r.outcome)
	if why != nil {
		hidden := *why
		hidden.err.Message = r.secrets.text(hidden.err.Message)
		return &hidden
	}
	return nil
}

// elapsed is how long the run has been at work before it parked, in all.
func (r *Run) elapsed() time.Duration {
	if r.file.Marbles == nil {
		return 0
	}
	return time.Duration(r.file.Marbles.ElapsedMS) * time.Millisecond
}

func (r *Run) spent(d time.Duration) {
	r.marbles().ElapsedMS += d.Milliseconds()
}

// attempt is how often the run was retried after it had settled.
func (r *Run) attempt() int {
	if r.file.Marbles == nil {
		return 0
	}
	return r.file.Marbles.Attempt
}

func (r *Run) marbles() *state.RunMarbles {
	if r.file.Marbles == nil {
		r.file.Marbles = &state.RunMarbles{}
	}
	return r.file.Marbles
}

// engine does the steps of one run. Its loop is one goroutine, which alone touches what is in it and the run's file; each
// step at work is another, which reports once.
type engine struct {
	r       *Run
	graph   *graph
	ctx     context.Context // ends with the run: cancelled, or its time is over
	steps   context.Context // ends when the steps have to stop, for errSibling and errPaused too
	stop    context.CancelCauseFunc
	own     []string // the environment that marbles itself gives to every step
	ready   []*node  // may begin
	work    int      // steps at work
	events  chan event
	slots   []bool // names for scratch files that are in use
	left    int    // normal steps that have not ended
	parked  int
	failed  *stopped // why the run fails
	culprit string   // the step that failed
	paused  bool
}

// event is how a step reports.
type event struct {
	n       *node
	slot    int                // that it had; -1 for none
	recs    []state.StepRecord // its own last, the items' before it
	why     *stopped           // nil: it is complete or skipped
	waits   []state.Suspension // it is parked; those that are new
	parked  bool
	dropped bool     // it was stopped by a pause: as if it had never begun
	closes  []string // suspensions that nobody waits for any more
}

func newEngine(r *Run, ctx context.Context) (*engine, error) {
	g, err := newGraph(r.launch.Workflow.Steps)
	if err != nil {
		return nil, err
	}
	e := &engine{r: r, graph: g, ctx: ctx, events: make(chan event), left: len(g.nodes)}
	e.steps, e.stop = context.WithCancelCause(ctx)
	e.own = r.ownEnv()
	for name := range r.launch.Files {
		e.own = append(e.own, name+"="+r.filePath(name))
	}
	e.keepLedger()
	e.resume()
	return e, nil
}

// resume takes over what the file knows: steps that have ended stay so, with their results.
func (e *engine) resume() {
	known := map[string]*state.StepRecord{}
	kept := e.r.file.Steps[:0]
	for _, rec := range e.r.file.Steps {
		if rec.Status == state.Complete || rec.Status == state.Skipped || rec.Status == state.Failed && rec.Item == nil {
			kept = append(kept, rec)
		}
	}
	e.r.file.Steps = kept
	for i := range kept {
		if rec := &kept[i]; rec.Item == nil {
			known[rec.Name] = rec
		}
	}
	for _, n := range e.graph.nodes {
		if n.waits == 0 {
			e.ready = append(e.ready, n)
		}
	}
	for i := 0; i < len(e.ready); i++ { // grows
		n := e.ready[i]
		rec := known[n.Name]
		if rec == nil || !n.goesOn(rec) {
			continue
		}
		n.begin(len(e.graph.all))
		n.take(rec)
		e.over(n)
	}
	e.ready = slices.DeleteFunc(e.ready, func(n *node) bool { return n.phase == finished })
}

// over notes that a step has ended and lets go of what waited for it.
func (e *engine) over(n *node) {
	n.phase = finished
	e.left--
	for _, m := range n.after {
		if m.waits--; m.waits == 0 {
			e.ready = append(e.ready, m)
		}
	}
}

// run does the normal steps.
func (e *engine) run() (why *stopped, waits bool) {
	defer e.stop(nil)
	if e.r.hold(e.ctx) == nil { // a run whose first steps only wait must not keep its place either
		e.r.letGo()
	}
	pausing := e.r.pausing
	for {
		e.beginReady()
		if e.work == 0 {
			break
		}
		select {
		case ev := <-e.events:
			e.report(ev)
		case <-pausing:
			pausing, e.paused = nil, true
			e.stop(errPaused)
		}
	}
	switch {
	case e.failed != nil:
		return e.failed, false
	case e.left == 0 && (len(e.graph.nodes) > 0 || e.ctx.Err() == nil):
		return nil, false
	case len(e.graph.nodes) == 0: // its definition is gone
		return asStopped(context.Cause(e.ctx)), false
	case e.ctx.Err() != nil: // between two steps
		return e.next().ofRun(asStopped(context.Cause(e.ctx))), false
	case e.pausedNow():
		return nil, true
	}
	return nil, e.parked > 0
}

// pausedNow reports whether the run was told to pause.
func (e *engine) pausedNow() bool {
	select {
	case <-e.r.pausing:
		e.paused = true
	default:
	}
	return e.paused
}

// next is a step that has not ended.
func (e *engine) next() *step {
	i := slices.IndexFunc(e.graph.nodes, func(n *node) bool { return n.phase != finished })
	return e.newStep(e.graph.nodes[i])
}

// beginReady begins the steps that may begin, unless the run has to stop.
func (e *engine) beginReady() {
	for len(e.ready) > 0 && e.failed == nil && !e.paused && e.ctx.Err() == nil && e.work < e.r.w.o.Concurrency {
		if e.pausedNow() {
			return
		}
		n := e.ready[0]
		e.ready = e.ready[1:]
		n.begin(len(e.graph.all))
		n.phase = working
		e.begin(n)
	}
}

// begin begins a step. What needs nothing but the file is done here.
func (e *engine) begin(n *node) {
	s := e.newStep(n)
	input := e.graph.inputOf(e.r.input, n)
	s.past = e.past(n)
	if n.If == nil && (n.Ask != nil || n.Wait != nil) {
		ev := s.once(e.steps, nil)
		ev.n, ev.slot = n, -1
		e.report(ev)
		return
	}
	e.work++
	slot := e.takeSlot()
	s.scratch = strconv.Itoa(slot)
	go func() { // the loop waits for its event
		ev := s.all(e.steps, input)
		ev.n, ev.slot = n, slot
		e.events <- ev
	}()
}

// past is what is known of a step from before the run parked: the records of its items, and what it has waited for.
type past struct {
	items []state.StepRecord
	waits []state.Suspension
}

func (e *engine) past(n *node) (p past) {
	if e.r.file.Suspensions == nil && e.r.attempt() == 0 {
		return p // nearly always
	}
	for _, rec := range e.r.file.Steps {
		if rec.Name == n.Name && rec.Item != nil {
			p.items = append(p.items, rec)
		}
	}
	for _, s := range e.r.file.Suspensions {
		if s.Name == n.Name && s.Kind != state.SuspendPause && s.Status != state.NoLongerOpen {
			p.waits = append(p.waits, s)
		}
	}
	return p
}

// newStep is a step about to be done.
func (e *engine) newStep(n *node) *step {
	now := state.Millis(time.Now().UnixMilli())
	return &step{Step: n.Step, r: e.r, e: e, n: n, rec: state.StepRecord{Name: n.Name, Status: state.Running, StartedAt: now}}
}

// takeSlot is a free name for scratch files; they are few, so that their files serve again.
func (e *engine) takeSlot() int {
	for i, used := range e.slots {
		if !used {
			e.slots[i] = true
			return i
		}
	}
	e.slots = append(e.slots, true)
	return len(e.slots) - 1
}

// report takes the end of a step over.
func (e *engine) report(ev event) {
	if ev.slot >= 0 {
		e.slots[ev.slot] = false
		e.work--
	}
	n := ev.n
	e.close(ev.closes)
	if ev.dropped {
		n.phase = pending
		e.ready = append(e.ready, n)
		e.keep(ev.recs)
		return
	}
	if ev.parked {
		n.phase = parked
		e.parked++
		e.keep(ev.recs)
		e.r.file.Suspensions = append(e.r.file.Suspensions, ev.waits...)
		return
	}
	e.keep(ev.recs)
	rec := &ev.recs[len(ev.recs)-1]
	if ev.why == nil || n.goesOn(rec) {
		n.take(rec)
		e.over(n)
		return
	}
	n.phase = finished
	e.left--
	if e.failed == nil && ev.why != errSibling {
		e.failed, e.culprit = e.newStep(n).ofRun(ev.why), n.Name
		e.stop(errSibling)
	}
}

// close ends suspensions that were waited for.
func (e *engine) close(ids []string) {
	now := time.Now()
	for _, s := range e.r.file.Open() {
		if slices.Contains(ids, s.ID) {
			_ = s.Resolve(now, resolution{state.Stamp{Time: now}}) // it can be written
		}
	}
}

// step appends how a step ended.
func (j *journal) step(rec *state.StepRecord) {
	if to := j.open(); to != nil {
		j.warn(to.Step(time.Now(), rec))
	}
}

// keep puts records into the file. The journal has them.
func (e *engine) keep(recs []state.StepRecord) {
	for _, rec := range recs {
		e.r.keep(rec)
	}
}

// keep puts a record into the file, in the place of an earlier one of the same step.
func (r *Run) keep(rec state.StepRecord) {
	// Nearly always it is new; only what was tried before a park is there already.
	if r.file.Suspensions != nil || r.attempt() > 0 {
		at := slices.IndexFunc(r.file.Steps, func(o state.StepRecord) bool { return sameStep(&o, &rec) })
		if at >= 0 {
			r.file.Steps[at] = rec
			return
		}
	}
	r.file.Steps = append(r.file.Steps, rec)
}

func sameStep(a, b *state.StepRecord) bool {
	return a.Name == b.Name && (a.Item == nil) == (b.Item == nil) && (a.Item == nil || *a.Item == *b.Item)
}

// output is the result of the last normal step.
func (e *engine) output() jsontext.Value {
	if n := len(e.graph.nodes); n > 0 {
		return e.graph.nodes[n-1].result
	}
	return nil
}

// step is one step at work, for one item where it is done for several.
type step struct {
	Step
	r       *Run
	e       *engine
	n       *node
	scratch string // names its scratch files
	rec     state.StepRecord
	item    *int
	more    []string // environment for an item, or of a final step
	past    past
	asked   *state.Question // what its process has left to be answered
	dir     string          // where it runs in its worktree
	heard   *echo           // gets its output instead of the run's
	unit    *unit           // that its process runs in, with Isolate
	// attached says that the unit an earlier process left was taken over. closes are suspensions that are over with that.
	attached bool
	closes   []string
}

// label is what the journal calls the step.
func (s *step) label() string {
	if s.item != nil {
		return s.Name + "[" + strconv.Itoa(*s.item) + "]"
	}
	return s.Name
}

// finish records how the step ended, in its record and as a line of the journal.
func (s *step) finish(why *stopped) {
	s.rec.FinishedAt = state.Millis(time.Now().UnixMilli())
	if len(s.rec.Leftover) > 0 {
		s.r.journal.line(s.label(), "left processes behind, which were ended: "+strings.Join(s.rec.Leftover, ", "))
	}
	if why != nil {
		hidden := why.err
		hidden.Message = s.r.secrets.text(hidden.Message)
		why = &stopped{why.status, hidden, why.whole}
	}
	switch {
	case why == nil:
		s.rec.Status = state.Complete
		s.r.journal.line(s.label(), "complete")
	case why.status == state.Cancelled:
		s.rec.Status, s.rec.Error = state.Cancelled, &why.err
		if s.rec.Cause == "" {
			s.rec.Cause = causeCancel
		}
		s.r.journal.line(s.label(), "aborted")
	default:
		s.rec.Status, s.rec.Error = state.Failed, &why.err
		s.r.journal.line(s.label(), "failed: "+why.err.Message)
	}
	s.r.journal.step(&s.rec)
}

const causeCancel = "cancel"

// ofRun is a step's end as the end of the run: it names the step.
func (s *step) ofRun(why *stopped) *stopped {
	switch {
	case why.status == state.Cancelled:
		return why
	case why.whole:
		return failed(why.err.Name, "the run %s, in step %q", why.err.Message, s.Name)
	}
	return failed(why.err.Name, "step %q %s", s.Name, why.err.Message)
}
