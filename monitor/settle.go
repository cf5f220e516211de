package monitor

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"time"
)

// Bounds of the time between two glimpses while something settles.
const (
	minGlimpse = 20 * time.Millisecond
	maxGlimpse = time.Second
	// coarseness is how much a change time may lag behind the change: a kernel takes it from its last clock tick.
	coarseness = 20 * time.Millisecond
)

// A glimpse is how the files differ from what is remembered, by their signatures alone.
type glimpse struct {
	differs bool
	removed bool      // some of it has gone, of which nothing says when
	newest  time.Time // change time among the rest
	mark    uint64    // two glimpses of one mark show the same
	took    time.Duration
}

// calm decides when what differs has kept still for long enough. It has seen nothing yet when zero but for its bounds.
type calm struct {
	quiet, most time.Duration

	began time.Time // of the first difference
	seen  time.Time // of the last glimpse
	mark  uint64    // of the last glimpse that showed a difference
	last  time.Time // when what that showed came about, at the latest
}

// next judges a glimpse: wait is how long to wait for another; 0 is the end of waiting, and tired says that its bound
// has been reached. What changed long ago by the file system's times is still at once. But what was not there at the
// glimpse before came about after it, whatever those times say; and where they are in the future, or there are none,
// only what was seen counts.
func (c *calm) next(now time.Time, g glimpse) (wait time.Duration, tired bool) {
	before := c.seen
	c.seen = now
	if !g.differs {
		c.mark = 0
		return 0, false
	}
	first := c.began.IsZero()
	if first {
		c.began = now
	}
	if first || c.mark != g.mark {
		c.mark, c.last = g.mark, g.newest.Add(coarseness)
		if c.last.Before(before) {
			c.last = before
		}
		if g.removed || c.last.After(now.Add(coarseness)) {
			c.last = now
		}
	}
	left, over := c.quiet-now.Sub(c.last), c.most-now.Sub(c.began)
	if left <= 0 || over <= 0 {
		return 0, over <= 0
	}
	pace := max(minGlimpse, min(c.quiet/4, maxGlimpse))
	// A big tree is looked at for no more than a third of the time.
	return max(min(pace, left, over), 2*g.took), false
}

// look looks once what changed has settled. A change may begin between the glimpse that found all still and the look:
// so what a look reports must have been the same before it and after. All glimpses compare with what was remembered
// when the first was taken.
func (s *filesSource) look(ctx context.Context, committed Committed, lo LookOptions) (*Observation, error) {
	if s.o.Settle <= 0 {
		return s.lookOnce(ctx, committed, lo, lookHow{})
	}
	w := settling{
		source: s, committed: committed, lo: lo,
		memory: s.remembered(), seed: maphash.MakeSeed(), calm: calm{quiet: s.o.Settle, most: s.o.MaxSettle},
	}
	g, ok := w.glimpse(ctx)
	for {
		tired := false
		for ok {
			var wait time.Duration
			if wait, tired = w.calm.next(s.disk.now(), g); wait <= 0 {
				break
			}
			if err := w.pause(ctx, wait); err != nil {
				return nil, err
			}
			g, ok = w.glimpse(ctx)
		}
		o, err := s.lookOnce(ctx, committed, w.lo, lookHow{takeMoving: tired})
		if err != nil || !ok || tired || !o.Changed {
			return o, err
		}
		before := g.mark
		if g, ok = w.glimpse(ctx); ok && g.mark == before {
			return o, nil
		}
	}
}

func (s *filesSource) remembered() *memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.memory
}

// settling is one wait for files to settle.
type settling struct {
	source    *filesSource
	committed Committed
	lo        LookOptions
	memory    *memory
	seed      maphash.Seed
	calm      calm
}

func (w *settling) pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for %s to settle: %w", w.source.glob.text, stopped(ctx))
	}
}

// glimpse looks without reading. ok is false where nothing could be learnt: the look that follows says why.
func (w *settling) glimpse(ctx context.Context) (g glimpse, ok bool) {
	began := w.source.disk.now()
	ctx, cancel := within(ctx, w.lo.Timeout)
	defer cancel()
	l := w.source.newLook(ctx, lookHow{statOnly: true})
	l.memory = w.memory
	l.base = baseline{mounts: l.memory.mounts}
	l.committed = w.committed
	if len(l.memory.dirs) == 0 && l.load() != nil || w.source.run(l, w.lo.Fresh || w.lo.Unconditional) != nil {
		return glimpse{}, false
	}
	h := &marker{}
	h.SetSeed(w.seed)
	for _, scan := range l.scans {
		for name, k := range scan.all {
			if old := scan.old.find(name); old >= 0 && scan.old.files[old].sig == k.sig {
				continue
			}
			h.add(scan.path, name, &k.sig)
			if t := k.sig.changed(); t.After(g.newest) {
				g.newest = t
			}
			g.differs = true
		}
	}
	for _, path := range l.vanished() {
		h.add("", path, &signature{})
		g.differs, g.removed = true, true
	}
	g.mark, g.took = h.Sum64(), w.source.disk.now().Sub(began)
	w.lo.Fresh = w.lo.Fresh || g.differs // what other looks saw before is of no use from now on
	return g, true
}

// vanished are the files that are remembered, or were committed where nothing is, and are there no more, sorted.
func (l *look) vanished() []string {
	var paths []string
	add := func(path string) {
		if l.selects(path) && !l.inDoubt(path) {
			paths = append(paths, path)
		}
	}
	l.unseen(add)
	for _, d := range l.memory.dirs {
		scan := l.scanOf(d.path)
		for i := range d.files {
			if name := d.name(i); scan.file(name) == nil {
				add(joinPath(d.path, name))
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// marker makes the mark of a glimpse, from what is added in one order.
type marker struct {
	maphash.Hash
	room []byte
}

func (m *marker) add(dir, name string, sig *signature) {
	b := m.room[:0]
	for _, n := range [...]uint64{
		uint64(len(dir)), uint64(len(name)), uint64(sig.size), uint64(sig.mtime), uint64(sig.ctime), sig.inode, sig.device,
	} {
		b = binary.NativeEndian.AppendUint64(b, n)
	}
	m.room = b
	m.Write(b)
	m.WriteString(dir)
	m.WriteString(name)
}
