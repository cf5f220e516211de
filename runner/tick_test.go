package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

var slotTime = time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)

// schedule is a tick of a schedule that runs a workflow.
func schedule(w *Worker, ws *state.Workspace, slot time.Time, wf *Workflow) Tick {
	return Tick{
		Workspace: ws, Key: "k", Kind: state.KindSchedule, Label: "the label", Slot: slot, SlotLocal: slot.Format("2006-01-02T15:04"),
		Due:     func(rec *state.KeyRecord) bool { return rec == nil || rec.Slot.Before(slot) },
		NextDue: func(finish time.Time) time.Time { return slot.Add(24 * time.Hour) },
		Body:    w.Body(Launch{Workflow: wf}),
	}
}

func record(t testing.TB, ws *state.Workspace, key string) state.KeyRecord {
	t.Helper()
	rec, err := ws.Key(key)
	if err != nil {
		t.Fatal(err)
	}
	if rec == nil {
		t.Fatalf("no record of %s", key)
	}
	return *rec
}

// ledger is a key's ledger, without instants.
func ledger(t testing.TB, ws *state.Workspace, key string) []string {
	t.Helper()
	entries, err := ws.Slots(key, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Slot.UTC().Format("15:04"), e.Outcome, e.Reason)))
	}
	return list
}

func noLocks(t testing.TB, ws *state.Workspace) {
	t.Helper()
	if locks, err := ws.Locks(); err != nil || len(locks) != 0 {
		t.Errorf("locks are left: %v, %v", locks, err)
	}
}

// soonNoLocks is noLocks for a test that only saw what a file says: the lock under which that was written is given back after it.
func soonNoLocks(t testing.TB, ws *state.Workspace) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if locks, err := ws.Locks(); err == nil && len(locks) == 0 {
			return
		}
	}
	noLocks(t, ws)
}

func TestTick(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	var claimed state.KeyRecord
	tick := schedule(w, ws, slotTime, shell("job", "true"))
	tick.Body = w.Body(Launch{Workflow: shell("job", "true"), Started: func(string, time.Time) error {
		claimed = record(t, ws, "k")
		if got := ledger(t, ws, "k"); got != nil {
			t.Errorf("the ledger has %q before the end", got)
		}
		return nil
	}})
	before := time.Now().Truncate(time.Millisecond)
	res := w.Tick(t.Context(), tick)
	if res.Outcome != state.SlotRan || res.Err != nil || res.Quiet || res.Result.Status != state.Complete {
		t.Errorf("got %+v", res)
	}
	want := state.KeyRecord{
		Version: 1, Kind: state.KindSchedule, Label: "the label", Run: res.Result.RunID,
		Slot: state.Stamp{Time: slotTime}, SlotLocal: "2026-03-01T02:30",
	}
	check := func(got, want state.KeyRecord) {
		t.Helper()
		if got.LastStart.Before(before) {
			t.Errorf("started %v", got.LastStart)
		}
		got.LastStart, got.LastFinish = state.Stamp{}, state.Stamp{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	check(claimed, want)
	want.LastStatus, want.NextDue = "complete", state.Stamp{Time: slotTime.Add(24 * time.Hour)}
	check(record(t, ws, "k"), want)
	if diff := cmp.Diff([]string{"02:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	if f := runFile(t, ws, res.Result.RunID); f.Run.Extensions.TriggerID != "k" || f.Run.Extensions.Trigger != "schedule" || !f.Run.Extensions.Slot.Equal(slotTime) {
		t.Errorf("got %+v", f.Run.Extensions)
	}

	// The same slot again is not due: it was started.
	if res := w.Tick(t.Context(), tick); res.Outcome != "" || res.Err != nil {
		t.Errorf("got %+v", res)
	}

	// A failure counts, a success ends the count.
	for i := range 2 {
		res = w.Tick(t.Context(), schedule(w, ws, slotTime.Add(time.Duration(i+1)*time.Hour), shell("job", "exit 1")))
		if res.Outcome != state.SlotRan || res.Err == nil {
			t.Errorf("got %+v", res)
		}
	}
	if rec := record(t, ws, "k"); rec.LastStatus != "failed" || rec.Failures != 2 || rec.LastError != `step "job" exited with code 1` {
		t.Errorf("got %+v", rec)
	}

	// A person's tick has no slot, and leaves the one that was started.
	forced := schedule(w, ws, time.Time{}, shell("job", "true"))
	forced.Forced, forced.Due = true, func(*state.KeyRecord) bool { return false }
	if res = w.Tick(t.Context(), forced); res.Outcome != state.SlotRan || res.Err != nil {
		t.Errorf("got %+v", res)
	}
	if rec := record(t, ws, "k"); rec.Failures != 0 || rec.Run != res.Result.RunID || !rec.Slot.Equal(slotTime.Add(2*time.Hour)) {
		t.Errorf("got %+v", rec)
	}
	if diff := cmp.Diff([]string{"02:30 ran", "03:30 ran", "04:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	noLocks(t, ws)
}

// A body that panics is a failed tick, each time (C53).
func TestPanic(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	for i := range 3 {
		tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Second), nil)
		tick.Body = func(context.Context, *Ticking) error { panic("oh") }
		if res := w.Tick(t.Context(), tick); res.Outcome != state.SlotFailed || res.Err == nil {
			t.Errorf("got %+v", res)
		}
	}
	if rec := record(t, ws, "k"); rec.Failures != 3 || rec.LastError != "panic: oh" {
		t.Errorf("got %+v", rec)
	}
	noLocks(t, ws)
}

func TestPolls(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	poll := schedule(w, ws, slotTime, nil)
	poll.Kind = state.KindMonitor
	poll.Due = nil
	poll.Body = func(_ context.Context, tk *Ticking) error {
		if tk.Record == nil {
			t.Error("no record")
		}
		return nil
	}
	if res := w.Tick(t.Context(), poll); !res.Quiet || res.Outcome != state.SlotRan || res.Err != nil {
		t.Errorf("got %+v", res)
	}
	if rec := record(t, ws, "k"); rec.LastStatus != "complete" || rec.LastFinish.IsZero() || !rec.Slot.Equal(slotTime) {
		t.Errorf("got %+v", rec)
	}
	poll.Body = func(context.Context, *Ticking) error { return errors.New("unreachable") }
	if res := w.Tick(t.Context(), poll); res.Quiet || res.Outcome != state.SlotFailed || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	if rec := record(t, ws, "k"); rec.LastStatus != "failed" || rec.LastError != "unreachable" || rec.Failures != 1 {
		t.Errorf("got %+v", rec)
	}
	// A look that was broken off is no failure.
	ctx, cancel := context.WithCancel(t.Context())
	poll.Body = func(ctx context.Context, _ *Ticking) error {
		cancel()
		return ctx.Err()
	}
	if res := w.Tick(ctx, poll); res.Outcome != "" || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	if rec := record(t, ws, "k"); rec.Failures != 1 {
		t.Errorf("got %+v", rec)
	}
	if got := ledger(t, ws, "k"); got != nil {
		t.Errorf("polls are in the ledger: %q", got)
	}
}

// Polls that see nothing write at most once a minute, and at the end; what they know is not lost meanwhile (design §8).
func TestQuietPolls(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	var seen []state.Stamp
	poll := schedule(w, ws, slotTime, nil)
	poll.Kind = state.KindMonitor
	poll.Due = func(rec *state.KeyRecord) bool {
		if rec != nil {
			seen = append(seen, rec.LastFinish)
		}
		return true
	}
	poll.Body = func(context.Context, *Ticking) error { return nil }
	first := w.Tick(t.Context(), poll)
	onDisk := record(t, ws, "k")
	second := w.Tick(t.Context(), poll)
	if got := record(t, ws, "k"); !got.LastFinish.Equal(onDisk.LastFinish.Time) {
		t.Error("a second poll was written within the minute")
	}
	third := w.Tick(t.Context(), poll)
	if len(seen) != 2 || !seen[1].Equal(second.Finished) || first.Finished.IsZero() {
		t.Errorf("got %v, want %v last", seen, second.Finished)
	}
	// A failure is written at once, and so is the end of failures.
	nothing := poll.Body
	poll.Body = func(context.Context, *Ticking) error { return errors.New("no") }
	w.Tick(t.Context(), poll)
	if got := record(t, ws, "k"); got.Failures != 1 {
		t.Errorf("got %+v", got)
	}
	poll.Body = nothing
	w.Tick(t.Context(), poll)
	if got := record(t, ws, "k"); got.Failures != 0 || got.LastFinish.Before(third.Finished.Truncate(time.Millisecond)) {
		t.Errorf("got %+v", got)
	}
	last := w.Tick(t.Context(), poll)
	if err := w.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := record(t, ws, "k"); got.LastFinish.UnixMilli() != last.Finished.UnixMilli() {
		t.Errorf("at the end it says %v, want %v", got.LastFinish, last.Finished)
	}
	noLocks(t, ws)
}

// Many ticks of one key at once start one run (C55).
func TestOneStart(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	const ticks = 1000
	results := make([]TickResult, ticks)
	wf := shell("job", fmt.Sprintf("echo >> %s/starts; while ! test -e %s/go; do sleep 0.01; done", dir, dir))
	var wait, skipped sync.WaitGroup
	skipped.Add(ticks - 1)
	for i := range ticks {
		wait.Go(func() {
			results[i] = w.Tick(t.Context(), schedule(w, ws, slotTime, wf))
			if results[i].Outcome == state.SlotSkipped {
				skipped.Done()
			}
		})
	}
	skipped.Wait()
	release(t, dir)
	wait.Wait()
	ran, run := 0, ""
	for _, res := range results {
		if res.Outcome == state.SlotRan {
			ran++
			run = res.Result.RunID
		}
	}
	for _, res := range results {
		if res.Outcome == state.SlotSkipped && (res.Holder != fmt.Sprintf("pid %d", os.Getpid()) || res.Result.RunID != "" && res.Result.RunID != run) {
			t.Fatalf("got %+v", res)
		}
	}
	if b, _ := os.ReadFile(dir + "/starts"); ran != 1 || string(b) != "\n" {
		t.Errorf("%d ran, %d starts", ran, len(b))
	}
	if diff := cmp.Diff([]string{"02:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
}

// running waits until the key's record names a run that is at work.
func running(t testing.TB, ws *state.Workspace) string {
	t.Helper()
	var id string
	eventually(t, "a run of the key", func() bool {
		rec, err := ws.Key("k")
		if err != nil || rec == nil || !rec.LastFinish.Before(rec.LastStart.Time) {
			return false
		}
		id = rec.Run
		return true
	})
	return id
}

func TestOverlapSkip(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	first := make(chan TickResult)
	go func() { first <- w.Tick(t.Context(), schedule(w, ws, slotTime, hold(dir))) }()
	id := running(t, ws)
	res := w.Tick(t.Context(), schedule(w, ws, slotTime.Add(time.Hour), shell("job", "true")))
	if res.Outcome != state.SlotSkipped || res.Result.RunID != id {
		t.Errorf("got %+v", res)
	}
	forced := schedule(w, ws, time.Time{}, shell("job", "true"))
	forced.Forced = true
	if res := w.Tick(t.Context(), forced); res.Outcome != state.SlotSkipped {
		t.Errorf("got %+v", res)
	}
	entries, err := ws.Slots("k", 0)
	if err != nil || len(entries) != 1 || entries[0].Run != id || entries[0].Holder != fmt.Sprintf("pid %d", os.Getpid()) {
		t.Errorf("got %+v, %v", entries, err)
	}
	release(t, dir)
	if res := <-first; res.Outcome != state.SlotRan {
		t.Errorf("got %+v", res)
	}
	// A skip does not lose the next slot (design §6).
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime.Add(2*time.Hour), shell("job", "true"))); res.Outcome != state.SlotRan {
		t.Errorf("got %+v", res)
	}
	want := []string{"03:30 skipped its last run is still at work", "02:30 ran", "04:30 ran"}
	if diff := cmp.Diff(want, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
}

func TestOverlapQueue(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	tick := func(i int, wf *Workflow) chan TickResult {
		c := make(chan TickResult, 1)
		tk := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Hour), wf)
		tk.Overlap = OverlapQueue
		go func() { c <- w.Tick(t.Context(), tk) }()
		return c
	}
	first := tick(0, hold(dir))
	running(t, ws)
	second := tick(1, shell("job", "true"))
	eventually(t, "the second waits", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.seats[keyID{ws.Dir(), "k"}].next != nil
	})
	if res := <-tick(2, shell("job", "true")); res.Outcome != state.SlotSkipped {
		t.Errorf("got %+v", res)
	}
	release(t, dir)
	if res := <-first; res.Outcome != state.SlotRan {
		t.Errorf("got %+v", res)
	}
	if res := <-second; res.Outcome != state.SlotRan || res.Err != nil {
		t.Errorf("got %+v", res)
	}
	if diff := cmp.Diff([]string{"04:30 skipped its last run is still at work", "02:30 ran", "03:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	noLocks(t, ws)
}

func TestOverlapReplace(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	tick := func(i int, text string) chan TickResult {
		c := make(chan TickResult, 1)
		tk := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Hour), shell("job", text))
		tk.Overlap = OverlapReplace
		go func() { c <- w.Tick(t.Context(), tk) }()
		return c
	}
	first := tick(0, "trap 'sleep 0.3; exit' TERM; sleep 20 & wait")
	id := running(t, ws)
	eventually(t, "the trap is set", func() bool { return len(kids(t)) > 0 })
	time.Sleep(50 * time.Millisecond)
	second := tick(1, "true")
	waits(t, w, ws)
	third := tick(2, "true")
	if res := <-second; res.Outcome != state.SlotSkipped {
		t.Errorf("second: %+v", res)
	}
	if res := <-first; res.Outcome != state.SlotRan || res.Result.Status != state.Cancelled || res.Result.Error.Message != "replaced by a newer slot" {
		t.Errorf("first: %+v", res)
	}
	if res := <-third; res.Outcome != state.SlotRan || res.Err != nil {
		t.Errorf("third: %+v", res)
	}
	if f := runFile(t, ws, id); f.Run.Status != state.Cancelled {
		t.Errorf("got %s", f.Run.Status)
	}
	if diff := cmp.Diff([]string{"03:30 skipped replaced by a newer slot", "02:30 ran", "04:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	noLocks(t, ws)
}

// A run that waits in the queue is cancelled by its replacement without ever having started.
func TestReplaceQueued(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{Concurrency: 1}), t.TempDir()
	blocker := start(t, w, Launch{Workspace: ws, Workflow: hold(dir)})
	results := make(chan TickResult, 2)
	for i := range 2 {
		tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Hour), shell("job", "true"))
		tick.Overlap = OverlapReplace
		go func() { results <- w.Tick(t.Context(), tick) }()
		eventually(t, "it is queued", func() bool {
			list, err := ws.Runs(state.RunQuery{Key: "k"})
			return err == nil && len(list.Runs) == i+1
		})
	}
	if res := <-results; res.Outcome != state.SlotSkipped || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	release(t, dir)
	blocker.Wait()
	if res := <-results; res.Outcome != state.SlotRan {
		t.Errorf("got %+v", res)
	}
	if diff := cmp.Diff([]string{"02:30 skipped replaced by a newer slot", "03:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
}

// A lock that another process holds always means skipped (C50, C52).
func TestHeldByAnother(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	other := exec.Command("sleep", "20")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime, shell("job", "true"))); res.Outcome != state.SlotRan {
		t.Fatalf("got %+v", res)
	}
	lock := filepath.Join(ws.Dir(), "locks", "schedule:k")
	if err := os.WriteFile(lock, fmt.Append(nil, other.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	before := record(t, ws, "k")
	for _, overlap := range []Overlap{OverlapSkip, OverlapQueue, OverlapReplace} {
		tick := schedule(w, ws, slotTime.Add(time.Hour), shell("job", "true"))
		tick.Overlap = overlap
		if res := w.Tick(t.Context(), tick); res.Outcome != state.SlotSkipped || res.Holder != fmt.Sprintf("pid %d", other.Process.Pid) {
			t.Errorf("%s: got %+v", overlap, res)
		}
	}
	// The slot that was started is not skipped by a second tick of it.
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime, shell("job", "true"))); res.Outcome != state.SlotSkipped {
		t.Errorf("got %+v", res)
	}
	if diff := cmp.Diff(before, record(t, ws, "k")); diff != "" {
		t.Errorf("a skipped tick wrote history: %s", diff)
	}
	line := "03:30 skipped another process holds the key"
	if diff := cmp.Diff([]string{"02:30 ran", line, line, line}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
}

// Another program that died while it took the lock left it empty. The slot waits until that is certain.
func TestLockBeingTaken(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	lock := filepath.Join(ws.Dir(), "locks", "schedule:k")
	leave := func(age time.Duration) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(lock), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(lock, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(lock, at, at); err != nil {
			t.Fatal(err)
		}
	}
	leave(29800 * time.Millisecond)
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime, shell("job", "true"))); res.Outcome != state.SlotRan {
		t.Errorf("got %+v", res)
	}
	leave(0)
	forced := schedule(w, ws, time.Time{}, shell("job", "true"))
	forced.Forced = true
	if res := w.Tick(t.Context(), forced); res.Outcome != state.SlotSkipped || res.Holder != "a process that is taking it now; retry" {
		t.Errorf("got %+v", res)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if res := w.Tick(ctx, schedule(w, ws, slotTime.Add(time.Hour), shell("job", "true"))); res.Outcome != "" || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	if diff := cmp.Diff([]string{"02:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
}

// A history that is damaged is set aside; one of a later version is left, and nothing runs on it.
func TestDamagedHistory(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	file := filepath.Join(ws.Dir(), "schedules", "k.json")
	if err := os.WriteFile(file, []byte(`{"version":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime, shell("job", "true"))); res.Outcome != state.SlotRan {
		t.Errorf("got %+v", res)
	}
	if b, err := os.ReadFile(file + ".damaged"); err != nil || string(b) != `{"version":1,` {
		t.Errorf("got %q, %v", b, err)
	}
	later := []byte(`{"version":9}`)
	if err := os.WriteFile(file, later, 0o600); err != nil {
		t.Fatal(err)
	}
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime.Add(time.Hour), shell("job", "true"))); res.Outcome != state.SlotFailed || !errors.Is(res.Err, state.ErrVersion) {
		t.Errorf("got %+v", res)
	}
	if b, _ := os.ReadFile(file); string(b) != string(later) {
		t.Errorf("got %q", b)
	}
}

// Where the key's record cannot be written before the process, nothing is started.
func TestClaimFails(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	tick := schedule(w, ws, slotTime, shell("job", "touch "+dir+"/began"))
	body := tick.Body
	tick.Body = func(ctx context.Context, tk *Ticking) error {
		spoil(t, filepath.Join(ws.Dir(), "schedules"))
		return body(ctx, tk)
	}
	res := w.Tick(t.Context(), tick)
	if res.Outcome != state.SlotFailed || res.Result.Status != state.Failed {
		t.Errorf("got %+v", res)
	}
	if _, err := os.Stat(dir + "/began"); err == nil {
		t.Error("a process was started")
	}
	noLocks(t, ws)
}

// drainWhileQueued drains a worker once a tick's run waits for a place, and what is to be seen of it is.
func drainWhileQueued(t *testing.T, ws *state.Workspace, seen func(w *Worker) bool) {
	t.Helper()
	dir := t.TempDir()
	w := newWorker(t, Options{Concurrency: 1})
	blocker := start(t, w, Launch{Workspace: ws, Workflow: hold(dir)})
	done := make(chan TickResult)
	go func() { done <- w.Tick(t.Context(), schedule(w, ws, slotTime, shell("job", "true"))) }()
	eventually(t, "it is queued", func() bool { return seen(w) })
	drained := make(chan error)
	go func() { drained <- w.Drain(t.Context()) }()
	if res := <-done; res.Outcome != "" || !errors.Is(res.Err, ErrDraining) {
		t.Errorf("got %+v", res)
	}
	release(t, dir)
	blocker.Wait()
	<-drained
	noLocks(t, ws)
}

// A tick whose run has waited only briefly for a place when the worker drains leaves its slot due.
func TestDrainLeavesSlotDue(t *testing.T) {
	ws := newWorkspace(t)
	drainWhileQueued(t, ws, func(w *Worker) bool { _, queued := w.Active(); return queued == 1 })
	if rec, err := ws.Key("k"); rec != nil || err != nil {
		t.Errorf("got %+v, %v", rec, err)
	}
	if list, err := ws.Runs(state.RunQuery{}); err != nil || list.Total != 1 {
		t.Errorf("%d runs are on record, want the one that ran", list.Total)
	}
}

// One that has waited longer leaves it to its run, which the next worker starts.
func TestDrainLeavesSlotToRun(t *testing.T) {
	ws := newWorkspace(t)
	drainWhileQueued(t, ws, func(*Worker) bool { rec, err := ws.Key("k"); return err == nil && rec != nil })
	rec, err := ws.Key("k")
	if err != nil || rec == nil || !rec.LastFinish.IsZero() {
		t.Fatalf("got %+v, %v", rec, err)
	}
	f, err := ws.Run(rec.Run)
	if err != nil || f.Run.Status != state.Queued {
		t.Fatalf("got %+v, %v, want a queued run", f, err)
	}
	f.StartTicks = 1 // its owner is gone
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws.Dir(), "runs", rec.Run+".json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	next := newWorker(t, Options{})
	never, err := next.Recover(t.Context(), ws)
	if err != nil || len(never) != 1 {
		t.Fatalf("got %v, %v, want the queued run", never, err)
	}
	tick := schedule(next, ws, slotTime, shell("job", "true"))
	tick.Body = next.Body(Launch{Workflow: shell("job", "true"), Queued: never[0]})
	tick.Due = func(rec *state.KeyRecord) bool { return rec == nil || rec.Slot.IsZero() }
	if res := next.Tick(t.Context(), tick); res.Result.RunID != rec.Run || res.Result.Status != state.Complete {
		t.Errorf("got %+v, want run %s complete", res, rec.Run)
	}
}
