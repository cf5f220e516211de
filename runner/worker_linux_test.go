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
	accepted := 0
	for {
		r, err := w.Start(Launch{Workspace: ws, Workflow: shell("job", "echo >> "+count+"; head -c 3000 /dev/zero")})
		if err != nil {
			break
		}
		accepted++
		if res := r.Wait(); res.Status == "" {
			t.Errorf("got %+v", res)
		}
	}
	b, _ := os.ReadFile(count)
	if accepted == 0 || len(b) > accepted {
		t.Errorf("%d runs were accepted, %d processes started", accepted, len(b))
	}
	if running, queued := w.Active(); running != 0 || queued != 0 {
		t.Errorf("%d running, %d queued", running, queued)
	}
	slot := time.Unix(1000, 0)
	res := w.Tick(context.Background(), Tick{Workspace: ws, Key: "k", Kind: state.KindSchedule, Slot: slot, Body: w.Body(Launch{Workflow: shell("job", "echo >> "+count)})})
	if res.Outcome != state.SlotFailed || res.Err == nil {
		t.Errorf("got %+v", res)
	}
	// With room again, everything goes on.
	if err := os.RemoveAll(filepath.Join(ws.Dir(), "output")); err != nil {
		t.Fatal(err)
	}
	res = w.Tick(context.Background(), Tick{Workspace: ws, Key: "k", Kind: state.KindSchedule, Slot: slot, Body: w.Body(Launch{Workflow: shell("job", "true")})})
	if res.Outcome != state.SlotRan || res.Err != nil {
		t.Errorf("got %+v", res)
	}
}
