package live

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestEachKindOfEventHints(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "sub/a")
	put(t, root, "sub/b")
	put(t, root, "skip/a")
	log := &lines{}
	l := listen(t, quick(log), everything(root))
	l.quiet()
	for _, tt := range []struct {
		name string
		do   func() error
	}{
		{"write", func() error { put(t, root, "sub/a"); return nil }},
		{"create", func() error { put(t, root, "sub/c"); return nil }},
		{"rename over", func() error { return os.Rename(filepath.Join(root, "sub/c"), filepath.Join(root, "sub/b")) }},
		{"remove", func() error { return os.Remove(filepath.Join(root, "sub/b")) }},
		{"link", func() error { return os.Symlink("a", filepath.Join(root, "sub/l")) }},
		{"truncate", func() error { return os.Truncate(filepath.Join(root, "sub/a"), 0) }},
		{"times", func() error { return os.Chtimes(filepath.Join(root, "sub/a"), time.Time{}, time.Unix(1, 0)) }},
		{"in the root", func() error { put(t, root, "top"); return nil }},
	} {
		began := time.Now()
		must(t, tt.do())
		l.expect(tt.name)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Logf("%s: %s is late; a busy machine, it is to be hoped", tt.name, took)
		}
		l.quiet()
	}
	put(t, root, "skip/a")
	l.none("a directory that is left out")
	if got := log.all(); len(got) > 0 {
		t.Errorf("logged %q", got)
	}
}

func TestNewDirectories(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	l := listen(t, quick(nil), everything(root))
	for i := range 10 {
		dir := fmt.Sprintf("d%d/e/f", i)
		put(t, root, dir, "first") // made and filled before it can be watched
		l.expect("a new directory")
		l.quiet()
		put(t, root, dir, "second")
		l.expect("a file in a new directory")
		l.quiet()
	}
}

func TestRecreatedDirectories(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "a/b/c")
	l := listen(t, quick(nil), everything(root))
	for range 10 {
		must(t, os.RemoveAll(filepath.Join(root, "a")))
		put(t, root, "a/b/c")
		l.expect("a directory made again")
		l.quiet()
		put(t, root, "a/b/c")
		l.expect("a file in it")
		l.quiet()
	}
}

func TestRenamedTrees(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	put(t, root, "a/b/c/file")
	l := listen(t, quick(nil), everything(root))
	l.quiet()
	at := filepath.Join(root, "a")
	for i, to := range []string{
		filepath.Join(root, "z"), filepath.Join(root, "y"), filepath.Join(root, "a"),
		filepath.Join(outside, "a"), filepath.Join(root, "a"), filepath.Join(root, "b"),
	} {
		must(t, os.Rename(at, to))
		at = to
		l.expect(fmt.Sprintf("rename %d", i))
		l.quiet()
		put(t, at, "b/c/file")
		if filepath.Dir(at) == outside {
			l.none("a file in a tree that was moved out")
			continue
		}
		l.expect("a file in a renamed tree")
		l.quiet()
		put(t, at, fmt.Sprintf("b/new%d/file", i))
		l.expect("a new directory in a renamed tree")
		l.quiet()
		put(t, at, fmt.Sprintf("b/new%d/file", i))
		l.expect("a file in it")
		l.quiet()
	}
	// Two that change places, over and over.
	put(t, root, "x/one/file")
	put(t, root, "y/two/file")
	l.quiet()
	for range 10 {
		must(t, os.Rename(filepath.Join(root, "x"), filepath.Join(root, "t")))
		must(t, os.Rename(filepath.Join(root, "y"), filepath.Join(root, "x")))
		must(t, os.Rename(filepath.Join(root, "t"), filepath.Join(root, "y")))
	}
	l.quiet()
	for _, path := range []string{"x/one/file", "y/two/file"} {
		put(t, root, path)
		l.expect(path)
		l.quiet()
	}
}

func TestRootComesAndGoes(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root := filepath.Join(base, "w/x/root")
	l := listen(t, quick(nil), everything(root))
	l.quiet()
	put(t, base, "other")
	l.none("a neighbour of what the root needs")
	for range 5 {
		must(t, os.MkdirAll(root, 0o755))
		l.expect("a root that comes")
		l.quiet()
		put(t, root, "sub/file")
		l.expect("a file in it")
		l.quiet()
		put(t, root, "sub/file")
		l.expect("it again")
		l.quiet()
		must(t, os.RemoveAll(filepath.Join(base, "w")))
		l.expect("a root that goes")
		l.quiet()
	}
	put(t, root, "sub/file")
	l.quiet()
	must(t, os.Rename(root, filepath.Join(base, "old")))
	l.expect("a root with another name")
	put(t, root, "file")
	l.expect("a root made again")
	l.quiet()
	put(t, base, "old/sub/file")
	l.none("the old root")
	put(t, root, "file")
	l.expect("a file in the new root")
}

func TestRootBehindALink(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	put(t, base, "real/sub/file")
	must(t, os.Symlink("real", filepath.Join(base, "link")))
	h := quick(nil)
	one, two := listen(t, h, everything(filepath.Join(base, "real"))), listen(t, h, everything(filepath.Join(base, "link")))
	one.quiet()
	two.quiet()
	put(t, base, "real/sub/file")
	one.expect("the directory itself")
	two.expect("the link")
}

func TestThousandDirectories(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range 1000 {
		put(t, root, fmt.Sprintf("d%d/e%d/file", i%25, i))
	}
	h := quick(nil)
	l := listen(t, h, everything(root))
	l.quiet()
	for i := 0; i < 1000; i += 97 {
		put(t, root, fmt.Sprintf("d%d/e%d/file", i%25, i))
		l.expect("one of a thousand")
		l.quiet()
	}
	if got := len(h.notifier().WatchList()); got != 1026 {
		t.Errorf("%d watches, want 1026", got)
	}
	must(t, os.Rename(root, root+"x"))
	must(t, os.Mkdir(root, 0o755))
	l.expect("another root")
	l.quiet()
	put(t, root, "file")
	l.expect("a file in it")
	if got := len(h.notifier().WatchList()); got != 1 {
		t.Errorf("%d watches are left, want 1", got)
	}
	must(t, os.RemoveAll(root+"x"))
}

func TestStormIsGathered(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := New(nil)
	l := listen(t, h, everything(root))
	l.quiet()
	began := time.Now()
	for i := range 5000 {
		put(t, root, fmt.Sprint("file", i%100))
	}
	l.expect("a storm")
	time.Sleep(2 * h.pace.gather)
	most := int(time.Since(began)/(h.pace.gather)) + 1
	if got := len(l.hints) + 1; got > most {
		t.Errorf("%d hints for 5,000 writes in %s, want at most %d", got, time.Since(began), most)
	}
}

func TestTreesShareOneNotifier(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "a/x")
	put(t, root, "b/x")
	h := quick(nil)
	both, a := listen(t, h, everything(root)), listen(t, h, everything(filepath.Join(root, "a")))
	first := h.notifier()
	both.quiet()
	a.quiet()
	put(t, root, "b/x")
	both.expect("b")
	a.none("another's directory")
	put(t, root, "a/x")
	both.expect("a")
	a.expect("a")
	both.stop()
	a.quiet()
	if h.notifier() != first || len(first.WatchList()) != 1 {
		t.Errorf("%q are watched, want a alone by the same notifier", first.WatchList())
	}
	put(t, root, "a/x")
	a.expect("a, alone")
	a.stop()
	if h.notifier() != nil {
		t.Error("a notifier is open for nobody")
	}
	again := listen(t, h, everything(root))
	again.quiet()
	put(t, root, "a/x")
	again.expect("a hub used again")
}

func TestWatchEndsAtOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i := range 200 {
		put(t, root, fmt.Sprintf("d%d/file", i))
	}
	h := quick(nil)
	for i := range 5 {
		l := listen(t, h, everything(root))
		put(t, root, fmt.Sprintf("d%d/file", i))
		began := time.Now()
		l.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %s to end", took)
		}
	}
}
