package state

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv tells a copy of the test binary what to be; childDir is its workspace.
const (
	childEnv = "MARBLES_TEST_LOCK_CHILD"
	childDir = "MARBLES_TEST_LOCK_DIR"
)

// lockChild starts this test binary as another process that uses the locks of dir.
func lockChild(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestLockChild$", "-test.count=1")
	c.Env = append(os.Environ(), childEnv+"="+role, childDir+"="+dir)
	c.Stderr = os.Stderr
	return c
}

// TestLockChild is what the other processes of the tests below run.
func TestLockChild(t *testing.T) {
	w := &Workspace{dir: os.Getenv(childDir)}
	switch role, count, _ := strings.Cut(os.Getenv(childEnv), " "); role {
	case "":
		t.Skip("only as a child of other tests")
	case "hold":
		if _, err := w.TryLock(benchLock); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		select {}
	case "churn":
		fmt.Println("going")
		for {
			l, err := w.TryLock(benchLock)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}
	case "contend", "crash":
		rounds, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		for range rounds {
			l := contendedLock(t, w)
			useAlone(t, w.dir)
			if role == "crash" {
				unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}
	default:
		t.Fatalf("unknown role %q", role)
	}
}

func contendedLock(t *testing.T, w *Workspace) *Lock {
	for deadline := time.Now().Add(time.Minute); ; {
		l, err := w.TryLock(benchLock)
		if err == nil {
			return l
		}
		if !errors.Is(err, ErrHeld) || time.Now().After(deadline) {
			t.Fatalf("cannot get the lock: %v", err)
		}
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
}

// useAlone counts one use of what the lock guards. A flock that must be free, since it
// ends with its process, and a plain read and write both notice a second holder.
func useAlone(t *testing.T, dir string) {
	arena, err := os.OpenFile(filepath.Join(dir, "arena"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	if err := unix.Flock(int(arena.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatalf("two processes hold the lock: %v", err)
	}
	var room [20]byte
	n, _ := arena.ReadAt(room[:], 0)
	count, _ := strconv.Atoi(string(room[:n]))
	if _, err := arena.WriteAt(strconv.AppendInt(nil, int64(count+1), 10), 0); err != nil {
		t.Fatal(err)
	}
}

func TestLockManyProcesses(t *testing.T) {
	const (
		contenders = 6
		rounds     = 150
		crashers   = 12
	)
	w := &Workspace{dir: t.TempDir()}
	var contending, crashing []*exec.Cmd
	for range contenders {
		contending = append(contending, lockChild(t, fmt.Sprintf("contend %d", rounds), w.dir))
	}
	for range crashers {
		crashing = append(crashing, lockChild(t, "crash 1", w.dir))
	}
	for _, c := range append(contending, crashing...) {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range crashing {
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
			t.Errorf("a process that dies as holder: got %v, want it killed", err)
		}
	}
	for _, c := range contending {
		if err := c.Wait(); err != nil {
			t.Errorf("a contending process: %v", err)
		}
	}
	got, err := os.ReadFile(filepath.Join(w.dir, "arena"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(contenders*rounds + crashers); string(got) != want {
		t.Errorf("uses counted under the lock: got %s, want %s", got, want)
	}
	l, err := w.TryLock(benchLock) // whether the last of all crashed or not
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(w.dir, "locks"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// started runs a child until it has printed its line.
func started(t *testing.T, c *exec.Cmd) {
	t.Helper()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("child said %q, %v", line, err)
	}
}

// A holder that was killed, and is not even reaped yet, holds nothing.
func TestLockHolderKilled(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	c := lockChild(t, "hold", w.dir)
	started(t, c)
	pid := c.Process.Pid
	_, err := w.TryLock(benchLock)
	wantHeld(t, err, fmt.Sprintf("pid %d", pid))

	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	l, err := w.LockWait(benchLock, 10*time.Second)
	if err != nil {
		t.Fatalf("after kill -9 of the holder: %v", err)
	}
	defer l.Release()
	if err := unix.Kill(pid, 0); err != nil {
		t.Errorf("the holder should still be a zombie: %v", err)
	}
	c.Wait()
}

// A stopped holder holds on.
func TestLockHolderStopped(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	c := lockChild(t, "hold", w.dir)
	started(t, c)
	defer func() { c.Process.Kill(); c.Wait() }()
	if err := c.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(w.dir, "locks", benchLock)
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	_, err := w.TryLock(benchLock) // younger than the file by far, but it has its flock
	wantHeld(t, err, fmt.Sprintf("pid %d", c.Process.Pid))
}

// Wherever a holder is killed, the next one gets the lock: at once, or when an empty
// file has aged.
func TestLockKilledAnywhere(t *testing.T) {
	for range 15 {
		w := &Workspace{dir: t.TempDir()}
		c := lockChild(t, "churn", w.dir)
		started(t, c)
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		l, err := w.TryLock(benchLock)
		if err != nil && err.Error() == holderTaking {
			path := filepath.Join(w.dir, "locks", benchLock)
			old := time.Now().Add(-31 * time.Second)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
			l, err = w.TryLock(benchLock)
		}
		if err != nil {
			t.Fatalf("after kill -9: %v", err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// A process started while a lock is held must not carry its flock on.
func TestLockIsNotInherited(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	l, err := w.TryLock(benchLock)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	unix.Close(l.fd) // as if this process had died
	k := w.locker()
	f, err := k.look(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if got := k.probe(f.fd); got != flockFree {
		t.Errorf("flock after the holder's descriptor closed: got %v, want free", got)
	}
}

// No attempt, whatever its outcome, may leave a descriptor open.
func TestLockLeaksNoDescriptors(t *testing.T) {
	dir := "/proc/self/fd"
	if _, err := os.Stat(dir); err != nil {
		dir = "/dev/fd"
	}
	count := func() int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	dead := deadPID(t)
	b := newLockBench(t)
	steps := map[string]func(){
		"taken":    func() { b.mustTry().Release() },
		"held":     func() { b.write("1", 0); b.try() },
		"garbage":  func() { b.write("x", 0); b.try() },
		"empty":    func() { b.write("", 0); b.try() },
		"broken":   func() { b.write(strconv.Itoa(dead), 0); b.mustTry().Release() },
		"reused":   func() { b.write("1", 24*365*time.Hour*10); b.mustTry().Release() },
		"disk":     func() { b.seam.write = func(int, []byte) (int, error) { return 0, unix.EIO }; b.try() },
		"no turn":  func() { b.write(strconv.Itoa(dead), 0); os.WriteFile(b.path()+".break", nil, 0o600); b.try() },
		"link":     func() { os.Symlink("x", b.path()); b.try() },
		"listed":   func() { b.write("1", 0); b.w.Locks() },
		"stalled":  func() { b.seam.at = stallOnce(b); b.try() },
		"rewriten": func() { l := b.mustTry(); b.write("12", 0); l.Release() },
	}
	for name, step := range steps {
		before := count()
		for range 20 {
			step()
			b.seam = lockSeam{}
			os.Remove(b.path())
			os.Remove(b.path() + ".break")
		}
		if after := count(); after > before {
			t.Errorf("%s: %d descriptors before, %d after", name, before, after)
		}
	}
}

func stallOnce(b *lockBench) func(lockPoint, string) {
	return func(p lockPoint, path string) {
		if p == pointWritten {
			b.seam.at = nil
			os.Remove(path)
			b.write("1", 0)
		}
	}
}
