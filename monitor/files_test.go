package monitor

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"marbles/state"
)

func TestFilesOneAfterTheOther(t *testing.T) {
	dir := tree(t, t.TempDir(), "b.md", "b", "a/a.md", "a", "a/x.txt", "x", "c.md/", "")
	w := watchFiles(t, dir, "**/*.md")
	first := w.expect("+a/a.md +b.md")
	if !first.First || first.Summary != "2 added" || string(first.Paths) != "a/a.md\x00b.md\x00" {
		t.Errorf("first look: %+v", first)
	}
	want := `{"kind":"files","added":[{"path":"a/a.md","checksum":"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},` +
		`{"path":"b.md","checksum":"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"}],"modified":[],"removed":[]}`
	if diff := cmp.Diff(want, string(first.Change)); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
	if o := w.expect(""); o.First || o.Record != nil || o.Summary != "no change in 2 files" {
		t.Errorf("second look: %+v", o)
	}
	tree(t, dir, "b.md", "B", "d.md", "d")
	must(t, os.Remove(filepath.Join(dir, "a/a.md")))
	o := w.expect("+d.md ~b.md -a/a.md")
	if got := changeOf(t, o).Removed[0].Checksum; got != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
		t.Errorf("removed with checksum %s, want the last seen", got)
	}
	if o.Summary != "1 added, 1 modified, 1 removed" || string(o.Paths) != "a/a.md\x00b.md\x00d.md\x00" {
		t.Errorf("got %q, %q", o.Summary, o.Paths)
	}
	w.expect("")
}

func TestFirstLookWithoutMatches(t *testing.T) {
	w := watchFiles(t, t.TempDir(), "**/*.md")
	if o := w.expect(""); !o.First || o.Record == nil || o.Record.Files == nil {
		t.Errorf("got %+v, want a first look whose record says that nothing was there", o)
	}
}

func TestUncommittedChangeIsSeenAgain(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "1")
	w := watchFiles(t, dir, "*")
	w.poll()
	tree(t, dir, "a", "2")
	w.mustLook()
	if got := eventsOf(t, w.mustLook()); got != "~a" {
		t.Errorf("got %q, want the change again", got)
	}
	tree(t, dir, "a", "1")
	w.expect("") // back to what was committed: no change is left
}

func TestTimesThatGoBackwards(t *testing.T) {
	dir := tree(t, t.TempDir(), "f", "start")
	w := watchFiles(t, dir, "*")
	w.poll()
	for i, mtime := range []time.Time{
		time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC),
		time.Unix(0, 0),
		time.Now().Add(time.Hour),
	} {
		tree(t, dir, "f", fmt.Sprint(i))
		must(t, os.Chtimes(filepath.Join(dir, "f"), mtime, mtime))
		w.expect("~f")
		w.expect("")
	}
}

func TestUnreadableDirectory(t *testing.T) {
	skipAsRoot(t)
	dir := tree(t, t.TempDir(), "t/ok/a.txt", "a", "t/secret/b.txt", "b")
	secret := filepath.Join(dir, "t/secret")
	t.Cleanup(func() { os.Chmod(secret, 0o755) })
	w := watchFiles(t, dir, "t/**/*.txt")
	w.poll()
	must(t, os.Chmod(secret, 0))
	expectDegraded(t, w.expect(""), "t/secret: permission denied")
	tree(t, dir, "t/ok/a.txt", "A")
	expectDegraded(t, w.expect("~t/ok/a.txt"), "t/secret: permission denied")
	must(t, os.Chmod(secret, 0o755))
	expectDegraded(t, w.expect(""))
	must(t, os.Chmod(secret, 0))
	w.expect("")
	must(t, os.Chmod(secret, 0o755))
	tree(t, dir, "t/secret/b.txt", "B")
	w.expect("~t/secret/b.txt")
}

func TestUnreadableFile(t *testing.T) {
	skipAsRoot(t)
	dir := tree(t, t.TempDir(), "a", "a", "b", "b")
	w := watchFiles(t, dir, "*")
	w.poll()
	must(t, os.Chmod(filepath.Join(dir, "a"), 0))
	tree(t, dir, "c", "c")
	must(t, os.Chmod(filepath.Join(dir, "c"), 0))
	expectDegraded(t, w.expect(""), "a: permission denied", "c: permission denied")
	must(t, os.Chmod(filepath.Join(dir, "c"), 0o600))
	w.expect("+c")
}

// An unreadable root of the glob: nothing can be learnt, so the poll has failed.
func TestUnreadableGlobRoot(t *testing.T) {
	skipAsRoot(t)
	dir := tree(t, t.TempDir(), "t/a.txt", "a")
	w := watchFiles(t, dir, "t/*.txt")
	w.poll()
	must(t, os.Chmod(filepath.Join(dir, "t"), 0))
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "t"), 0o755) })
	if o, err := w.look(); err == nil || err.Error() != "cannot look at t/*.txt: t: permission denied" {
		t.Errorf("got %+v, %v", o, err)
	}
	must(t, os.Chmod(filepath.Join(dir, "t"), 0o755))
	w.expect("")
}

func TestDirectoriesPassedThroughNeedNoReading(t *testing.T) {
	skipAsRoot(t)
	dir := tree(t, t.TempDir(), "top/mid/docs/a.md", "a", "top/mid/one.txt", "1")
	for _, name := range []string{"top/mid", "top", "."} {
		name := filepath.Join(dir, name)
		must(t, os.Chmod(name, 0o111))
		t.Cleanup(func() { os.Chmod(name, 0o755) })
	}
	expectDegraded(t, watchFiles(t, dir, "top/mid/docs/*.md").expect("+top/mid/docs/a.md"))
	expectDegraded(t, watchFiles(t, dir, "top/mid/one.txt").expect("+top/mid/one.txt"))
}

func TestDegradedIsBounded(t *testing.T) {
	skipAsRoot(t)
	dir := tree(t, t.TempDir(), "seen", "")
	for i := range 15 {
		tree(t, dir, fmt.Sprintf("f%02d", i), "")
		must(t, os.Chmod(filepath.Join(dir, fmt.Sprintf("f%02d", i)), 0))
	}
	o := watchFiles(t, dir, "*").poll()
	if len(o.Degraded) != 10 || o.Degraded[0] != "f00: permission denied" || o.Degraded[9] != "and 6 more" {
		t.Errorf("got %q", o.Degraded)
	}
}

func TestHostileNames(t *testing.T) {
	var names []string
	for _, digits := range []string{"6e65770a6c696e652e747874", "56ed63746f72", "ff2e747874", "fe2e747874", "2d64617368"} {
		name, err := hex.DecodeString(digits)
		must(t, err)
		names = append(names, string(name))
	}
	names = append(names, `\xff.txt`) // reads like the key of another
	dir := t.TempDir()
	write := func(content string) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Skipf("this file system refuses %q: %v", name, err)
			}
		}
	}
	write("1")
	slices.Sort(names)
	w := watchFiles(t, dir, "*")
	check := func(o *Observation, files []File) {
		t.Helper()
		var got []string
		for _, f := range files {
			path := f.Path
			if f.Bytes != "" {
				raw, err := base64.StdEncoding.DecodeString(f.Bytes)
				must(t, err)
				path = string(raw)
			}
			got = append(got, path)
		}
		slices.Sort(got)
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("names in the change (-want +got):\n%s", diff)
		}
		if got := strings.Split(strings.TrimSuffix(string(o.Paths), "\x00"), "\x00"); !slices.Equal(got, names) {
			t.Errorf("paths: got %q, want %q", got, names)
		}
	}
	o := w.poll()
	check(o, changeOf(t, o).Added)
	if len(w.record.Files) != len(names) {
		t.Errorf("record has %d files, want %d", len(w.record.Files), len(names))
	}
	w.expect("") // the record went through JSON, as in a restart
	write("2")
	o = w.poll()
	check(o, changeOf(t, o).Modified)
	w.expect("")
	for _, name := range names {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	o = w.poll()
	check(o, changeOf(t, o).Removed)
	w.expect("")
}

func TestConfigMapSwap(t *testing.T) {
	dir := tree(t, t.TempDir(), "cfg/..v1/app.yaml", "k: 1\n", "cfg/..data", "-> ..v1", "cfg/app.yaml", "-> ..data/app.yaml")
	w := watchFiles(t, dir, "cfg/*.yaml")
	withCounts(w) // with digests that are trusted
	w.expect("+cfg/app.yaml")
	info, err := os.Stat(filepath.Join(dir, "cfg/app.yaml"))
	must(t, err)
	tree(t, dir, "cfg/..v2/app.yaml", "k: 2\n", "cfg/..data_tmp", "-> ..v2")
	must(t, os.Chtimes(filepath.Join(dir, "cfg/..v2/app.yaml"), info.ModTime(), info.ModTime()))
	must(t, os.Rename(filepath.Join(dir, "cfg/..data_tmp"), filepath.Join(dir, "cfg/..data")))
	must(t, os.RemoveAll(filepath.Join(dir, "cfg/..v1")))
	expectDegraded(t, w.expect("~cfg/app.yaml"))
	w.expect("")
}

func TestLinks(t *testing.T) {
	outside := tree(t, t.TempDir(), "secret", "s")
	dir := t.TempDir()
	canonical, err := filepath.EvalSymlinks(dir)
	must(t, err)
	tree(t, dir,
		"real/a", "a", "sub/up", "-> ../real/a", "abs", "-> "+canonical+"/real/a", "given", "-> "+dir+"/real/a",
		"twice", "-> abs", "through", "-> dirlink/a", "dirlink", "-> real", "dot", "-> ./real/./a",
		"out", "-> "+outside+"/secret", "climb", "-> ../../../../../../../../etc/hostname",
		"absclimb", "-> "+canonical+"/../x", "broken", "-> nowhere", "loop1", "-> loop2", "loop2", "-> loop1",
		"past", "-> real/a/x", "todir", "-> real", "self", "-> .")
	w := watchFiles(t, dir, "**")
	expectDegraded(t, w.expect("+abs +dot +given +real/a +sub/up +through +twice"))
	tree(t, dir, "real/a", "A")
	w.expect("~abs ~dot ~given ~real/a ~sub/up ~through ~twice")
	tree(t, dir, "abs", "-> "+outside+"/secret") // and twice leads there
	w.expect("-abs -twice")
}

func TestWorkspaceBehindALink(t *testing.T) {
	base := tree(t, t.TempDir(), "real/a", "a", "ws", "-> real")
	dir := filepath.Join(base, "ws")
	tree(t, dir, "viaLink", "-> "+dir+"/a", "viaReal", "-> "+base+"/real/a")
	watchFiles(t, dir, "*").expect("+a +viaLink +viaReal")
}

// A link in front of the first wildcard is followed no more than another, but says so.
func TestGlobRootIsALink(t *testing.T) {
	dir := tree(t, t.TempDir(), "real/a", "a", "docs", "-> real")
	o := watchFiles(t, dir, "docs/*").expect("")
	expectDegraded(t, o, "docs: a link, and directories are not looked for behind links")
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a")
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	tree(t, dir, "tofifo", "-> fifo")
	if l, err := net.Listen("unix", filepath.Join(dir, "s")); err == nil { // may be too long a path
		defer l.Close()
	}
	// A writer that waits for a reader shows whether the FIFO was opened.
	opened := make(chan struct{})
	go func() { // ends when the test opens the FIFO below
		defer close(opened)
		if f, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_WRONLY, 0); err == nil {
			f.Close()
		}
	}()
	expectDegraded(t, watchFiles(t, dir, "*").expect("+a"))
	watchFiles(t, dir, "fifo").expect("")
	select {
	case <-opened:
		t.Error("the FIFO was opened")
	default:
	}
	f, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(t, err)
	defer f.Close()
	<-opened
}

func TestAlwaysIgnored(t *testing.T) {
	dir := tree(t, t.TempDir(),
		".git/HEAD", "", ".foundry/marbles/a.yaml", "", ".turbo/x", "", "node_modules/m/i.js", "", "a/node_modules/x", "",
		".DS_Store", "", "a/Thumbs.db", "", ".env", "", "a/.hidden/x", "", ".github/x", "", "b/.git", "gitdir: x")
	watchFiles(t, dir, "**").expect("+.env +.github/x +a/.hidden/x +b/.git")
}

func TestExclude(t *testing.T) {
	dir := tree(t, t.TempDir(), "docs/a.md", "", "docs/_build/b.md", "", "docs/sub/c.md", "", "docs/sub/tmp/d.md", "", "e.md", "")
	for _, tt := range []struct {
		name    string
		exclude []string
		want    string
	}{
		{"all below", []string{"docs/_build/**"}, "+docs/a.md +docs/sub/c.md +docs/sub/tmp/d.md +e.md"},
		{"a plain name", []string{"docs/_build"}, "+docs/a.md +docs/sub/c.md +docs/sub/tmp/d.md +e.md"},
		{"a name anywhere", []string{"**/tmp"}, "+docs/_build/b.md +docs/a.md +docs/sub/c.md +e.md"},
		{"files of one directory", []string{"docs/*"}, "+docs/_build/b.md +docs/sub/c.md +docs/sub/tmp/d.md +e.md"},
		{"two patterns", []string{"*.md", "docs/{_build,sub}/**"}, "+docs/a.md"},
		{"everything", []string{"**"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			watchFiles(t, dir, "**/*.md", tt.exclude...).expect(tt.want)
		})
	}
}

func TestExcludedDirectoryIsNotEntered(t *testing.T) {
	dir := tree(t, t.TempDir(), "docs/a.md", "", "docs/_build/b.md", "", "other/deep/c.md", "")
	w := watchFiles(t, dir, "docs/**/*.md", "docs/_build/**")
	var opened []string
	real := realDisk()
	w.source.files.disk.openat = func(at int, name string, flags int) (int, error) {
		opened = append(opened, name)
		return real.openat(at, name, flags)
	}
	w.expect("+docs/a.md")
	if want := []string{dir, "docs", "a.md"}; !slices.Equal(opened, want) {
		t.Errorf("opened %q, want %q", opened, want)
	}
}

// The key of a monitor may stay the same while its patterns change: what they no longer
// select has not gone.
func TestChangedPatterns(t *testing.T) {
	dir := tree(t, t.TempDir(), "a.md", "", "b.md", "", "c.txt", "")
	w := watchFiles(t, dir, "*.md")
	w.expect("+a.md +b.md")
	record := w.record
	w = watchFiles(t, dir, "*", "b.md")
	w.record = record
	w.expect("+c.txt")
	if _, kept := w.record.Files["b.md"]; kept {
		t.Error("the record still holds b.md")
	}
	w.record = &state.MonitorRecord{Version: 1, Hash: "of a URL", Current: []byte("1")}
	if o := w.expect("+a.md +c.txt"); !o.First || w.record.Hash != "" {
		t.Errorf("a key that watched a URL: got %+v", o)
	}
}

func TestRecordKeepsUnknownMembers(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "")
	w := watchFiles(t, dir, "*")
	w.record = &state.MonitorRecord{Version: 1, Unknown: []byte(`{"later":{"x":1}}`), Pending: &state.PendingLaunch{}}
	w.expect("+a")
	if w.record.Pending != nil || !bytes.Contains(w.record.Unknown, []byte(`"later":{"x":1}`)) {
		t.Errorf("got %+v", w.record)
	}
}

func TestGlobRootGone(t *testing.T) {
	for _, glob := range []string{"docs/*.md", "docs/a.md", "**/*.md", "{docs,x}/**"} {
		t.Run(glob, func(t *testing.T) {
			dir := tree(t, t.TempDir(), "docs/a.md", "a")
			w := watchFiles(t, dir, glob)
			w.poll()
			must(t, os.RemoveAll(filepath.Join(dir, "docs")))
			expectDegraded(t, w.expect("-docs/a.md"))
		})
	}
}

func TestWorkspaceGone(t *testing.T) {
	base := tree(t, t.TempDir(), "up/ws/a.md", "a")
	w := watchFiles(t, filepath.Join(base, "up/ws"), "*.md")
	w.poll()
	must(t, os.RemoveAll(filepath.Join(base, "up/ws")))
	if o := w.mustLook(); eventsOf(t, o) != "-a.md" {
		t.Errorf("with its parent readable: got %+v", o)
	}
	must(t, os.RemoveAll(filepath.Join(base, "up")))
	if o, err := w.look(); err == nil {
		t.Errorf("with its parent gone too: got %+v, want an error", o)
	}
	w.record = nil
	if o, err := w.look(); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("never seen: got %+v, %v", o, err)
	}
}

func TestFileBecomesSomethingElse(t *testing.T) {
	dir := tree(t, t.TempDir(), "a", "a", "b", "b", "c", "c", "d/x", "d")
	w := watchFiles(t, dir, "**")
	w.poll()
	for _, name := range []string{"a", "b", "c", "d"} {
		must(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "b"), 0o600))
	tree(t, dir, "a/a", "inner", "c", "-> nowhere", "d", "file now")
	w.expect("+a/a +d -a -b -c -d/x")
}

func TestDeepTree(t *testing.T) {
	dir := tree(t, t.TempDir(), "a.md", "")
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range maxDepth + 20 { // a path longer than PATH_MAX
		must(t, unix.Mkdirat(at, "deeper-and-deeper", 0o755))
		next, err := unix.Openat(at, "deeper-and-deeper", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))
	o := watchFiles(t, dir, "**").expect("+a.md")
	if len(o.Degraded) != 1 || !strings.HasSuffix(o.Degraded[0], ": nested too deep") {
		t.Errorf("degraded: got %d lines", len(o.Degraded))
	}
}

// Brackets in real names, in the patterns that reach them (C11), and ** as a whole segment (C12).
func TestPatternsOnATree(t *testing.T) {
	brackets := tree(t, t.TempDir(), "[a].txt", "1", "a.txt", "2", "b.txt", "3")
	stars := tree(t, t.TempDir(), "a/b.txt", "1", "a/c/d.txt", "2")
	for _, tt := range []struct{ dir, glob, want string }{
		{brackets, "[a].txt", "+a.txt"},
		{brackets, `\[a\].txt`, "+[a].txt"},
		{brackets, "[[]a].txt", "+[a].txt"},
		{stars, "**/*.txt", "+a/b.txt +a/c/d.txt"},
		{stars, "a/*.txt", "+a/b.txt"},
	} {
		if got := eventsOf(t, watchFiles(t, tt.dir, tt.glob).poll()); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.glob, got, tt.want)
		}
	}
}
