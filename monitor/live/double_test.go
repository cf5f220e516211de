package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// double is a notifier whose limits and moods a test sets.
type double struct {
	mu      sync.Mutex
	watched map[string]bool
	most    int              // watches; 0 for no limit
	refuse  map[string]error // by path
	twin    map[string]bool  // taken and never listed
	ev      chan fsnotify.Event
	er      chan error
}

func newDouble() *double {
	return &double{watched: map[string]bool{}, refuse: map[string]error{}, twin: map[string]bool{},
		ev: make(chan fsnotify.Event), er: make(chan error)}
}

func (d *double) Add(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.refuse[dir] != nil:
		return d.refuse[dir]
	case d.twin[dir] || d.watched[dir]:
		return nil
	case d.most > 0 && len(d.watched) >= d.most:
		return unix.ENOSPC
	}
	d.watched[dir] = true
	return nil
}

func (d *double) Remove(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.watched[dir] {
		return fsnotify.ErrNonExistentWatch
	}
	delete(d.watched, dir)
	return nil
}

func (d *double) WatchList() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.watched))
}

func (d *double) Close() error                  { close(d.ev); close(d.er); return nil }
func (d *double) events() <-chan fsnotify.Event { return d.ev }
func (d *double) errors() <-chan error          { return d.er }

func (d *double) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// stage is a hub over a double, and one tree in it of which a test says what it is.
type stage struct {
	*double
	hub   *Hub
	log   *lines
	mu    sync.Mutex
	dirs  []string
	hints int
	openE error
}

func (s *stage) tree(name string) Tree {
	return Tree{
		Name: name, Root: "/no/such/root",
		Dirs: func(_ context.Context, under string, yield func(Dir) bool) {
			s.mu.Lock()
			dirs := slices.Clone(s.dirs)
			s.mu.Unlock()
			for _, d := range dirs {
				if under == "" || d == under || strings.HasPrefix(d, under+"/") {
					if !yield(Dir{Path: d}) {
						return
					}
				}
			}
		},
		Reshapes: func(name string) bool { return name == ".rules" },
	}
}

func onStage(t *testing.T, play func(t *testing.T, s *stage), dirs ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{double: newDouble(), log: &lines{}, dirs: append([]string{""}, dirs...)}
		s.hub = quick(s.log)
		s.hub.pace.gather = 50 * time.Millisecond
		s.hub.open = func() (notifier, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.double, s.openE
		}
		play(t, s)
	})
}

// begin starts one more watch.
func (s *stage) begin(t *testing.T, name string) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		s.hub.Watch(ctx, s.tree(name), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hints++
		})
	})
	synctest.Wait()
	return func() { cancel(); done.Wait() }
}

// took is how many hints came since it was last asked.
func (s *stage) took() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.hints
	s.hints = 0
	return n
}

func (s *stage) expectLog(t *testing.T, want ...string) {
	t.Helper()
	got := s.log.all()
	if len(got) != len(want) {
		t.Fatalf("logged %q, want %d lines", got, len(want))
	}
	for i, line := range got {
		for _, part := range strings.Split(want[i], "…") {
			if !strings.Contains(line, part) {
				t.Errorf("line %d is %q, want it to say %q", i, line, part)
			}
		}
	}
}

func (s *stage) expectWatched(t *testing.T, want ...string) {
	t.Helper()
	for i, dir := range want {
		want[i] = filepath.Join("/no/such/root", dir)
	}
	if diff := cmp.Diff(want, s.WatchList()); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
}

func TestHintsAreGathered(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		defer s.begin(t, "**")()
		if got := s.took(); got != 1 {
			t.Fatalf("%d hints at the start, want 1", got)
		}
		for range 1000 {
			s.ev <- fsnotify.Event{Name: "/no/such/root/file", Op: fsnotify.Write}
		}
		time.Sleep(49 * time.Millisecond)
		if got := s.took(); got != 0 {
			t.Errorf("%d hints after 49 ms, want none yet", got)
		}
		time.Sleep(time.Millisecond)
		if got := s.took(); got != 1 {
			t.Errorf("%d hints after 50 ms, want 1", got)
		}
		time.Sleep(10 * time.Minute)
		if got := s.took(); got != 0 {
			t.Errorf("%d hints in ten quiet minutes", got)
		}
		s.expectLog(t)
	})
}

func TestWatchLimit(t *testing.T) {
	var dirs []string
	for i := range 10 {
		dirs = append(dirs, fmt.Sprint("d", i))
	}
	onStage(t, func(t *testing.T, s *stage) {
		s.most = 5
		defer s.begin(t, "one")()
		defer s.begin(t, "two")()
		s.expectLog(t, "WARN source=one …fs.inotify.max_user_watches…sysctl -w fs.inotify.max_user_watches…no space left on device")
		s.took()
		s.ev <- fsnotify.Event{Name: "/no/such/root/d0/file", Op: fsnotify.Write}
		time.Sleep(time.Second)
		if got := s.took(); got != 2 {
			t.Errorf("%d hints from what is watched, want one for each", got)
		}
		time.Sleep(time.Hour)
		s.expectLog(t, "WARN")
		if got := s.took(); got != 0 {
			t.Errorf("%d hints while the limit stands", got)
		}
		s.set(func() { s.most = 0 })
		time.Sleep(61 * time.Second)
		s.expectLog(t, "WARN", "INFO")
		if got := s.took(); got < 1 || len(s.WatchList()) != 11 {
			t.Errorf("%d hints, %d watched, want hints and 11", got, len(s.WatchList()))
		}
		s.set(func() { s.most, s.dirs = 11, append(s.dirs, "late") })
		s.ev <- fsnotify.Event{Name: "/no/such/root/late", Op: fsnotify.Create}
		time.Sleep(time.Second)
		s.expectLog(t, "WARN", "INFO", "WARN")
	}, dirs...)
}

func TestInstanceLimit(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.openE = fmt.Errorf("couldn't initialize inotify: %w", unix.EMFILE)
		defer s.begin(t, "one")()
		defer s.begin(t, "two")()
		if got := s.took(); got != 2 {
			t.Errorf("%d hints, want the first of each", got)
		}
		time.Sleep(time.Hour)
		s.expectLog(t, "WARN …fs.inotify.max_user_instances")
		s.mu.Lock()
		s.openE = nil
		s.mu.Unlock()
		time.Sleep(61 * time.Second)
		s.expectLog(t, "WARN", "INFO")
		if got := s.took(); got < 1 {
			t.Error("no hint after what was not watched for an hour")
		}
		s.expectWatched(t, "", "a")
	}, "a")
}

func TestOverflow(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		defer s.begin(t, "**")()
		s.took()
		s.mu.Lock()
		s.dirs = append(s.dirs, "missed")
		s.mu.Unlock()
		for range 100 {
			s.er <- fsnotify.ErrEventOverflow
		}
		time.Sleep(50 * time.Millisecond)
		if got := s.took(); got != 1 {
			t.Errorf("%d hints, want 1", got)
		}
		s.expectWatched(t, "", "missed")
		s.expectLog(t, "WARN limit=fs.inotify.max_queued_events")
		for range 10 {
			time.Sleep(30 * time.Second)
			s.er <- fsnotify.ErrEventOverflow
		}
		synctest.Wait()
		s.expectLog(t, "WARN")
		time.Sleep(2 * time.Minute)
		s.expectLog(t, "WARN", "INFO after=overflow")
	})
}

func TestFailingNotifier(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		defer s.begin(t, "**")()
		s.took()
		s.er <- errors.New("short read")
		time.Sleep(time.Second)
		s.expectLog(t, "WARN error=short read")
		if got := s.took(); got != 1 {
			t.Errorf("%d hints, want 1", got)
		}
	})
}

// fsnotify drops the watches of a file system that was unmounted, and says nothing.
func TestUnmounted(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		defer s.begin(t, "**")()
		s.took()
		s.set(func() { delete(s.watched, "/no/such/root/mnt"); delete(s.watched, "/no/such/root/mnt/sub") })
		s.mu.Lock()
		s.dirs = []string{"", "mnt", "other"}
		s.mu.Unlock()
		time.Sleep(21 * time.Second)
		if got := s.took(); got != 1 {
			t.Errorf("%d hints, want 1", got)
		}
		s.expectWatched(t, "", "mnt", "other")
		s.expectLog(t, "WARN directory=/no/such/root/mnt")
		time.Sleep(2 * time.Minute)
		s.expectLog(t, "WARN", "INFO after=lost")
	}, "mnt", "mnt/sub", "other")
}

func TestRefusedDirectory(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.refuse["/no/such/root/secret"] = unix.EACCES
		s.refuse["/no/such/root/secret2"] = unix.EACCES
		s.refuse["/no/such/root/vanished"] = unix.ENOENT
		defer s.begin(t, "**")()
		time.Sleep(time.Hour)
		s.expectWatched(t, "", "a")
		s.expectLog(t, "WARN source=** directory=/no/such/root/secret more=1 error=permission denied")
		s.took()
		s.set(func() { clear(s.refuse) })
		time.Sleep(61 * time.Second)
		s.expectLog(t, "WARN", "INFO source=**")
		if got := s.took(); got != 1 {
			t.Errorf("%d hints, want 1", got)
		}
	}, "a", "secret", "secret2", "vanished")
}

// A directory that is mounted at a second place has one watch, under the first name.
func TestOneDirectoryTwoNames(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.twin["/no/such/root/bind"] = true
		defer s.begin(t, "**")()
		s.took()
		time.Sleep(time.Hour)
		s.expectLog(t, "WARN source=** directory=/no/such/root/bind")
		if got := s.took(); got != 0 {
			t.Errorf("%d hints in a quiet hour", got)
		}
	}, "a", "bind")
}

func TestRulesChangeWhatIsWatched(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		defer s.begin(t, "**")()
		s.expectWatched(t, "", "build", "build/deep", "src")
		s.took()
		s.mu.Lock()
		s.dirs = []string{"", "src"}
		s.mu.Unlock()
		s.ev <- fsnotify.Event{Name: "/no/such/root/.rules", Op: fsnotify.Write}
		time.Sleep(time.Second)
		s.expectWatched(t, "", "src")
		if got := s.took(); got != 1 {
			t.Errorf("%d hints, want 1", got)
		}
		s.expectLog(t)
	}, "build", "build/deep", "src")
}

func TestManyMarksAreOneRound(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.hub.pace.dirties = 10
		defer s.begin(t, "**")()
		s.took()
		s.mu.Lock()
		s.dirs = append(s.dirs, "new")
		s.mu.Unlock()
		for i := range 20 {
			s.ev <- fsnotify.Event{Name: fmt.Sprint("/no/such/root/", i), Op: fsnotify.Create}
		}
		time.Sleep(time.Second)
		s.expectWatched(t, "", "new")
		if got := s.took(); got != 1 {
			t.Errorf("%d hints, want 1", got)
		}
	})
}

func TestSlowRoundHintsEarly(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		slow := false
		tree := s.tree("**")
		dirs := tree.Dirs
		tree.Dirs = func(ctx context.Context, under string, yield func(Dir) bool) {
			dirs(ctx, under, func(d Dir) bool {
				if slow {
					time.Sleep(time.Second)
				}
				return yield(d)
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { s.hub.Watch(ctx, tree, func() { s.mu.Lock(); s.hints++; s.mu.Unlock() }) })
		s.took()
		slow = true
		s.ev <- fsnotify.Event{Name: "/no/such/root/a", Op: fsnotify.Create}
		time.Sleep(1100 * time.Millisecond)
		if got := s.took(); got != 1 {
			t.Errorf("%d hints after the first of five slow directories, want 1", got)
		}
		time.Sleep(10 * time.Second)
		if got := s.took(); got != 1 {
			t.Errorf("%d hints at the end, want 1", got)
		}
		cancel()
		done.Wait()
	}, "a", "a/b", "a/c", "a/d", "a/e")
}
