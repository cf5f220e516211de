package monitor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// watched is a source of the model with what it should say.
type watched struct {
	*watcher
	glob    string
	options FilesOptions
	patient bool
	truth   *naive
	files   map[string]string // committed

	pending *Observation      // looked at and not yet committed; nil for none
	err     error             // of that look
	after   map[string]string // what is committed with it
	caches  [][]byte
}

func (m *model) watch(rt *rapid.T, shared *Shared) *watched {
	globs := []string{"**", "**", "**/*.md", "*", "a/**", "{a,d}/**/*.md", "a/b.md", "?/**", "**/d/*", "{a/**,**/[b-d]*}"}
	w := &watched{
		watcher: &watcher{t: m.t},
		glob:    rapid.SampledFrom(globs).Draw(rt, "glob"),
		options: FilesOptions{NoIgnore: rapid.IntRange(0, 3).Draw(rt, "no ignore") == 0, Shared: shared},
		patient: m.patient,
		files:   map[string]string{},
	}
	if rapid.Bool().Draw(rt, "excluding") {
		w.options.Exclude = []string{"a/d/**"}
	}
	g, err := compileGlob(w.glob)
	must(m.t, err)
	w.truth = &naive{t: m.t, dir: m.dir, glob: g, exclude: w.options.Exclude, honour: !w.options.NoIgnore}
	w.restart()
	return w
}

func (w *watched) restart() {
	source, err := NewFiles(w.truth.dir, w.glob, w.options)
	must(w.t, err)
	if w.patient {
		source.files.disk.now = func() time.Time { return time.Now().Add(10 * time.Second) }
	}
	w.source = source
}

// judge compares a look with the model. A look may fail where there was nothing to see.
func (w *watched) judge(rt *rapid.T) {
	w.truth.look()
	if w.err != nil {
		_, gone := os.Lstat(w.truth.dir)
		if len(w.truth.files) > 0 || len(w.truth.unknown) == 0 && (gone == nil || len(w.files) > 0) {
			rt.Fatalf("glob %s: %v", w.glob, w.err)
		}
		return
	}
	o := w.pending
	got := eventsOf(w.t, o)
	var want string
	want, w.after = w.truth.next(w.files, got)
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("glob %s, exclude %v, no ignore %v, degraded %q (-model +look):\n%s", w.glob, w.options.Exclude, w.options.NoIgnore, o.Degraded, diff)
	}
	degraded := slices.ContainsFunc(o.Degraded, func(d string) bool { return !strings.HasSuffix(d, "behind links") })
	if degraded && len(w.truth.unknown) == 0 {
		rt.Fatalf("degraded: %q", o.Degraded)
	}
	for path := range w.files {
		if w.after[path] != "" && w.truth.fate(path) == "unknown" && !degraded {
			rt.Fatalf("%q cannot be seen, and degraded is %q", path, o.Degraded)
		}
	}
}

// succeed is a handler that succeeded, maybe long after the look. Where there was none
// to run, a record may be committed too.
func (w *watched) succeed(rt *rapid.T) {
	if w.pending == nil {
		return
	}
	if w.pending.Record != nil {
		w.commit(w.pending)
		w.files = w.after
		got := map[string]string{}
		for key, sum := range w.record.Files {
			got[pathOf(key)] = sum
		}
		if diff := cmp.Diff(w.files, got); diff != "" {
			rt.Fatalf("record (-model +look):\n%s", diff)
		}
	} else if diff := cmp.Diff(w.files, w.after); diff != "" {
		rt.Fatalf("no record, and the model knows better (-before +after):\n%s", diff)
	}
	w.pending = nil
}

// restarted is another process: with the cache as it was written at last or some time
// before, damaged, or lost.
func (w *watched) restarted(rt *rapid.T) {
	w.pending = nil
	if c := w.source.Cache(); c != nil {
		w.caches = append(w.caches, c)
	}
	w.restart()
	if len(w.caches) == 0 {
		return
	}
	cache := w.caches[len(w.caches)-1]
	switch rapid.IntRange(0, 5).Draw(rt, "cache") {
	case 0:
		return
	case 1:
		cache = rapid.SampledFrom(w.caches).Draw(rt, "old")
	case 2:
		cache = slices.Clone(cache)
		cache[rapid.IntRange(0, len(cache)-1).Draw(rt, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
	case 3:
		cache = cache[:rapid.IntRange(0, len(cache)-1).Draw(rt, "length")]
	}
	w.source.RestoreCache(cache)
}

// While others write, a look says nothing of what stays the same, does not miss a name
// that is replaced, and shows no content that never was; once they stop, it agrees with
// the model.
func TestLooksWhileOthersWrite(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		tree(t, dir, "a/stays"+string(rune('a'+i)), "same", "a/b/stays"+string(rune('a'+i)), "same")
	}
	versions := []string{strings.Repeat("1", 100_000), strings.Repeat("2", 100_000), "3"}
	sums := map[string]bool{}
	for _, v := range versions {
		tree(t, dir, "a/replaced", v)
		n := &naive{t: t, dir: dir}
		sum, err := n.digest("a/replaced")
		must(t, err)
		sums[sum] = true
	}
	tree(t, dir, "a/written", "", "a/link", "-> replaced")
	w := watchFiles(t, dir, "a/**")
	w.poll()

	stop := make(chan struct{})
	var writers sync.WaitGroup
	for _, write := range []func(i int){
		func(i int) {
			tree(t, dir, "replaced.new", versions[i%3])
			must(t, os.Rename(filepath.Join(dir, "replaced.new"), filepath.Join(dir, "a/replaced")))
		},
		func(i int) { tree(t, dir, "a/written", versions[i%3]) },
		func(i int) {
			tree(t, dir, "a/comes/and/goes", "x", "a/comes/too", "y")
			must(t, os.RemoveAll(filepath.Join(dir, "a/comes")))
		},
		func(i int) {
			p := filepath.Join(dir, "a/b/moves")
			tree(t, dir, "a/b/moves", "z")
			must(t, os.Rename(p, p+".on"))
			must(t, os.Remove(p+".on"))
		},
	} {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					write(i)
				}
			}
		})
	}
	for start := time.Now(); time.Since(start) < 700*time.Millisecond; {
		o := w.poll()
		if !o.Changed {
			continue
		}
		c := changeOf(t, o)
		for _, f := range slices.Concat(c.Added, c.Modified, c.Removed) {
			if strings.Contains(f.Path, "stays") || (f.Path == "a/replaced" || f.Path == "a/link") && !sums[f.Checksum] {
				t.Errorf("%s %s: %s", f.Path, f.Checksum, o.Change)
			}
		}
		for _, f := range slices.Concat(c.Added, c.Removed) {
			if f.Path == "a/replaced" || f.Path == "a/link" || f.Path == "a/written" {
				t.Errorf("%s was there at all times: %s", f.Path, o.Change)
			}
		}
	}
	close(stop)
	writers.Wait()
	w.poll()
	g, err := compileGlob("a/**")
	must(t, err)
	n := &naive{t: t, dir: dir, glob: g}
	n.look()
	if diff := cmp.Diff(n.files, w.record.Files); diff != "" {
		t.Errorf("afterwards (-model +look):\n%s", diff)
	}
	w.expect("")
}

// A file that cannot be seen is not forgotten, however often it is looked for: here it
// is the only one of its directory, and nothing loads what was committed meanwhile.
func TestUnseenIsNotForgotten(t *testing.T) {
	dir := tree(t, t.TempDir(), "b.md", "x")
	w := watchFiles(t, dir, "**/*.md")
	w.poll()
	f := withFaults(w)
	must(t, os.Rename(filepath.Join(dir, "b.md"), filepath.Join(dir, "was")))
	tree(t, dir, "b.md/", "")
	f.open["b.md"] = unix.EACCES
	for range 3 {
		expectDegraded(t, w.expect(""), "b.md: permission denied")
	}
	delete(f.open, "b.md")
	w.expect("-b.md")
}

// Where a directory cannot be seen its rules are unknown, and a rule from above it
// does not take its files out of what is watched.
func TestRulesOfAnUnseenDirectory(t *testing.T) {
	dir := tree(t, t.TempDir(), "d/x.log", "1", "d/.gitignore", "!x.log\n", "y", "1")
	w := watchFiles(t, dir, "**/[xy]*")
	w.expect("+d/x.log +y")
	f := withFaults(w)
	tree(t, dir, ".gitignore", "*.log\n", "y", "2")
	f.open["d"] = unix.EACCES
	expectDegraded(t, w.expect("~y"), "d: permission denied")
	delete(f.open, "d")
	w.expect("")
	tree(t, dir, ".gitignore", "*.log\nd\n", "y", "3")
	f.open["d"] = unix.EACCES
	expectDegraded(t, w.expect("~y")) // not entered, and no longer watched
	delete(f.open, "d")
	tree(t, dir, ".gitignore", "", "y", "3")
	w.expect("+d/x.log")
}
