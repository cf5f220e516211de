package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// examine is what is found in a root: "kind path", sorted.
func examine(t *testing.T, w *Workspace, defined bool) (list []string, found []*Finding) {
	t.Helper()
	root := &Root{dir: filepath.Dir(w.dir)}
	found, err := root.Examine(t.Context(), Examination{Now: time.Now(), Defined: func(*Workspace, string) (bool, bool) { return defined, true }})
	noError(t, err)
	for _, f := range found {
		if f.What == "" || f.Cause == "" || f.Mend == "" || f.Where == "" {
			t.Errorf("a finding says too little: %+v", f)
		}
		rel, err := filepath.Rel(w.dir, f.Where)
		noError(t, err)
		list = append(list, f.Kind+" "+rel)
	}
	slices.Sort(list)
	return list, found
}

// snapshot is every file below a directory, with its mode, time and content.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	noError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			data, _ := os.ReadFile(path)
			text = string(data)
		}
		fmt.Fprintln(&b, path, info.Mode(), info.ModTime(), text)
		return nil
	}))
	return b.String()
}

func TestDoctor(t *testing.T) {
	old := time.Now().Add(-2 * time.Hour)
	put := func(t *testing.T, path, text string, at time.Time) {
		t.Helper()
		noError(t, os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at))
	}
	future := Stamp{time.Now().Add(24 * time.Hour)}
	run := func(t *testing.T, w *Workspace, id string, status Status, pid int) {
		t.Helper()
		f := testRun(id, status, time.Now().Add(-time.Minute))
		f.PID = pid
		if status == Suspended {
			f.Suspensions = []Suspension{{ID: "su-1", RunID: id, Kind: SuspendWait, Name: "w", Status: Pending, Request: []byte(`{}`), Timestamps: SuspensionTimes{CreatedAt: 1}}}
		}
		noError(t, w.putRun(w.writer(), w.path(runsDir, id+recordExt), f))
	}
	tests := []struct {
		name    string
		break_  func(t *testing.T, w *Workspace)
		found   []string // before
		left    []string // after --fix
		defined bool
	}{
		{"nothing", func(t *testing.T, w *Workspace) {
			run(t, w, "rn-1", Complete, 1)
			run(t, w, "rn-2", Running, os.Getpid())
		}, nil, nil, false},
		{"lock of a dead process", func(t *testing.T, w *Workspace) {
			put(t, w.path(locksDir, "schedule:a"), fmt.Sprint(deadPID(t)), old)
		}, []string{"lock locks/schedule:a"}, nil, false},
		{"lock of a pid that was given out again", func(t *testing.T, w *Workspace) {
			put(t, w.path(locksDir, "schedule:a"), fmt.Sprint(livePID(t)), old)
		}, []string{"lock locks/schedule:a"}, nil, false},
		{"locks that are held, or may be", func(t *testing.T, w *Workspace) {
			put(t, w.path(locksDir, "schedule:a"), fmt.Sprint(livePID(t)), time.Now().Add(time.Second))
			put(t, w.path(locksDir, "schedule:b"), "", time.Now())
			l, err := w.TryLock("service")
			noError(t, err)
			t.Cleanup(func() { _ = l.Release() })
		}, nil, nil, false},
		{"empty lock", func(t *testing.T, w *Workspace) { put(t, w.path(locksDir, "schedule:a"), "", old) },
			[]string{"lock locks/schedule:a"}, nil, false},
		{"lock that names nobody", func(t *testing.T, w *Workspace) { put(t, w.path(locksDir, "schedule:a"), "host-7", old) },
			[]string{"lock locks/schedule:a"}, []string{"lock locks/schedule:a"}, false},
		{"turn that nobody ended", func(t *testing.T, w *Workspace) {
			put(t, w.path(locksDir, "schedule:a"), fmt.Sprint(deadPID(t)), old)
			// Older than any process of this machine can be: a marbles may have run here for a while.
			put(t, w.path(locksDir, "schedule:a.break"), "", time.Unix(1e9, 0))
		}, []string{"break locks/schedule:a.break", "lock locks/schedule:a"}, []string{}, false},
		{"damaged records", func(t *testing.T, w *Workspace) {
			put(t, w.path(schedulesDir, "a.json"), "{", old)
			put(t, w.path(monitorsDir, "a.json"), "", old)
			put(t, w.path(healthDir, "a.json"), "[]", old)
			put(t, w.path(toldDir, "a.json"), "x", old)
			put(t, w.path(runsDir, "rn-1.json"), "x", old)
			put(t, w.path(runsDir, "rn-2.json"), `{"version":9}`, old)
			put(t, w.path(pausedFile), "x", old)
		}, []string{"damaged health/a.json", "damaged monitors/a.json", "damaged paused.json", "damaged runs/rn-1.json",
			"damaged runs/rn-2.json", "damaged schedules/a.json", "damaged told/a.json"},
			[]string{"damaged health/a.json", "damaged monitors/a.json", "damaged paused.json", "damaged runs/rn-1.json",
				"damaged runs/rn-2.json", "damaged schedules/a.json", "damaged told/a.json"}, false},
		{"index that contradicts a run", func(t *testing.T, w *Workspace) {
			run(t, w, "rn-1", Complete, 1)
			f := testRun("rn-1", Running, time.Now())
			noError(t, w.WriteRun(f))
		}, []string{"contrary runs/rn-1.json"}, nil, false},
		{"orphaned run", func(t *testing.T, w *Workspace) { run(t, w, "rn-1", Running, deadPID(t)) },
			[]string{"orphan runs/rn-1.json"}, []string{"orphan runs/rn-1.json"}, false},
		{"parked run, workflow gone", func(t *testing.T, w *Workspace) { run(t, w, "rn-1", Suspended, 1) },
			[]string{"definition runs/rn-1.json"}, []string{"definition runs/rn-1.json"}, false},
		{"parked run", func(t *testing.T, w *Workspace) { run(t, w, "rn-1", Suspended, 1) }, nil, nil, true},
		{"output without a run", func(t *testing.T, w *Workspace) { putOutput(t, w, "rn-1") }, []string{"journal output/rn-1.jsonl"}, nil, false},
		{"torn lines", func(t *testing.T, w *Workspace) {
			run(t, w, "rn-1", Complete, 1)
			put(t, w.path(outputDir, "rn-1.jsonl"), `{"kind":"start","ver`, old)
			put(t, w.path(slotsDir, "a.jsonl"), `{"slot":`, old)
			text, err := os.ReadFile(w.path(indexFile))
			noError(t, err)
			put(t, w.path(indexFile), string(text)+"rn-2\tcomp", old)
		}, []string{"torn output/rn-1.jsonl", "torn runs.index", "torn slots/a.jsonl"}, nil, false},
		{"open modes", func(t *testing.T, w *Workspace) {
			put(t, w.path(schedulesDir, "a.json"), "{}", old)
			noError(t, os.Chmod(w.path(schedulesDir, "a.json"), 0o644), os.Chmod(w.path(outputDir), 0o755), os.Chmod(filepath.Dir(w.dir), 0o777))
		}, []string{"mode ..", "mode output", "mode schedules"}, nil, false},
		{"temporary file", func(t *testing.T, w *Workspace) {
			put(t, w.path(runsDir, fmt.Sprintf(".rn-1.json.%d-1.tmp", deadPID(t))), "", old)
			put(t, w.path(runsDir, fmt.Sprintf(".rn-1.json.%d-1.tmp", os.Getpid())), "", time.Now())
		}, nil, nil, false},
		{"future", func(t *testing.T, w *Workspace) {
			noError(t, w.WriteKey("a", &KeyRecord{LastStart: future}))
			f := testRun("rn-1", Complete, future.Time)
			noError(t, w.WriteRun(f))
		}, []string{"future runs", "future schedules/a.json"}, []string{"future runs", "future schedules/a.json"}, false},
		{"dead service, and what it was asked", func(t *testing.T, w *Workspace) {
			run(t, w, "rn-1", Running, os.Getpid())
			put(t, w.path(heartbeatFile), fmt.Sprintf(`{"pid":%d,"startedAt":"2026-11-30T17:00:00.000Z","config":null,"version":1}`, deadPID(t)), old)
			noError(t, w.Ask(Request{Run: "rn-1", Action: ActionCancel, At: Stamp{old}}), w.Ask(Request{Run: "rn-2", Action: ActionCancel, At: Stamp{old}}))
		}, []string{"heartbeat heartbeat.json", "request requests/rn-1.json", "request requests/rn-2.json"},
			[]string{"heartbeat heartbeat.json", "request requests/rn-1.json"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			noError(t, w.Register(nil, time.Now()))
			tt.break_(t, w)
			before := snapshot(t, filepath.Dir(w.dir))
			got, found := examine(t, w, tt.defined)
			if tt.name == "temporary file" { // its name is not known beforehand
				if len(got) != 1 || !strings.HasPrefix(got[0], "temp runs/.rn-1.json.") {
					t.Error(got)
				}
			} else if !slices.Equal(got, tt.found) {
				t.Errorf("found %q, want %q", got, tt.found)
			}
			if after := snapshot(t, filepath.Dir(w.dir)); after != before {
				t.Errorf("the examination changed something:\n%s\nbefore:\n%s", after, before)
			}
			for _, f := range found {
				if f.Fixable() {
					noError(t, f.Fix())
				}
			}
			if got, _ := examine(t, w, tt.defined); !slices.Equal(got, tt.left) {
				t.Errorf("left %q, want %q", got, tt.left)
			}
		})
	}
}

// A turn that a living marbles may be at is left alone. This test is one.
func TestDoctorLeavesTurns(t *testing.T) {
	w := newWorkspace(t)
	noError(t, w.Register(nil, time.Now()))
	path := w.path(locksDir, "schedule:a.break")
	noError(t, os.WriteFile(path, nil, 0o600))
	if got, _ := examine(t, w, false); len(got) != 0 {
		t.Errorf("a turn that has just begun: %q", got)
	}
}

func TestDoctorNeedsARoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	r := &Root{dir: filepath.Join(file, "below")}
	if _, err := r.Examine(context.Background(), Examination{Now: time.Now()}); !errors.Is(err, ErrRoot) {
		t.Errorf("got %v", err)
	}
}
