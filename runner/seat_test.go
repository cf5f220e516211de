package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// waits waits until a tick waits behind the one that is at work.
func waits(t testing.TB, w *Worker, ws *state.Workspace) {
	t.Helper()
	eventually(t, "a tick waits", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		s := w.seats[keyID{ws.Dir(), "k"}]
		return s != nil && s.next != nil
	})
}

// A second tick of a slot that is being run, or will be, ends at once: it neither replaces the first nor waits for it.
func TestSameSlot(t *testing.T) {
	ws, w, dir := newWorkspace(t), newWorker(t, Options{}), t.TempDir()
	tick := func(slot time.Time, overlap Overlap, wf *Workflow) chan TickResult {
		c := make(chan TickResult, 1)
		tk := schedule(w, ws, slot, wf)
		tk.Overlap = overlap
		go func() { c <- w.Tick(t.Context(), tk) }()
		return c
	}
	again := func(slot time.Time) {
		t.Helper()
		for _, overlap := range []Overlap{OverlapSkip, OverlapQueue, OverlapReplace} {
			select {
			case res := <-tick(slot, overlap, shell("job", "true")):
				if res.Outcome != state.SlotSkipped {
					t.Errorf("%s: got %+v", overlap, res)
				}
			case <-time.After(2 * time.Second):
				t.Errorf("%s: it waits", overlap)
			}
		}
	}
	first := tick(slotTime, OverlapReplace, hold(dir))
	running(t, ws)
	again(slotTime)
	later := slotTime.Add(time.Hour)
	second := tick(later, OverlapQueue, shell("job", "true"))
	waits(t, w, ws)
	again(later)
	release(t, dir)
	for _, c := range []chan TickResult{first, second} {
		if res := <-c; res.Outcome != state.SlotRan || res.Err != nil {
			t.Errorf("got %+v", res)
		}
	}
	if diff := cmp.Diff([]string{"02:30 ran", "03:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	noLocks(t, ws)
}

// A tick that is replaced before it has a run is skipped, and the ledger says so, wherever it was.
func TestReplacedEarly(t *testing.T) {
	lockFile := func(ws *state.Workspace) string { return filepath.Join(ws.Dir(), "locks", "schedule:k") }
	put := func(t *testing.T, file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		before  func(t *testing.T, ws *state.Workspace) // before the first tick
		after   func(ws *state.Workspace) error         // once it is replaced
		locked  bool                                    // it is replaced as soon as it has the lock
		looking bool                                    // it is replaced while its body looks
		fails   bool                                    // the second tick
	}{
		{
			name:   "waiting for the lock",
			before: func(t *testing.T, ws *state.Workspace) { put(t, lockFile(ws), "") },
			after:  func(ws *state.Workspace) error { return os.Remove(lockFile(ws)) },
		},
		{name: "with the lock", locked: true},
		{
			name: "while what it found fails", locked: true,
			before: func(t *testing.T, ws *state.Workspace) {
				put(t, filepath.Join(ws.Dir(), "schedules", "k.json"), `{"version":9}`)
			},
			fails: true,
		},
		{name: "while it looks", looking: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			ws, w := newWorkspace(t), newWorker(t, Options{})
			if test.before != nil {
				test.before(t, ws)
			}
			there, goOn, held := make(chan struct{}), make(chan struct{}), false
			w.hook = func(point string) {
				if test.locked && point == "locked" && !held {
					held = true
					close(there)
					<-goOn
				}
			}
			first, second := make(chan TickResult, 1), make(chan TickResult, 1)
			a := schedule(w, ws, slotTime, shell("job", "true"))
			if test.looking {
				a.Body = func(ctx context.Context, _ *Ticking) error {
					close(there)
					<-ctx.Done()
					return ctx.Err()
				}
			}
			b := schedule(w, ws, slotTime.Add(time.Hour), shell("job", "true"))
			a.Overlap, b.Overlap = OverlapReplace, OverlapReplace
			go func() { first <- w.Tick(t.Context(), a) }()
			if test.locked || test.looking {
				<-there
			} else {
				eventually(t, "the first tick", func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(w.seats) == 1
				})
			}
			go func() { second <- w.Tick(t.Context(), b) }()
			if test.locked {
				waits(t, w, ws)
			}
			close(goOn)
			if res := <-first; res.Outcome != state.SlotSkipped {
				t.Errorf("got %+v", res)
			}
			if test.after != nil {
				if err := test.after(ws); err != nil {
					t.Error(err)
				}
			}
			res := <-second
			if !test.fails && (res.Outcome != state.SlotRan || res.Err != nil) {
				t.Errorf("got %+v", res)
			}
			if got := ledger(t, ws, "k"); len(got) != 2 || got[0] != "02:30 skipped replaced by a newer slot" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// That the worker stops before a tick could go on is no failure of what it has run.
func TestDrainingAfterRun(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	for i, test := range []struct {
		name, command, status string
	}{
		{"a handler that ended", "true", "complete"},
		{"a handler that failed", "exit 1", "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Hour), nil)
			tick.Kind = state.KindMonitor
			tick.Body = func(ctx context.Context, tk *Ticking) error {
				_, err := tk.Launch(ctx, Launch{Workflow: shell("job", test.command)})
				return errors.Join(err, fmt.Errorf("cannot start it: %w", ErrDraining))
			}
			res := w.Tick(t.Context(), tick)
			if res.Outcome != state.SlotRan || errors.Is(res.Err, ErrDraining) || (res.Err == nil) != (test.status == "complete") {
				t.Errorf("got %+v", res)
			}
			if rec := record(t, ws, "k"); rec.LastStatus != test.status {
				t.Errorf("got %+v", rec)
			}
		})
	}
	if diff := cmp.Diff([]string{"02:30 ran", "03:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	before := record(t, ws, "k")
	tick := schedule(w, ws, slotTime.Add(5*time.Hour), nil)
	tick.Body = func(context.Context, *Ticking) error { return fmt.Errorf("cannot look: %w", ErrDraining) }
	if res := w.Tick(t.Context(), tick); res.Outcome != "" {
		t.Errorf("got %+v", res)
	}
	if diff := cmp.Diff(before, record(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
}

// A run that a body started by itself makes its tick one that ran; how that run ends is not the tick's history.
func TestLaunched(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	poll := func(i int, body func(context.Context, *Ticking) error) (TickResult, state.KeyRecord) {
		t.Helper()
		tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Hour), nil)
		tick.Kind, tick.Body = state.KindMonitor, body
		res := w.Tick(t.Context(), tick)
		if res.Outcome != state.SlotRan || res.Err != nil {
			t.Errorf("tick %d: got %+v", i, res)
		}
		return res, record(t, ws, "k")
	}
	var begun *Run
	launch := func(_ context.Context, tk *Ticking) error {
		begun = start(t, w, Launch{Workspace: ws, Workflow: shell("job", "sleep 0.1; exit 1"), Trigger: "launch", Key: "k"})
		tk.Launched(begun.ID())
		return nil
	}
	poll(0, func(context.Context, *Ticking) error { return nil })
	res, rec := poll(1, launch)
	if res.Quiet || rec.Run != begun.ID() || rec.LastStatus != "complete" || !rec.Slot.Equal(slotTime.Add(time.Hour)) {
		t.Errorf("got %+v, %+v", res, rec)
	}
	begun.Wait()
	if _, err := w.Recover(t.Context(), ws); err != nil {
		t.Error(err)
	}
	if res, _ := poll(2, func(_ context.Context, tk *Ticking) error {
		if tk.Record.LastStatus != "complete" || tk.Record.Failures != 0 {
			t.Errorf("the launched run is the tick's history: %+v", tk.Record)
		}
		return nil
	}); !res.Quiet {
		t.Errorf("got %+v", res)
	}
	res, rec = poll(3, func(ctx context.Context, tk *Ticking) error {
		if _, err := tk.Launch(ctx, Launch{Workflow: shell("handler", "true"), Kind: "handler"}); err != nil {
			return err
		}
		return launch(ctx, tk)
	})
	begun.Wait()
	if rec.Run != res.Result.RunID || rec.Run == begun.ID() {
		t.Errorf("the record names %s, want the handler's run %s", rec.Run, res.Result.RunID)
	}
	if diff := cmp.Diff([]string{"03:30 ran", "05:30 ran"}, ledger(t, ws, "k")); diff != "" {
		t.Error(diff)
	}
	if entries, err := ws.Slots("k", 0); err != nil || entries[0].Run == "" || entries[1].Run != res.Result.RunID {
		t.Errorf("got %+v, %v", entries, err)
	}
}

// A launched run that never began, and which the record of its monitor names, is no slot to be run again: the next tick
// leaves it to whoever resumes it.
func TestLaunchedNeverBegan(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	w := newWorker(t, Options{Concurrency: 1})
	blocker := start(t, w, Launch{Workspace: ws, Workflow: hold(dir)})
	id := ""
	tick := schedule(w, ws, slotTime, nil)
	tick.Kind = state.KindMonitor
	tick.Body = func(_ context.Context, tk *Ticking) error {
		id = start(t, w, Launch{Workspace: ws, Workflow: shell("job", "true"), Trigger: "launch", Key: "k"}).ID()
		tk.Launched(id)
		return nil
	}
	w.Tick(t.Context(), tick)
	drained := make(chan error)
	go func() { drained <- w.Drain(t.Context()) }()
	<-w.stop
	release(t, dir)
	blocker.Wait()
	<-drained
	f := runFile(t, ws, id)
	f.StartTicks = 1 // its owner is gone
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(ws.Dir(), "runs", id+".json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	next := newWorker(t, Options{})
	never, err := next.Recover(t.Context(), ws)
	if err != nil || len(never) != 1 {
		t.Fatalf("got %v, %v, want the queued run", never, err)
	}
	tick = schedule(next, ws, slotTime.Add(time.Hour), nil)
	tick.Kind = state.KindMonitor
	tick.Body = func(_ context.Context, tk *Ticking) error {
		if !tk.Record.Slot.Equal(slotTime) {
			t.Errorf("the slot is free again: %+v", tk.Record)
		}
		return nil
	}
	next.Tick(t.Context(), tick)
	if f := runFile(t, ws, id); f.Run.Status != state.Queued {
		t.Errorf("the run is %s", f.Run.Status)
	}
}

// The slot of a poll is on record, whether it saw something, nothing, or failed; a person's has none.
func TestPollSlot(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	for i, test := range []struct {
		name   string
		body   func(ctx context.Context, tk *Ticking) error
		forced bool
		want   int
	}{
		{name: "nothing", body: func(context.Context, *Ticking) error { return nil }, want: 0},
		{name: "failed", body: func(context.Context, *Ticking) error { return errors.New("no") }, want: 1},
		{name: "nothing again", body: func(context.Context, *Ticking) error { return nil }, want: 2},
		{name: "forced", body: func(context.Context, *Ticking) error { return errors.New("no") }, forced: true, want: 2},
		{name: "stopped", body: func(context.Context, *Ticking) error { return ErrDraining }, want: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Hour), nil)
			tick.Kind, tick.Body, tick.Forced = state.KindMonitor, test.body, test.forced
			w.Tick(t.Context(), tick)
			want := slotTime.Add(time.Duration(test.want) * time.Hour)
			if rec := record(t, ws, "k"); !rec.Slot.Equal(want) || rec.SlotLocal != want.Format("2006-01-02T15:04") {
				t.Errorf("got slot %v, %s, want %v", rec.Slot, rec.SlotLocal, want)
			}
		})
	}
}
