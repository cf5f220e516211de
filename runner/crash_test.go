package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// The test binary started with crashEnv set to a directory is a marbles that ticks a key there and is killed at the
// point in crashPoint.
const (
	crashEnv   = "MARBLES_TEST_CRASH"
	crashPoint = "MARBLES_TEST_POINT"
	crashShape = "MARBLES_TEST_SHAPE"
)

// shapes of a workflow that says on which run it began.
const (
	shortShape = `echo $MARBLES_RUN_ID >> $DIR/began; echo some output; echo '"done"' > $MARBLES_RESULT_FILE`
	longShape  = `sleep 30 & echo $! >> $DIR/pids; (trap '' TERM; exec env -i sleep 30) & echo $! >> $DIR/pids
setsid sh -c 'echo $$ >> $DIR/pids; exec sleep 30' & echo $$ >> $DIR/pids; echo some output
while [ $(wc -l < $DIR/pids) -lt 4 ]; do sleep 0.01; done; echo $MARBLES_RUN_ID >> $DIR/began; wait`
)

func crashWorkflow(dir, shape string) *Workflow {
	wf := shell("job", shape)
	wf.Env = []string{"DIR=" + dir, "PATH=" + os.Getenv("PATH")}
	return wf
}

func began(dir string) []string {
	b, _ := os.ReadFile(filepath.Join(dir, "began"))
	return strings.Fields(string(b))
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// opened is the workspace of workspaceIn, for a process that the test starts.
func opened(dir string) *state.Workspace {
	root, err := state.Open(filepath.Join(dir, "state"))
	if err != nil {
		panic(err)
	}
	ws, err := root.Workspace(filepath.Join(dir, "project"))
	if err != nil {
		panic(err)
	}
	return ws
}

// crash is the process that dies.
func crash(dir string) {
	if os.Getenv(crashPoint) == "storm" {
		storm(dir)
	}
	if os.Getenv(crashPoint) == "adopter" {
		adopter(dir)
	}
	if rest, ok := strings.CutPrefix(os.Getenv(crashPoint), "takeover:"); ok {
		how, point, _ := strings.Cut(rest, ":")
		takeover(dir, how, point)
	}
	if point, ok := strings.CutPrefix(os.Getenv(crashPoint), "unit:"); ok {
		unitCrash(dir, point)
	}
	if point, ok := strings.CutPrefix(os.Getenv(crashPoint), "park:"); ok {
		parkCrash(dir, point)
	}
	ws := opened(dir)
	w := New(Options{TempDir: dir})
	point := os.Getenv(crashPoint)
	w.hook = func(at string) {
		if at == "claim" && point == "running" {
			select {} // the run file is there before the key's record
		}
		if at != point {
			return
		}
		if point == "run file" { // the key's record is there before the run file
			for {
				if rec, err := ws.Key("k"); err == nil && rec != nil && rec.Run != "" {
					die()
				}
				time.Sleep(time.Millisecond)
			}
		}
		if point == "spawned" && os.Getenv(crashShape) == longShape {
			for len(began(dir)) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		die()
	}
	tick := schedule(w, ws, slotTime, crashWorkflow(dir, os.Getenv(crashShape)))
	if strings.HasPrefix(point, "queued") {
		w = New(Options{Concurrency: 1, TempDir: dir})
		if _, err := w.Start(Launch{Workspace: ws, Workflow: shell("blocker", "sleep 30")}); err != nil {
			panic(err)
		}
		tick.Body = w.Body(Launch{Workflow: crashWorkflow(dir, os.Getenv(crashShape))})
		go func() {
			for {
				// The key's record names a run that waits.
				if rec, err := ws.Key("k"); err == nil && rec != nil && rec.Run != "" {
					die()
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	w.Tick(context.Background(), tick)
	fmt.Println("not killed at", point)
}

// killAt lets a marbles die at a point.
func killAt(t testing.TB, dir, point, shape string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), crashEnv+"="+dir, crashPoint+"="+point, crashShape+"="+shape)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("%v: %s", err, out)
	}
}

// After a crash between any two writes, whatever comes next starts a slot once or never, and never twice.
func TestCrash(t *testing.T) {
	type want struct {
		Starts int          // all in all; -1: the process was started or not, at most once
		Never  bool         // Recover gives the run back
		Status state.Status // of the run that was at work, after all; "" for none
		Error  string
		Ledger []string
	}
	const interrupted = "InterruptedError"
	ran := []string{"02:30 ran"}
	tests := []struct {
		point, shape string
		want         want
	}{
		{"locked", shortShape, want{1, false, "", "", ran}},
		{"journal", shortShape, want{1, false, "", "", ran}},
		{"queued", shortShape, want{1, true, state.Complete, "", ran}},
		{"run file", shortShape, want{1, false, "", "", ran}},
		{"running", shortShape, want{1, true, state.Complete, "", ran}},
		{"keyed", shortShape, want{1, true, state.Complete, "", ran}},
		{"spawning", shortShape, want{0, false, state.Failed, interrupted, ran}},
		{"forked", shortShape, want{-1, false, state.Failed, interrupted, ran}},
		{"spawned", longShape, want{1, false, state.Failed, interrupted, ran}},
		{"ended", shortShape, want{1, false, state.Complete, "", ran}},
		{"settled", shortShape, want{1, false, state.Complete, "", ran}},
		{"ledger", shortShape, want{1, false, state.Complete, "", ran}},
		{"history", shortShape, want{1, false, state.Complete, "", ran}},
	}
	for _, next := range []string{"service", "tick"} {
		for _, test := range tests {
			t.Run(next+"/"+test.point, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				ws := workspaceIn(t, dir)
				killAt(t, dir, test.point, test.shape)
				var first string // the run at work
				list, err := ws.Runs(state.RunQuery{Key: "k"})
				if err != nil {
					t.Fatal(err)
				}
				if len(list.Runs) > 0 {
					first = list.Runs[0].ID
				}
				w := newWorker(t, Options{Grace: 300 * time.Millisecond, TempDir: dir})
				tick := schedule(w, ws, slotTime, crashWorkflow(dir, test.shape))
				var got want
				if next == "service" {
					runs, err := w.Recover(t.Context(), ws)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range runs {
						if f.Run.Extensions.TriggerID != "k" { // what kept the place
							if err := w.Abandon(ws, f, "not this one"); err != nil {
								t.Error(err)
							}
							continue
						}
						got.Never = true
						again := tick
						again.Body = w.Body(Launch{Workflow: crashWorkflow(dir, test.shape), Queued: f})
						if res := w.Tick(t.Context(), again); res.Outcome != state.SlotRan || res.Err != nil || res.Result.RunID != first {
							t.Errorf("resumed: got %+v", res)
						}
					}
					noLocks(t, ws)
				}
				res := w.Tick(t.Context(), tick)
				if res.Outcome == state.SlotRan && res.Err != nil {
					t.Errorf("got %+v", res)
				}
				if again := w.Tick(t.Context(), tick); again.Outcome != "" || again.Err != nil {
					t.Errorf("after all the slot is still due: %+v", again)
				}
				got.Starts, got.Ledger = len(began(dir)), ledger(t, ws, "k")
				if test.want.Starts < 0 && got.Starts <= 1 {
					got.Starts = test.want.Starts
				}
				if first != "" {
					f := runFile(t, ws, first)
					got.Status = f.Run.Status
					if f.Run.Error != nil {
						got.Error = f.Run.Error.Name
					}
				}
				expect := test.want
				if next == "tick" && expect.Never {
					// A tick of its own stands for the run that never began. One that is not named by the record it
					// does not know of: a service will settle it.
					expect.Never = false
					expect.Status, expect.Error = state.Cancelled, "CancelledError"
					if test.point == "running" {
						expect.Status, expect.Error = list.Runs[0].Status, ""
					}
				}
				if diff := cmp.Diff(expect, got); diff != "" {
					t.Error(diff)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, scratchPrefix+"*")); next == "service" && len(left) > 1 {
					t.Errorf("private directories are left: %v", left)
				}
				checkRecord(t, ws, test.want.Status == state.Failed)
				reapZombies()
				if test.shape == longShape {
					gone(t, pidsIn(t, filepath.Join(dir, "pids"))...)
				}
				if next == "tick" { // what a service finds then
					runs, err := w.Recover(t.Context(), ws)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range runs {
						if err := w.Abandon(ws, f, "its slot was taken"); err != nil {
							t.Error(err)
						}
					}
				}
				noLocks(t, ws)
				if files, _, err := ws.Unsettled(); len(files) != 0 || err != nil {
					t.Errorf("unsettled: %+v, %v", files, err)
				}
			})
		}
	}
}

func checkRecord(t *testing.T, ws *state.Workspace, failed bool) {
	t.Helper()
	rec := record(t, ws, "k")
	status := "complete"
	if failed {
		status = "failed"
	}
	if rec.LastStatus != status || rec.LastFinish.Before(rec.LastStart.Time.Truncate(time.Millisecond)) || !rec.Slot.Equal(slotTime) || failed != (rec.LastError != "") {
		t.Errorf("got %+v", rec)
	}
}

// The journal of an interrupted run keeps its output, and says how it ended (C62).
func TestInterruptedJournal(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "spawned", longShape)
	w := newWorker(t, Options{Grace: 300 * time.Millisecond})
	if runs, err := w.Recover(t.Context(), ws); err != nil || len(runs) != 0 {
		t.Fatalf("got %v, %v", runs, err)
	}
	list, err := ws.Runs(state.RunQuery{Key: "k"})
	if err != nil || len(list.Runs) != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	id := list.Runs[0].ID
	var kinds []string
	var end state.Entry
	err = ws.ReadJournal(id, func(e state.Entry) error {
		kinds, end = append(kinds, e.Kind), e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"start", "text", "spawn", "process", "start", "text", "end"}, kinds); diff != "" {
		t.Error(diff)
	}
	if end.Status != state.Failed || end.Error == nil || end.Error.Name != "InterruptedError" {
		t.Errorf("got %+v", end)
	}
	f := runFile(t, ws, id)
	if len(f.Steps) != 1 || f.Steps[0].Status != state.Failed || f.Run.Timestamps.FailedAt == 0 {
		t.Errorf("got %+v", f)
	}
	if got := lines(t, ws, id); len(got) != 2 || got[1] != "[step] job failed: "+f.Run.Error.Message {
		t.Errorf("got %q", got)
	}
	// Once more changes nothing.
	before := f
	if runs, err := w.Recover(t.Context(), ws); err != nil || len(runs) != 0 {
		t.Errorf("got %v, %v", runs, err)
	}
	if diff := cmp.Diff(before, runFile(t, ws, id)); diff != "" {
		t.Error(diff)
	}
	reapZombies()
	gone(t, pidsIn(t, filepath.Join(dir, "pids"))...)
}

// deadRun writes a run file as a process that is gone left it.
func deadRun(t testing.TB, ws *state.Workspace, status state.Status, change func(f *state.RunFile)) *state.RunFile {
	t.Helper()
	w := New(Options{})
	r := w.newRun(Launch{Workspace: ws, Workflow: shell("job", "true"), RunID: state.NewRunID(time.Now())}, nil)
	f := r.newFile(time.Now())
	f.Run.Status = status
	if status == state.Suspended {
		f.Suspensions = []state.Suspension{{ID: "su-1", RunID: f.Run.ID, Kind: state.SuspendInput, Status: state.Pending}}
	}
	if err := ws.CreateRun(f); err != nil {
		t.Fatal(err)
	}
	// WriteRun names this process, so the owner is put in by hand.
	f.PID, f.StartTicks = os.Getpid(), 1
	change(f)
	rewriteOwner(t, ws, f)
	return runFile(t, ws, f.Run.ID)
}

func rewriteOwner(t testing.TB, ws *state.Workspace, f *state.RunFile) {
	t.Helper()
	path := filepath.Join(ws.Dir(), "runs", f.Run.ID+".json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	self := state.Self()
	text := strings.Replace(string(b), fmt.Sprintf(`"startTicks": %d`, self.StartTicks), fmt.Sprintf(`"startTicks": %d`, f.StartTicks), 1)
	text = strings.Replace(text, fmt.Sprintf(`"bootId": %q`, self.BootID), fmt.Sprintf(`"bootId": %q`, f.BootID), 1)
	text = strings.Replace(text, fmt.Sprintf(`"pid": %d`, self.PID), fmt.Sprintf(`"pid": %d`, f.PID), 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What recovery makes of each case of its comment.
func TestRecoverCases(t *testing.T) {
	self := state.Self()
	open := func(t *testing.T, ws *state.Workspace, f *state.RunFile) *state.Journal {
		j, err := ws.OpenJournal(f.Run.ID, "job", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = j.Close() })
		return j
	}
	none := func(*state.RunFile) {}
	tests := []struct {
		name   string
		status state.Status
		file   func(f *state.RunFile)
		disk   func(t *testing.T, ws *state.Workspace, f *state.RunFile)
		never  bool
		want   state.Status
	}{
		{"queued", state.Queued, none, nil, true, state.Queued},
		{"queued by a live owner", state.Queued, func(f *state.RunFile) { f.StartTicks = self.StartTicks }, nil, false, state.Queued},
		{"suspended", state.Suspended, none, nil, false, state.Suspended},
		{"running, no journal", state.Running, none, nil, false, state.Failed},
		{"running, no spawn", state.Running, none, func(t *testing.T, ws *state.Workspace, f *state.RunFile) { open(t, ws, f) }, true, state.Running},
		{"running, no spawn, earlier boot", state.Running, func(f *state.RunFile) { f.BootID = "earlier" },
			func(t *testing.T, ws *state.Workspace, f *state.RunFile) { open(t, ws, f) }, false, state.Failed},
		{"running by a live owner", state.Running, func(f *state.RunFile) { f.StartTicks = self.StartTicks },
			func(t *testing.T, ws *state.Workspace, f *state.RunFile) { open(t, ws, f) }, false, state.Running},
		{"running, spawn", state.Running, none, func(t *testing.T, ws *state.Workspace, f *state.RunFile) {
			if err := open(t, ws, f).Spawning(time.Now(), "job", nil); err != nil {
				t.Fatal(err)
			}
		}, false, state.Failed},
		{"running, spawn in an earlier attempt", state.Running, none, func(t *testing.T, ws *state.Workspace, f *state.RunFile) {
			if err := open(t, ws, f).Spawning(time.Now(), "job", nil); err != nil {
				t.Fatal(err)
			}
			open(t, ws, f)
		}, false, state.Failed},
		{"running, ended before a spawn", state.Running, none, func(t *testing.T, ws *state.Workspace, f *state.RunFile) {
			if err := open(t, ws, f).End(time.Now(), state.Failed, nil, &state.RunError{Name: "Error", Message: "m"}); err != nil {
				t.Fatal(err)
			}
		}, false, state.Failed},
		{"running, process record is another's now", state.Running, none, func(t *testing.T, ws *state.Workspace, f *state.RunFile) {
			j := open(t, ws, f)
			if err := j.Spawned(time.Now(), "job", state.Process{PID: syscall.Getpgrp(), BootID: self.BootID, StartTicks: 1}, ""); err != nil {
				t.Fatal(err)
			}
			if err := j.Spawned(time.Now(), "job", state.Process{PID: os.Getpid(), BootID: self.BootID, StartTicks: 1}, ""); err != nil {
				t.Fatal(err)
			}
		}, false, state.Failed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ws, w := newWorkspace(t), newWorker(t, Options{Grace: 100 * time.Millisecond})
			f := deadRun(t, ws, test.status, test.file)
			if test.disk != nil {
				test.disk(t, ws, f)
			}
			runs, err := w.Recover(t.Context(), ws)
			if err != nil {
				t.Fatal(err)
			}
			if never := len(runs) == 1 && runs[0].Run.ID == f.Run.ID; never != test.never {
				t.Errorf("never began: %v", never)
			}
			if got := runFile(t, ws, f.Run.ID).Run.Status; got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			err = w.Abandon(ws, f, "not wanted")
			if (err == nil) != test.never {
				t.Errorf("abandon: %v", err)
			}
			if test.never {
				if got := runFile(t, ws, f.Run.ID).Run; got.Status != state.Cancelled || got.Error.Message != "not wanted" {
					t.Errorf("got %+v", got)
				}
			}
			if _, err := w.Resume(f, Launch{Workspace: ws, Workflow: shell("job", "true")}); err == nil {
				t.Error("a run that is settled or another's was resumed")
			}
		})
	}
}

// A run that never began goes on under its id, with its own input, with or without a place.
func TestResume(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{Concurrency: 1})
	wf := shell("job", `cp $MARBLES_INPUT_FILE $MARBLES_RESULT_FILE`)
	wf.Input = []byte(`{"a":1,"late":2}`)
	var runs []*Run
	for range 3 {
		f := deadRun(t, ws, state.Queued, func(*state.RunFile) {})
		path := filepath.Join(ws.Dir(), "runs", f.Run.ID+".json")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), `"input": null`, `"input": {"a": 7}`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, start(t, w, Launch{Workspace: ws, Workflow: wf, Queued: f}))
		if got := runs[len(runs)-1].ID(); got != f.Run.ID {
			t.Errorf("got %s, want %s", got, f.Run.ID)
		}
	}
	for _, r := range runs {
		if res := r.Wait(); res.Status != state.Complete || text(res.Output) != `{"a":7}` {
			t.Errorf("got %+v", res)
		}
	}
}
