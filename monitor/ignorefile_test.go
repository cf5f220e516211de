package monitor

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIgnoredFiles(t *testing.T) {
	dir := tree(t, t.TempDir(),
		".gitignore", "*.log\n/build/\nsub/deep.txt\n", "a.log", "l", "a.txt", "a", "build/x.txt", "x",
		"sub/.gitignore", "!keep.log\nlocal\n", "sub/keep.log", "k", "sub/other.log", "o", "sub/deep.txt", "d",
		"sub/local", "l", "sub/build/y.txt", "y", "sub/z/local", "l", "sub/link.log", "-> ../a.txt")
	w := watchFiles(t, dir, "**")
	withFaults(w).open["x.txt"] = unix.EIO // what is ignored is not looked at
	expectDegraded(t, w.expect("+.gitignore +a.txt +sub/.gitignore +sub/build/y.txt +sub/keep.log"))
	w = &watcher{t: t, source: mustFiles(t, dir, "**/*.log", FilesOptions{NoIgnore: true})}
	w.expect("+a.log +sub/keep.log +sub/link.log +sub/other.log")
}

// What becomes ignored was not removed; what no longer is was added.
func TestIgnoringIsNoChange(t *testing.T) {
	dir := tree(t, t.TempDir(), "a/b/c.txt", "c", "a/b/d.txt", "d", "a/e.txt", "e", "f.txt", "f", ".gitignore", "")
	w := watchFiles(t, dir, "**/*.txt")
	w.expect("+a/b/c.txt +a/b/d.txt +a/e.txt +f.txt")
	w.expect("")
	tree(t, dir, ".gitignore", "b/\n")
	o := w.expect("")
	if o.Record == nil || len(o.Record.Files) != 2 {
		t.Fatalf("record: got %+v, want two files left", o.Record)
	}
	tree(t, dir, ".gitignore", "f.txt\n")
	w.expect("+a/b/c.txt +a/b/d.txt")
	if _, ok := w.record.Files["f.txt"]; ok {
		t.Error("f.txt is still in the record")
	}
	must(t, os.RemoveAll(filepath.Join(dir, "a/b")))
	tree(t, dir, ".gitignore", "c.txt\n")
	w.expect("+f.txt -a/b/d.txt") // c.txt went as it became ignored
	must(t, os.Remove(filepath.Join(dir, ".gitignore")))
	w.expect("")
	must(t, os.RemoveAll(dir))
	w.expect("-a/e.txt -f.txt")
}

func TestUnreadableIgnoreFile(t *testing.T) {
	for _, glob := range []string{"**", "sub/{a,b}.txt"} {
		t.Run(glob, func(t *testing.T) {
			dir := tree(t, t.TempDir(), "sub/.gitignore", "b.txt\n", "sub/a.txt", "a", "sub/b.txt", "b", "sub/in/c.txt", "c", "d.txt", "d")
			w := watchFiles(t, dir, glob, "**/.gitignore")
			f := withFaults(w)
			first := w.poll()
			f.stat[".gitignore"] = unix.EIO
			tree(t, dir, "sub/a.txt", "A")
			if glob == "**" {
				delete(f.stat, ".gitignore")
				f.read[".gitignore"] = unix.EACCES
				expectDegraded(t, w.expect(""), "sub: cannot read its .gitignore: permission denied")
				tree(t, dir, "d.txt", "D")
				w.expect("~d.txt")
			} else if o, err := w.look(); err == nil {
				t.Errorf("got %+v", o)
			}
			clear(f.stat)
			clear(f.read)
			expectDegraded(t, w.expect("~sub/a.txt"))
			if len(first.Degraded) > 0 {
				t.Error(first.Degraded)
			}
		})
	}
}

// A literal path lists no directory, and honours the rules of those it passes.
func TestIgnoredLiteralPath(t *testing.T) {
	dir := tree(t, t.TempDir(), "sub/.gitignore", "a.txt\n", "sub/a.txt", "a", "sub/in/b.txt", "b")
	w := watchFiles(t, dir, "{sub/a.txt,sub/in/b.txt}")
	c := withCounts(w)
	w.expect("+sub/in/b.txt")
	if len(c.lists) > 0 {
		t.Errorf("listed %v", c.lists)
	}
	must(t, os.Remove(filepath.Join(dir, "sub/.gitignore")))
	w.expect("+sub/a.txt")
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "sub/.gitignore"))) // no regular file: none
	w.expect("")
	must(t, os.Remove(filepath.Join(dir, "sub/.gitignore")))
	tree(t, dir, "sub/.gitignore/", "")
	w.expect("")
}

// Rules are read again when their file may have changed, as any file is.
func TestIgnoreFilesAreRemembered(t *testing.T) {
	dir := tree(t, t.TempDir(), ".gitignore", "x\n", "a", "a", "x", "x", "d/.gitignore", "y\n", "d/y", "y", "d/z", "z")
	w := watchFiles(t, dir, "**", "**/.gitignore")
	c := withCounts(w)
	w.expect("+a +d/z")
	c.expectReads(t, 4)
	w.expect("")
	c.expectReads(t, 0)
	tree(t, dir, "d/.gitignore", "zz")
	w.expect("+d/y")
	c.expectReads(t, 2)
	w.expect("")
	c.expectReads(t, 0)
}

func TestHugeIgnoreFile(t *testing.T) {
	dir := tree(t, t.TempDir(), "d/a", "a", "b", "b")
	w := watchFiles(t, dir, "**")
	w.poll()
	f, err := os.Create(filepath.Join(dir, "d/.gitignore"))
	must(t, err)
	must(t, f.Truncate(maxIgnoreFile+1))
	must(t, f.Close())
	expectDegraded(t, w.expect(""), "d: cannot read its .gitignore: it is larger than 1 MiB")
}
