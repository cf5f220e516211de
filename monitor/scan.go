package monitor

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// joinWithin is how long after the first look of a batch others may join it.
const joinWithin = 50 * time.Millisecond

// Shared lets the sources of one workspace that look together list each directory and read each file once. Each
// walks by itself, so that a directory that does not answer holds only the looks which need it.
// It may be used by several goroutines.
type Shared struct {
	mu      sync.Mutex
	batches map[string]*batch // the newest of each directory that has looks
}

// NewShared is for the sources of one workspace, or of several.
func NewShared() *Shared { return &Shared{batches: map[string]*batch{}} }

// A batch is what looks that began together have seen. It is gone with the last of them.
type batch struct {
	begun    time.Time
	users    int // guarded by Shared.mu
	shared   *Shared
	listings memo[*listing]
	files    memo[*known]
	ignores  memo[ignoreFile]
}

// join is the batch of a look that begins now. One that must see the state of now begins a batch, which others may join.
// The look must leave it.
func (s *Shared) join(dir string, fresh bool) *batch {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batches[dir]
	if b == nil || fresh || time.Since(b.begun) > joinWithin {
		b = &batch{begun: time.Now(), shared: s}
		s.batches[dir] = b
	}
	b.users++
	return b
}

func (s *Shared) leave(dir string, b *batch) {
	if b == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.users--; b.users == 0 && s.batches[dir] == b {
		delete(s.batches, dir)
	}
}

// empty reports whether nobody else is in the batch, nor can be any more: nothing needs to be kept for others.
func (b *batch) empty() bool {
	if b == nil {
		return true
	}
	if time.Since(b.begun) <= joinWithin {
		return false
	}
	b.shared.mu.Lock()
	defer b.shared.mu.Unlock()
	return b.users <= 1
}

// A memo keeps what was got by whoever came first.
type memo[T any] struct {
	mu   sync.Mutex
	gets map[string]*getting[T]
}

type getting[T any] struct {
	done   chan struct{}
	value  T
	err    error
	gaveUp bool // whoever got it had to stop: another may try
}

// get gets what is under key, or waits for whom is getting it. mine says that get was called.
func (m *memo[T]) get(ctx context.Context, key string, get func() (T, error)) (value T, mine bool, err error) {
	for {
		m.mu.Lock()
		g := m.gets[key]
		if g == nil {
			g = &getting[T]{done: make(chan struct{})}
			if m.gets == nil {
				m.gets = map[string]*getting[T]{}
			}
			m.gets[key] = g
			m.mu.Unlock()
			g.value, g.err = get()
			if ctx.Err() != nil {
				g.gaveUp = true
				m.mu.Lock()
				delete(m.gets, key)
				m.mu.Unlock()
			}
			close(g.done)
			return g.value, true, g.err
		}
		m.mu.Unlock()
		select {
		case <-g.done:
			if !g.gaveUp {
				return g.value, false, g.err
			}
		case <-ctx.Done():
			return value, false, ctx.Err()
		}
	}
}

// list lists the directory of p, or takes the listing that another look of the batch has made.
func (l *look) list(p place) (*listing, error) {
	if l.batch.empty() {
		return l.disk.list(l.ctx, p.fd)
	}
	all, _, err := l.batch.listings.get(l.ctx, p.path, func() (*listing, error) { return l.disk.list(l.ctx, p.fd) })
	return all, err
}

// An ignoreFile is the .gitignore of a directory as it was read.
type ignoreFile struct {
	file  known // without a digest
	rules *ignoreRules
}

// rulesIn are the rules of the .gitignore in a directory; nil where there is none. As in git, one that is no regular file
// is none.
func (l *look) rulesIn(p place, r *reader) (*ignoreRules, error) {
	var st unix.Stat_t
	switch err := l.disk.lstatat(p.fd, ignoreName, &st); {
	case err != nil && absent(err), err == nil && !isType(&st, unix.S_IFREG):
		return nil, nil
	case err != nil:
		return nil, err
	}
	last := l.memory.ignores[p.path]
	if sig := signatureOf(&st); last.file.state != trusted || last.file.sig != sig || !l.recent(last.file.read) || l.how.distrust {
		var err error
		if last, err = l.readRules(p, sig); err != nil {
			if absent(err) {
				return nil, nil
			}
			return nil, err
		}
	}
	l.mu.Lock()
	l.ignores[p.path] = last
	l.mu.Unlock()
	return last.rules, nil
}

func (l *look) readRules(p place, sig signature) (ignoreFile, error) {
	read := func() (ignoreFile, error) { return l.disk.readIgnore(l.ctx, p.fd) }
	if l.batch.empty() {
		return read()
	}
	file, mine, err := l.batch.ignores.get(l.ctx, p.path, read)
	if mine || err != nil || file.file.sig == sig {
		return file, err
	}
	return read()
}
