package runner

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

// A disk that is full at any moment of many runs: each run that was accepted ends, and none is lost.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	ws := workspaceIn(t, dir)
	w := newWorker(t, Options{TempDir: t.TempDir()})
	count := filepath.Join(t.TempDir(), "count")
	ballast := filepath.Join(dir, "ballast") // what the operator removes
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var runs []*Run
	for {
		r, err := w.Start(Launch{Workspace: ws, Workflow: shell("job", "echo >> "+count+"; head -c 3000 /dev/zero")})
		if err != nil {
			break
		}
		runs = append(runs, r)
		select {
		case <-r.Done():
		case <-time.After(500 * time.Millisecond): // its end cannot be written
		}
	}
	slot := time.Unix(1000, 0)
	res := w.Tick(context.Background(), Tick{Workspace: ws, Key: "k", Kind: state.KindSchedule, Slot: slot, Body: w.Body(Launch{Workflow: shell("job", "echo >> "+count)})})
	if res.Outcome != state.SlotFailed || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	// With room again, everything goes on, and no end is lost.
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if res := r.Wait(); !res.Status.Settled() {
			t.Errorf("got %+v", res)
		}
		if f := runFile(t, ws, r.ID()); f.Run.Status != r.Wait().Status {
			t.Errorf("run %s is %s, and on disk %s", r.ID(), r.Wait().Status, f.Run.Status)
		}
	}
	b, _ := os.ReadFile(count)
	if len(runs) == 0 || len(b) > len(runs) {
		t.Errorf("%d runs were accepted, %d processes started", len(runs), len(b))
	}
	res = w.Tick(context.Background(), Tick{Workspace: ws, Key: "k", Kind: state.KindSchedule, Slot: slot, Body: w.Body(Launch{Workflow: shell("job", "true")})})
	if res.Outcome != state.SlotRan || res.Err != nil {
		t.Errorf("got %+v", res)
	}
	if running, queued := w.Active(); running != 0 || queued != 0 {
		t.Errorf("%d running, %d queued", running, queued)
	}
}
