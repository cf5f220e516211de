package service

import (
	"context"
	"sync"
	"time"
)

// part is something of the service that must go on, and how it is asked for a turn: nil says that it took one since.
type part struct {
	name string
	turn func(context.Context) error
}

// parts are what the watchdog is fed for.
func (s *service) parts() []part {
	return append([]part{{"service", s.heard}, {"scheduler loop", s.loop.Ping}}, s.hands()...)
}

// hands are the parts that are at work in a start and a stop too.
func (s *service) hands() []part {
	return []part{{"worker", s.worker.Ping}, {"state writer", s.writes.turn}}
}

// turned asks every part for a turn, side by side, and reports whether each took one within patience.
func (s *service) turned(ctx context.Context, patience time.Duration, parts []part) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make([]error, len(parts))
	var wait sync.WaitGroup
	for i, p := range parts {
		wait.Go(func() { errs[i] = p.turn(ctx) })
	}
	wait.Wait()
	all := true
	for i, err := range errs {
		if err != nil {
			all = false
			if ctx.Err() == context.DeadlineExceeded { // else the service is ending
				s.Log.Error("a part of the service does not go on", "part", parts[i].name, "patience", patience.String())
			}
		}
	}
	return all
}

// heard asks the loop that hears signals.
func (s *service) heard(ctx context.Context) error {
	select {
	case s.hears <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch feeds the watchdog until ctx ends, where there is one: three times per interval, after every part has turned since
// it was fed last. A disk that is full has turned; one that hangs has not.
func (s *service) watch(ctx context.Context) {
	every := s.notify.watchdog() / 3
	if every <= 0 {
		return
	}
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			if s.turned(ctx, every, s.parts()) {
				s.notify.feed()
			}
		}
	}
}

// writes asks the disk under a state root whether it still takes writes.
type writes struct {
	probe func() error

	mu   sync.Mutex    // guards done
	done chan struct{} // closed at the end of the probe under way; nil for none
}

// turn returns once a probe has ended since it was called, with an error or without: an error is an answer. Of probes there
// is one at a time, so that a disk that hangs gathers none.
func (w *writes) turn(ctx context.Context) error {
	w.mu.Lock()
	if w.done == nil {
		w.done = make(chan struct{})
		go func() { // ends with the write; one that never ends is what the caller wants to know of
			_ = w.probe() // whose write it concerns says what is wrong
			w.mu.Lock()
			defer w.mu.Unlock()
			close(w.done)
			w.done = nil
		}()
	}
	done := w.done
	w.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// extendMost bounds for how long more time is asked for, beyond what is known to be needed.
const extendMost = 10 * time.Minute

// extend asks the manager for more time until end is called, with what line says: for as long as worker and disk go on, and
// not after until.
func (s *service) extend(line func() string, until time.Time) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		ticks := time.NewTicker(extendEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			if time.Now().After(until) {
				s.Log.Error("service takes too long, no more time is asked for", "status", line())
				return
			}
			if s.turned(ctx, extendFor/2, s.hands()) {
				s.notify.extend(line())
			}
		}
	})
	return sync.OnceFunc(func() { cancel(); wait.Wait() })
}
