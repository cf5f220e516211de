package monitor

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// counts stands between looks and the disk, counts what they do, and has a clock of its own.
type counts struct {
	mu     sync.Mutex
	names  map[int]string // of directories' descriptors
	reads  map[string]int // files opened to be read
	lists  map[string]int // directories listed
	offset time.Duration  // added to the clock

	stat func(st *unix.Stat_t) // changes what is seen of regular files
}

// withCounts counts for several watchers together. Their clocks are an hour late, so that nothing they see is racy.
func withCounts(ws ...*watcher) *counts {
	c := &counts{names: map[int]string{}, reads: map[string]int{}, lists: map[string]int{}, offset: time.Hour}
	for _, w := range ws {
		w.source.files.disk = c.disk()
	}
	return c
}

func (c *counts) disk() *disk {
	d, real := realDisk(), realDisk()
	d.openat = func(dir int, name string, flags int) (int, error) {
		fd, err := real.openat(dir, name, flags)
		c.mu.Lock()
		defer c.mu.Unlock()
		if flags&unix.O_NONBLOCK != 0 {
			c.reads[name]++
		} else if err == nil {
			c.names[fd] = filepath.Base(name)
		}
		return fd, err
	}
	d.list = func(ctx context.Context, fd int) (*listing, error) {
		c.mu.Lock()
		c.lists[c.names[fd]]++
		c.mu.Unlock()
		return real.list(ctx, fd)
	}
	see := func(st *unix.Stat_t, err error) error {
		if err == nil && c.stat != nil && isType(st, unix.S_IFREG) {
			c.stat(st)
		}
		return err
	}
	d.fstat = func(fd int, st *unix.Stat_t) error { return see(st, real.fstat(fd, st)) }
	d.lstatat = func(dir int, name string, st *unix.Stat_t) error { return see(st, real.lstatat(dir, name, st)) }
	d.now = func() time.Time { return time.Now().Add(c.offset) }
	return d
}

// expectReads checks how many files were read since it was called last.
func (c *counts) expectReads(t *testing.T, want int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := 0
	for _, n := range c.reads {
		got += n
	}
	if got != want {
		t.Fatalf("files read: got %d %v, want %d", got, c.reads, want)
	}
	clear(c.reads)
}
