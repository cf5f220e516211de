package monitor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"marbles/state"
)

const (
	defaultReread   = 7 * 24 * time.Hour
	settleQuietness = 10 // MaxSettle is so many times Settle, where it is not given
)

// filesSource is what a files monitor watches.
type filesSource struct {
	dir           string // absolute
	glob, exclude *glob
	o             FilesOptions
	disk          *disk
	patience      time.Duration // how long an ended look may take to notice
	stuck         atomic.Int32  // looks that were given up and still hang in a system call

	mu     sync.Mutex // guards what follows
	memory *memory    // never nil, and never changed: replaced
	fresh  bool       // there is something in it that Cache has not given out
}

func newFiles(dir, pattern string, o FilesOptions) (*filesSource, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", pattern, err)
	}
	g, err := compileGlob(pattern)
	if err != nil {
		return nil, err
	}
	out := &glob{}
	for _, text := range o.Exclude {
		e, err := compileGlob(text)
		if err != nil {
			return nil, fmt.Errorf("exclude: %w", err)
		}
		out.alts = append(out.alts, e.alts...)
	}
	if o.Reread <= 0 {
		o.Reread = defaultReread
	}
	if o.MaxSettle <= 0 {
		o.MaxSettle = settleQuietness * o.Settle
	}
	return &filesSource{
		dir: dir, glob: g, exclude: out, o: o, disk: realDisk(), patience: time.Second, memory: &memory{},
	}, nil
}

// lookOnce looks, and remembers what it read: also where it failed, so that a tree that takes longer than one look may
// take is read bit by bit.
func (s *filesSource) lookOnce(ctx context.Context, committed Committed, lo LookOptions, how lookHow) (*Observation, error) {
	ctx, cancel := within(ctx, lo.Timeout)
	defer cancel()
	how.distrust = how.distrust || lo.Unconditional
	l := s.newLook(ctx, how)
	l.committed = committed
	if m := l.memory; m.settled && m.stamp == committed.Stamp {
		l.base = baseline{memory: m, mounts: m.mounts}
	} else if err := l.load(); err != nil {
		return nil, err
	}
	if err := s.run(l, lo.Fresh || lo.Unconditional); err != nil {
		return nil, err
	}
	degraded := l.degraded()
	if !l.learnt.Load() && len(l.unknown) > 0 {
		return nil, fmt.Errorf("cannot look at %s: %s", s.glob.text, strings.Join(degraded, "; "))
	}
	o := &Observation{}
	next := l.nextMemory(true)
	if l.calm {
		o.Summary = summary(0, 0, 0, next.count())
		next.settled = true
	} else {
		var err error
		if o, err = l.observe(); err != nil {
			return nil, err
		}
		next.settled = o.Record == nil && next.hold(l.base.files)
	}
	next.stamp, next.mounts = committed.Stamp, l.base.mounts
	next.settled = next.settled && committed.Stamp != state.FileStamp{}
	s.remember(l.memory, next)
	o.Degraded = degraded
	lo.Log.Debug("looked at files", "source", s.glob.text, "unknown", len(l.unknown), "changed", o.Changed, "loaded", !l.calm)
	return o, nil
}

func (s *filesSource) newLook(ctx context.Context, how lookHow) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &look{
		ctx: ctx, disk: s.disk, dir: s.dir, glob: s.glob, exclude: s.exclude, honour: !s.o.NoIgnore,
		names: sync.OnceValue(func() []string {
			if real, err := filepath.EvalSymlinks(s.dir); err == nil && real != s.dir {
				return []string{s.dir, real}
			}
			return []string{s.dir}
		}),
		memory:  s.memory,
		now:     s.disk.now(),
		reread:  s.o.Reread,
		how:     how,
		mounts:  map[string]bool{},
		notes:   map[string]string{},
		unknown: map[string]error{},
		moving:  map[string]int{},
		ignores: map[string]ignoreFile{},
	}
}

// run walks in a goroutine of its own, because a read from a dead file server can
// hang for good and no context reaches it. Such a walk is left behind, at most one per
// source: its goroutines end when the system call does, and until then every look of
// this source fails at once.
func (s *filesSource) run(l *look, fresh bool) error {
	if l.ctx.Err() != nil {
		return fmt.Errorf("cannot look at %s: %w", s.glob.text, stopped(l.ctx))
	}
	if s.stuck.Load() > 0 {
		return fmt.Errorf("cannot look at %s: the look before still waits for the file system below %s", s.glob.text, s.dir)
	}
	l.batch = s.o.Shared.join(s.dir, fresh)
	defer s.o.Shared.leave(s.dir, l.batch)
	ended := make(chan error, 1)
	go func() { ended <- l.walk() }() // waited for below, or left behind as said above
	var err error
	select {
	case err = <-ended:
	case <-l.ctx.Done():
		patience := time.NewTimer(s.patience)
		defer patience.Stop()
		select {
		case err = <-ended:
		case <-patience.C:
			s.stuck.Add(1)
			go func() { // ends with the walk
				<-ended
				s.stuck.Add(-1)
			}()
			return fmt.Errorf("cannot look at %s: the file system below %s does not answer: %w", s.glob.text, s.dir, stopped(l.ctx))
		}
	}
	if err == nil {
		return nil
	}
	if !l.how.statOnly {
		s.remember(l.memory, l.nextMemory(false))
	}
	switch {
	case l.failed != nil:
		return l.failed
	case l.ctx.Err() != nil:
		return fmt.Errorf("cannot look at %s: %w", s.glob.text, stopped(l.ctx))
	}
	return fmt.Errorf("cannot look at %s: %s: %w", s.glob.text, s.dir, err)
}

// remember replaces what is remembered. Of two looks at once the later to end is right in its own way: each knows only
// what it saw.
func (s *filesSource) remember(before, next *memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory = next
	s.fresh = s.fresh || !slices.Equal(before.dirs, next.dirs)
}

// maxDegraded bounds Observation.Degraded.
const maxDegraded = 10

// degraded lists what could not be seen, sorted by path; the last line counts what
// there is no room for.
func (l *look) degraded() []string {
	if len(l.unknown) == 0 && len(l.notes) == 0 {
		return nil
	}
	texts := map[string]string{}
	for path, err := range l.unknown {
		texts[path] = describe(path, reason(err))
	}
	for path, note := range l.notes {
		texts[path] = describe(path, note)
	}
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		lines = append(lines, texts[path])
	}
	if len(lines) > maxDegraded {
		more := len(lines) - (maxDegraded - 1)
		lines = append(lines[:maxDegraded-1], fmt.Sprintf("and %d more", more))
	}
	return lines
}
