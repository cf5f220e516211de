package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// lockBench is a locks directory with one lock name in it.
type lockBench struct {
	*testing.T
	w    *Workspace
	seam lockSeam
}

const benchLock = "schedule:backup"

func newLockBench(t *testing.T) *lockBench {
	b := &lockBench{T: t, w: &Workspace{dir: t.TempDir()}}
	if err := os.Mkdir(filepath.Join(b.w.dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *lockBench) path() string { return filepath.Join(b.w.dir, "locks", benchLock) }

// try is TryLock with the bench's seam.
func (b *lockBench) try() (*Lock, error) {
	k := b.w.locker()
	k.seam = &b.seam
	return k.try(benchLock)
}

// write makes the lock file by hand, as old as age says.
func (b *lockBench) write(content string, age time.Duration) {
	b.Helper()
	if err := os.WriteFile(b.path(), []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
	b.age(age)
}

func (b *lockBench) age(age time.Duration) {
	b.Helper()
	then := time.Now().Add(-age)
	if err := os.Chtimes(b.path(), then, then); err != nil {
		b.Fatal(err)
	}
}

// temp is the one temporary file there is.
func (b *lockBench) temp() string {
	b.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(b.path()), ".*"+tempExt))
	if err != nil || len(found) != 1 {
		b.Fatalf("temporary files: got %v, %v; want one", found, err)
	}
	return found[0]
}

// files lists the locks directory with contents.
func (b *lockBench) files() map[string]string {
	b.Helper()
	entries, err := os.ReadDir(filepath.Dir(b.path()))
	if err != nil {
		b.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(b.path()), e.Name()))
		if err != nil {
			b.Fatal(err)
		}
		got[e.Name()] = string(content)
	}
	return got
}

func (b *lockBench) wantFiles(want map[string]string) {
	b.Helper()
	if diff := cmp.Diff(want, b.files()); diff != "" {
		b.Errorf("files in locks/ (-want +got):\n%s", diff)
	}
}

func (b *lockBench) mustTry() *Lock {
	b.Helper()
	l, err := b.try()
	if err != nil {
		b.Fatalf("TryLock: %v", err)
	}
	b.Cleanup(func() { l.Release() })
	return l
}

func (b *lockBench) wantHeld(want string) {
	b.Helper()
	l, err := b.try()
	if l != nil {
		b.Fatalf("took a lock that should be held by %s", want)
	}
	wantHeld(b.T, err, want)
}

func wantHeld(t *testing.T, err error, want string) {
	t.Helper()
	var held *HeldError
	if !errors.As(err, &held) || !errors.Is(err, ErrHeld) {
		t.Fatalf("got error %v, want a HeldError", err)
	}
	if held.Holder != want {
		t.Errorf("holder:\n got %s\nwant %s", held.Holder, want)
	}
	if held.Name != benchLock {
		t.Errorf("name: got %q, want %q", held.Name, benchLock)
	}
	var pid int
	if n, _ := fmt.Sscanf(want, "pid %d", &pid); n == 1 && held.PID != pid {
		t.Errorf("pid: got %d, want %d", held.PID, pid)
	}
}

// deadPID is the pid of a process that has exited and was reaped.
func deadPID(t *testing.T) int {
	t.Helper()
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	return c.Process.Pid
}

// livePID is the pid of another process that runs until the test ends.
func livePID(t *testing.T) int {
	t.Helper()
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c.Process.Pid
}

func ownPID() string { return strconv.Itoa(os.Getpid()) }

func exitedText(b *lockBench, pid int) string {
	return fmt.Sprintf("pid %d, which has exited (if no process is taking the lock over, remove %s.break)", pid, b.path())
}

func TestLockFileHoldsThePid(t *testing.T) {
	b := newLockBench(t)
	l := b.mustTry()
	b.wantFiles(map[string]string{benchLock: ownPID()})
	info, err := os.Lstat(b.path())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode(), fs.FileMode(0o600); got != want {
		t.Errorf("mode: got %v, want %v", got, want)
	}
	for range 2 {
		if err := l.Release(); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	b.wantFiles(map[string]string{})
}

func TestLockSecondReleaseLeavesTheNextHolderAlone(t *testing.T) {
	b := newLockBench(t)
	first := b.mustTry()
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	b.mustTry()
	if err := first.Release(); err != nil {
		t.Fatal(err)
	}
	b.wantFiles(map[string]string{benchLock: ownPID()})
}

func TestLockCreatesItsDirectory(t *testing.T) {
	w := &Workspace{dir: filepath.Join(t.TempDir(), "0123456789ab")}
	l, err := w.TryLock("x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	info, err := os.Stat(filepath.Join(w.dir, "locks"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := info.Mode().Perm(), fs.FileMode(0o700); got != want {
		t.Errorf("mode of locks/: got %v, want %v", got, want)
	}
}

func TestLockIsNotReentrant(t *testing.T) {
	b := newLockBench(t)
	b.mustTry()
	b.wantHeld("pid " + ownPID())
}

func TestLockHolders(t *testing.T) {
	live, dead := livePID(t), deadPID(t)
	const taken = "" // the lock is taken
	unknown := "an unknown process (if none is running, remove PATH)"
	tests := []struct {
		name    string
		content string
		age     time.Duration
		want    string
	}{
		{"live", strconv.Itoa(live), 0, fmt.Sprintf("pid %d", live)},
		{"live with white space", fmt.Sprintf("\t %d\r\n", live), 0, fmt.Sprintf("pid %d", live)},
		{"our own", ownPID(), 0, "pid " + ownPID()},
		{"init, of another user", "1", 0, "pid 1"},
		{"dead", strconv.Itoa(dead), 0, taken},
		{"dead with white space", fmt.Sprintf(" %d\n", dead), 0, taken},
		{"empty, fresh", "", 0, holderTaking},
		{"empty, nearly 30 s", "", 29 * time.Second, holderTaking},
		{"empty, over 30 s", "", 31 * time.Second, taken},
		{"empty, 60 s", "", time.Minute, taken},
		{"empty, from before the clock was set back", "", -time.Hour, taken},
		{"by hand", "by hand", 0, unknown},
		{"by hand, old", "by hand", time.Hour, unknown},
		{"white space only", " \n", time.Hour, unknown},
		{"fraction", "12.0", 0, unknown},
		{"hexadecimal", "0x10", 0, unknown},
		{"exponent", "1e3", 0, unknown},
		{"sign", "+12", 0, unknown},
		{"negative", "-1", 0, unknown},
		{"zero", "0", 0, unknown},
		{"digits and letters", "12abc", 0, unknown},
		{"two numbers", "12 13", 0, unknown},
		{"beyond any pid", "4294967297", 0, unknown},
		{"beyond any number", strings.Repeat("9", 60), 0, unknown},
		{"long", strings.Repeat(" ", 100) + "12", 0, unknown},
		{"digits of another script", "١٢", 0, unknown},
		{"NULs after a power cut", "\x00\x00\x00", 0, unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			b.write(tt.content, tt.age)
			if tt.want == taken {
				l := b.mustTry()
				b.wantFiles(map[string]string{benchLock: ownPID()})
				if err := l.Release(); err != nil {
					t.Error(err)
				}
				b.wantFiles(map[string]string{})
				return
			}
			b.wantHeld(strings.ReplaceAll(tt.want, "PATH", b.path()))
			b.wantFiles(map[string]string{benchLock: tt.content})
		})
	}
}

func TestLockWithBreakInTheWay(t *testing.T) {
	dead := deadPID(t)
	tests := []struct {
		name    string
		content string
		want    func(b *lockBench) string
	}{
		{"dead", strconv.Itoa(dead), func(b *lockBench) string { return exitedText(b, dead) }},
		{"empty and old", "", func(*lockBench) string { return holderTaking }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			b.write(tt.content, time.Hour)
			if err := os.WriteFile(b.path()+".break", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				b.wantHeld(tt.want(b))
			}
			b.wantFiles(map[string]string{benchLock: tt.content, benchLock + ".break": ""})
			if err := os.Remove(b.path() + ".break"); err != nil {
				t.Fatal(err)
			}
			b.mustTry()
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
	}
	t.Run("free", func(t *testing.T) { // a left-over .break only stops breaking
		b := newLockBench(t)
		if err := os.WriteFile(b.path()+".break", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.mustTry()
	})
}

func TestLockReleaseLeavesWhatIsNotOurs(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *lockBench) error
		want   map[string]string
	}{
		{"rewritten to another pid", func(b *lockBench) error { return os.WriteFile(b.path(), []byte("999"), 0o600) },
			map[string]string{benchLock: "999"}},
		{"emptied", func(b *lockBench) error { return os.Truncate(b.path(), 0) }, map[string]string{benchLock: ""}},
		{"removed", func(b *lockBench) error { return os.Remove(b.path()) }, map[string]string{}},
		{"removed and taken again by us", func(b *lockBench) error {
			err := os.Remove(b.path())
			b.mustTry()
			return err
		}, map[string]string{benchLock: ownPID()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			l := b.mustTry()
			if err := tt.change(b); err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Errorf("release: %v", err)
			}
			b.wantFiles(tt.want)
		})
	}
}

func TestLockWriteFailureRemovesTheFile(t *testing.T) {
	tests := []struct {
		name  string
		write func(fd int, p []byte) (int, error)
		want  error
	}{
		{"disk full", func(int, []byte) (int, error) { return 0, unix.ENOSPC }, unix.ENOSPC},
		{"short write", func(fd int, p []byte) (int, error) { return unix.Write(fd, p[:1]) }, unix.EIO},
		{"failing disk", func(fd int, p []byte) (int, error) { _, _ = unix.Write(fd, p); return 0, unix.EIO }, unix.EIO},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			b.seam.write = tt.write
			_, err := b.try()
			if !errors.Is(err, tt.want) || !errors.Is(err, ErrRoot) || errors.Is(err, ErrHeld) {
				t.Errorf("got %v, want %v and ErrRoot", err, tt.want)
			}
			b.wantFiles(map[string]string{})
		})
	}
}

// What stands under the lock's name tells whose it is, whatever the rename says. Where there
// is no exclusive one, a link does it.
func TestLockRename(t *testing.T) {
	live := livePID(t)
	twice := func(from, to string) error { // as over a network, where an answer can get lost
		return errors.Join(renameNew(from, to), renameNew(from, to))
	}
	both := func(from, to string) error { // as linkNew where the first name cannot be removed
		return errors.Join(os.Link(from, to), unix.EACCES)
	}
	tests := []struct {
		name   string
		rename func(from, to string) error
		raced  bool  // another gets the name first
		err    error // nil where the lock is taken, or another's
	}{
		{name: "rename", rename: renameNew},
		{name: "rename, raced", rename: renameNew, raced: true},
		{name: "link", rename: linkNew},
		{name: "link, raced", rename: linkNew, raced: true},
		{name: "renamed twice", rename: twice},
		{name: "linked twice", rename: func(from, to string) error { return errors.Join(os.Link(from, to), linkNew(from, to)) }},
		{name: "both names stay", rename: both},
		{name: "not supported at all", rename: func(string, string) error { return unix.ENOTSUP }, err: unix.ENOTSUP},
		{name: "not supported at all, raced", rename: func(string, string) error { return unix.ENOTSUP }, raced: true, err: unix.ENOTSUP},
		{name: "failing disk", rename: func(string, string) error { return unix.EIO }, err: unix.EIO},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			b.seam.rename = tt.rename
			want := map[string]string{benchLock: ownPID()}
			if tt.raced {
				want[benchLock] = strconv.Itoa(live)
				b.seam.at = func(p lockPoint, _ string) {
					if p == pointWritten {
						b.write(strconv.Itoa(live), 0)
					}
				}
			}
			switch {
			case tt.err != nil:
				if _, err := b.try(); !errors.Is(err, tt.err) || !errors.Is(err, ErrRoot) || errors.Is(err, ErrHeld) {
					t.Errorf("got %v, want %v and ErrRoot", err, tt.err)
				}
				if !tt.raced {
					want = map[string]string{}
				}
			case tt.raced:
				b.wantHeld(fmt.Sprintf("pid %d", live))
			default:
				l := b.mustTry()
				b.wantFiles(want)
				b.wantHeld("pid " + ownPID())
				f, err := b.w.locker().look(b.path())
				if err != nil {
					t.Fatal(err)
				}
				defer f.close()
				if got := b.w.locker().probe(f.fd); got != flockHeld || !l.Held() {
					t.Errorf("flock %v, held %v; want a lock that is ours", got, l.Held())
				}
				if err := l.Release(); err != nil {
					t.Error(err)
				}
				want = map[string]string{}
			}
			b.wantFiles(want)
		})
	}
}

func TestLockRaces(t *testing.T) {
	live, dead := livePID(t), deadPID(t)
	// once runs f at the first passage of a point only.
	once := func(point lockPoint, f func(b *lockBench)) func(b *lockBench) {
		return func(b *lockBench) {
			done := false
			b.seam.at = func(p lockPoint, _ string) {
				if p == point && !done {
					done = true
					f(b)
				}
			}
		}
	}
	replace := func(content string) func(*lockBench) {
		return func(b *lockBench) {
			if err := os.Remove(b.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				b.Fatal(err)
			}
			b.write(content, 0)
		}
	}
	remove := func(b *lockBench) {
		if err := os.Remove(b.path()); err != nil {
			b.Fatal(err)
		}
	}
	other := func(b *lockBench, want string) { // a second contender comes by
		c := &lockBench{T: b.T, w: b.w}
		c.wantHeld(want)
	}
	livePid := fmt.Sprintf("pid %d", live)
	tests := []struct {
		name    string
		content string // "-" for no lock
		age     time.Duration
		seam    func(b *lockBench)
		held    string // "" where the lock is taken
		files   map[string]string
	}{
		{
			name: "released between the failed create and the read", content: strconv.Itoa(live),
			seam: once(pointExists, remove),
		},
		{
			name: "holder exits between the failed create and the read", content: strconv.Itoa(live),
			seam: once(pointExists, replace(strconv.Itoa(dead))),
		},
		{
			name: "another contender while we are about to remove", content: strconv.Itoa(dead),
			seam: once(pointRemove, func(b *lockBench) { other(b, exitedText(b, dead)) }),
		},
		{
			name: "another contender while an old empty one is about to go", age: time.Minute,
			seam: once(pointRemove, func(b *lockBench) { other(b, holderTaking) }),
		},
		{
			name: "changed hands before our turn", content: strconv.Itoa(dead),
			seam: once(pointJudged, replace(strconv.Itoa(live))),
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "changed hands under our turn", content: strconv.Itoa(dead),
			seam: once(pointTurn, replace(strconv.Itoa(live))),
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "broken and released by another before our turn", content: strconv.Itoa(dead),
			seam: once(pointJudged, remove),
		},
		{
			name: "another took it before we could create", content: strconv.Itoa(dead),
			seam: func(b *lockBench) {
				n := 0
				b.seam.at = func(p lockPoint, _ string) {
					if p == pointTurn {
						n++
						replace(strconv.Itoa(live))(b)
					}
				}
			},
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "empty one gets its pid before our turn", age: time.Minute,
			seam: once(pointJudged, func(b *lockBench) { b.write(strconv.Itoa(live), 0) }),
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "empty one replaced by a fresh empty one before our turn", age: time.Minute,
			seam: once(pointJudged, replace("")),
			held: holderTaking, files: map[string]string{benchLock: ""},
		},
		{
			name: "a breaker is at a file that came before ours", content: "-",
			seam: once(pointWritten, func(b *lockBench) {
				b.write("", time.Minute)
				if err := os.WriteFile(b.path()+".break", nil, 0o600); err != nil {
					b.Fatal(err)
				}
			}),
			held: holderTaking, files: map[string]string{benchLock: "", benchLock + ".break": ""},
		},
		{
			name: "an abandoned one came before ours", content: "-",
			seam: once(pointWritten, replace(strconv.Itoa(dead))),
		},
		{
			name: "lost while we stalled before writing", content: "-",
			seam: once(pointCreated, replace(strconv.Itoa(live))),
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "lost while we stalled after writing", content: "-",
			seam: once(pointWritten, replace(strconv.Itoa(live))),
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "swept while we stalled, and nobody else came", content: "-",
			seam: once(pointWritten, func(b *lockBench) {
				if err := os.Remove(b.temp()); err != nil {
					b.Fatal(err)
				}
			}),
		},
		{
			name: "swept while we stalled, and another came", content: "-",
			seam: once(pointWritten, func(b *lockBench) {
				if err := os.Remove(b.temp()); err != nil {
					b.Fatal(err)
				}
				b.write(strconv.Itoa(live), 0)
			}),
			held: livePid, files: map[string]string{benchLock: strconv.Itoa(live)},
		},
		{
			name: "the directory was moved away while we stalled", content: "-",
			seam: once(pointWritten, func(b *lockBench) {
				dir := filepath.Dir(b.path())
				if err := os.Rename(dir, dir+".old"); err != nil {
					b.Fatal(err)
				}
			}),
		},
		{
			name: "vanishes before the last read", content: strconv.Itoa(dead),
			seam: func(b *lockBench) {
				if err := os.WriteFile(b.path()+".break", nil, 0o600); err != nil {
					b.Fatal(err)
				}
				once(pointReport, func(b *lockBench) {
					remove(b)
					if err := os.Remove(b.path() + ".break"); err != nil {
						b.Fatal(err)
					}
				})(b)
			},
		},
		{
			name: "comes and goes at every look", content: "-",
			seam: func(b *lockBench) {
				gone := false
				b.seam.at = func(p lockPoint, _ string) {
					switch p {
					case pointCreated:
						replace(strconv.Itoa(live))(b)
						gone = false
					case pointExists:
						if !gone {
							remove(b)
							gone = true
						}
					}
				}
			},
			held: holderTaking, files: map[string]string{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			if tt.content != "-" {
				b.write(tt.content, tt.age)
			}
			tt.seam(b)
			if tt.held != "" {
				b.wantHeld(tt.held)
				b.wantFiles(tt.files)
				return
			}
			b.mustTry()
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
	}
}

// A turn is for the lock that was judged: another one, abandoned as well, takes a
// turn of its own.
func TestLockTurnIsForOneLock(t *testing.T) {
	first, second := strconv.Itoa(deadPID(t)), strconv.Itoa(deadPID(t))
	tests := []struct{ name, before, after string }{
		{"another dead holder", first, second},
		{"another empty file", "", ""},
		{"a dead holder for an empty file", "", first},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			b.write(tt.before, time.Minute)
			turns := 0
			b.seam.at = func(p lockPoint, path string) {
				if p != pointTurn {
					return
				}
				if turns++; turns == 1 {
					if err := os.Rename(path, path+".old"); err != nil {
						t.Fatal(err)
					}
					b.write(tt.after, time.Hour)
				}
			}
			b.mustTry()
			if turns != 2 {
				t.Errorf("got %d turns, want 2", turns)
			}
		})
	}
}

// A creator that stalled must not believe in a lock that a breaker is removing, or that
// another has, whichever of them comes first.
func TestLockStalledCreatorAgainstBreaker(t *testing.T) {
	// stalled lets a creator come to a point and no further before go on is called, which
	// waits for its end.
	stalled := func(b *lockBench, point lockPoint) (goOn func() (*Lock, error)) {
		c := &lockBench{T: b.T, w: b.w}
		there, wake, done := make(chan bool), make(chan bool), make(chan bool)
		var once sync.Once
		c.seam.at = func(p lockPoint, _ string) {
			if p == point {
				once.Do(func() {
					close(there)
					<-wake
				})
			}
		}
		var l *Lock
		var err error
		go func() {
			defer close(done)
			l, err = c.try()
		}()
		<-there
		return func() (*Lock, error) {
			close(wake)
			<-done
			return l, err
		}
	}
	for _, point := range []lockPoint{pointCreated, pointWritten} {
		t.Run("breaker comes first, creator stalled at "+string(point), func(t *testing.T) {
			b := newLockBench(t)
			goOn := stalled(b, point)
			stale := time.Now().Add(-time.Hour)
			if err := os.Chtimes(b.temp(), stale, stale); err != nil {
				t.Fatal(err)
			}
			b.write("", time.Hour) // another program's
			b.seam.at = func(p lockPoint, _ string) {
				if p == pointRemove {
					_, err := goOn()
					wantHeld(t, err, holderTaking)
				}
			}
			b.mustTry()
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
		t.Run("breaker is past, creator stalled at "+string(point), func(t *testing.T) {
			b := newLockBench(t)
			goOn := stalled(b, point)
			b.write("", time.Hour)
			b.seam.at = func(p lockPoint, _ string) {
				if p == pointCreated { // it is removed, and anyone's
					l, err := goOn()
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { l.Release() })
				}
			}
			b.wantHeld("pid " + ownPID())
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
		t.Run("taken and given back meanwhile, creator stalled at "+string(point), func(t *testing.T) {
			b := newLockBench(t)
			goOn := stalled(b, point)
			first := b.mustTry()
			if err := first.Release(); err != nil {
				t.Fatal(err)
			}
			l, err := goOn()
			if err != nil {
				t.Fatal(err)
			}
			defer l.Release()
			b.wantHeld("pid " + ownPID())
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
	}
	// Another program, or a marbles of before, makes the file first and flocks it then.
	t.Run("breaker comes first, creator flocks an empty lock", func(t *testing.T) {
		b := newLockBench(t)
		b.write("", time.Minute)
		b.seam.at = func(p lockPoint, _ string) {
			if p == pointRemove { // the creator wakes up now
				fd, err := openFD(b.path(), unix.O_RDWR|unix.O_CLOEXEC)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Close(fd)
				if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
					t.Errorf("flock of the creator: got %v, want EWOULDBLOCK", err)
				}
			}
		}
		b.mustTry()
		b.wantFiles(map[string]string{benchLock: ownPID()})
	})
	t.Run("creator of an empty lock has its flock", func(t *testing.T) {
		b := newLockBench(t)
		b.write("", time.Hour)
		fd, err := openFD(b.path(), unix.O_RDWR|unix.O_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		b.wantHeld(holderTaking)
		b.wantFiles(map[string]string{benchLock: ""})
		unix.Close(fd) // it died
		b.mustTry()
		b.wantFiles(map[string]string{benchLock: ownPID()})
	})
}

// Of many who want a lock at once one gets it, whatever is there before.
func TestLockManyAtOnce(t *testing.T) {
	const contenders, rounds = 50, 10
	dead := strconv.Itoa(deadPID(t))
	before := []struct{ name, content string }{{"free", "-"}, {"dead holder", dead}, {"empty and old", ""}}
	for name, rename := range map[string]func(from, to string) error{"rename": renameNew, "link": linkNew} {
		for _, tt := range before {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				b := newLockBench(t)
				b.seam.rename = rename
				for range rounds {
					if tt.content != "-" {
						b.write(tt.content, time.Hour)
					}
					var wg sync.WaitGroup
					got := make(chan *Lock, contenders)
					gate := make(chan bool)
					for range contenders {
						wg.Go(func() {
							<-gate
							l, err := b.try()
							if l != nil {
								got <- l
							} else if !errors.Is(err, ErrHeld) {
								t.Error(err)
							}
						})
					}
					close(gate)
					wg.Wait()
					close(got)
					if len(got) != 1 {
						t.Fatalf("%d have the lock, want 1", len(got))
					}
					b.wantFiles(map[string]string{benchLock: ownPID()})
					if err := (<-got).Release(); err != nil {
						t.Fatal(err)
					}
				}
				b.wantFiles(map[string]string{})
			})
		}
	}
}

func TestLockPidReuse(t *testing.T) {
	live := livePID(t)
	exclusive := func(b *lockBench) {
		fd, err := openFD(b.path(), unix.O_RDWR|unix.O_CLOEXEC)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { unix.Close(fd) })
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			b.Fatal(err)
		}
	}
	whole := func(b *lockBench) { // a file system with whole seconds
		info, err := os.Stat(b.path())
		if err != nil {
			b.Fatal(err)
		}
		at := info.ModTime().Truncate(time.Second)
		if err := os.Chtimes(b.path(), at, at); err != nil {
			b.Fatal(err)
		}
	}
	unsupported := func(b *lockBench) { b.seam.flock = func(int, int) error { return unix.ENOTSUP } }
	tests := []struct {
		name    string
		younger time.Duration // started this much after the lock was written
		unknown bool          // the start is not known
		setup   func(b *lockBench)
		taken   bool
	}{
		{name: "started before the lock was written", younger: -time.Hour},
		{name: "started just before", younger: -time.Millisecond},
		{name: "within the clocks' exactness", younger: 20 * time.Millisecond},
		{name: "started after", younger: time.Second, taken: true},
		{name: "started long after", younger: time.Hour, taken: true},
		{name: "started after, but the holder has its flock", younger: time.Hour, setup: exclusive},
		{name: "started after, no flock on this file system", younger: time.Hour, setup: unsupported},
		{name: "coarse file times, a second", younger: time.Second, setup: whole},
		{name: "coarse file times, a minute", younger: time.Minute, setup: whole, taken: true},
		{name: "start unknown", unknown: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			b.write(strconv.Itoa(live), 24*time.Hour)
			if tt.setup != nil {
				tt.setup(b)
			}
			info, err := os.Stat(b.path())
			if err != nil {
				t.Fatal(err)
			}
			b.seam.process = func(pid int) (time.Time, bool) {
				if tt.unknown {
					return time.Time{}, true
				}
				return info.ModTime().Add(tt.younger), true
			}
			if !tt.taken {
				b.wantHeld(fmt.Sprintf("pid %d", live))
				b.wantFiles(map[string]string{benchLock: strconv.Itoa(live)})
				return
			}
			b.mustTry()
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
	}
}

// A real process that got the pid of an old lock, without any seam.
func TestLockPidReuseForReal(t *testing.T) {
	live := livePID(t)
	b := newLockBench(t)
	b.write(strconv.Itoa(live), 24*time.Hour)
	b.mustTry()

	b = newLockBench(t)
	b.write(ownPID(), 24*time.Hour) // in a container we are pid 1 again after a restart
	b.mustTry()
}

// The clock is set back after we took a lock: we then seem to have started later.
func TestLockClockStepDoesNotBreakALiveLock(t *testing.T) {
	b := newLockBench(t)
	b.mustTry()
	b.age(24 * time.Hour)
	b.wantHeld("pid " + ownPID())
}

func TestLockWithoutFlock(t *testing.T) {
	dead := deadPID(t)
	for _, errno := range []unix.Errno{unix.ENOTSUP, unix.ENOSYS, unix.ENOLCK, unix.EINVAL} {
		t.Run(errno.Error(), func(t *testing.T) {
			b := newLockBench(t)
			b.seam.flock = func(int, int) error { return errno }
			l := b.mustTry()
			b.wantHeld("pid " + ownPID())
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			b.write(strconv.Itoa(dead), 0)
			l = b.mustTry()
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
			b.write("", time.Minute)
			b.mustTry()
			b.wantFiles(map[string]string{benchLock: ownPID()})
		})
	}
}

func TestLockHostileFiles(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"symbolic link to a lock of a dead process", func(t *testing.T, path string) {
			target := filepath.Join(t.TempDir(), "target")
			if err := errors.Join(os.WriteFile(target, []byte("999999"), 0o600), os.Symlink(target, path)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if got, err := os.ReadFile(target); err != nil || string(got) != "999999" {
					t.Errorf("target: got %q, %v", got, err)
				}
			})
		}, "symbolic link"},
		{"dangling link", func(t *testing.T, path string) {
			if err := os.Symlink("nowhere", path); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"pipe", func(t *testing.T, path string) {
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
		{"another user's", func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			if err := errors.Join(os.WriteFile(path, []byte("999999"), 0o600), os.Chown(path, 1234, -1)); err != nil {
				t.Fatal(err)
			}
		}, "belongs to uid 1234"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newLockBench(t)
			tt.make(t, b.path())
			l, err := b.try()
			if l != nil || err == nil || errors.Is(err, ErrHeld) ||
				!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), b.path()) {
				t.Errorf("got %v, %v; want an error with %q and the path", l, err, tt.want)
			}
			if _, err := os.Lstat(b.path()); err != nil {
				t.Errorf("the file is gone: %v", err)
			}
			if locks, err := b.w.Locks(); err != nil || len(locks) != 1 || locks[0].Alive {
				t.Errorf("Locks: got %+v, %v; want one that is not alive", locks, err)
			}
		})
	}
}

func TestLockUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	b := newLockBench(t)
	b.write("12", 0)
	if err := os.Chmod(b.path(), 0); err != nil {
		t.Fatal(err)
	}
	b.wantHeld(fmt.Sprintf("an unknown process (if none is running, remove %s)", b.path()))
}

func TestLockRootCannotBeUsed(t *testing.T) {
	w := &Workspace{dir: filepath.Join(t.TempDir(), "file")}
	if err := os.WriteFile(w.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := w.TryLock("x")
	if !errors.Is(err, ErrRoot) || errors.Is(err, ErrHeld) {
		t.Errorf("got %v, want ErrRoot", err)
	}
}

func TestLockNames(t *testing.T) {
	for _, name := range []string{"", ".", "..", "a/b", "../x", `a\b`, "a\x00b", "x.break", ".x.12-abc.tmp"} {
		t.Run(name, func(t *testing.T) {
			w := &Workspace{dir: filepath.Join(t.TempDir(), "w")}
			if _, err := w.TryLock(name); err == nil || errors.Is(err, ErrHeld) {
				t.Errorf("TryLock(%q): got %v, want an error", name, err)
			}
			if _, err := os.Lstat(w.dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was created: %v", err)
			}
		})
	}
	for _, name := range []string{"schedule:backup.v2", "run-rn-01j", "edit-x", "ä", ".x", "x.tmp", ".tmp", strings.Repeat("x", 255)} {
		t.Run(name, func(t *testing.T) {
			w := &Workspace{dir: t.TempDir()}
			l, err := w.TryLock(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestLockWait(t *testing.T) {
	t.Run("proceeds after the release", func(t *testing.T) {
		w := &Workspace{dir: t.TempDir()}
		l, err := w.TryLock(benchLock)
		if err != nil {
			t.Fatal(err)
		}
		released := make(chan error, 1)
		time.AfterFunc(30*time.Millisecond, func() { released <- l.Release() })
		second, err := w.LockWait(benchLock, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Release()
		if err := <-released; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("names the holder at the deadline", func(t *testing.T) {
		w := &Workspace{dir: t.TempDir()}
		l, err := w.TryLock(benchLock)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
		for _, timeout := range []time.Duration{-time.Second, 0, 25 * time.Millisecond} {
			_, err = w.LockWait(benchLock, timeout)
			wantHeld(t, err, "pid "+ownPID())
		}
	})
	t.Run("other errors do not wait", func(t *testing.T) {
		w := &Workspace{dir: t.TempDir()}
		if _, err := w.LockWait("..", time.Hour); err == nil {
			t.Error("got no error")
		}
	})
}

func TestLockService(t *testing.T) {
	w := &Workspace{dir: t.TempDir()}
	l, err := w.LockService()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.LockService(); err == nil || err.Error() != "pid "+ownPID() {
		t.Errorf("second service: got %v, want our pid", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestLocksListsWithoutTouching(t *testing.T) {
	live, dead := livePID(t), deadPID(t)
	w := &Workspace{dir: t.TempDir()}
	if got, err := w.Locks(); err != nil || got != nil {
		t.Fatalf("no directory: got %v, %v; want nothing", got, err)
	}
	if entries, _ := os.ReadDir(w.dir); len(entries) != 0 {
		t.Errorf("reading created %v", entries)
	}
	dir := filepath.Join(w.dir, "locks")
	contents := map[string]string{
		"a-live": strconv.Itoa(live), "b-dead": strconv.Itoa(dead), "c-empty": "", "d-hand": "by hand", "b-dead.break": "", "e.tmp": "1",
		fmt.Sprintf(".a-live.%d-abc.tmp", dead): strconv.Itoa(dead), fmt.Sprintf(".a-live.%d-abc.tmp", live): "",
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "c-empty"), old, old); err != nil {
		t.Fatal(err)
	}
	want := []LockInfo{
		{Name: "a-live", PID: live, Alive: true, Holder: fmt.Sprintf("pid %d", live)},
		{Name: "b-dead", PID: dead, Holder: fmt.Sprintf("pid %d, which has exited (if no process is taking the lock over, remove %s.break)", dead, filepath.Join(dir, "b-dead"))},
		{Name: "c-empty", Holder: holderTaking},
		{Name: "d-hand", Holder: fmt.Sprintf("an unknown process (if none is running, remove %s)", filepath.Join(dir, "d-hand"))},
		{Name: "e.tmp", PID: 1, Alive: true, Holder: "pid 1"},
	}
	got, err := w.Locks()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Locks (-want +got):\n%s", diff)
	}
	for name, content := range contents {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			t.Errorf("%s: got %q, %v; want %q untouched", name, got, err, content)
		}
	}
}

func BenchmarkTryLockRelease(b *testing.B) {
	w := &Workspace{dir: b.TempDir()}
	for b.Loop() {
		l, err := w.TryLock(benchLock)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTryLockHeld(b *testing.B) {
	w := &Workspace{dir: b.TempDir()}
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	path := filepath.Join(w.dir, "locks", benchLock)
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700),
		os.WriteFile(path, strconv.AppendInt(nil, int64(c.Process.Pid), 10), 0o600)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := w.TryLock(benchLock); !errors.Is(err, ErrHeld) {
			b.Fatal(err)
		}
	}
}

func TestHeld(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *Workspace, l *Lock) error
		want   bool
	}{
		{"as it was", func(*Workspace, *Lock) error { return nil }, true},
		{"released", func(_ *Workspace, l *Lock) error { return l.Release() }, false},
		{"file removed", func(_ *Workspace, l *Lock) error { return os.Remove(l.path) }, false},
		{"replaced by one with our pid", func(_ *Workspace, l *Lock) error {
			return errors.Join(os.Remove(l.path), os.WriteFile(l.path, []byte(strconv.Itoa(os.Getpid())), 0o600))
		}, false},
		{"root removed", func(w *Workspace, _ *Lock) error { return os.RemoveAll(filepath.Dir(w.dir)) }, false},
		{"root moved away", func(w *Workspace, _ *Lock) error {
			root := filepath.Dir(w.dir)
			return os.Rename(root, root+".old")
		}, false},
		{"a file above it", func(w *Workspace, _ *Lock) error {
			root := filepath.Dir(w.dir)
			return errors.Join(os.Rename(root, root+".old"), os.WriteFile(root, nil, 0o600))
		}, false},
		{"root moved there and back", func(w *Workspace, _ *Lock) error {
			root := filepath.Dir(w.dir)
			return errors.Join(os.Rename(root, root+".old"), os.Rename(root+".old", root))
		}, true},
		// A loop of links stands for any error that says nothing of the file.
		{"not to be told", func(w *Workspace, _ *Lock) error {
			root := filepath.Dir(w.dir)
			return errors.Join(os.Rename(root, root+".old"), os.Symlink(filepath.Base(root), root))
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			l, err := w.LockService()
			noError(t, err)
			t.Cleanup(func() { _ = l.Release() })
			noError(t, tt.change(w, l))
			if got := l.Held(); got != tt.want {
				t.Errorf("held is %v, want %v", got, tt.want)
			}
		})
	}
}
