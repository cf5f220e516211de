package monitor

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// defaultAtOnce is how many requests run at once per host and port.
	defaultAtOnce = 4
	// hostPatience is after how long a request counts no more among them: one host and port may stand for many servers,
	// as a reverse proxy does, and those that hang must not hold up the others.
	hostPatience = 2 * time.Second
)

// HostLimit is what HTTP sources share: how many requests may run at once per host and port, and the connections that
// are kept. The zero value is ready; it lives as long as the sources do. What Retry-After said is not shared: a busy
// page says nothing about the host's others.
type HostLimit struct {
	atOnce int

	mu      sync.Mutex // guards the rest
	hosts   map[string]*hostQueue
	clients map[clientOptions]*client
}

// hostQueue is a host with requests that run; those that wait come in their order.
type hostQueue struct {
	running int
	waiting []chan struct{} // closed when it is one's turn
}

// NewHostLimit makes a HostLimit; atOnce 0 is 4.
func NewHostLimit(atOnce int) *HostLimit { return &HostLimit{atOnce: atOnce} }

// enter waits for its turn at a host, at most until ctx ends; leave must be called then. A host that hangs so holds
// up only what asks it, each within its own deadline, and a request that hangs the others at its host not for long.
func (l *HostLimit) enter(ctx context.Context, host string) (leave func(), err error) {
	l.mu.Lock()
	if l.hosts == nil {
		l.hosts = map[string]*hostQueue{}
	}
	limit := l.atOnce
	if limit <= 0 {
		limit = defaultAtOnce
	}
	q := l.hosts[host]
	if q == nil {
		q = &hostQueue{}
		l.hosts[host] = q
	}
	if q.running < limit {
		q.running++
		l.mu.Unlock()
		return l.entered(host, q), nil
	}
	turn := make(chan struct{})
	q.waiting = append(q.waiting, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return l.entered(host, q), nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(q.waiting, turn); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	} else { // the turn came in the same moment: it is the next one's
		l.leave(host, q)
	}
	return nil, ctx.Err()
}

// entered is for who has a place: the function gives it back, unless it was given up before.
func (l *HostLimit) entered(host string, q *hostQueue) (leave func()) {
	free := sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.leave(host, q)
	})
	impatient := time.AfterFunc(hostPatience, free)
	return func() { impatient.Stop(); free() }
}

// leave gives a place to who waits longest. l.mu is held.
func (l *HostLimit) leave(host string, q *hostQueue) {
	if len(q.waiting) > 0 {
		close(q.waiting[0])
		q.waiting = q.waiting[1:]
		return
	}
	if q.running--; q.running == 0 {
		delete(l.hosts, host)
	}
}
