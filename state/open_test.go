package state

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// notFiles puts something that is no regular file at a path.
func notFiles(t *testing.T) map[string]func(path string) error {
	return map[string]func(path string) error{
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"device":    func(path string) error { return os.Symlink("/dev/null", path) },
		"socket": func(path string) error {
			t.Chdir(filepath.Dir(path)) // the name of a socket must be short
			l, err := net.Listen("unix", filepath.Base(path))
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		},
	}
}

// soon fails the test where f hangs.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { // a hang ends with the test process
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

// What stands in a file's place and is no file is an error that names it, and never waited for.
func TestNotRegularFiles(t *testing.T) {
	const run = "rn-01j00000000000000000000000"
	tests := []struct {
		path    string
		damaged bool // can be set aside
		use     map[string]func(w *Workspace) error
	}{
		{"workspace.json", true, map[string]func(w *Workspace) error{
			"Record": func(w *Workspace) error { _, err := w.Record(); return err },
			"Survey": func(w *Workspace) error {
				_, damaged, err := (&Root{dir: filepath.Dir(w.dir)}).Survey()
				return errors.Join(append(damaged, err)...)
			},
		}},
		{"heartbeat.json", true, map[string]func(w *Workspace) error{
			"Heartbeat":       func(w *Workspace) error { _, err := w.Heartbeat(); return err },
			"RemoveHeartbeat": func(w *Workspace) error { return w.RemoveHeartbeat() },
		}},
		{"since.json", true, map[string]func(w *Workspace) error{
			"Since":      func(w *Workspace) error { _, err := w.Since(); return err },
			"WriteSince": func(w *Workspace) error { return w.WriteSince(nil) },
		}},
		{"schedules/k.json", true, map[string]func(w *Workspace) error{
			"Key": func(w *Workspace) error { _, err := w.Key("k"); return err },
		}},
		{"monitors/k.json", true, map[string]func(w *Workspace) error{
			"Monitor": func(w *Workspace) error { _, err := w.Monitor("k"); return err },
		}},
		{"runs/" + run + ".json", true, map[string]func(w *Workspace) error{
			"Run": func(w *Workspace) error { _, err := w.Run(run); return err },
			"Runs": func(w *Workspace) error {
				list, err := w.Runs(RunQuery{})
				return errors.Join(append(list.Damaged, err)...)
			},
			"Unsettled": func(w *Workspace) error {
				_, damaged, err := w.Unsettled()
				return errors.Join(append(damaged, err)...)
			},
		}},
		{"slots/k.jsonl", false, map[string]func(w *Workspace) error{
			"Slots":      func(w *Workspace) error { _, err := w.Slots("k", 1); return err },
			"AppendSlot": func(w *Workspace) error { return w.AppendSlot("k", SlotEntry{}, true) },
		}},
		{"output/" + run + ".jsonl", false, map[string]func(w *Workspace) error{
			"OpenJournal": func(w *Workspace) error { _, err := w.OpenJournal(run, "x", journalAt); return err },
			"ReadJournal": func(w *Workspace) error { return w.ReadJournal(run, nil) },
		}},
	}
	for kind, make := range notFiles(t) {
		for _, tt := range tests {
			t.Run(kind+"/"+tt.path, func(t *testing.T) {
				w := newWorkspace(t)
				path := w.path(tt.path)
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				noError(t, make(path))
				for name, use := range tt.use {
					soon(t, name, func() {
						err := use(w)
						if err == nil || !strings.Contains(err.Error(), path) {
							t.Errorf("%s: error %v", name, err)
						}
						var damaged *DamagedError
						if errors.As(err, &damaged) != tt.damaged {
							t.Errorf("%s: damaged is %v, want %v: %v", name, !tt.damaged, tt.damaged, err)
						}
					})
				}
				if tt.damaged {
					if _, err := (&DamagedError{Path: path}).SetAside(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// The index is no truth: what stands in its place costs only time, and is replaced.
func TestIndexThatIsNoFile(t *testing.T) {
	w := newWorkspace(t)
	noError(t, w.CreateRun(testRun(NewRunID(time.Now()), Complete, time.Now())))
	noError(t, os.Remove(w.path(indexFile)), unix.Mkfifo(w.path(indexFile), 0o600))
	soon(t, "an index", func() {
		noError(t, w.CreateRun(testRun(NewRunID(time.Now()), Complete, time.Now())))
		if list, err := w.Runs(RunQuery{}); err != nil || len(list.Runs) != 2 {
			t.Errorf("runs %v, %v", list, err)
		}
		noError(t, w.RebuildIndex())
	})
	if x := w.readIndex(); x.all != 2 {
		t.Errorf("%d lines in the index", x.all)
	}
}

// A workspace whose own record is a pipe can be registered again.
func TestRegisterOverPipe(t *testing.T) {
	w := newWorkspace(t)
	noError(t, os.Remove(w.path(workspaceFile)), unix.Mkfifo(w.path(workspaceFile), 0o600))
	soon(t, "Register", func() { noError(t, w.Register(nil, time.Now())) })
	if info, err := os.Lstat(w.path(workspaceFile + ".damaged")); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Errorf("set aside: %v, %v", info, err)
	}
}
