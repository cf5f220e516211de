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
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// faults stands between a look and the disk. Names are those of one directory entry.
type faults struct {
	mu     sync.Mutex
	names  map[int]string // of descriptors
	open   map[string]error
	stat   map[string]error
	list   map[string]error
	read   map[string]error
	device map[string]uint64            // added to the directory's device number
	before map[string]func(call string) // runs before each lstat, open and list of a name; after each read
}

func withFaults(w *watcher) *faults {
	f := &faults{names: map[int]string{}, open: map[string]error{}, stat: map[string]error{}, list: map[string]error{},
		read: map[string]error{}, device: map[string]uint64{}, before: map[string]func(string){}}
	real := realDisk()
	w.source.files.disk = &disk{
		openat: func(dir int, name string, flags int) (int, error) {
			if err := f.at("open", name, f.open); err != nil {
				return -1, err
			}
			fd, err := real.openat(dir, name, flags)
			f.mu.Lock()
			defer f.mu.Unlock()
			if err == nil {
				f.names[fd] = name
			}
			return fd, err
		},
		fstat: func(fd int, st *unix.Stat_t) error {
			err := real.fstat(fd, st)
			st.Dev += f.deviceOf(f.nameOf(fd))
			return err
		},
		lstatat: func(dir int, name string, st *unix.Stat_t) error {
			if err := f.at("lstat", name, f.stat); err != nil {
				return err
			}
			return real.lstatat(dir, name, st)
		},
		readlinkat: real.readlinkat,
		read: func(fd int, p []byte) (int, error) {
			name := f.nameOf(fd)
			n, err := real.read(fd, p)
			if fault := f.at("read", name, f.read); fault != nil {
				return 0, fault
			}
			return n, err
		},
		list: func(ctx context.Context, fd int) (*listing, error) {
			if err := f.at("list", filepath.Base(f.nameOf(fd)), f.list); err != nil {
				return nil, err
			}
			return real.list(ctx, fd)
		},
		now: real.now,
	}
	return f
}

func (f *faults) at(call, name string, of map[string]error) error {
	f.mu.Lock()
	hook, err := f.before[name], of[name]
	f.mu.Unlock()
	if hook != nil {
		hook(call)
	}
	return err
}

func (f *faults) nameOf(fd int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names[fd]
}

func TestFaultsNeverReadAsRemoved(t *testing.T) {
	for _, errno := range []error{unix.EACCES, unix.EIO, unix.ESTALE, unix.ENOTCONN} {
		for _, tt := range []struct {
			name     string
			fault    func(f *faults)
			degraded string
		}{
			{"opening a directory", func(f *faults) { f.open["sub"] = errno }, "t/sub"},
			{"listing a directory", func(f *faults) { f.list["sub"] = errno }, "t/sub"},
			{"opening a file", func(f *faults) { f.open["b.txt"] = errno }, "t/sub/b.txt"},
			{"reading a file", func(f *faults) { f.read["b.txt"] = errno }, "t/sub/b.txt"},
			{"following a link", func(f *faults) { f.stat["target"] = errno }, "t/link"},
		} {
			t.Run(fmt.Sprintf("%s/%v", tt.name, errno), func(t *testing.T) {
				dir := tree(t, t.TempDir(), "t/a.txt", "a", "t/sub/b.txt", "b", "t/link", "-> ../target", "target", "t")
				w := watchFiles(t, dir, "t/**")
				f := withFaults(w)
				w.expect("+t/a.txt +t/link +t/sub/b.txt")
				tt.fault(f)
				tree(t, dir, "t/a.txt", "A")
				expectDegraded(t, w.expect("~t/a.txt"), tt.degraded+": "+errno.Error())
				expectDegraded(t, w.expect(""), tt.degraded+": "+errno.Error())
				f.open, f.stat, f.list, f.read = nil, nil, nil, nil
				expectDegraded(t, w.expect(""))
			})
		}
	}
}

func TestFaultBeforeTheFirstLook(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "b", "b")
	w := watchFiles(t, dir, "*")
	f := withFaults(w)
	f.read["b"] = unix.EIO
	expectDegraded(t, w.expect("+a"), "b: input/output error")
	f.read = nil
	w.expect("+b")
}

func TestFaultAtTheGlobRoot(t *testing.T) {
	dir := tree(t, t.TempDir(), "t/a", "a")
	w := watchFiles(t, dir, "t/**")
	f := withFaults(w)
	w.poll()
	f.list["t"] = unix.EIO
	if o, err := w.look(); err == nil || err.Error() != "cannot look at t/**: t: input/output error" {
		t.Errorf("got %+v, %v", o, err)
	}
	f.list, f.open["t"] = nil, unix.ESTALE
	if o, err := w.look(); err == nil || !strings.Contains(err.Error(), "t: stale") {
		t.Errorf("got %+v, %v", o, err)
	}
	f.open = nil
	w.expect("")
}

func TestVanishedBetweenListingAndOpening(t *testing.T) {
	dir := tree(t, t.TempDir(), "n", "n", "other", "o")
	vanish := func(w *watcher) {
		withFaults(w).before["n"] = func(call string) {
			if call == "open" {
				os.Remove(filepath.Join(dir, "n"))
			}
		}
	}
	w := watchFiles(t, dir, "*")
	w.poll()
	vanish(w)
	expectDegraded(t, w.expect("-n"))

	tree(t, dir, "n", "n")
	w = watchFiles(t, dir, "*")
	vanish(w)
	expectDegraded(t, w.expect("+other"))
}

// A listing may pass over a name that is just being replaced.
func TestListingThatMissesAName(t *testing.T) {
	dir := tree(t, t.TempDir(), "d/a", "a", "d/b", "b", "d/link", "-> b")
	w := watchFiles(t, dir, "**")
	w.poll()
	real := realDisk()
	w.source.files.disk.list = func(ctx context.Context, fd int) (*listing, error) {
		all, err := real.list(ctx, fd)
		dirs := &listing{}
		for i, kind := range all.kinds {
			if kind == unix.DT_DIR {
				dirs.names, dirs.kinds = append(dirs.names, all.names[i]), append(dirs.kinds, kind)
			}
		}
		return dirs, err
	}
	w.expect("")
	tree(t, dir, "d/b", "B")
	w.expect("~d/b ~d/link")
	must(t, os.Remove(filepath.Join(dir, "d/a")))
	w.expect("-d/a")
}

func TestChangingWhileRead(t *testing.T) {
	dir := tree(t, t.TempDir(), "q", "1111", "other", "o")
	w := watchFiles(t, dir, "*")
	w.poll()
	f := withFaults(w)
	f.before["q"] = func(call string) {
		if call == "read" {
			appendTo(t, filepath.Join(dir, "q"), "2")
		}
	}
	o := w.expect("")
	expectDegraded(t, o, "q: changing while read")
	f.before = nil
	w.expect("~q")
	w.expect("")
}

func appendTo(t *testing.T, path, text string) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Error(err)
	}
}

func TestVanishedMount(t *testing.T) {
	setup := func(t *testing.T, glob string) (*watcher, *faults, string) {
		dir := tree(t, t.TempDir(), "data/x/a", "a", "data/b", "b", "near", "n")
		w := watchFiles(t, dir, glob)
		f := withFaults(w)
		f.device["data"], f.device["x"] = 7, 7
		w.poll()
		f.device = nil
		return w, f, dir
	}
	t.Run("an empty directory is left", func(t *testing.T) {
		w, f, dir := setup(t, "**")
		must(t, os.RemoveAll(filepath.Join(dir, "data")))
		tree(t, dir, "data/", "", "near", "N", "data/below", "hidden by the mount")
		const gone = "data: was a mounted file system and is not one now"
		expectDegraded(t, w.expect("~near"), gone)
		expectDegraded(t, w.expect(""), gone) // the commit in between kept what it knew
		must(t, os.Remove(filepath.Join(dir, "data/below")))
		tree(t, dir, "data/x/a", "a", "data/b", "B")
		f.device = map[string]uint64{"data": 8, "x": 8} // another device number: no change
		expectDegraded(t, w.expect("~data/b"))
	})
	t.Run("the mount point went too", func(t *testing.T) {
		w, _, dir := setup(t, "**")
		must(t, os.RemoveAll(filepath.Join(dir, "data")))
		expectDegraded(t, w.expect(""), "data: was a mounted file system and is not one now")
	})
	t.Run("it was all the glob saw", func(t *testing.T) {
		w, _, dir := setup(t, "data/**")
		must(t, os.RemoveAll(filepath.Join(dir, "data")))
		if o, err := w.look(); err == nil || !strings.Contains(err.Error(), "mounted") {
			t.Errorf("got %+v, %v", o, err)
		}
	})
	t.Run("the workspace is the mount", func(t *testing.T) {
		dir := tree(t, t.TempDir(), "a", "a")
		w := watchFiles(t, dir, "*")
		f := withFaults(w)
		f.device[dir] = 7
		w.poll()
		f.device = nil
		must(t, os.Remove(filepath.Join(dir, "a")))
		if o, err := w.look(); err == nil || !strings.Contains(err.Error(), "mounted") {
			t.Errorf("still there: got %+v, %v", o, err)
		}
		must(t, os.Remove(dir))
		if o, err := w.look(); err == nil {
			t.Errorf("gone: got %+v, want an error", o)
		}
	})
	t.Run("mounted later over the same content", func(t *testing.T) {
		dir := tree(t, t.TempDir(), "data/b", "b")
		w := watchFiles(t, dir, "**")
		f := withFaults(w)
		w.poll()
		f.device["data"] = 7
		if o := w.expect(""); o.Record == nil {
			t.Fatal("no record that knows of the mount")
		}
		f.device = nil
		must(t, os.Remove(filepath.Join(dir, "data/b")))
		w.expect("")
	})
}

func TestLookEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	big, err := os.Create(filepath.Join(dir, "big"))
	must(t, err)
	must(t, big.Truncate(1<<40)) // sparse: reading it would take minutes
	must(t, big.Close())
	s, err := NewFiles(dir, "*", FilesOptions{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	real := realDisk()
	s.files.disk.read = func(fd int, p []byte) (int, error) {
		cancel()
		return real.read(fd, p)
	}
	if _, err := s.Look(ctx, Committed{}, LookOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	s.files.disk.read = real.read
	_, err = s.Look(t.Context(), Committed{}, LookOptions{Timeout: 10 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "cannot look at *: took longer than 10ms") {
		t.Errorf("timed out: got %v", err)
	}
}

// A read from a dead file server does not come back, and no context reaches it.
func TestStuckDisk(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := tree(t, t.TempDir(), "a", "a")
	w := watchFiles(t, dir, "*")
	w.source.files.patience = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	release, real := make(chan struct{}), realDisk()
	w.source.files.disk.read = func(fd int, p []byte) (int, error) {
		cancel() // only once the walk hangs in its read
		<-release
		return real.read(fd, p)
	}
	_, err := w.source.Look(ctx, Committed{}, LookOptions{})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
	if _, err := w.source.Look(t.Context(), Committed{}, LookOptions{Timeout: time.Minute}); err == nil || !strings.Contains(err.Error(), "still waits") {
		t.Errorf("while it hangs: got %v", err)
	}
	close(release)
	for w.source.files.stuck.Load() > 0 {
		time.Sleep(time.Millisecond) // a real goroutine in a real system call: no bubble holds it
	}
	w.expect("+a")
}
