package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// hold is a workflow that goes on until the file it waits for is there. It ends with its own step.
func hold(dir string) *Workflow {
	return shell("hold", fmt.Sprintf(`while ! test -e %s/go; do sleep 0.01; done`, dir))
}

func release(t testing.TB, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Runs beyond the limit wait in the order in which they came, on disk from the start.
func TestQueue(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{Concurrency: 1}), t.TempDir()
	first := start(t, w, Launch{Workspace: ws, Workflow: hold(dir)})
	var runs []*Run
	for i := range 5 {
		wf := shell("job", fmt.Sprintf("echo %d >> %s/order", i, dir))
		r := start(t, w, Launch{Workspace: ws, Workflow: wf})
		if f := runFile(t, ws, r.ID()); f.Run.Status != state.Queued || f.PID != os.Getpid() {
			t.Errorf("run %d is %s of %d", i, f.Run.Status, f.PID)
		}
		runs = append(runs, r)
	}
	if running, queued := w.Active(); running != 1 || queued != 5 {
		t.Errorf("%d running, %d queued", running, queued)
	}
	runs[2].Cancel("not now")
	if res := runs[2].Wait(); res.Status != state.Cancelled || res.Error.Message != "not now" || !res.Started.IsZero() {
		t.Errorf("got %+v", res)
	}
	if f := runFile(t, ws, runs[2].ID()); f.Run.Status != state.Cancelled || f.Run.Timestamps.CancelledAt == 0 || f.Run.Timestamps.StartedAt != 0 {
		t.Errorf("got %+v", f.Run)
	}
	release(t, dir)
	for i, r := range append(runs, first) {
		if res := r.Wait(); i != 2 && res.Status != state.Complete {
			t.Errorf("run %d: %+v", i, res)
		}
	}
	got, _ := os.ReadFile(dir + "/order")
	if diff := cmp.Diff("0\n1\n3\n4\n", string(got)); diff != "" {
		t.Error(diff)
	}
	if running, queued := w.Active(); running != 0 || queued != 0 {
		t.Errorf("%d running, %d queued", running, queued)
	}
}

func TestCancel(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	r := start(t, w, Launch{Workspace: ws, Workflow: shell("job", "echo a; sleep 20; echo b")})
	eventually(t, "output", func() bool { return output(t, ws, r.ID(), "job", state.Stdout) != "" })
	r.Cancel("stop it")
	r.Cancel("again")
	res := r.Wait()
	want := &state.RunError{Name: "CancelledError", Message: "stop it"}
	if diff := cmp.Diff(want, res.Error); diff != "" || res.Status != state.Cancelled {
		t.Errorf("%s: %s", res.Status, diff)
	}
	f := runFile(t, ws, r.ID())
	if f.Run.Status != state.Cancelled || f.Steps[0].Status != state.Cancelled {
		t.Errorf("got %+v", f)
	}
	if got := lines(t, ws, r.ID()); got[1] != "[step] job aborted" {
		t.Errorf("got %q", got)
	}
}

// A workflow's own limit counts over workers, as over processes; within one the turn is handed on directly.
func TestWorkflowConcurrency(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	a, b := newWorker(t, Options{}), newWorker(t, Options{})
	wf := shell("a/b", fmt.Sprintf(`f=$(mktemp %s/run.XXXXXX); ls %s/run.* | wc -l; sleep 0.02; rm $f`, dir, dir))
	wf.Concurrency = 2
	var runs []*Run
	for i := range 20 {
		w := a
		if i%4 == 0 {
			w = b
		}
		runs = append(runs, start(t, w, Launch{Workspace: ws, Workflow: wf}))
	}
	most := ""
	for _, r := range runs {
		if res := r.Wait(); res.Status != state.Complete {
			t.Errorf("got %+v", res)
		}
		most = max(most, strings.TrimSpace(output(t, ws, r.ID(), "a/b", state.Stdout)))
	}
	if most != "2" {
		t.Errorf("%s at once", most)
	}
	locks, err := ws.Locks()
	if err != nil || len(locks) != 0 {
		t.Errorf("locks are left: %v, %v", locks, err)
	}
}

// A run that waits for its workflow's turn does not keep others from a place, and can be cancelled.
func TestWorkflowConcurrencyWaits(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{Concurrency: 2}), t.TempDir()
	one := hold(dir)
	one.Concurrency = 1
	first := start(t, w, Launch{Workspace: ws, Workflow: one})
	second := start(t, w, Launch{Workspace: ws, Workflow: one})
	third := start(t, w, Launch{Workspace: ws, Workflow: one})
	if res := run(t, w, ws, shell("other", "true")); res.Status != state.Complete {
		t.Errorf("got %+v", res)
	}
	if running, queued := w.Active(); running != 1 || queued != 2 {
		t.Errorf("%d running, %d queued", running, queued)
	}
	second.Cancel("")
	if res := second.Wait(); res.Status != state.Cancelled {
		t.Errorf("got %+v", res)
	}
	release(t, dir)
	if res := third.Wait(); res.Status != state.Complete {
		t.Errorf("got %+v", res)
	}
	first.Wait()
}

func TestDrain(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	w := newWorker(t, Options{Concurrency: 1})
	running := start(t, w, Launch{Workspace: ws, Workflow: hold(dir)})
	queued := start(t, w, Launch{Workspace: ws, Workflow: shell("job", "true")})
	limited := shell("limited", "true")
	limited.Concurrency = 1
	limited1 := start(t, w, Launch{Workspace: ws, Workflow: limited})
	limited2 := start(t, w, Launch{Workspace: ws, Workflow: limited})
	done := make(chan error)
	go func() { done <- w.Drain(context.Background()) }()
	for _, r := range []*Run{queued, limited1, limited2} {
		if res := r.Wait(); res.Status != state.Queued || !errors.Is(res.Err(), ErrDraining) {
			t.Errorf("got %+v", res)
		}
		if f := runFile(t, ws, r.ID()); f.Run.Status != state.Queued {
			t.Errorf("on disk it is %s", f.Run.Status)
		}
	}
	if _, err := w.Start(Launch{Workspace: ws, Workflow: shell("job", "true")}); !errors.Is(err, ErrDraining) {
		t.Errorf("got %v", err)
	}
	if res := w.Tick(context.Background(), Tick{Workspace: ws, Key: "k"}); !errors.Is(res.Err, ErrDraining) || res.Outcome != "" {
		t.Errorf("got %+v", res)
	}
	select {
	case err := <-done:
		t.Fatalf("Drain did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release(t, dir)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if res := running.Wait(); res.Status != state.Complete {
		t.Errorf("got %+v", res)
	}
	if err := w.Drain(context.Background()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestDrainCancels(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{Grace: 50 * time.Millisecond})
	r := start(t, w, Launch{Workspace: ws, Workflow: shell("job", "trap '' TERM; sleep 20")})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := w.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if res := r.Wait(); res.Status != state.Cancelled || res.Error.Message != stopReason {
		t.Errorf("got %+v", res)
	}
	if err := w.Ping(context.Background()); err != nil {
		t.Errorf("ping after drain: %v", err)
	}
}

func TestPing(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	run(t, w, ws, shell("job", "true"))
	if err := w.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	w.mu.Lock()
	err := w.Ping(ctx)
	w.mu.Unlock()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stuck worker answered: %v", err)
	}
}

// The start callback comes after the run file says running and before there is a process; its error ends the run.
func TestStarted(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("no space") },
		"panic": func() error { panic("no space") },
	} {
		var told time.Time
		res := start(t, w, Launch{
			Workspace: ws, Workflow: shell("job", "touch "+dir+"/began"),
			Started: func(_ string, at time.Time) error {
				told = at
				return fail()
			},
		}).Wait()
		if f := runFile(t, ws, res.RunID); told.IsZero() || f.Run.Timestamps.StartedAt < state.Millis(told.UnixMilli()) {
			t.Errorf("%s: the file says %+v, and the caller was told %s", name, f.Run.Timestamps, told)
		}
		if res.Status != state.Failed || !strings.Contains(res.Error.Message, "no space") {
			t.Errorf("%s: got %+v", name, res)
		}
	}
	if _, err := os.Stat(dir + "/began"); err == nil {
		t.Error("a process was started")
	}
}

// What cannot be recorded is not started.
func TestUnwritable(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	spoil(t, filepath.Join(ws.Dir(), "runs"))
	_, err := w.Start(Launch{Workspace: ws, Workflow: shell("job", "touch "+dir+"/began")})
	if err == nil {
		t.Error("the run was accepted")
	}
	res := w.Tick(context.Background(), Tick{
		Workspace: ws, Key: "k", Kind: state.KindSchedule, Slot: time.Unix(1000, 0),
		Body: w.Body(Launch{Workflow: shell("job", "touch "+dir+"/began")}),
	})
	if res.Outcome != state.SlotFailed || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	slots, err := ws.Slots("k", 0)
	if err != nil || len(slots) != 1 || slots[0].Outcome != state.SlotFailed {
		t.Errorf("got %+v, %v", slots, err)
	}
	rec, err := ws.Key("k")
	if err != nil || rec == nil || rec.LastStatus != "failed" || !rec.Slot.IsZero() || rec.Failures != 1 {
		t.Errorf("got %+v, %v", rec, err)
	}
	if _, err := os.Stat(dir + "/began"); err == nil {
		t.Error("a process was started")
	}
	if running, queued := w.Active(); running != 0 || queued != 0 {
		t.Errorf("%d running, %d queued", running, queued)
	}
	if left, _ := os.ReadDir(filepath.Join(ws.Dir(), "output")); len(left) > 0 {
		t.Errorf("journals are left: %v", left)
	}
}

// spoil puts a file where a directory was, so that nothing can be written there, not even by root.
func spoil(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A journal that cannot be written costs the output and nothing else.
func TestJournalUnwritable(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	spoil(t, filepath.Join(ws.Dir(), "output"))
	res := run(t, w, ws, shell("job", "head -c 300000 /dev/zero; touch "+dir+"/began"))
	if res.Status != state.Complete {
		t.Errorf("got %+v", res)
	}
	if _, err := os.Stat(dir + "/began"); err != nil {
		t.Error(err)
	}
	if f := runFile(t, ws, res.RunID); f.Run.Status != state.Complete {
		t.Errorf("got %s", f.Run.Status)
	}
}

// Starting, cancelling and draining at once leaves nothing behind.
func TestChaos(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{Concurrency: 3, Grace: 50 * time.Millisecond})
	limited := shell("limited", "sleep 0.01")
	limited.Concurrency = 2
	var wait sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	for i := range 60 {
		wait.Go(func() {
			wf := shell("job", "sleep 0.01")
			if i%2 == 0 {
				wf = limited
			}
			r, err := w.Start(Launch{Workspace: ws, Workflow: wf})
			if err != nil {
				if !errors.Is(err, ErrDraining) {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			ids = append(ids, r.ID())
			mu.Unlock()
			if i%3 == 0 {
				r.Cancel("")
			}
			r.Wait()
		})
	}
	time.Sleep(100 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_ = w.Drain(ctx)
	wait.Wait()
	for _, id := range ids {
		if f := runFile(t, ws, id); f.Run.Status == state.Running {
			t.Errorf("run %s is %s", id, f.Run.Status)
		}
	}
	if locks, err := ws.Locks(); err != nil || len(locks) != 0 {
		t.Errorf("locks are left: %v, %v", locks, err)
	}
	if got := kids(t); len(got) > 0 {
		t.Errorf("children are left: %v", got)
	}
}

// An end that cannot be saved is tried again until it can be, also that of a run that was cancelled. A cancel that comes
// while it is tried gives up.
func TestSaveCancelled(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("cancelled again %v", again), func(t *testing.T) {
			var log bytes.Buffer
			ws, w := newWorkspace(t), newWorker(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			var file string // of the run; while a folder is in its place it cannot be written, and goes in one step
			broken := make(chan struct{})
			w.hook = func(point string) {
				if point != "ended" {
					return
				}
				if err := os.Rename(file, filepath.Join(ws.Dir(), "away")); err != nil {
					t.Error(err)
				}
				if err := os.MkdirAll(filepath.Join(file, "full"), 0o700); err != nil {
					t.Error(err)
				}
				close(broken)
			}
			r := start(t, w, Launch{Workspace: ws, Workflow: shell("job", "sleep 20")})
			file = filepath.Join(ws.Dir(), "runs", r.ID()+".json")
			r.Cancel("enough")
			<-broken
			select {
			case <-r.Done():
				t.Error("it was given up")
			case <-time.After(3 * savePause):
			}
			if again {
				eventually(t, "it is given up", func() bool {
					r.Cancel("enough!")
					select {
					case <-r.Done():
						return true
					default:
						return false
					}
				})
			}
			must(t, os.Rename(file, filepath.Join(ws.Dir(), "folder")))
			if again {
				must(t, os.Rename(filepath.Join(ws.Dir(), "away"), file))
			}
			r.Wait()
			want := state.Cancelled
			if again {
				want = state.Running
			}
			if f := runFile(t, ws, r.ID()); f.Run.Status != want {
				t.Errorf("the run file says %s, want %s", f.Run.Status, want)
			}
			if text := log.String(); !strings.Contains(text, " run="+r.ID()) || strings.Contains(text, "run_id") {
				t.Errorf("the log does not name the run as `run`:\n%s", text)
			}
		})
	}
}

// Runs that are begun ahead of the end of others are queued again where those take their time.
func TestBegunAhead(t *testing.T) {
	dir := t.TempDir()
	ws, w := newWorkspace(t), New(Options{Concurrency: 1, TempDir: dir})
	for range 3 { // short ones: the next are begun ahead
		if res := start(t, w, Launch{Workspace: ws, Workflow: shell("job", "true")}).Wait(); res.Err() != nil {
			t.Fatal(res.Err())
		}
	}
	long := start(t, w, Launch{Workspace: ws, Workflow: shell("long", "sleep 30")})
	eventually(t, "the long run has its process", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.busy == 1
	})
	ahead := start(t, w, Launch{Workspace: ws, Workflow: shell("ahead", "touch "+dir+"/began")})
	cancelled := start(t, w, Launch{Workspace: ws, Workflow: shell("ahead", "touch "+dir+"/began")})
	if f := runFile(t, ws, ahead.ID()); f.Run.Status != state.Running {
		t.Errorf("not begun ahead: %s", f.Run.Status)
	}
	if running, queued := w.Active(); running != 1 || queued != 2 {
		t.Errorf("got %d running and %d queued", running, queued)
	}
	cancelled.Cancel("not wanted")
	if res := cancelled.Wait(); res.Status != state.Cancelled || !res.Started.IsZero() {
		t.Errorf("got %+v", res)
	}
	eventually(t, "the run ahead is queued", func() bool { return runFile(t, ws, ahead.ID()).Run.Status == state.Queued })

	drained := make(chan error, 1)
	go func() { drained <- w.Drain(t.Context()) }()
	if res := ahead.Wait(); res.Status != state.Queued {
		t.Errorf("got %+v", res)
	}
	long.Cancel("enough")
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/began"); err == nil {
		t.Error("a process was started beside the one there was room for")
	}

	// The file says what any queued run's says: it is taken up once its owner is gone.
	f := runFile(t, ws, ahead.ID())
	f.PID, f.StartTicks = os.Getpid(), 1
	rewriteOwner(t, ws, f)
	next := newWorker(t, Options{TempDir: dir})
	runs, err := next.Recover(t.Context(), ws)
	if err != nil || len(runs) != 1 {
		t.Fatalf("got %v, %v", runs, err)
	}
	again, err := next.Resume(runs[0], Launch{Workspace: ws, Workflow: shell("ahead", "touch "+dir+"/began")})
	if err != nil {
		t.Fatal(err)
	}
	if res := again.Wait(); res.Err() != nil {
		t.Error(res.Err())
	}
	if _, err := os.Stat(dir + "/began"); err != nil {
		t.Error(err)
	}
}
