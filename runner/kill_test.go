package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

// keysInStorm is how many keys a marbles that is killed at any moment ticks.
const keysInStorm = 8

// storm ticks several keys over and over, as a service does: each its next slots, one after the other.
func storm(dir string) {
	ws := opened(dir)
	w := New(Options{Concurrency: 3, Grace: 50 * time.Millisecond, TempDir: dir})
	service, err := ws.LockService()
	if err != nil {
		panic(err)
	}
	defer service.Release()
	runs, err := w.Recover(context.Background(), ws)
	if err != nil {
		panic(err)
	}
	for _, f := range runs {
		t := stormTick(w, ws, dir, f.Run.Extensions.TriggerID, f.Run.Extensions.Slot.Time)
		t.Body = w.Body(Launch{Workflow: stormWorkflow(dir, t.Slot), Queued: f})
		if res := w.Tick(context.Background(), t); res.Outcome == "" {
			if err := w.Abandon(ws, f, "its slot was taken"); err != nil {
				panic(err)
			}
		}
	}
	fmt.Println("ready")
	for i := range keysInStorm {
		go func() {
			for {
				key := fmt.Sprint("k", i)
				slot := slotTime
				if rec, err := ws.Key(key); err != nil {
					panic(err)
				} else if rec != nil && !rec.Slot.IsZero() {
					slot = rec.Slot.Time
					if !Unwritten(ws, rec) {
						slot = slot.Add(time.Minute)
					}
				}
				w.Tick(context.Background(), stormTick(w, ws, dir, key, slot))
			}
		}()
	}
	select {}
}

func stormTick(w *Worker, ws *state.Workspace, dir, key string, slot time.Time) Tick {
	t := schedule(w, ws, slot, stormWorkflow(dir, slot))
	t.Key = key
	return t
}

func stormWorkflow(dir string, slot time.Time) *Workflow {
	wf := shell("job", `echo $MARBLES_KEY $SLOT >> $DIR/starts; sleep 0.0$((($$ % 4)))`)
	wf.Env = []string{"DIR=" + dir, fmt.Sprint("SLOT=", slot.Unix())}
	return wf
}

// However often and whenever marbles is killed, no slot is started twice, none is passed over, and in the end every
// run has settled (C45, C50, C62).
func TestKilledAtAnyMoment(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	for range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), crashEnv+"="+dir, crashPoint+"=storm")
		var out strings.Builder
		cmd.Stderr = &out
		ready, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = ready.Read(make([]byte, 10))
		time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("it ended by itself: %v, %s", cmd.ProcessState, out.String())
		}
	}
	w := newWorker(t, Options{Grace: 100 * time.Millisecond, TempDir: dir})
	service, err := ws.LockService() // breaks the one of the dead
	if err == nil {
		t.Cleanup(func() { _ = service.Release() })
	}
	runs, err := w.Recover(t.Context(), ws)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range runs {
		tick := stormTick(w, ws, dir, f.Run.Extensions.TriggerID, f.Run.Extensions.Slot.Time)
		tick.Body = w.Body(Launch{Workflow: stormWorkflow(dir, tick.Slot), Queued: f})
		if res := w.Tick(t.Context(), tick); res.Outcome == "" {
			if err := w.Abandon(ws, f, "its slot was taken"); err != nil {
				t.Error(err)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "starts"))
	if err != nil {
		t.Fatal(err)
	}
	starts := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		starts[line]++
		if starts[line] > 1 {
			t.Errorf("%q was started %d times", line, starts[line])
		}
	}
	list, err := ws.Runs(state.RunQuery{})
	if err != nil || len(list.Damaged) > 0 {
		t.Fatal(err, list.Damaged)
	}
	interrupted := map[string]bool{} // may have died between the spawn record and the process
	for _, r := range list.Runs {
		f := runFile(t, ws, r.ID)
		if !f.Run.Status.Settled() {
			t.Errorf("run %s of %s is %s", r.ID, r.Key, f.Run.Status)
		}
		if f.Run.Status == state.Failed {
			interrupted[fmt.Sprint(r.Key, " ", f.Run.Extensions.Slot.Unix())] = true
		}
	}
	for i := range keysInStorm {
		key := fmt.Sprint("k", i)
		rec, err := ws.Key(key)
		if err != nil {
			t.Fatal(err)
		}
		if rec == nil {
			continue
		}
		last := rec.Slot.Time
		if Unwritten(ws, rec) { // still due
			last = last.Add(-time.Minute)
		}
		ran := map[int64]int{}
		entries, err := ws.Slots(key, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Outcome == state.SlotRan {
				ran[e.Slot.Unix()]++
			}
		}
		for slot := slotTime; !slot.After(last); slot = slot.Add(time.Minute) {
			name := fmt.Sprint(key, " ", slot.Unix())
			if starts[name] == 0 && !interrupted[name] {
				t.Errorf("%s was passed over", name)
			}
			if ran[slot.Unix()] != 1 {
				t.Errorf("%s is %d times in the ledger", name, ran[slot.Unix()])
			}
		}
	}
	t.Logf("%d slots, %d runs, %d failed", len(starts), len(list.Runs), len(interrupted))
	if service != nil {
		if err := service.Release(); err != nil {
			t.Error(err)
		}
	}
	locks, err := ws.Locks()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range locks {
		if l.PID != 0 { // one that was being taken goes after 30 s
			t.Errorf("lock is left: %+v", l)
		}
	}
	reapZombies()
}
