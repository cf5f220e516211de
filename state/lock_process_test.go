package state

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	c.Env = append(os.Environ(), childEnv+"="+role, childDir+"="+dir, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
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
	case "die": // in the midst of taking a lock
		k := w.locker()
		k.seam = dieAt(count)
		for {
			if l, err := k.try(benchLock); l != nil || !errors.Is(err, ErrHeld) {
				t.Fatalf("got %v, %v; want to be dead", l, err)
			}
		}
	case "race": // by line: all goroutines try; the one that has the lock gives it back
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			won, failed := tryAll(w, n)
			fmt.Println(len(won), failed)
			in.Scan()
			for _, l := range won {
				failed = errors.Join(failed, l.Release())
			}
			fmt.Println(len(won), failed)
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

// tryAll lets n goroutines try the lock at once.
func tryAll(w *Workspace, n int) (won []*Lock, failed error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			l, err := w.TryLock(benchLock)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, l)
			case !errors.Is(err, ErrHeld):
				failed = errors.Join(failed, err)
			}
		})
	}
	wg.Wait()
	return won, failed
}

// takingPoints are all the places where a process can be killed while it takes a lock that
// nobody has.
var takingPoints = []string{"created", "before flock", "flock", "before write", "write", "written", "between link and unlink", "taken"}

// dieAt kills this process, as with kill -9, at one of the taking points.
func dieAt(place string) *lockSeam {
	die := func(here string) {
		if here == place {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	s := &lockSeam{
		at: func(p lockPoint, _ string) { die(string(p)) },
		flock: func(fd, how int) error {
			if how&unix.LOCK_EX == 0 { // a probe
				return unix.Flock(fd, how)
			}
			die("before flock")
			err := unix.Flock(fd, how)
			die("flock")
			return err
		},
		write: func(fd int, b []byte) (int, error) {
			die("before write")
			n, err := unix.Write(fd, b)
			die("write")
			return n, err
		},
	}
	if place == "between link and unlink" {
		s.rename = func(from, to string) error {
			if err := os.Link(from, to); err != nil {
				return err
			}
			die(place)
			return os.Remove(from)
		}
	}
	return s
}

// waitKilled waits for a child that kills itself.
func waitKilled(t *testing.T, c *exec.Cmd) {
	t.Helper()
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("a process that dies: got %v, want it killed", err)
	}
}

// Wherever a process is killed while it takes a lock, the lock is free or names it, and the
// next one gets it at once.
func TestLockKilledWhileTaking(t *testing.T) {
	const times = 3
	for _, place := range takingPoints {
		for _, over := range []string{"a free lock", "one of a dead process"} {
			t.Run(place+", "+over, func(t *testing.T) {
				b := newLockBench(t)
				for range times {
					if over != "a free lock" {
						b.write(strconv.Itoa(deadPID(t)), 0)
					}
					c := lockChild(t, "die "+place, b.w.dir)
					if err := c.Start(); err != nil {
						t.Fatal(err)
					}
					waitKilled(t, c)
					named := place == "taken" || place == "between link and unlink"
					content, err := os.ReadFile(b.path())
					if named && string(content) != strconv.Itoa(c.Process.Pid) || !named && !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("the lock: got %q, %v", content, err)
					}
					locks, err := b.w.Locks()
					if err != nil || named && len(locks) != 1 || !named && len(locks) != 0 {
						t.Errorf("Locks: got %+v, %v", locks, err)
					}
					l := b.mustTry()
					swept, err := b.w.Sweep()
					if want := place != "taken"; err != nil || (len(swept) == 1) != want {
						t.Errorf("swept %v, %v; want one: %v", swept, err, want)
					}
					b.wantFiles(map[string]string{benchLock: ownPID()})
					if !l.Held() {
						t.Error("the sweep took the lock away")
					}
					if err := l.Release(); err != nil {
						t.Error(err)
					}
					b.wantFiles(map[string]string{})
				}
			})
		}
	}
}

// Of many goroutines in many processes, one gets the lock.
func TestLockManyProcessesAtOnce(t *testing.T) {
	const processes, each, rounds = 10, 5, 30
	b := newLockBench(t)
	before := []string{"-", strconv.Itoa(deadPID(t)), ""}
	type child struct {
		in  io.WriteCloser
		out *bufio.Reader
	}
	var children []child
	for range processes {
		c := lockChild(t, fmt.Sprintf("race %d", each), b.w.dir)
		in, ierr := c.StdinPipe()
		out, oerr := c.StdoutPipe()
		if err := errors.Join(ierr, oerr, c.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
		})
		children = append(children, child{in, bufio.NewReader(out)})
	}
	// all gives every child its line and adds up how many locks they have.
	all := func() (have int) {
		t.Helper()
		for _, c := range children {
			if _, err := io.WriteString(c.in, "\n"); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range children {
			line, err := c.out.ReadString('\n')
			var n int
			if _, serr := fmt.Sscanf(line, "%d <nil>", &n); err != nil || serr != nil {
				t.Fatalf("a child says %q, %v", line, err)
			}
			have += n
		}
		return have
	}
	for i := range rounds {
		if content := before[i%len(before)]; content != "-" {
			b.write(content, time.Hour)
		}
		if have := all(); have != 1 {
			t.Fatalf("round %d: %d have the lock, want 1", i, have)
		}
		all() // they give it back
		b.wantFiles(map[string]string{})
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
		crashers   = 12 // die as holders
	)
	w := &Workspace{dir: t.TempDir()}
	var contending, crashing []*exec.Cmd
	for _, place := range takingPoints {
		crashing = append(crashing, lockChild(t, "die "+place, w.dir))
	}
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
		waitKilled(t, c)
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
	if _, err := w.Sweep(); err != nil {
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

// At whatever instant a process is killed that takes a lock and gives it back, the next one
// gets it at once.
func TestLockKilledAnywhere(t *testing.T) {
	for range 25 {
		w := &Workspace{dir: t.TempDir()}
		c := lockChild(t, "churn", w.dir)
		started(t, c)
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		l, err := w.TryLock(benchLock)
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
