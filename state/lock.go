package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// breakSuffix names the turn that a process takes to remove an abandoned lock.
	breakSuffix = ".break"
	// serviceLock is the lock a service holds for its life.
	serviceLock = "service"
	// lockAttempts bounds how often one TryLock looks again after the lock vanished
	// under it.
	lockAttempts = 3
	// lockPoll is the pause between two tries of LockWait.
	lockPoll = 10 * time.Millisecond
)

// ErrHeld is wrapped by [HeldError].
var ErrHeld = errors.New("lock is held")

// HeldError says who holds a lock; Holder is the text of the protocol, as in
// "pid 12" or "a process that is taking it now; retry".
type HeldError struct {
	Name   string
	Holder string
	PID    int // 0 where unknown
}

func (e *HeldError) Error() string { return e.Holder }
func (e *HeldError) Unwrap() error { return ErrHeld }

// Lock is a lock this process holds.
//
// Besides the pid in the file, an exclusive flock on the open descriptor says that
// its holder lives: it ends with the process, whoever gets the pid afterwards. Where
// flock is not supported the pid alone has to do.
type Lock struct {
	path     string
	fd       int
	id       fileID
	spares   *spareLocks // takes the file when it is released; nil for none
	released atomic.Bool
}

// TryLock takes locks/<name> or says who holds it (a *HeldError). It is not
// reentrant: a second TryLock of a name this process holds reports its own pid.
// The name must be one plain file name, not end in ".break", and not be that of a
// temporary file of this package.
func (w *Workspace) TryLock(name string) (*Lock, error) { return w.locker().try(name) }

// LockWait retries TryLock until the deadline, every 10 ms. When that has passed the
// error is the last *HeldError.
func (w *Workspace) LockWait(name string, timeout time.Duration) (*Lock, error) {
	deadline := time.Now().Add(timeout)
	for {
		l, err := w.TryLock(name)
		left := time.Until(deadline)
		if !errors.Is(err, ErrHeld) || left <= 0 {
			return l, err
		}
		time.Sleep(min(lockPoll, left))
	}
}

// LockService takes the lock that makes this process the only service of the
// workspace, for its life.
func (w *Workspace) LockService() (*Lock, error) { return w.TryLock(serviceLock) }

// Release removes the lock while it still names this process. Calling it again is
// harmless.
func (l *Lock) Release() error {
	if l.released.Swap(true) {
		return nil
	}
	// The file goes before the descriptor, and with it the flock, so that nobody ever
	// sees a lock of ours that is not flocked.
	defer func() { unix.Close(l.fd) }() // -1 where a spare keeps it
	if id, err := lstatID(l.path); err != nil || id != l.id {
		return nil // someone took it away: what stands there now is not ours
	}
	var room [lockRoom]byte
	n, err := uninterrupted(func() (int, error) { return unix.Pread(l.fd, room[:], 0) })
	if err != nil {
		return fmt.Errorf("cannot release lock %s: %w", l.path, err)
	}
	if pid, ok := parsePID(room[:n]); !ok || pid != Self().PID {
		return nil // someone wrote another holder into it
	}
	if l.spares.keep(l) {
		return nil
	}
	if err := unix.Unlink(l.path); err != nil && err != unix.ENOENT {
		return fmt.Errorf("cannot release lock %s: %w", l.path, err)
	}
	return nil
}

// Held reports whether the file at the lock's path is still the one this lock created.
// It is not once the lock was released, or the file, a directory above it or the whole
// state root was removed, moved away or replaced. An error that leaves this open, such
// as a failing disk, does not take a lock away.
func (l *Lock) Held() bool {
	if l.released.Load() {
		return false
	}
	id, err := lstatID(l.path)
	if err != nil {
		return err != unix.ENOENT && err != unix.ENOTDIR
	}
	return id == l.id
}

// LockInfo is one lock as a reader sees it.
type LockInfo struct {
	Name   string
	PID    int    // 0 where the file names none
	Alive  bool   // its holder runs; false where the file names none
	Holder string // the protocol's text
}

// Locks lists the locks there are, without touching them.
func (w *Workspace) Locks() ([]LockInfo, error) {
	k := w.locker()
	entries, err := os.ReadDir(k.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list locks: %w", err)
	}
	var locks []LockInfo
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), breakSuffix) || isTemp(entry.Name()) {
			continue
		}
		f, err := k.look(filepath.Join(k.dir, entry.Name()))
		if err != nil {
			f = lockFile{kind: lockOther, path: filepath.Join(k.dir, entry.Name())}
		}
		if f.kind != lockMissing {
			abandoned := k.abandoned(f)
			locks = append(locks, LockInfo{
				Name: entry.Name(), PID: f.pid, Alive: f.kind == lockPID && !abandoned, Holder: f.holder(abandoned),
			})
		}
		f.close()
	}
	return locks, nil
}

// locker runs the lock protocol in one directory.
type locker struct {
	dir    string
	spares *spareLocks // nil for none
	seam   *lockSeam   // nil outside tests
}

func (w *Workspace) locker() locker {
	return locker{dir: w.dir + "/" + locksDir, spares: w.spares.Load()}
}

// try is one attempt of the protocol: create the lock, or judge the one that is
// there, breaking it when it was abandoned. It never waits.
func (k locker) try(name string) (*Lock, error) {
	if err := PlainName("lock name", name); err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, breakSuffix) {
		return nil, fmt.Errorf("cannot take lock %q: its name must not end in %q", name, breakSuffix)
	}
	if isTemp(name) {
		return nil, fmt.Errorf("cannot take lock %q: that is the name of a temporary file", name)
	}
	path := k.dir + "/" + name
	for range lockAttempts {
		l, err := k.create(path)
		if l != nil || err != nil {
			return l, err
		}
		k.at(pointExists, path)
		f, err := k.lookOwn(path)
		if err != nil {
			return nil, err
		}
		abandoned := k.abandoned(f)
		f.close()
		if f.kind == lockMissing {
			continue
		}
		if !abandoned {
			return nil, held(name, f, false)
		}
		turn, err := k.breakLock(f)
		if err != nil {
			return nil, err
		}
		if turn {
			continue // compete for it like anyone else
		}
		holder, err := k.report(name, path)
		if err != nil {
			return nil, err
		}
		if holder != nil {
			return nil, holder
		}
	}
	return nil, &HeldError{Name: name, Holder: holderTaking}
}

// create makes the lock. Without an error and without a lock, another file is, or
// was, in the way.
//
// The file gets its flock and our pid under a temporary name, and then the lock's,
// which must be new: under that it is never seen without them. A kill leaves at most
// the temporary file, for the sweep. An empty lock would keep everyone out for 30 s.
func (k locker) create(path string) (*Lock, error) {
	if _, err := lstatID(path); err == nil {
		return nil, nil // a held lock costs no temporary file
	}
	if l, err := k.fromSpare(path); l != nil || err != nil {
		return l, err
	}
	tmp := tempName(path)
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := openFD(tmp, flags)
	if err == unix.ENOENT {
		if err := makeDir(k.dir); err != nil {
			return nil, fmt.Errorf("cannot take lock: %w: %w", ErrRoot, err)
		}
		fd, err = openFD(tmp, flags)
	}
	if err != nil {
		return nil, cannotTake(path, err)
	}
	k.at(pointCreated, tmp)
	id, err := k.fill(fd)
	if err != nil {
		unix.Unlink(tmp)
		unix.Close(fd)
		return nil, cannotTake(path, err)
	}
	k.at(pointWritten, tmp)
	return k.place(&Lock{path: path, fd: fd, id: id, spares: k.spares}, tmp)
}

// place gives a lock that is complete its name.
func (k locker) place(l *Lock, tmp string) (*Lock, error) {
	if err := k.rename(tmp, l.path); err != nil {
		unix.Unlink(tmp)
		// Only the file at the path tells whose the lock is. A link whose first name
		// could not be removed has failed, and so has one made again because its answer
		// was lost: yet the lock is there, and names us.
		if there, lerr := lstatID(l.path); lerr != nil || there != l.id {
			unix.Close(l.fd)
			if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) { // the latter: tmp, or all of locks/, was removed
				return nil, nil
			}
			return nil, cannotTake(l.path, err)
		}
	}
	k.at(pointTaken, l.path)
	return l, nil
}

func cannotTake(path string, err error) error {
	return fmt.Errorf("cannot take lock %s: %w: %w", path, ErrRoot, bare(err))
}

// fill flocks a file that only we know and writes our pid into it. The flock can fail
// only where there is none; the pid alone has to do then.
func (k locker) fill(fd int) (fileID, error) {
	_ = k.flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	var room [20]byte
	pid := strconv.AppendInt(room[:0], int64(Self().PID), 10)
	n, err := k.write(fd, pid)
	if err == nil && n < len(pid) {
		err = unix.EIO
	}
	if err != nil {
		return fileID{}, err
	}
	return fstatID(fd)
}

// breakLock removes an abandoned lock, one process at a time: whoever creates
// <lock>.break has the turn, looks again, and removes the file only if it is still
// that abandoned lock. turn is false when another process has it. A crash in here
// leaves the .break behind, and nobody breaks that lock until a person removes it.
func (k locker) breakLock(seen lockFile) (turn bool, err error) {
	k.at(pointJudged, seen.path)
	brk := seen.path + breakSuffix
	fd, err := openFD(brk, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err == unix.EEXIST {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot break lock %s: %w", seen.path, err)
	}
	unix.Close(fd)
	defer func() {
		if uerr := unix.Unlink(brk); uerr != nil && uerr != unix.ENOENT && err == nil {
			err = fmt.Errorf("cannot remove %s: %w", brk, uerr)
		}
	}()
	k.at(pointTurn, seen.path)
	now, err := k.look(seen.path)
	if err != nil {
		return true, err
	}
	// The probe's shared flock stays on the descriptor until the file is gone. So the
	// creator of an empty lock that flocks it only afterwards, and wakes up now, cannot
	// believe it has the lock.
	defer now.close()
	if !now.same(seen) || !k.abandoned(now) {
		return true, nil
	}
	k.at(pointRemove, seen.path)
	if err := unix.Unlink(seen.path); err != nil && err != unix.ENOENT {
		return true, fmt.Errorf("cannot break lock %s: %w", seen.path, err)
	}
	return true, nil
}

// report reads the lock once more and says who holds it; nil when it is gone.
func (k locker) report(name, path string) (*HeldError, error) {
	k.at(pointReport, path)
	f, err := k.lookOwn(path)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if f.kind == lockMissing {
		return nil, nil
	}
	return held(name, f, k.abandoned(f)), nil
}

func held(name string, f lockFile, abandoned bool) *HeldError {
	return &HeldError{Name: name, Holder: f.holder(abandoned), PID: f.pid}
}
