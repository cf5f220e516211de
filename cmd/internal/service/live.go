package service

import (
	"context"
	"sync"
	"time"

	"marbles/monitor/live"
	"marbles/state"
)

// watchers turn the hints of live monitors into looks out of turn. A hint has no slot: a look that it asks for changes
// neither when a slot is due nor what catch_up knows, and an interval counts from its end as from that of any other look.
type watchers struct {
	s   *service
	hub *live.Hub

	watches sync.WaitGroup // a look that a hint asks for is among the service's ticks

	change sync.Mutex         // guards stop and over
	stop   context.CancelFunc // ends the watches in force
	over   bool               // nothing is watched any more

	mu     sync.Mutex // guards pulses
	pulses map[string]*pulse
}

// pulse paces the looks of one live monitor: one at a time, and one more after a look during which a hint came.
type pulse struct {
	// turn is held for writing by a look that a hint asked for and for reading by a tick of the clock: neither is skipped
	// because of the other.
	turn sync.RWMutex

	mu     sync.Mutex // guards what follows
	wanted bool       // a hint came that no look has begun after
	busy   bool       // there is a goroutine that sees to it
}

func newWatchers(s *service) *watchers {
	return &watchers{s: s, hub: live.New(s.Log), stop: func() {}, pulses: map[string]*pulse{}}
}

// watch begins to watch what is live in a plan, and ends what was watched before. A watch begins with a hint, so that what
// happened in between is seen.
func (w *watchers) watch(p *plan) {
	w.change.Lock()
	defer w.change.Unlock()
	if w.over {
		return
	}
	w.stop()
	ctx, stop := context.WithCancel(w.s.looks)
	w.stop = stop
	for id, a := range p.armed {
		if a.monitor == nil || !a.monitor.Live {
			continue
		}
		pulse := w.pulse(id)
		w.watches.Go(func() {
			if err := a.monitor.Source.Watch(ctx, w.hub, func() { w.hint(id, pulse) }); err != nil {
				w.s.Log.Warn("monitor is not watched live, its cadence goes on", "key", a.key(), "error", err)
			}
		})
	}
}

// watchPatience is how long a watch may take to end: on a mount that hangs it may never.
const watchPatience = 2 * time.Second

// end ends every watch: no hint comes after it.
func (w *watchers) end() {
	w.change.Lock()
	w.over = true
	w.stop()
	w.change.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the last watch
		w.watches.Wait()
		close(ended)
	}()
	t := time.NewTimer(watchPatience)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		w.s.Log.Warn("a watch does not end, its file system does not answer")
	}
}

func (w *watchers) pulse(id string) *pulse {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pulses[id] == nil {
		w.pulses[id] = &pulse{}
	}
	return w.pulses[id]
}

// clock is called before a tick of the clock, and what it returns after it.
func (w *watchers) clock(id string) func() {
	w.mu.Lock()
	p := w.pulses[id]
	w.mu.Unlock()
	if p == nil {
		return func() {}
	}
	p.turn.RLock()
	return p.turn.RUnlock
}

// hint is called from a watch and must not block.
func (w *watchers) hint(id string, p *pulse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	if p.busy {
		return
	}
	p.busy = true
	w.s.ticks.Go(func() { w.beat(id, p) })
}

// beat looks until no hint came during the last look.
func (w *watchers) beat(id string, p *pulse) {
	for p.more() {
		if pause := w.look(id, p); !sleep(w.s.looks, pause) {
			return // busy stays: nothing begins after the end
		}
	}
}

// more reports whether a look is wanted; else nobody sees to it any more.
func (p *pulse) more() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = p.wanted
	p.wanted = false
	return p.busy
}

const (
	// minPause and maxPause bound how long the next look waits for after one that a hint asked for: as long as that took,
	// so that a directory that never keeps still costs half a processor at most, and little where looks are cheap.
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// heldPause is after how long a look is tried again that another process stood in the way of.
	heldPause = time.Second
)

// look does one look out of turn and returns how long to wait for the next.
func (w *watchers) look(id string, p *pulse) time.Duration {
	p.turn.Lock()
	defer p.turn.Unlock()
	a, ok := w.s.plan.Load().armed[id]
	if !ok || a.monitor == nil || !a.monitor.Live || w.s.looks.Err() != nil {
		return 0
	}
	ws := a.target.Workspace
	begun := time.Now()
	res, from := w.s.tick(a, Firing{Hint: true, Live: func(key string) bool { return w.s.plan.Load().live(ws, key) }})
	w.s.loop.Finished(id, from)
	log := w.s.Log.With("key", a.key(), "workspace", ws.ID())
	if res.Outcome == state.SlotSkipped {
		log.Debug("look out of turn has to wait", "holder", res.Holder)
		p.mu.Lock()
		p.wanted = true
		p.mu.Unlock()
		return heldPause
	}
	report(log, res)
	if !res.Quiet {
		return minPause
	}
	return min(max(time.Since(begun), minPause), maxPause)
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
