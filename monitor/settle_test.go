package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestCalm(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	type step struct {
		now   int
		g     glimpse
		wait  time.Duration
		tired bool
	}
	const ms = time.Millisecond
	nothing := glimpse{}
	changed := func(mark uint64, ctime int) glimpse { return glimpse{differs: true, mark: mark, newest: at(ctime)} }
	removed := func(mark uint64) glimpse { return glimpse{differs: true, removed: true, mark: mark, newest: at(-9999)} }
	slow := changed(1, 0)
	slow.took = 300 * ms
	for _, tt := range []struct {
		name        string
		quiet, most time.Duration
		steps       []step
	}{
		{"nothing differs", time.Second, 10 * time.Second, []step{{0, nothing, 0, false}}},
		{"changed long ago", time.Second, 10 * time.Second, []step{{0, changed(1, -2000), 0, false}}},
		{"changed just now", time.Second, 10 * time.Second, []step{
			{0, changed(1, 0), 250 * ms, false}, {250, changed(1, 0), 250 * ms, false}, {500, changed(1, 0), 250 * ms, false},
			{750, changed(1, 0), 250 * ms, false}, {1000, changed(1, 0), 20 * ms, false}, {1020, changed(1, 0), 0, false},
		}},
		{"changed a little ago", time.Second, 10 * time.Second, []step{{0, changed(1, -900), 120 * ms, false}, {120, changed(1, -900), 0, false}}},
		{"went away", time.Second, 10 * time.Second, []step{{0, changed(1, 0), 250 * ms, false}, {250, nothing, 0, false}}},
		{"removed: nothing says when", time.Second, 10 * time.Second, []step{{0, removed(1), 250 * ms, false}, {999, removed(1), ms, false}, {1000, removed(1), 0, false}}},
		{"times in the future", time.Second, 10 * time.Second, []step{{0, changed(1, 99999), 250 * ms, false}, {1000, changed(1, 99999), 0, false}}},
		{"never still", time.Second, 3 * time.Second, []step{
			{0, changed(1, 0), 250 * ms, false}, {1000, changed(2, 1000), 250 * ms, false}, {2900, changed(3, 2900), 100 * ms, false}, {3000, changed(4, 3000), 0, true},
		}},
		{"still at the bound", time.Second, 3 * time.Second, []step{{0, changed(1, 0), 250 * ms, false}, {3000, changed(2, 1500), 0, true}}},
		{"file system's clock lags", time.Second, 10 * time.Second, []step{{0, changed(1, -5000), 0, false}, {100, changed(2, -4900), 250 * ms, false}, {1000, changed(2, -4900), 0, false}}},
		{"pace of a short settle", 40 * ms, time.Second, []step{{0, changed(1, 0), 20 * ms, false}}},
		{"pace of a long settle", time.Minute, time.Hour, []step{{0, changed(1, 0), time.Second, false}}},
		{"pace of a big tree", time.Second, time.Hour, []step{{0, slow, 600 * ms, false}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := calm{quiet: tt.quiet, most: tt.most}
			for i, s := range tt.steps {
				if wait, tired := c.next(at(s.now), s.g); wait != s.wait || tired != s.tired {
					t.Errorf("step %d: got %s, %v, want %s, %v", i, wait, tired, s.wait, s.tired)
				}
			}
		})
	}
}

// clockwork gives files times of the test's own clock, which stands still while nobody sleeps.
type clockwork struct {
	*watcher
	dir   string
	t     *testing.T // hides the watcher's
	began time.Time
	mu    sync.Mutex
	times map[string]time.Time // by name in its directory
	names map[int]string       // of descriptors
	hook  func(call, name string)
}

func (c *clockwork) at(call, name string, st *unix.Stat_t) {
	c.mu.Lock()
	hook, changed := c.hook, c.times[name]
	c.mu.Unlock()
	if hook != nil {
		hook(call, name)
	}
	if st != nil && !changed.IsZero() {
		st.Mtim = unix.NsecToTimespec(changed.UnixNano())
		st.Ctim = st.Mtim
	}
}

// touch says that a file changed now.
func (c *clockwork) touch(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[filepath.Base(path)] = time.Now()
}

func (c *clockwork) write(path, content string) {
	c.t.Helper()
	c.touch(path)
	tree(c.t, c.dir, path, content)
}

func (c *clockwork) append(path string, size int) {
	c.t.Helper()
	c.touch(path)
	appendTo(c.t, filepath.Join(c.dir, path), strings.Repeat("x", size))
}

func (c *clockwork) remove(path string) {
	c.t.Helper()
	must(c.t, os.RemoveAll(filepath.Join(c.dir, path)))
}

func (c *clockwork) elapsed() time.Duration { return time.Since(c.began) }

func (c *clockwork) disk() *disk {
	real := realDisk()
	d := *real
	d.now = time.Now
	d.openat = func(dir int, name string, flags int) (int, error) {
		fd, err := real.openat(dir, name, flags)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.names[fd] = name
		return fd, err
	}
	d.fstat = func(fd int, st *unix.Stat_t) error {
		c.mu.Lock()
		name := c.names[fd]
		c.mu.Unlock()
		err := real.fstat(fd, st)
		c.at("fstat", name, st)
		return err
	}
	d.lstatat = func(dir int, name string, st *unix.Stat_t) error {
		err := real.lstatat(dir, name, st)
		c.at("lstat", name, st)
		return err
	}
	d.read = func(fd int, p []byte) (int, error) {
		c.mu.Lock()
		name := c.names[fd]
		c.mu.Unlock()
		n, err := real.read(fd, p)
		c.at("read", name, nil)
		return n, err
	}
	return &d
}

// whileSettling runs a test under a clock of its own, on files that were committed two hours after they were written.
func whileSettling(t *testing.T, o FilesOptions, play func(t *testing.T, c *clockwork), files ...string) {
	t.Helper()
	dir := tree(t, t.TempDir(), files...)
	synctest.Test(t, func(t *testing.T) {
		source, err := NewFiles(dir, "**", o)
		must(t, err)
		c := &clockwork{t: t, watcher: &watcher{t: t, source: source}, dir: dir, times: map[string]time.Time{}, names: map[int]string{}}
		for i := 0; i < len(files); i += 2 {
			c.touch(files[i])
		}
		source.files.disk = c.disk()
		time.Sleep(2 * time.Hour)
		before := time.Now()
		c.poll()
		if took := time.Since(before); took > 0 {
			t.Errorf("what was still for two hours took %s", took)
		}
		c.began = time.Now()
		play(t, c)
	})
}

// event is one change as a poll saw it.
type event struct {
	at   time.Duration
	what string
	sums []string
}

// pollFor polls each every for some time, commits, and returns the events.
func (c *clockwork) pollFor(long, every time.Duration) []event {
	c.t.Helper()
	var events []event
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(every) {
		o := c.poll()
		if !o.Changed {
			continue
		}
		e := event{at: c.elapsed(), what: eventsOf(c.t, o)}
		for _, f := range append(changeOf(c.t, o).Added, changeOf(c.t, o).Modified...) {
			e.sums = append(e.sums, f.Checksum)
		}
		events = append(events, e)
	}
	return events
}

func (c *clockwork) expectOne(got []event, what string, from, to time.Duration) {
	c.t.Helper()
	if len(got) != 1 || got[0].what != what || got[0].at < from || got[0].at > to {
		c.t.Errorf("got %+v, want %q alone, from %s to %s", got, what, from, to)
	}
}

// A slow copy is one event, of the whole file (settle 1 s, poll 200 ms).
func TestSlowCopy(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		go func() { // ends before the polling
			c.write("big", "")
			for range 5 {
				time.Sleep(300 * time.Millisecond)
				c.append("big", 8192)
			}
		}()
		got := c.pollFor(10*time.Second, 200*time.Millisecond)
		const last = 1500 * time.Millisecond
		c.expectOne(got, "~big", last+time.Second, last+1600*time.Millisecond)
		if want := hashOf([]byte(strings.Repeat("x", 40_960))); len(got) == 1 && got[0].sums[0] != want {
			t.Errorf("digest %s, want that of 40,960 bytes", got[0].sums[0])
		}
	}, "big", "before")
}

func TestCopyOfManyFiles(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second, MaxSettle: time.Minute}, func(t *testing.T, c *clockwork) {
		go func() { // ends before the polling
			for i := range 60 {
				c.write(fmt.Sprintf("sub%d/f%02d", i%7, i), "x")
				time.Sleep(100 * time.Millisecond)
			}
		}()
		got := c.pollFor(20*time.Second, 5*time.Second)
		if len(got) != 1 || strings.Count(got[0].what, "+") != 60 || strings.ContainsAny(got[0].what, "~-") {
			t.Errorf("got %+v, want 60 added at once", got)
		}
	}, "other", "x")
}

func TestBusyLog(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second, MaxSettle: 5 * time.Second}, func(t *testing.T, c *clockwork) {
		ctx, cancel := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for ctx.Err() == nil {
				c.append("log", 100)
				time.Sleep(100 * time.Millisecond)
			}
		})
		got := c.pollFor(29*time.Second, 100*time.Millisecond)
		cancel()
		writer.Wait()
		if len(got) != 6 {
			t.Fatalf("%d events in 30 s, want 6: %+v", len(got), got)
		}
		for i, e := range got {
			if want := time.Duration(i+1) * 5 * time.Second; e.at < want || e.at > want+time.Second {
				t.Errorf("event %d after %s, want about %s", i, e.at, want)
			}
		}
	}, "log", "")
}

// A file that changes each time it is read has the digest of what it held when it was opened.
func TestTiredOfWaiting(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second, MaxSettle: 3 * time.Second}, func(t *testing.T, c *clockwork) {
		size, busy := 4, true
		c.hook = func(call, name string) {
			if name == "log" && call == "read" && busy {
				c.append("log", 10)
			}
			if name == "log" && call == "lstat" && busy {
				size += 10
				c.append("log", 10)
			}
		}
		c.append("log", 1)
		size++
		o := c.poll()
		if got := eventsOf(t, o); got != "~log" || c.elapsed() < 3*time.Second || c.elapsed() > 4*time.Second {
			t.Fatalf("got %q after %s, want ~log after 3 s", got, c.elapsed())
		}
		if got, want := changeOf(t, o).Modified[0].Checksum, hashOf([]byte("abcd"+strings.Repeat("x", size-4))); got != want {
			t.Errorf("digest %s, want that of %d bytes", got, size)
		}
		busy = false
		c.expect("~log") // what was added while it was read
		c.expect("")
	}, "log", "abcd")
}

func TestTruncatedThenRewritten(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		go func() { // ends before the polling
			time.Sleep(50 * time.Millisecond)
			c.write("conf", "")
			time.Sleep(900 * time.Millisecond)
			c.write("conf", "new")
		}()
		got := c.pollFor(5*time.Second, 20*time.Millisecond)
		c.expectOne(got, "~conf", 1950*time.Millisecond, 2100*time.Millisecond)
		if len(got) == 1 && got[0].sums[0] != hashOf([]byte("new")) {
			t.Error("the digest is not that of the new content")
		}
	}, "conf", "old")
}

// What begins to change between the last glimpse and the look is waited for too.
func TestChangeWhileTheLookReads(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		var writer sync.WaitGroup
		c.hook = func(call, name string) {
			if call != "read" || name != "conf" {
				return
			}
			c.mu.Lock()
			c.hook = nil
			c.mu.Unlock()
			c.write("data", "")
			writer.Go(func() {
				time.Sleep(600 * time.Millisecond)
				c.write("data", "whole")
			})
		}
		c.write("conf", "new")
		time.Sleep(5 * time.Second)
		o := c.expect("~conf ~data")
		if got := changeOf(t, o).Modified[1].Checksum; got != hashOf([]byte("whole")) {
			t.Error("the digest is not that of the whole content")
		}
		if got := c.elapsed(); got < 6600*time.Millisecond || got > 7*time.Second {
			t.Errorf("reported after %s, want a second after 5.6 s", got)
		}
		writer.Wait()
		c.expect("")
	}, "conf", "old", "data", "before")
}

// A change that a handler did not take is reported again, and does not settle anew.
func TestReportedAgainAtOnce(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		c.write("conf", "new")
		first := c.mustLook()
		before := c.elapsed()
		again := c.mustLook()
		if took := c.elapsed() - before; took > 0 || string(first.Change) != string(again.Change) {
			t.Errorf("got %s after %s, want %s at once", again.Change, took, first.Change)
		}
	}, "conf", "old")
}

func TestWhatGoesAwayWhileItSettles(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		go func() { // ends before the polling
			c.write("t.tmp", "x")
			c.write("conf", "other")
			time.Sleep(500 * time.Millisecond)
			c.remove("t.tmp")
			c.write("conf", "old")
		}()
		if got := c.pollFor(10*time.Second, 100*time.Millisecond); len(got) > 0 {
			t.Errorf("got %+v, want nothing", got)
		}
	}, "conf", "old")
}

func TestRemovalsSettle(t *testing.T) {
	var files []string
	for i := range 20 {
		files = append(files, fmt.Sprintf("d/f%02d", i), "x")
	}
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		go func() { // ends before the polling
			for i := range 20 {
				c.remove(fmt.Sprintf("d/f%02d", i))
				time.Sleep(200 * time.Millisecond)
			}
			c.remove("d")
		}()
		got := c.pollFor(20*time.Second, 100*time.Millisecond)
		if len(got) != 1 || strings.Count(got[0].what, "-d/f") != 20 {
			t.Errorf("got %+v, want 20 removed at once", got)
		}
	}, append(files, "stays", "x")...)
}

// Where nothing is remembered, as after a restart, what was committed says what has gone.
func TestRemovalsSettleAfterARestart(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		c.source.files.memory = &memory{}
		go func() { // ends before the polling
			c.remove("a")
			time.Sleep(500 * time.Millisecond)
			c.remove("b")
		}()
		c.expectOne(c.pollFor(5*time.Second, 100*time.Millisecond), "-a -b", 1400*time.Millisecond, 2*time.Second)
	}, "a", "x", "b", "x", "c", "x")
}

func TestSettlingEndsWithItsContext(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Hour}, func(t *testing.T, c *clockwork) {
		c.write("a", "new")
		ctx, cancel := context.WithTimeout(c.t.Context(), 90500*time.Millisecond)
		defer cancel()
		_, err := c.source.Look(ctx, c.committed(), LookOptions{Timeout: time.Second})
		if !errors.Is(err, context.DeadlineExceeded) || c.elapsed() != 90500*time.Millisecond {
			t.Errorf("got %v after %s", err, c.elapsed())
		}
		if want := "cannot wait for ** to settle: "; !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
		o, err := c.source.Look(c.t.Context(), c.committed(), LookOptions{Timeout: time.Second})
		if err != nil || eventsOf(c.t, o) != "~a" {
			t.Errorf("the timeout is for one look, not for the waiting: got %v", err)
		}
	}, "a", "old")
}

func TestGlimpsesOfABigTree(t *testing.T) {
	whileSettling(t, FilesOptions{Settle: time.Second}, func(t *testing.T, c *clockwork) {
		glimpses := 0
		c.hook = func(call, name string) {
			if name == "a" && call == "lstat" {
				glimpses++
				time.Sleep(500 * time.Millisecond)
			}
		}
		c.write("a", "new")
		c.expect("~a")
		if glimpses > 4 { // two, the look itself, and one after it
			t.Errorf("%d glimpses of half a second each in %s", glimpses, c.elapsed())
		}
	}, "a", "old")
}

// The same with the system's own clock and times.
func TestSettlingOnARealDisk(t *testing.T) {
	dir := tree(t, t.TempDir(), "big", "")
	source, err := NewFiles(dir, "*", FilesOptions{Settle: 300 * time.Millisecond})
	must(t, err)
	w := &watcher{t: t, source: source}
	w.expect("+big")
	var last time.Time
	var writer sync.WaitGroup
	writer.Go(func() {
		for range 5 {
			appendTo(t, filepath.Join(dir, "big"), strings.Repeat("x", 8192))
			last = time.Now()
			time.Sleep(60 * time.Millisecond)
		}
	})
	for events := 0; events == 0; time.Sleep(20 * time.Millisecond) {
		o := w.poll()
		if !o.Changed {
			continue
		}
		events++
		writer.Wait()
		if took := time.Since(last); took < 300*time.Millisecond {
			t.Errorf("fired %s after the last write", took)
		}
		if got, want := changeOf(t, o).Modified[0].Checksum, hashOf([]byte(strings.Repeat("x", 40_960))); got != want {
			t.Errorf("digest %s, want that of 40,960 bytes", got)
		}
	}
	w.expect("")
}
