package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// temps are the temporary files in locks/.
func temps(t *testing.T, ws *Workspace) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(ws.Dir(), locksDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if isTemp(e.Name()) {
			names = append(names, filepath.Join(ws.Dir(), locksDir, e.Name()))
		}
	}
	return names
}

func take(t *testing.T, ws *Workspace, name string) *Lock {
	t.Helper()
	l, err := ws.TryLock(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestKeepLocks(t *testing.T) {
	ws := newWorkspace(t)
	ws.KeepLocks(2)
	held := []*Lock{take(t, ws, "a"), take(t, ws, "b"), take(t, ws, "c")}
	for _, l := range held {
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if got := temps(t, ws); len(got) != 2 {
		t.Fatalf("2 files should be kept, got %v", got)
	}
	if locks, err := ws.Locks(); err != nil || len(locks) != 0 {
		t.Errorf("released locks are listed: %+v, %v", locks, err)
	}

	again := take(t, ws, "d")
	if again.id != held[1].id {
		t.Error("the lock was made anew, though a file was kept")
	}
	if _, err := ws.TryLock("d"); !errors.Is(err, ErrHeld) || !again.Held() {
		t.Errorf("a lock from a kept file is no lock: %v", err)
	}
	if f, err := ws.locker().look(again.path); err != nil || f.pid != os.Getpid() || ws.locker().probe(f.fd) != flockHeld {
		t.Errorf("a lock from a kept file does not name its holder: %+v, %v", f, err)
	}
	// One that the sweep of another process took away costs nothing.
	for _, path := range temps(t, ws) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := take(t, ws, "e").Release(); err != nil {
		t.Error(err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	ws.KeepLocks(0)
	if got := temps(t, ws); len(got) != 0 {
		t.Errorf("files are left: %v", got)
	}
	if err := take(t, ws, "f").Release(); err != nil || len(temps(t, ws)) != 0 {
		t.Errorf("a file was kept although none should be: %v", err)
	}
}

// A kept file does not take a lock away from another process, and is not lost by trying.
func TestKeptLockMeetsAnother(t *testing.T) {
	ws := newWorkspace(t)
	ws.KeepLocks(4)
	defer ws.KeepLocks(0)
	if err := take(t, ws, "a").Release(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(ws.Dir(), locksDir, "b")
	if err := os.WriteFile(path, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.TryLock("b"); err == nil || !strings.Contains(err.Error(), "pid 1") {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "1" {
		t.Errorf("the other's lock reads %q, %v", got, err)
	}
}

func TestKeptLocksRace(t *testing.T) {
	ws := newWorkspace(t)
	ws.KeepLocks(3)
	defer ws.KeepLocks(0)
	var mu sync.Mutex
	holders := map[string]int{}
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for i := range 200 {
				name := string(rune('a' + i%4))
				l, err := ws.TryLock(name)
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if holders[name]++; holders[name] > 1 {
					t.Errorf("%s has %d holders", name, holders[name])
				}
				mu.Unlock()
				mu.Lock()
				holders[name]--
				mu.Unlock()
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if locks, err := ws.Locks(); err != nil || len(locks) != 0 {
		t.Errorf("locks are left: %+v, %v", locks, err)
	}
}
