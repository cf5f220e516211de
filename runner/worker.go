package runner

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"marbles/state"
)

// ErrDraining says that the worker accepts nothing more.
var ErrDraining = errors.New("the worker is stopping")

// stopReason is the reason of runs that Drain cancels.
const stopReason = "marbles is stopping"

const (
	defaultConcurrency = 16
	defaultGrace       = 10 * time.Second
	// maxEndings is how many ends are written down at once. With more, a rush of starts is slower; with fewer, the
	// disk cannot put their syncs together.
	maxEndings = 16
	// rushFactor times the concurrency is how many wait for a place in a rush, and endsAfter how long an end waits then.
	rushFactor = 16
	endsAfter  = time.Second
)

// Worker runs launches and ticks, at most Concurrency runs at once. It is safe for concurrent use.
//
// No file is read, written or synced while mu is held, so that the file work of different runs goes on side by side.
type Worker struct {
	o     Options
	env   []string      // what every step's environment begins with
	self  state.Process // this process
	stop  chan struct{} // closed when Drain begins
	empty chan struct{} // closed when nothing is at work any more
	spawn spawner
	// endings holds a value for each end that is being written down.
	endings chan struct{}
	scratch *scratch
	polls   sync.WaitGroup // of limits
	bufs    sync.Pool      // *[captureBuffer]byte
	// hook is called between the writes whose order keeps a crash harmless; nil outside tests.
	hook func(point string)

	mu       sync.Mutex // guards what follows
	draining bool
	work     int           // runs that will settle and ticks that will end
	running  int           // places taken
	line     *list.List    // *Run, with a place and without room for its processes yet, in the order of their places
	busy     int           // runs that have room for processes
	held     time.Duration // how long the latest runs had processes, about
	freed    time.Time     // when the latest of them had none any more
	queue    *list.List    // *Run, waiting for a place
	rush     chan struct{} // closed when few wait for a place; nil while few do
	live     map[*Run]struct{}
	ticking  map[*Ticking]struct{}
	seats    map[keyID]*seat
	limits   map[limitID]*limit
	quiet    map[keyID]*quiet
	parked   map[runRef]*waiting // in this process's care
	dues     dueHeap             // those of them that end by themselves
	watched  map[string]*watched // workspaces whose requests are looked after, by directory
	polling  bool
	// handed are queued runs that other processes wrote down for this one, and that may be started; true: one is being.
	handed map[runRef]bool

	claims atomic.Int64 // locks of parked runs

	cgroups *cgroups
	units   atomic.Int64 // started, for their names

	worktrees sync.Mutex // held while one is made
}

// New makes a worker.
func New(o Options) *Worker {
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Grace < 0 {
		o.Grace = 0
	} else if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	if o.OutputLimit == 0 {
		o.OutputLimit = defaultOutputLimit
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	w := &Worker{
		o:       o,
		env:     baseEnv(o.Env),
		self:    state.Self(),
		stop:    make(chan struct{}),
		empty:   make(chan struct{}),
		endings: make(chan struct{}, maxEndings),
		queue:   list.New(),
		line:    list.New(),
		live:    map[*Run]struct{}{},
		ticking: map[*Ticking]struct{}{},
		seats:   map[keyID]*seat{},
		limits:  map[limitID]*limit{},
		quiet:   map[keyID]*quiet{},
		parked:  map[runRef]*waiting{},
		watched: map[string]*watched{},
		handed:  map[runRef]bool{},
	}
	if w.o.TempDir == "" {
		w.o.TempDir = "/tmp"
		if dir, _ := lookupEnv(o.Env, "TMPDIR"); dir != "" {
			w.o.TempDir = dir
		}
	}
	w.scratch = newScratch(w.o.TempDir, w.self)
	w.cgroups = newCgroups(o.Cgroups)
	w.bufs.New = func() any { return new([captureBuffer]byte) }
	return w
}

// afterStarts waits for a turn to write down how something ended, and returns what ends the turn. In a rush the disk is
// there for what has to start: an end is known already to the journal, and can wait a moment.
func (w *Worker) afterStarts() func() {
	w.mu.Lock()
	rush := w.rush
	w.mu.Unlock()
	if rush != nil {
		t := time.NewTimer(endsAfter)
		select {
		case <-rush:
		case <-t.C:
		case <-w.stop:
		}
		t.Stop()
	}
	w.endings <- struct{}{}
	return func() { <-w.endings }
}

// endRush lets ends be written down where few wait for a place. mu is held.
func (w *Worker) endRush() {
	if w.rush != nil && w.queue.Len() <= rushFactor*w.o.Concurrency {
		close(w.rush)
		w.rush = nil
	}
}

func (w *Worker) at(point string) {
	if w.hook != nil {
		w.hook(point)
	}
}

// enter counts a run or tick as work that Drain waits for.
func (w *Worker) enter(add func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return ErrDraining
	}
	w.work++
	add()
	return nil
}

func (w *Worker) leave(remove func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	remove()
	w.work--
	if w.draining && w.work == 0 {
		close(w.empty)
	}
}

// takePlace gives a run a place, or puts it at the end of the queue. Only then is anything of it written, so that the
// order of the queue is the order of the calls.
func (w *Worker) takePlace(r *Run) (now bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running < w.places() && w.queue.Len() == 0 && !w.draining {
		w.place(r)
		return true
	}
	r.granted = make(chan struct{})
	r.queued = w.queue.PushBack(r)
	if w.rush == nil && w.queue.Len() > rushFactor*w.o.Concurrency {
		w.rush = make(chan struct{})
	}
	return false
}

// awaitPlace waits for a place that takePlace did not give. Without one the run has left the queue: it was cancelled, or
// the worker drains.
func (w *Worker) awaitPlace(r *Run) (ok bool) {
	select {
	case <-r.granted:
		return true
	case <-r.ctx.Done():
	case <-w.stop:
	}
	return w.leaveQueue(r)
}

// leaveQueue takes a run out of the queue, unless it was given a place at this very moment.
func (w *Worker) leaveQueue(r *Run) (placed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.queued == nil {
		return true
	}
	w.queue.Remove(r.queued)
	r.queued = nil
	w.endRush()
	return false
}

// place gives a run a place. mu is held.
func (w *Worker) place(r *Run) {
	w.running++
	r.room = make(chan struct{})
	r.lined = w.line.PushBack(r)
}

// freePlace takes back a run's place, and its room or its turn for that, and hands them on.
func (w *Worker) freePlace(r *Run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.lined != nil {
		w.line.Remove(r.lined)
		r.lined = nil
	} else {
		w.busy--
	}
	w.running--
	w.admit()
	w.grant()
}

// grant gives the places there are to those who wait. mu is held.
func (w *Worker) grant() {
	defer w.endRush()
	for w.running < w.places() && !w.draining {
		front := w.queue.Front()
		if front == nil {
			return
		}
		r := w.queue.Remove(front).(*Run)
		r.queued = nil
		w.place(r)
		close(r.granted)
	}
}

// Runs that soon find room for their processes are written down as running while others still have theirs: a start waits
// for the disk longer than a short run takes, and the disk writes for many at once as soon as for few. Where a run waits
// longer than thought, its file says queued again (see awaitRoom).
const (
	aheadFactor = 3 // times the concurrency
	// aheadHeld is how long runs may have processes, lately, for others to be begun ahead of their end.
	aheadHeld = 50 * time.Millisecond
)

// places is how many runs may be written down as running. mu is held.
func (w *Worker) places() int {
	if w.freed.IsZero() || w.held > aheadHeld || w.busy == w.o.Concurrency && time.Since(w.freed) > 2*aheadHeld {
		return w.o.Concurrency
	}
	return w.o.Concurrency * (1 + aheadFactor)
}

// admit gives room to those who are next and are written down. mu is held.
func (w *Worker) admit() {
	for w.busy < w.o.Concurrency {
		front := w.line.Front()
		if front == nil || !front.Value.(*Run).begun {
			return
		}
		r := w.line.Remove(front).(*Run)
		r.lined = nil
		w.busy++
		close(r.room)
	}
}

// awaitRoom waits for room for the run's processes. It is not ok where the run was cancelled first, or failed, which is
// the error, or where Drain leaves it in the queue.
func (w *Worker) awaitRoom(r *Run) (ok bool, err error) {
	w.mu.Lock()
	r.begun = true
	w.admit()
	w.mu.Unlock()
	select {
	case <-r.room:
		return true, nil
	default:
	}
	if r.resumed {
		// What it had done is on record, and so is that it goes on; even a cancelled one may have final steps to do.
		<-r.room
		return true, nil
	}
	late := time.NewTimer(queuedAfter)
	defer late.Stop()
	for queued := false; ; {
		select {
		case <-r.room:
			if queued {
				err = r.mark(state.Running)
			}
			return err == nil, err
		case <-r.ctx.Done():
			r.file.Run.Timestamps.StartedAt = 0
			return false, context.Cause(r.ctx)
		case <-w.stop:
			// Where it cannot be written, the journal says that nothing was started.
			_ = r.mark(state.Queued)
			return false, nil
		case <-late.C:
			queued = r.mark(state.Queued) == nil
		}
	}
}

// ended takes note of how long a run had processes.
func (w *Worker) ended(since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = time.Now()
	const weight = 8 // of what was before
	w.held += (w.freed.Sub(since) - w.held) / weight
}

// Active is how many runs are at work and how many wait for a place, or for their workflow's turn.
func (w *Worker) Active() (running, queued int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	running = min(w.running, w.o.Concurrency)
	queued = w.queue.Len() + w.running - running
	for _, l := range w.limits {
		queued += int(l.line.Load())
	}
	return running, queued
}

// Ping goes through the worker's own machinery and back: it returns nil when the worker turned (watchdog). It takes the
// lock that every start and end takes, and asks the thread that starts the processes.
func (w *Worker) Ping(ctx context.Context) error {
	turned := make(chan struct{})
	go func() { // ends with the lock; a worker that never gives it back is what the caller wants to know of
		w.mu.Lock()
		defer w.mu.Unlock()
		close(turned)
	}()
	select {
	case <-turned:
	case <-ctx.Done():
		return ctx.Err()
	}
	return w.spawn.ping(ctx)
}

// Drain accepts nothing more and waits for what runs until ctx ends, then cancels the rest and waits for that.
// Queued runs stay queued on disk. It returns ctx's error where it had to cancel.
func (w *Worker) Drain(ctx context.Context) error {
	w.mu.Lock()
	if !w.draining {
		w.draining = true
		close(w.stop)
		if w.work == 0 {
			close(w.empty)
		}
	}
	w.mu.Unlock()
	var err error
	select {
	case <-w.empty:
	case <-ctx.Done():
		err = ctx.Err()
		w.cancelAll()
		<-w.empty
	}
	w.polls.Wait()
	w.releaseClaims()
	w.flushQuiet()
	if cerr := w.scratch.close(); cerr != nil {
		w.o.Log.Warn("private directories cannot be removed", "error", cerr)
	}
	w.spawn.end()
	return err
}

func (w *Worker) cancelAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.ticking {
		t.cancel(errStopping)
	}
	for r := range w.live {
		r.Cancel(stopReason)
	}
}
