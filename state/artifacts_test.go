package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func addText(t testing.TB, a *Artifacts, name, text string) ArtifactVersion {
	t.Helper()
	v, err := a.Add(t.Context(), NewArtifact{Name: name, Type: "text/plain", Content: strings.NewReader(text),
		Version: ArtifactVersion{Run: "rn-1", Step: "build", Workspace: "ws", Project: "/p", Path: "out/" + name}})
	noError(t, err)
	return v
}

func readVersion(t testing.TB, a *Artifacts, id string) string {
	t.Helper()
	r, err := a.Read(id)
	noError(t, err)
	data, err := io.ReadAll(r)
	noError(t, err, r.Close())
	return string(data)
}

func TestArtifacts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	a := OpenArtifacts(dir)
	list, err := a.List()
	noError(t, err)
	if _, err := os.Stat(dir); len(list) != 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before anything was added: %v, %v", list, err)
	}
	first, second := addText(t, a, "report", "one"), addText(t, a, "report", "two")
	same := addText(t, a, "other", "one")
	list, err = OpenArtifacts(dir).List()
	noError(t, err)
	if len(list) != 2 || list[0].Name != "other" || list[1].Name != "report" || list[1].Type != "text/plain" || list[1].Status != "published" {
		t.Fatalf("list %+v", list)
	}
	if diff := cmp.Diff([]ArtifactVersion{first, second}, list[1].Versions); diff != "" {
		t.Errorf("versions (-added +listed):\n%s", diff)
	}
	for v, want := range map[ArtifactVersion]string{first: "one", second: "two", same: "one"} {
		if got := readVersion(t, a, v.ID); got != want {
			t.Errorf("%s holds %q, want %q", v.ID, got, want)
		}
	}
	blobs, err := os.ReadDir(filepath.Join(dir, blobsDir))
	noError(t, err)
	if len(blobs) != 2 {
		t.Errorf("the same bytes are not stored once: %v", blobs)
	}
	for _, b := range blobs {
		if info, err := b.Info(); err != nil || info.Mode() != 0o400 || !isBlobName(b.Name()) {
			t.Errorf("blob %s: %v, %v", b.Name(), info.Mode(), err)
		}
	}
	others, err := os.ReadDir(dir)
	noError(t, err)
	if len(others) != 2 {
		t.Errorf("left behind: %v", others)
	}
}

// What another program wrote stays as it is, in every record, and can be read where it is one file.
func TestArtifactsKeepUnknown(t *testing.T) {
	const digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // hello
	text := `{
  "version": 1,
  "artifacts": [{"id":"feed-1","name":"report","type":"text/html","status":"draft","contentId":"co-1","metadata":{"sessionId":"s"},
    "createdAt":{"$date":"2026-11-30T17:00:00.000Z"},"updatedAt":{"$date":"2026-11-30T17:00:00.000Z"},"publishedAt":null,"archivedAt":null,"later":[1]}],
  "blobs": [{"id":"b-1","digest":"` + digest + `","byteLength":5,"createdAt":{"$date":"2026-11-30T17:00:00.000Z"},"bytes":{"$bytes":"aGVsbG8="},"more":1.50}],
  "contents": [{"id":"co-1","artifactId":"feed-1","state":"ready","digest":"d","tree":{"index.html":{"type":"file","digest":"` + digest + `","bytes":5,"mime":null,"blobId":"b-1"},"media":{"type":"directory"}},
    "tag":null,"metadata":{"feed":{"key":"k"}},"frozenAt":null,"createdAt":{"$date":"2026-11-30T17:00:00.000Z"},"updatedAt":{"$date":"2026-11-30T17:00:00.000Z"},"x":"y"}],
  "extra": {"a": [null]}
}`
	dir := t.TempDir()
	path := filepath.Join(dir, artifactRecords)
	noError(t, os.WriteFile(path, []byte(text), 0o600))
	a := OpenArtifacts(dir)
	addText(t, a, "report", "hello")
	data, err := os.ReadFile(path)
	noError(t, err)
	var before, after map[string]any
	noError(t, decode([]byte(text), &before), decode(data, &after))
	for _, name := range []string{"artifacts", "contents", "blobs"} {
		if diff := cmp.Diff(before[name].([]any)[0], after[name].([]any)[0]); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(before["extra"], after["extra"]); diff != "" {
		t.Errorf("extra (-before +after):\n%s", diff)
	}
	if n := len(after["blobs"].([]any)); n != 1 {
		t.Errorf("%d blobs: bytes that are there were stored again", n)
	}
	list, err := a.List()
	noError(t, err)
	if len(list) != 2 { // one of another program is another artifact, whatever its name
		t.Fatalf("list %+v", list)
	}
	for _, art := range list {
		if got := readVersion(t, a, art.Versions[0].ID); got != "hello" {
			t.Errorf("%s holds %q", art.ID, got)
		}
	}
}

func TestArtifactsDamaged(t *testing.T) {
	tests := map[string]string{
		"empty":        ``,
		"cut":          `{"version":1,"artifacts":[`,
		"no version":   `{"artifacts":[],"blobs":[],"contents":[]}`,
		"no blobs":     `{"version":1,"artifacts":[],"contents":[]}`,
		"later":        `{"version":2,"artifacts":{},"blobs":[],"contents":[]}`,
		"twice":        `{"version":1,"artifacts":[{"id":"a"},{"id":"a"}],"blobs":[],"contents":[]}`,
		"dangling":     `{"version":1,"artifacts":[],"blobs":[],"contents":[{"id":"c","artifactId":"a"}]}`,
		"no blob":      `{"version":1,"artifacts":[{"id":"a"}],"blobs":[],"contents":[{"id":"c","artifactId":"a","tree":{"f":{"type":"file","blobId":"b"}}}]}`,
		"outside":      `{"version":1,"artifacts":[],"blobs":[{"id":"b","digest":"` + strings.Repeat("0", 64) + `","byteLength":0,"path":"../x"}],"contents":[]}`,
		"two sources":  `{"version":1,"artifacts":[],"blobs":[{"id":"b","digest":"` + strings.Repeat("0", 64) + `","byteLength":0,"path":"a","bytes":{"$bytes":""}}],"contents":[]}`,
		"a bad digest": `{"version":1,"artifacts":[],"blobs":[{"id":"b","digest":"0","byteLength":0,"path":"a"}],"contents":[]}`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, artifactRecords)
			noError(t, os.WriteFile(path, []byte(text), 0o600))
			a := OpenArtifacts(dir)
			_, err := a.Add(t.Context(), NewArtifact{Name: "n", Content: strings.NewReader("x")})
			_, lerr := a.List()
			damaged := (*DamagedError)(nil)
			if name == "later" {
				if !errors.Is(err, ErrVersion) || !errors.Is(lerr, ErrVersion) {
					t.Errorf("%v, %v; want a version that is not known", err, lerr)
				}
			} else if !errors.As(err, &damaged) || !errors.As(lerr, &damaged) || damaged.Path != path {
				t.Errorf("%v, %v; want damaged", err, lerr)
			}
			if got, _ := os.ReadFile(path); string(got) != text {
				t.Errorf("it was overwritten: %s", got)
			}
			if left, _ := os.ReadDir(filepath.Join(dir, blobsDir)); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A link in the place of a blob is not followed; changed and lost bytes are errors, and the next to add them repairs.
func TestArtifactBlobs(t *testing.T) {
	dir := t.TempDir()
	a := OpenArtifacts(dir)
	v := addText(t, a, "n", "bytes")
	blobs, err := filepath.Glob(filepath.Join(dir, blobsDir, "*"))
	noError(t, err)
	noError(t, os.Remove(blobs[0]), os.WriteFile(blobs[0], []byte("bytez"), 0o600))
	r, err := a.Read(v.ID)
	noError(t, err)
	if _, err := io.ReadAll(r); err == nil {
		t.Error("changed bytes were read")
	}
	noError(t, r.Close())
	other := filepath.Join(t.TempDir(), "other")
	noError(t, os.WriteFile(other, []byte("bytes"), 0o600), os.Remove(blobs[0]), os.Symlink(other, blobs[0]))
	if r, err := a.Read(v.ID); err == nil {
		r.Close()
		t.Error("a link was followed")
	}
	noError(t, os.Remove(blobs[0]))
	if r, err := a.Read(v.ID); err == nil {
		r.Close()
		t.Error("lost bytes were read")
	}
	addText(t, a, "n", "bytes")
	if got := readVersion(t, a, v.ID); got != "bytes" {
		t.Errorf("got %q", got)
	}
	for _, path := range []string{filepath.Join(dir, "none"), dir, blobs[0]} {
		_ = os.Symlink(other, blobs[0])
		if _, err := a.Add(t.Context(), NewArtifact{Name: "n", File: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestArtifactsLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := locker{dir: dir}.try(artifactLock)
	noError(t, err)
	a := OpenArtifacts(dir)
	a.wait = 60 * time.Millisecond
	_, err = a.Add(t.Context(), NewArtifact{Name: "n", Content: strings.NewReader("x")})
	want := "Timed out waiting for artifact store lock " + filepath.Join(dir, artifactLock)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if _, err := a.Add(ctx, NewArtifact{Name: "n", Content: strings.NewReader("x")}); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	a.wait = artifactTimeout
	done := make(chan error)
	go func() { // awaited below
		_, err := a.Add(t.Context(), NewArtifact{Name: "n", Content: strings.NewReader("x")})
		done <- err
	}()
	noError(t, lock.Release(), <-done)
	if left, _ := os.ReadDir(filepath.Join(dir, blobsDir)); len(left) != 1 {
		t.Errorf("blobs: %v", left)
	}
}

const artifactChild = "MARBLES_TEST_ARTIFACT_CHILD"

// TestArtifactChild is what the other processes of the tests below run.
func TestArtifactChild(t *testing.T) {
	role, dir, _ := strings.Cut(os.Getenv(artifactChild), " ")
	if role == "" {
		t.Skip("only as a child of other tests")
	}
	a := OpenArtifacts(dir)
	if point, ok := strings.CutPrefix(role, "die:"); ok {
		a.at = func(here string) {
			if here == point {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		addText(t, a, "dying", "new bytes")
		return
	}
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for i := range 4 {
				addText(t, a, role, fmt.Sprintf("%s %d %d", role, g, i))
			}
		})
	}
	wg.Wait()
}

func artifactProcess(role, dir string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=^TestArtifactChild$", "-test.count=1")
	c.Env = append(os.Environ(), artifactChild+"="+role+" "+dir)
	c.Stderr = os.Stderr
	return c
}

// Processes that add at once keep all that each of them added.
func TestArtifactsManyProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	var all []*exec.Cmd
	for _, role := range []string{"one", "two", "three"} {
		c := artifactProcess(role, dir)
		noError(t, c.Start())
		all = append(all, c)
	}
	for _, c := range all {
		noError(t, c.Wait())
	}
	a := OpenArtifacts(dir)
	list, err := a.List()
	noError(t, err)
	if len(list) != 3 {
		t.Fatalf("list %+v", list)
	}
	for _, art := range list {
		seen := map[string]bool{}
		for _, v := range art.Versions {
			seen[readVersion(t, a, v.ID)] = true
		}
		if len(seen) != 8 {
			t.Errorf("%s has %v", art.Name, seen)
		}
	}
}

// Whoever is killed leaves a store that can be read and added to, with what was there and with all of the new version or
// none of it.
func TestArtifactsKilled(t *testing.T) {
	for _, point := range []string{"staging", "staged", "locked", "published", "recorded"} {
		t.Run(point, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "artifacts")
			a := OpenArtifacts(dir)
			old := addText(t, a, "old", "old bytes")
			if err := artifactProcess("die:"+point, dir).Run(); err == nil {
				t.Fatal("it lives")
			}
			list, err := a.List()
			noError(t, err)
			if want := map[bool]int{true: 2, false: 1}[point == "recorded"]; len(list) != want {
				t.Errorf("list %+v, want %d", list, want)
			}
			if got := readVersion(t, a, old.ID); got != "old bytes" {
				t.Errorf("got %q", got)
			}
			// What it left goes once it is old.
			before := time.Now().Add(-2 * orphanAge)
			files, _ := filepath.Glob(filepath.Join(dir, blobsDir, "*"))
			for _, f := range files {
				noError(t, os.Chtimes(f, before, before))
			}
			next := OpenArtifacts(dir)
			v := addText(t, next, "next", "next bytes")
			if got := readVersion(t, next, v.ID) + readVersion(t, next, old.ID); got != "next bytesold bytes" {
				t.Errorf("got %q", got)
			}
			files, _ = filepath.Glob(filepath.Join(dir, blobsDir, "*"))
			if len(files) != len(list)+1 {
				t.Errorf("blobs %v, want %d", files, len(list)+1)
			}
		})
	}
}

// The records name only bytes that are on the disk, and each write is finished before the next one counts on it.
func TestArtifactsDurable(t *testing.T) {
	dir := t.TempDir()
	a := OpenArtifacts(dir)
	rec := &artifactSyncs{}
	a.fs = rec
	addText(t, a, "n", "x")
	want := "open blobs/tmp, sync, rename blobs, open blobs, sync, open tmp, sync, rename records, open ., sync"
	if got := strings.Join(rec.done, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	full := errors.New("no space left on device")
	rec.fail = full
	if _, err := a.Add(t.Context(), NewArtifact{Name: "n", Content: strings.NewReader("y")}); !errors.Is(err, full) {
		t.Errorf("disk full: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, blobsDir)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// artifactSyncs notes what is done to the file system.
type artifactSyncs struct {
	osFiles
	done []string
	fail error
}

func (s *artifactSyncs) open(name string, flag int, perm fs.FileMode) (handle, error) {
	what := "."
	switch {
	case strings.HasSuffix(name, tempExt) && strings.Contains(name, blobsDir):
		what = "blobs/tmp"
	case strings.HasSuffix(name, tempExt):
		what = "tmp"
	case filepath.Base(name) == blobsDir:
		what = blobsDir
	}
	s.done = append(s.done, "open "+what)
	h, err := s.osFiles.open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &syncNote{h, s}, nil
}

func (s *artifactSyncs) rename(from, to string) error {
	s.done = append(s.done, "rename records")
	return s.osFiles.rename(from, to)
}

func (s *artifactSyncs) renameNew(from, to string) error {
	s.done = append(s.done, "rename blobs")
	return s.osFiles.renameNew(from, to)
}

type syncNote struct {
	handle
	s *artifactSyncs
}

func (n *syncNote) Write(b []byte) (int, error) {
	if n.s.fail != nil {
		return 0, n.s.fail
	}
	return n.handle.Write(b)
}

func (n *syncNote) Sync() error {
	n.s.done = append(n.s.done, "sync")
	return n.handle.Sync()
}

func TestSaveStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	noError(t, SaveStream(path, false, bytes.NewReader([]byte("a"))))
	if err := SaveStream(path, false, bytes.NewReader([]byte("b"))); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	noError(t, SaveStream(path, true, bytes.NewReader([]byte("c"))))
	if got, _ := os.ReadFile(path); string(got) != "c" {
		t.Errorf("got %q", got)
	}
	broken := io.MultiReader(strings.NewReader("d"), errReader{})
	if err := SaveStream(path, true, broken); err == nil {
		t.Error("a broken stream was saved")
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if got, _ := os.ReadFile(path); string(got) != "c" || len(left) != 1 {
		t.Errorf("got %q, left %v", got, left)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("broken") }
