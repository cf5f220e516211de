package monitor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"marbles/state"
)

// An unchanged file is read once, and what was committed is loaded until it has been compared.
func TestUnchangedFilesAreNotRead(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "d/b", "b", "d/e/c", "c", "l", "-> d/b")
	w := watchFiles(t, dir, "**")
	c := withCounts(w)
	w.expect("+a +d/b +d/e/c +l")
	c.expectReads(t, 4)
	w.expect("")
	loads := w.loads
	for range 3 {
		w.expect("")
		c.expectReads(t, 0)
	}
	if w.loads != loads {
		t.Errorf("what was committed was loaded %d times though its stamp was known", w.loads-loads)
	}
	tree(t, dir, "d/b", "B", "new", "n")
	w.expect("+new ~d/b ~l")
	c.expectReads(t, 3)
	w.expect("")
	w.expect("")
	c.expectReads(t, 0)
	must(t, os.Remove(filepath.Join(dir, "new")))
	w.expect("-new")
	c.expectReads(t, 0)
}

// A record that somebody else wrote is compared, whatever is remembered.
func TestAnotherStampIsLoaded(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a")
	w := watchFiles(t, dir, "*")
	w.poll()
	w.poll()
	w.poll()
	w.record = &state.MonitorRecord{Version: 1, Files: map[string]string{"a": strings.Repeat("0", 64), "b": strings.Repeat("1", 64)}}
	w.stamp.Inode++
	w.expect("~a -b")
	w.expect("")
}

// A zero stamp stands for no file and is never taken for one that was seen.
func TestZeroStampIsLoaded(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a")
	w := watchFiles(t, dir, "*")
	for range 3 {
		o, err := w.source.Look(t.Context(), Committed{}, LookOptions{})
		if err != nil || eventsOf(t, o) != "+a" || !o.First {
			t.Fatalf("got %+v, %v; want a first look", o, err)
		}
	}
}

// What cannot be seen for a long time costs no more than what can.
func TestDegradedLookLoadsNothing(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "d/b", "b", "c", "c")
	w := watchFiles(t, dir, "**")
	w.poll()
	w.source = watchFiles(t, dir, "**").source // which has never seen what is behind the fault
	f := withFaults(w)
	f.open["d"], f.open["c"] = unix.EIO, unix.EIO
	w.expect("")
	loads := w.loads
	expectDegraded(t, w.expect(""), "c: input/output error", "d: input/output error")
	if w.loads != loads {
		t.Errorf("loaded %d times", w.loads-loads)
	}
	tree(t, dir, "d/b", "B")
	clear(f.open)
	w.expect("~d/b")
}

func TestSameSizeAndTimes(t *testing.T) {
	dir := tree(t, t.TempDir(), "v", "old!")
	path := filepath.Join(dir, "v")
	w := watchFiles(t, dir, "*")
	c := withCounts(w)
	w.poll()
	before, err := os.Stat(path)
	must(t, err)
	changedAt := ctimeOf(t, path)
	for ctimeOf(t, path) == changedAt { // until the kernel's clock has ticked
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteString("new!")
		must(t, err)
		must(t, f.Close())
		must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	}
	w.expect("~v")
	w.expect("")
	c.expectReads(t, 2)
}

func ctimeOf(t *testing.T, path string) unix.Timespec {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return st.Ctim
}

// With all times equal only the inode tells.
func TestReplacedUnderTheSameTimes(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 100
	}
	dir := tree(t, t.TempDir(), "y", "0000")
	w := watchFiles(t, dir, "y")
	c := withCounts(w) // nothing is racy: the signature alone must tell
	c.stat = func(st *unix.Stat_t) { st.Mtim, st.Ctim = unix.Timespec{Sec: 1e9}, unix.Timespec{Sec: 1e9} }
	w.poll()
	modified := 0
	for range rounds {
		for _, content := range []string{"1111", "2222"} {
			tree(t, dir, "y.tmp", content)
			must(t, os.Rename(filepath.Join(dir, "y.tmp"), filepath.Join(dir, "y")))
			if o := w.poll(); len(changeOf(t, o).Modified) == 1 {
				modified++
			}
		}
	}
	if modified != 2*rounds {
		t.Errorf("got %d modified, want %d", modified, 2*rounds)
	}
}

// The file system's clock ticks every 4 ms: two writes have the same times.
func TestRacyEntry(t *testing.T) {
	dir := tree(t, t.TempDir(), "f", "A")
	w := watchFiles(t, dir, "*")
	c := withCounts(w)
	t0 := time.Now()
	at := func(after time.Duration) func() time.Time {
		return func() time.Time { return t0.Add(after) }
	}
	c.stat = func(st *unix.Stat_t) {
		st.Mtim, st.Ctim = unix.NsecToTimespec(t0.UnixNano()), unix.NsecToTimespec(t0.UnixNano())
	}
	w.source.files.disk.now = at(time.Millisecond)
	w.expect("+f")
	c.expectReads(t, 1)
	tree(t, dir, "f", "B")
	w.source.files.disk.now = at(60 * time.Second)
	w.expect("~f")
	c.expectReads(t, 1)
	w.expect("")
	c.expectReads(t, 0)
}

func TestRacyRule(t *testing.T) {
	observed := time.Unix(1000, 500)
	for _, tt := range []struct {
		name         string
		mtime, ctime unix.Timespec
		want         bool
	}{
		{"long ago", unix.Timespec{Sec: 900}, unix.Timespec{Sec: 900}, false},
		{"written just now", unix.Timespec{Sec: 1000}, unix.Timespec{Sec: 900}, true},
		{"changed just now", unix.Timespec{Sec: 900}, unix.Timespec{Sec: 999}, true},
		{"two seconds ago", unix.Timespec{Sec: 998, Nsec: 500}, unix.Timespec{Sec: 998, Nsec: 500}, false},
		{"a little less", unix.Timespec{Sec: 998, Nsec: 501}, unix.Timespec{Sec: 900}, true},
		{"in the future", unix.Timespec{Sec: 4600}, unix.Timespec{Sec: 900}, true},
		{"before the epoch", unix.Timespec{Sec: -1, Nsec: 999999999}, unix.Timespec{Sec: 900}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := racy(&unix.Stat_t{Mtim: tt.mtime, Ctim: tt.ctime}, observed); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTimeInTheFuture(t *testing.T) {
	dir := tree(t, t.TempDir(), "f", "1")
	path := filepath.Join(dir, "f")
	w := watchFiles(t, dir, "*")
	c := withCounts(w)
	future := time.Now().Add(2 * time.Hour) // the watcher's clock is one hour late
	must(t, os.Chtimes(path, future, future))
	w.expect("+f")
	c.expectReads(t, 1)
	for range 3 {
		w.expect("")
		c.expectReads(t, 1)
	}
	if w.source.Cache() == nil {
		t.Error("no cache after looks")
	}
	w.expect("")
	if got := w.source.Cache(); got != nil {
		t.Errorf("a cache of %d bytes though there is nothing new", len(got))
	}
	tree(t, dir, "f", "2")
	must(t, os.Chtimes(path, future, future))
	w.expect("~f")
}

// Written after the last read and before the last look at its times.
func TestWrittenWhileRead(t *testing.T) {
	dir := tree(t, t.TempDir(), "q", "1111", "other", "o")
	path := filepath.Join(dir, "q")
	w := watchFiles(t, dir, "*")
	w.expect("+other +q")
	f := withFaults(w)
	tree(t, dir, "q", "0000")
	f.before["q"] = func(call string) {
		if call == "read" {
			before := ctimeOf(t, path)
			for ctimeOf(t, path) == before {
				tree(t, dir, "q", "2222")
			}
		}
	}
	expectDegraded(t, w.expect(""), "q: changing while read")
	clear(f.before)
	o := w.expect("~q")
	if got, want := changeOf(t, o).Modified[0].Checksum, fmt.Sprintf("%x", sha256.Sum256([]byte("2222"))); got != want {
		t.Errorf("got the digest %s, want that of 2222", got)
	}
	expectDegraded(t, w.expect(""))
}

// A log that is never at rest is reported all the same.
func TestAlwaysGrowing(t *testing.T) {
	dir := tree(t, t.TempDir(), "log", "0\n")
	w := watchFiles(t, dir, "*")
	w.expect("+log")
	f := withFaults(w)
	appendTo(t, filepath.Join(dir, "log"), "1\n")
	f.before["log"] = func(call string) {
		if call == "read" {
			appendTo(t, filepath.Join(dir, "log"), "2\n")
		}
	}
	expectDegraded(t, w.expect(""), "log: changing while read")
	expectDegraded(t, w.expect(""), "log: changing while read")
	was, err := os.ReadFile(filepath.Join(dir, "log"))
	must(t, err)
	o := w.expect("~log")
	if got, want := changeOf(t, o).Modified[0].Checksum, fmt.Sprintf("%x", sha256.Sum256(was)); got != want {
		t.Errorf("got the digest %s, want that of what it was", got)
	}
	clear(f.before)
	w.expect("~log")
	w.expect("")
}

func TestMetadataReads(t *testing.T) {
	dir := tree(t, t.TempDir(), "k.txt", "k")
	path := filepath.Join(dir, "k.txt")
	w := watchFiles(t, dir, "*.txt")
	c := withCounts(w)
	w.poll()
	w.expect("")
	c.expectReads(t, 1)
	for _, step := range []struct {
		name  string
		do    func() error
		reads int
	}{
		{"chmod", func() error { return os.Chmod(path, 0o600) }, 1},
		{"link", func() error { return os.Link(path, filepath.Join(dir, "k2")) }, 1},
		{"touch", func() error { return os.Chtimes(path, time.Now(), time.Now()) }, 1},
		{"cat", func() error { _, err := os.ReadFile(path); return err }, 0},
	} {
		before := ctimeOf(t, path)
		must(t, step.do())
		for step.reads > 0 && ctimeOf(t, path) == before { // the kernel's clock has not ticked yet
			must(t, os.Chmod(path, 0o600))
		}
		w.expect("")
		c.expectReads(t, step.reads)
		w.expect("")
		c.expectReads(t, 0)
	}
}

func TestOtherInodes(t *testing.T) {
	dir := t.TempDir()
	for i := range 60 {
		tree(t, dir, fmt.Sprintf("d%d/f%d", i%7, i), fmt.Sprint(i))
	}
	w := watchFiles(t, dir, "**")
	c := withCounts(w)
	w.poll()
	w.expect("")
	c.expectReads(t, 60)
	c.stat = func(st *unix.Stat_t) { st.Ino += 1000; st.Dev += 1 }
	w.expect("")
	c.expectReads(t, 60)
	w.expect("")
	c.expectReads(t, 0)
}

func TestReread(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "b", "b")
	w := watchFiles(t, dir, "*")
	w.source = mustFiles(t, dir, "*", FilesOptions{Reread: 24 * time.Hour})
	c := withCounts(w)
	w.poll()
	c.expectReads(t, 2)
	for _, step := range []struct {
		offset time.Duration
		reads  int
	}{{24 * time.Hour, 0}, {26 * time.Hour, 2}, {48 * time.Hour, 0}, {3 * time.Hour, 2}} { // at last the clock is set back
		c.offset = step.offset
		w.expect("")
		c.expectReads(t, step.reads)
	}
	if _, err := w.source.Look(t.Context(), w.committed(), LookOptions{Unconditional: true}); err != nil {
		t.Fatal(err)
	}
	c.expectReads(t, 2)
}

func mustFiles(t testing.TB, dir, glob string, o FilesOptions) *Source {
	t.Helper()
	s, err := NewFiles(dir, glob, o)
	must(t, err)
	return s
}

// A tree that takes longer than one look may take is read bit by bit.
func TestLooksThatEndEarlyGetOn(t *testing.T) {
	dir := t.TempDir()
	for i := range 400 {
		tree(t, dir, fmt.Sprintf("d%d/f%d", i%3, i), fmt.Sprint(i))
	}
	w := watchFiles(t, dir, "**")
	c := withCounts(w)
	d := w.source.files.disk
	open, looks := d.openat, 0
	for looks = 1; looks < 100; looks++ {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		left := 50
		d.openat = func(dir int, name string, flags int) (int, error) {
			mu.Lock()
			if left--; left == 0 {
				cancel()
			}
			mu.Unlock()
			return open(dir, name, flags)
		}
		o, err := w.source.Look(ctx, w.committed(), LookOptions{})
		cancel()
		if err == nil {
			if got := len(changeOf(t, o).Added); got != 400 {
				t.Errorf("got %d added", got)
			}
			break
		}
	}
	if looks > 40 {
		t.Errorf("not done after %d looks", looks)
	}
	total := 0
	for _, n := range c.reads {
		total += n
	}
	if total > 500 {
		t.Errorf("%d reads of 400 files", total)
	}
}

func TestCacheIsKept(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "d/b", "b", "d/bb", "b", "d/\xff\n-", "x", "d/e/f/g", "g", "l", "-> d/b")
	w := watchFiles(t, dir, "**")
	withCounts(w)
	if got := w.source.Cache(); got != nil {
		t.Errorf("a cache of %d bytes before a look", len(got))
	}
	w.poll()
	kept := w.source.Cache()
	if kept == nil {
		t.Fatal("no cache after a look")
	}
	w.expect("")
	if w.source.Cache() != nil {
		t.Error("a cache again though there is nothing new")
	}
	again := func(data []byte, glob string, reads int) {
		t.Helper()
		w.source = watchFiles(t, dir, glob).source
		c := withCounts(w)
		w.source.RestoreCache(data)
		w.expect("")
		c.expectReads(t, reads)
		w.expect("")
		c.expectReads(t, 0)
	}
	again(kept, "**", 0)
	again(nil, "**", 6)
	again(kept[:len(kept)-1], "**", 6)
	again(kept, "**/*", 6) // made for another glob
	elsewhere := watchFiles(t, t.TempDir(), "**").source
	elsewhere.RestoreCache(kept)
	if len(elsewhere.files.memory.dirs) > 0 {
		t.Error("a cache made for another directory was taken")
	}
	for i := range kept {
		bad := slices.Clone(kept)
		bad[i] ^= 1
		s := watchFiles(t, dir, "**").source
		s.RestoreCache(bad)
		if len(s.files.memory.dirs) > 0 {
			t.Fatalf("taken with byte %d changed", i)
		}
	}
	w.source = watchFiles(t, dir, "**").source
	w.source.RestoreCache(kept)
	tree(t, dir, "a", "A")
	w.expect("~a")
	if got := w.source.Cache(); got == nil || bytes.Equal(got, kept) {
		t.Error("no other cache after a change")
	}
}

// What is racy is not kept: another process could not know.
func TestCacheKeepsNothingRacy(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "b", "b")
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(filepath.Join(dir, "a"), old, old)) // which is not enough: its ctime is now
	w := watchFiles(t, dir, "*")
	w.poll()
	kept := w.source.Cache()
	if m, err := decodeMemory(kept, w.source.files.boundTo()); err != nil || m.count() != 0 {
		t.Errorf("got %v, %v; want nothing kept", m, err)
	}
	w.source = watchFiles(t, dir, "*").source
	w.source.RestoreCache(kept)
	tree(t, dir, "b", "B")
	c := withCounts(w)
	w.expect("~b")
	c.expectReads(t, 2)
}

// FuzzRestoreCache: no data is harmful, and what is taken is written again as it was.
func FuzzRestoreCache(f *testing.F) {
	dir := tree(f, f.TempDir(), "a", "a", "d/b", "b", "d/bb", "bb")
	w := watchFiles(f, dir, "**")
	withCounts(w)
	w.poll()
	s := w.source.files
	bound := s.boundTo()
	kept := w.source.Cache()
	head := len(cacheMagic) + 2*sumSize
	f.Add(kept[head:])
	f.Add([]byte{})
	f.Add([]byte("\x01a\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		data := slices.Concat([]byte(cacheMagic), bound[:], sum[:], body)
		m, err := decodeMemory(data, bound)
		if err != nil {
			return
		}
		again, err := decodeMemory(m.encode(bound), bound)
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if got, want := again.encode(bound), m.encode(bound); !bytes.Equal(got, want) {
			t.Fatalf("written twice:\n%x\n%x", got, want)
		}
		for _, d := range m.dirs {
			for i := range d.files {
				if d.find(d.name(i)) != i {
					t.Fatalf("%q in %q is not found", d.name(i), d.path)
				}
			}
		}
	})
}

// One source, looks at once: each is right by itself.
func TestLooksAtOnce(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		tree(t, dir, fmt.Sprintf("d%d/f%d", i%5, i), fmt.Sprint(i))
	}
	w := &watcher{t: t, source: mustFiles(t, dir, "**", FilesOptions{Shared: NewShared()})}
	w.poll()
	tree(t, dir, "d1/f1", "changed")
	committed := Committed{Stamp: w.stamp, Load: func() (*state.MonitorRecord, error) { return w.record, nil }}
	var looks sync.WaitGroup
	for i := range 8 {
		looks.Go(func() {
			for j := range 5 {
				o, err := w.source.Look(t.Context(), committed, LookOptions{Fresh: i == j, Unconditional: i == 7})
				if err != nil {
					t.Error(err)
				} else if got := eventsOf(t, o); got != "~d1/f1" {
					t.Errorf("got %q", got)
				}
				w.source.RestoreCache(w.source.Cache())
			}
		})
	}
	looks.Wait()
	w.expect("~d1/f1")
}
