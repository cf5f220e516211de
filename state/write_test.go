package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// faultyFiles is the real file system with a record of what was asked of it, and
// with one operation that fails.
type faultyFiles struct {
	fail  string // operation
	err   error
	short bool // a failing write writes half

	mu    sync.Mutex
	calls []string
}

func (f *faultyFiles) call(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := filepath.Base(path)
	if strings.HasSuffix(name, tempExt) {
		name = "tmp"
	}
	f.calls = append(f.calls, op+" "+name)
	if op == f.fail {
		return f.err
	}
	return nil
}

func (f *faultyFiles) open(name string, flag int, perm fs.FileMode) (handle, error) {
	op := "open"
	if flag == os.O_RDONLY {
		op = "opendir"
	} else if flag&os.O_EXCL == 0 || perm != 0o600 {
		return nil, fmt.Errorf("open with flags %#x and mode %v", flag, perm)
	}
	if err := f.call(op, name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	h, err := osFiles{}.open(name, flag, perm)
	return &faultyHandle{h, name, strings.TrimPrefix(op, "open"), f}, err
}

func (f *faultyFiles) rename(from, to string) error {
	if err := f.call("rename", to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return osFiles{}.rename(from, to)
}

func (f *faultyFiles) renameNew(from, to string) error {
	if err := f.call("renamenew", to); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return osFiles{}.renameNew(from, to)
}

func (f *faultyFiles) remove(name string) error {
	if err := f.call("remove", name); err != nil {
		return err
	}
	return osFiles{}.remove(name)
}

type faultyHandle struct {
	handle
	name, kind string
	fs         *faultyFiles
}

func (h *faultyHandle) Write(b []byte) (int, error) {
	if err := h.fs.call("write", h.name); err != nil {
		n := 0
		if h.fs.short {
			n, _ = h.handle.Write(b[:len(b)/2])
		}
		return n, &fs.PathError{Op: "write", Path: h.name, Err: err}
	}
	return h.handle.Write(b)
}

func (h *faultyHandle) Sync() error {
	if err := h.fs.call("sync"+h.kind, h.name); err != nil {
		return &fs.PathError{Op: "sync", Path: h.name, Err: err}
	}
	return h.handle.Sync()
}

func (h *faultyHandle) Close() error {
	err := h.fs.call("close"+h.kind, h.name)
	return errors.Join(err, h.handle.Close())
}

func TestWriteOrder(t *testing.T) {
	tests := []struct {
		name string
		how  writer
		want []string
	}{
		{
			name: "durable",
			want: []string{
				"open tmp", "write tmp", "sync tmp", "close tmp",
				"rename x.json", "opendir d", "syncdir d", "closedir d",
			},
		},
		{
			name: "fresh",
			how:  writer{fresh: true},
			want: []string{
				"open tmp", "write tmp", "sync tmp", "close tmp",
				"renamenew x.json", "opendir d", "syncdir d", "closedir d",
			},
		},
		{
			name: "lazy",
			how:  writer{lazy: true},
			want: []string{"open tmp", "write tmp", "close tmp", "rename x.json"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			noError(t, os.Mkdir(dir, 0o700))
			files := &faultyFiles{}
			tt.how.fs = files
			noError(t, tt.how.write(filepath.Join(dir, "x.json"), []byte("new")))
			if diff := cmp.Diff(tt.want, files.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWriteFaults is operation × error × what is on disk afterwards.
func TestWriteFaults(t *testing.T) {
	const older, newer = "older content", "newer"
	tests := []struct {
		fail  string
		short bool
		step  string // in the error
		disk  string
	}{
		{fail: "open", step: "create", disk: older},
		{fail: "write", step: "write", disk: older},
		{fail: "write", short: true, step: "write", disk: older},
		{fail: "sync", step: "sync", disk: older},
		{fail: "close", step: "close", disk: older},
		{fail: "rename", step: "rename", disk: older},
		// Too late to go back: the new file is there, and the caller hears of it.
		{fail: "opendir", step: "sync directory", disk: newer},
		{fail: "syncdir", step: "sync directory", disk: newer},
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EROFS, syscall.EDQUOT, syscall.EACCES} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s/%v/short=%t", tt.fail, errno, tt.short), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x.json")
				noError(t, os.WriteFile(path, []byte(older), 0o600))
				files := &faultyFiles{fail: tt.fail, err: errno, short: tt.short}
				err := writer{fs: files}.write(path, []byte(newer))
				if !errors.Is(err, errno) {
					t.Fatalf("error %v, want %v", err, errno)
				}
				if want := fmt.Sprintf("cannot write %s: %s: %v", path, tt.step, errno); err.Error() != want {
					t.Errorf("error %q, want %q", err, want)
				}
				wantFiles(t, filepath.Dir(path), map[string]string{"x.json": tt.disk})
			})
		}
	}
}

func TestWriteDirectoryThatCannotSync(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.ENOTSUP} {
		path := filepath.Join(t.TempDir(), "x.json")
		err := writer{fs: &faultyFiles{fail: "syncdir", err: errno}}.write(path, []byte("x"))
		if err != nil {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// wantFiles checks all that is in a directory.
func wantFiles(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	noError(t, err)
	got := make(map[string]string)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		noError(t, err)
		got[e.Name()] = string(data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files in %s (-want +got):\n%s", dir, diff)
	}
}

func TestWriteFresh(t *testing.T) {
	renames := map[string]func(from, to string) error{"rename": renameNew, "link": linkNew}
	for name, rename := range renames {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			noError(t, os.WriteFile(from, []byte("a"), 0o600))
			noError(t, rename(from, to))
			wantFiles(t, dir, map[string]string{"b": "a"})
			noError(t, os.WriteFile(from, []byte("c"), 0o600))
			if err := rename(from, to); !errors.Is(err, fs.ErrExist) {
				t.Errorf("onto an existing file: %v", err)
			}
			wantFiles(t, dir, map[string]string{"a": "c", "b": "a"})
		})
	}
}

func TestWriteFileModeAndNames(t *testing.T) {
	dir := t.TempDir()
	tests := []struct{ name, file string }{
		{"plain", "x.json"},
		{"long", strings.Repeat("k", 250) + ".json"},
		{"hostile", "a b\n*;$(x).json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.file)
			noError(t, WriteFile(path, []byte("1")), WriteFile(path, []byte("2")))
			info, err := os.Stat(path)
			noError(t, err)
			if info.Mode() != 0o600 || info.Size() != 1 {
				t.Errorf("mode %v, size %d", info.Mode(), info.Size())
			}
		})
	}
	err := WriteFile(filepath.Join(dir, "none", "x"), nil)
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), ".tmp") {
		t.Errorf("missing directory: %v", err)
	}
}

// TestWriteFileKilled kills a process that does nothing but write, again and again.
func TestWriteFileKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	if target := os.Getenv("MARBLES_TEST_WRITE"); target != "" {
		for i := 0; ; i = (i + 1) % 10 {
			text := strings.Repeat(string(rune('0'+i)), 5000*(i+1))
			noError(t, WriteFile(target, []byte(text)))
		}
	}
	for round := range 8 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWriteFileKilled$")
		cmd.Env = append(os.Environ(), "MARBLES_TEST_WRITE="+path)
		noError(t, cmd.Start())
		for start := time.Now(); ; {
			if _, err := os.Stat(path); err == nil || time.Since(start) > 10*time.Second {
				break
			}
			time.Sleep(time.Millisecond) // another process: its time is real
		}
		time.Sleep(time.Duration(round*7) * time.Millisecond)
		noError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		data, err := os.ReadFile(path)
		noError(t, err)
		if n := len(data); n == 0 || n != 5000*int(data[0]-'0'+1) || strings.Trim(string(data), string(data[:1])) != "" {
			t.Fatalf("round %d: not one whole write: %d bytes", round, n)
		}
	}
}

func TestWriteFullDisk(t *testing.T) {
	dir := t.TempDir()
	mountTemporary(t, dir, "size=64k")
	path := filepath.Join(dir, "x.json")
	noError(t, WriteFile(path, []byte("old")))
	err := WriteFile(path, make([]byte, 1<<20))
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
	wantFiles(t, dir, map[string]string{"x.json": "old"})
	noError(t, WriteFile(path, []byte("new")))
}

func TestSweep(t *testing.T) {
	w := newWorkspace(t)
	dead := exec.CommandContext(t.Context(), "true")
	noError(t, dead.Run())
	gone := dead.Process.Pid
	parent := os.Getppid()
	old := time.Now().Add(-2 * ownTempAge)
	files := []struct {
		path  string
		old   bool
		swept bool
	}{
		{path: fmt.Sprintf("runs/.rn-1.json.%d-abc.tmp", gone), swept: true},
		{path: fmt.Sprintf(".workspace.json.%d-abc.tmp", gone), swept: true},
		{path: fmt.Sprintf("schedules/.a.b-2.json.%d-abc.tmp", gone), swept: true},
		{path: fmt.Sprintf("monitors/.m.json.%d-abc.tmp", gone), swept: true},
		{path: fmt.Sprintf("health/.m.json.%d-abc.tmp", gone), swept: true},
		{path: fmt.Sprintf("cache/.m.%d-abc.tmp", gone), swept: true},
		{path: "cache/m.tmp"}, // a key's
		{path: fmt.Sprintf("locks/.schedule:a.%d-abc.tmp", gone), swept: true},
		{path: "locks/schedule:a"},
		{path: fmt.Sprintf("locks/.schedule:a.%d-abc.tmp", parent), old: true},
		{path: fmt.Sprintf("runs/.rn-1.json.%d-abc.tmp", parent), old: true},
		{path: fmt.Sprintf("runs/.rn-1.json.%d-abc.tmp", os.Getpid())},
		// In a container the service before us had our pid.
		{path: fmt.Sprintf("runs/.rn-2.json.%d-abc.tmp", os.Getpid()), old: true, swept: true},
		{path: "runs/rn-1.json.7c0e4f1e-7c3b-4a43-9d0a-3e7c2b9a1f00.tmp", old: true},
		{path: fmt.Sprintf("runs/rn-%d-abc.tmp", gone)},
		{path: "runs/.rn-1.json.-5-abc.tmp"},
		{path: "runs/.tmp"},
		{path: fmt.Sprintf("runs/rn-1.json.%d-abc", gone)},
		{path: "runs/rn-1.json"},
	}
	var want []string
	for _, f := range files {
		path := w.path(f.path)
		noError(t, os.WriteFile(path, nil, 0o600))
		if f.old {
			noError(t, os.Chtimes(path, old, old))
		}
		if f.swept {
			want = append(want, path)
		}
	}
	got, err := w.Sweep()
	noError(t, err)
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("swept (-want +got):\n%s", diff)
	}
	for _, f := range files {
		if _, err := os.Stat(w.path(f.path)); errors.Is(err, fs.ErrNotExist) != f.swept {
			t.Errorf("%s: %v", f.path, err)
		}
	}
	again, err := w.Sweep()
	noError(t, err)
	if len(again) != 0 {
		t.Errorf("second sweep: %v", again)
	}
}

// Every temporary name is one that Sweep understands.
func TestTempNameIsSwept(t *testing.T) {
	for _, name := range []string{"x.json", "rn-1.json", strings.Repeat("a-b.", 60) + ".json", "."} {
		tmp := filepath.Base(tempName("/d/" + name))
		pid, ok := tempWriter(strings.TrimSuffix(tmp, tempExt))
		if !ok || pid != os.Getpid() || len(tmp) > 255 {
			t.Errorf("%q: pid %d, %t", tmp, pid, ok)
		}
	}
}
