package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"marbles/state"
)

// limitPoll is how often a run looks whether another process gave back a turn of its workflow.
const limitPoll = 250 * time.Millisecond

// limitID names a workflow with a concurrency of its own.
type limitID struct{ dir, workflow string }

// limit counts the runs of one workflow over all processes: each run holds one of the locks workflow:<name>.<i>, i
// below the workflow's concurrency. Within this process a turn is handed on directly.
type limit struct {
	name string
	ws   *state.Workspace
	w    *Worker
	line atomic.Int32 // how many wait

	mu      sync.Mutex // guards what follows; held while a lock is tried, which is file work of this workflow alone
	queue   []*turn
	polling bool
}

// turn is a run's wait for a lock.
type turn struct {
	n     int // the concurrency the run was launched with
	given chan heldTurn
}

// heldTurn is the lock a run holds; i is its number.
type heldTurn struct {
	lock *state.Lock
	i    int
	err  error
}

// limitOf is the limit of a run's workflow, nil where it has none.
func (w *Worker) limitOf(ws *state.Workspace, wf *Workflow) *limit {
	if wf.Concurrency <= 0 {
		return nil
	}
	id := limitID{ws.Dir(), wf.Name}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.limits[id]
	if l == nil {
		l = &limit{name: "workflow:" + fileName(wf.Name), ws: ws, w: w}
		w.limits[id] = l
	}
	return l
}

// fileName is one plain file name for any text; two texts never share one, also where the file system takes upper and lower
// case for the same.
func fileName(text string) string {
	const longest = 100 // bytes; a file name holds 255
	plain := len(text) <= longest
	slug := make([]byte, 0, longest)
	for i := 0; i < len(text) && len(slug) < longest; i++ {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		case c >= 'A' && c <= 'Z':
			plain = false
		default:
			c, plain = '_', false
		}
		slug = append(slug, c)
	}
	if plain && text != "" {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return string(slug) + "~" + hex.EncodeToString(sum[:6]) // no plain name holds a ~
}

// take gets a turn at once, or waits in line for one.
func (l *limit) take(n int) (held heldTurn, wait *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		if held, ok := l.try(n); ok {
			return held, nil
		}
	}
	wait = &turn{n: n, given: make(chan heldTurn, 1)}
	l.queue = append(l.queue, wait)
	l.line.Add(1)
	if !l.polling {
		l.polling = true
		l.w.polls.Go(l.poll)
	}
	return heldTurn{}, wait
}

// try takes a free lock. An error other than that they are held is a turn too, one that fails its run.
func (l *limit) try(n int) (heldTurn, bool) {
	for i := range n {
		lock, err := l.ws.TryLock(fmt.Sprintf("%s.%d", l.name, i))
		if !errors.Is(err, state.ErrHeld) {
			return heldTurn{lock, i, err}, true
		}
	}
	return heldTurn{}, false
}

// poll gives out what other processes gave back, until nobody waits any more. Drain waits for it.
func (l *limit) poll() {
	tick := time.NewTicker(limitPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !l.giveOut() {
				return
			}
		case <-l.w.stop:
			return
		}
	}
}

// pop hands a turn to the first in line.
func (l *limit) pop(held heldTurn) {
	l.queue[0].given <- held
	l.queue = l.queue[1:]
	l.line.Add(-1)
}

func (l *limit) giveOut() (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 {
		held, ok := l.try(l.queue[0].n)
		if !ok {
			return true
		}
		l.pop(held)
	}
	l.polling = false
	return false
}

// giveBack hands a turn to the run that has waited longest, or releases the lock. A number that is no longer below the
// workflow's concurrency, after a reload, is not handed on.
func (l *limit) giveBack(held heldTurn) error {
	if held.lock == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 && held.i < l.queue[0].n {
		l.pop(held)
		return nil
	}
	return held.lock.Release()
}

// forget takes a run out of the line; a turn it was given meanwhile goes on.
func (l *limit) forget(wait *turn) error {
	l.mu.Lock()
	for i, t := range l.queue {
		if t == wait {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			l.line.Add(-1)
			break
		}
	}
	l.mu.Unlock()
	select {
	case held := <-wait.given:
		return l.giveBack(held)
	default:
		return nil
	}
}
