package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOpenCreates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	r, err := Open(dir)
	noError(t, err)
	if r.Dir() != dir {
		t.Errorf("dir %s, want %s", r.Dir(), dir)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if info, err := os.Stat(d); err != nil || info.Mode() != fs.ModeDir|0o700 {
			t.Errorf("%s: %v, %v", d, info, err)
		}
	}
	if _, err := Open(dir); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	loop := filepath.Join(dir, "loop")
	noError(t, os.Symlink("loop", loop))
	dangling := filepath.Join(dir, "dangling")
	noError(t, os.Symlink("nowhere/at/all", dangling))
	tests := []struct {
		name, path string
		write      string // part of the error, "" for none
		read       string
	}{
		{"a file", file, "it is not a directory", "it is not a directory"},
		{"below a file", filepath.Join(file, "x"), "not a directory", "not a directory"},
		{"empty", "", "the path is empty", "the path is empty"},
		{"a loop", loop, "symbolic links", "symbolic links"},
		{"a dangling link", dangling, "no such file", ""},
		{"NUL", "a\x00b", "invalid argument", "invalid argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, writeErr := Open(tt.path)
			_, readErr := OpenReader(tt.path)
			check := func(what string, err error, want string) {
				if want == "" {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					return
				}
				if !errors.Is(err, ErrRoot) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %s", what, err, want)
				}
			}
			check("Open", writeErr, tt.write)
			check("OpenReader", readErr, tt.read)
		})
	}
}

func TestOpenReadOnlyFileSystem(t *testing.T) {
	dir := t.TempDir()
	mountTemporary(t, dir, "mode=0755")
	r, err := Open(dir)
	noError(t, err)
	w, err := r.Workspace(t.TempDir())
	noError(t, err)
	noError(t, w.Register(nil, time.Now()))
	remountReadOnly(t, dir)
	if _, err := Open(dir); !errors.Is(err, ErrRoot) || !errors.Is(err, syscall.EROFS) {
		t.Errorf("Open: %v", err)
	}
	if err := w.Register(nil, time.Now()); !errors.Is(err, ErrRoot) {
		t.Errorf("Register: %v", err)
	}
	r, err = OpenReader(dir)
	noError(t, err)
	if list, err := r.Workspaces(); err != nil || len(list) != 1 {
		t.Errorf("Workspaces: %v, %v", list, err)
	}
}

func TestOpenWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root is refused nothing")
	}
	dir := t.TempDir()
	noError(t, os.Chmod(dir, 0o500))
	if _, err := Open(dir); !errors.Is(err, ErrRoot) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Open of a directory that cannot be written: %v", err)
	}
	if _, err := OpenReader(dir); err != nil {
		t.Errorf("OpenReader: %v", err)
	}
	noError(t, os.Chmod(dir, 0))
	if _, err := OpenReader(dir); !errors.Is(err, ErrRoot) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("OpenReader of a directory that cannot be read: %v", err)
	}
}

// fakeInfo is a directory of some owner and mode.
type fakeInfo struct {
	fs.FileInfo
	mode fs.FileMode
	uid  uint32
}

func (i fakeInfo) Mode() fs.FileMode { return i.mode | fs.ModeDir }
func (i fakeInfo) Sys() any          { return &syscall.Stat_t{Uid: i.uid} }

func TestCheckOwner(t *testing.T) {
	const nobody = 4_000_000_001 // no login name
	tests := []struct {
		name string
		euid int
		info fakeInfo
		want string
		hint string
	}{
		{"user, own", 1000, fakeInfo{mode: 0o700, uid: 1000}, "", ""},
		{"user, group may write", 1000, fakeInfo{mode: 0o775, uid: 1000}, "", ""},
		{"root, own", 0, fakeInfo{mode: 0o755}, "", ""},
		{"root, group may write", 0, fakeInfo{mode: 0o770}, "its mode is 0770", "chmod go-w /r"},
		{"root, all may write", 0, fakeInfo{mode: 0o707 | fs.ModeSticky}, "its mode is 0707", "chmod go-w /r"},
		{"root, another's", 0, fakeInfo{mode: 0o700, uid: nobody}, "it belongs to user #4000000001", "sudo -u #4000000001 marbles …"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := checkOwner("/r", tt.info, tt.euid)
			if tt.want == "" {
				noError(t, err)
				return
			}
			if !errors.Is(err, ErrRoot) || !strings.Contains(err.Error(), "/r: "+tt.want) {
				t.Errorf("error %v", err)
			}
			if got := HintOf(err); got != tt.hint {
				t.Errorf("hint %q, want %q", got, tt.hint)
			}
		})
	}
}

func TestRootOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give a directory away")
	}
	dir := t.TempDir()
	r, err := Open(dir)
	noError(t, err)
	w, err := r.Workspace(dir)
	noError(t, err)
	noError(t, w.Register(nil, time.Now()), os.Chown(w.Dir(), 12345, 0))
	if err := w.Register(nil, time.Now()); !errors.Is(err, ErrRoot) || !strings.HasPrefix(HintOf(err), "sudo -u ") {
		t.Errorf("Register in a foreign workspace: %v", err)
	}
	noError(t, os.Chown(dir, 12345, 0))
	if _, err := Open(dir); !errors.Is(err, ErrRoot) || HintOf(err) != "sudo -u #12345 marbles …" {
		t.Errorf("Open: %v, hint %q", err, HintOf(err))
	}
	if _, err := OpenReader(dir); err != nil {
		t.Errorf("OpenReader: %v", err)
	}
}

func TestHint(t *testing.T) {
	if Hint(nil, "x") != nil {
		t.Error("a hint makes an error of nil")
	}
	err := fmt.Errorf("cannot go: %w", Hint(fs.ErrExist, "walk"))
	if !errors.Is(err, fs.ErrExist) || HintOf(err) != "walk" || err.Error() != "cannot go: file already exists" {
		t.Errorf("%v, hint %q", err, HintOf(err))
	}
	if got := HintOf(Hint(err, "run")); got != "run" {
		t.Errorf("outer hint %q", got)
	}
	if HintOf(nil) != "" || HintOf(fs.ErrExist) != "" {
		t.Error("a hint from nowhere")
	}
}

func TestOpenTemporary(t *testing.T) {
	r, closeRoot, err := OpenTemporary()
	noError(t, err)
	w, err := r.Workspace(t.TempDir())
	noError(t, err)
	noError(t, w.Register(nil, time.Now()), closeRoot())
	if _, err := os.Stat(r.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}

func TestWorkspaceID(t *testing.T) {
	if got := WorkspaceID("/home/me/project"); got != "225df3094012" {
		t.Errorf("got %s", got)
	}
}

func TestWorkspaceOfLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	noError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	noError(t, os.Symlink(dir, link))
	r, err := OpenReader(filepath.Join(dir, "state"))
	noError(t, err)
	a, err := r.Workspace(dir)
	noError(t, err)
	b, err := r.Workspace(link)
	noError(t, err)
	if a.ID() != b.ID() || b.Project() != dir || a.ID() != WorkspaceID(dir) {
		t.Errorf("%s %s, %s %s", a.ID(), a.Project(), b.ID(), b.Project())
	}
	if _, err := r.Workspace(filepath.Join(dir, "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing project: %v", err)
	}
	wantFiles(t, dir, map[string]string{})
}

func TestWorkspaces(t *testing.T) {
	r, err := Open(t.TempDir())
	noError(t, err)
	projects := t.TempDir()
	var want []string
	for _, name := range []string{"b", "a", "c"} {
		dir := filepath.Join(projects, name)
		noError(t, os.Mkdir(dir, 0o700))
		w, err := r.Workspace(dir)
		noError(t, err)
		noError(t, w.Register(nil, time.Now()))
		want = append(want, w.Project())
	}
	want[0], want[1] = want[1], want[0]
	for name, text := range map[string]string{
		"111111111111": `{"id":5}`,
		"222222222222": `{"id":"222222222222","ro`,
		"333333333333": `{"id":"111111111111","root":"/x"}`,
		"444444444444": `{"id":"444444444444","root":""}`,
		"555555555555": `{"id":"555555555555","root":"/x","version":2}`,
		"stray":        `{"id":"stray","root":"/x","version":1}`,
		"ABCDEFABCDEF": `{"id":"ABCDEFABCDEF","root":"/x","version":1}`,
	} {
		noError(t, os.Mkdir(filepath.Join(r.Dir(), name), 0o700))
		noError(t, os.WriteFile(filepath.Join(r.Dir(), name, "workspace.json"), []byte(text), 0o600))
	}
	noError(t, os.Mkdir(filepath.Join(r.Dir(), "666666666666"), 0o700))
	noError(t, os.WriteFile(filepath.Join(r.Dir(), "777777777777"), nil, 0o600))
	list, damaged, err := r.Survey()
	noError(t, err)
	var got []string
	for _, w := range list {
		got = append(got, w.Project())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("projects (-want +got):\n%s", diff)
	}
	if len(damaged) != 5 {
		t.Errorf("%d damaged: %v", len(damaged), damaged)
	}
}

// Reading creates nothing, in a root that is not there and in one that is.
func TestReadingCreatesNothing(t *testing.T) {
	read := func(t *testing.T, r *Root, project string) {
		t.Helper()
		list, err := r.Workspaces()
		noError(t, err)
		w, err := r.Workspace(project)
		noError(t, err)
		for _, w := range append(list, w) {
			_, _ = w.Record()
			keys, err := w.Keys()
			noError(t, err)
			_, err = w.Key("k")
			noError(t, err)
			_, err = w.Monitor("k")
			noError(t, err)
			_, err = w.Since()
			noError(t, err)
			_, err = w.Heartbeat()
			noError(t, err)
			_, err = w.Slots("k", 1)
			noError(t, err)
			runs, err := w.Runs(RunQuery{})
			noError(t, err)
			_, _, err = w.Overview(5)
			noError(t, err)
			_, _, err = w.Unsettled()
			noError(t, err)
			if _, err := w.FindRun("u"); !errors.Is(err, ErrUnknownRun) {
				t.Errorf("FindRun: %v", err)
			}
			if _, err := w.Run("rn-x"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Run: %v", err)
			}
			if len(keys) != 0 || len(runs.Runs) > 1 {
				t.Errorf("keys %v, runs %v", keys, runs)
			}
		}
	}
	t.Run("no root", func(t *testing.T) {
		dir := t.TempDir()
		r, err := OpenReader(filepath.Join(dir, "state"))
		noError(t, err)
		read(t, r, dir)
		wantFiles(t, dir, map[string]string{})
	})
	t.Run("a root", func(t *testing.T) {
		w := newWorkspace(t)
		noError(t, w.CreateRun(testRun(NewRunID(time.Now()), Complete, time.Now())))
		// Without the index a reader has to work harder, but must not write one.
		noError(t, os.Remove(w.path(indexFile)))
		before := tree(t, filepath.Dir(w.Dir()))
		r, err := OpenReader(filepath.Dir(w.Dir()))
		noError(t, err)
		read(t, r, t.TempDir())
		if diff := cmp.Diff(before, tree(t, r.Dir())); diff != "" {
			t.Errorf("reading changed something:\n%s", diff)
		}
	})
}

// A directory below the workspace that others may write is as bad as the workspace itself.
func TestSubdirectoriesOthersMayWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root refuses such directories")
	}
	for _, dir := range []string{"runs", "output", "schedules", "slots", "monitors", "health", "cache", "locks"} {
		for name, change := range map[string]func(path string) error{
			"mode":   func(path string) error { return os.Chmod(path, 0o777) },
			"owner":  func(path string) error { return os.Chown(path, 12345, 0) },
			"a link": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/tmp", path)) },
		} {
			t.Run(dir+"/"+name, func(t *testing.T) {
				w := newWorkspace(t)
				path := w.path(dir)
				noError(t, change(path))
				err := w.Register(nil, time.Now())
				if !errors.Is(err, ErrRoot) || !strings.Contains(err.Error(), path) || HintOf(err) == "" {
					t.Errorf("Register: %v, hint %q", err, HintOf(err))
				}
				if _, err := w.Record(); err != nil {
					t.Errorf("a reader: %v", err)
				}
			})
		}
	}
	w := newWorkspace(t)
	noError(t, w.checkOwners(1000), w.checkOwners(0), os.Remove(w.path("slots")), w.checkOwners(0))
	// In another user's workspace nothing is made before it is refused.
	noError(t, os.Chown(w.dir, 12345, 0))
	if err := w.Register(nil, time.Now()); !errors.Is(err, ErrRoot) {
		t.Errorf("Register: %v", err)
	}
	if _, err := os.Lstat(w.path("slots")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
}

// A path is bytes: a project directory whose name is not UTF-8 comes back as it is.
func TestProjectThatIsNotUTF8(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	noError(t, err)
	project := filepath.Join(dir, "b\xff\xfe")
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Skip("no such name here:", err) // macOS
	}
	r, err := Open(filepath.Join(dir, "state"))
	noError(t, err)
	w, err := r.Workspace(project)
	noError(t, err)
	noError(t, w.Register(nil, time.Now()), w.Register(nil, time.Now()))
	list, damaged, err := r.Survey()
	noError(t, err)
	if len(list) != 1 || len(damaged) != 0 || list[0].Project() != project {
		t.Fatalf("workspaces %v, damaged %v", list, damaged)
	}
	rec, err := w.Record()
	noError(t, err)
	if !strings.HasSuffix(rec.Root, "/b\uFFFD\uFFFD") || rec.Project() != project {
		t.Errorf("root %q, project %q", rec.Root, rec.Project())
	}
	// A program of the first format keeps the member, and may write another root.
	rec.ID, rec.Root = WorkspaceID("/elsewhere"), "/elsewhere"
	if got := rec.Project(); got != "/elsewhere" {
		t.Errorf("project %q", got)
	}
	rec.setProject("/plain")
	if rec.RootBytes != nil {
		t.Errorf("bytes %q beside a path that is UTF-8", rec.RootBytes)
	}
}
