package service

import (
	"errors"
	"sync"
	"time"

	"marbles/runner"
)

// backoff spaces the polls of monitors whose source fails: each further failure doubles the time to the next look, up to
// maxBackoff beyond the monitor's own interval. A monitor on slots keeps to them.
type backoff struct {
	mu  sync.Mutex // guards ids
	ids map[string]failing
}

type failing struct {
	times int
	until time.Time
}

const maxBackoff = 5 * time.Minute

// wait is how long a trigger is to be left alone yet.
func (b *backoff) wait(id string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, time.Until(b.ids[id].until))
}

// ended takes note of how a tick ended. Only a look that failed counts, not a handler that did.
func (b *backoff) ended(id string, every time.Duration, res runner.TickResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if res.Err == nil || res.Result.RunID != "" || errors.Is(res.Err, runner.ErrDraining) {
		delete(b.ids, id)
		return
	}
	if every <= 0 {
		return
	}
	if b.ids == nil {
		b.ids = map[string]failing{}
	}
	f := b.ids[id]
	f.times++
	f.until = time.Now().Add(delay(every, f.times))
	b.ids[id] = f
}

// delay is how long to leave a source alone after so many failures in a row.
func delay(every time.Duration, times int) time.Duration {
	d := every
	for range min(times, 10) - 1 {
		d *= 2
		if d >= every+maxBackoff {
			return every + maxBackoff
		}
	}
	return d
}
