package state

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// emptyGrace is how long the creator of a lock may take to write its pid. Ours never
	// make an empty one, see create; other programs that keep this protocol do, and a
	// power cut can leave one of anybody's.
	emptyGrace = 30 * time.Second
	// lockRoom is more than any pid with white space around it; a longer file is
	// not a lock of ours.
	lockRoom = 64
	// startSlack is how much later than the lock file its owner may seem to have
	// started: start instants are 10 ms exact and file times one timer tick.
	// coarseSlack is for file systems that keep whole seconds, or two.
	startSlack  = 50 * time.Millisecond
	coarseSlack = 2 * time.Second
)

// holderTaking is the text for a lock whose creator has not written its pid yet.
const holderTaking = "a process that is taking it now; retry"

// lockKind is what a lock file says of its holder.
type lockKind int

const (
	lockMissing lockKind = iota
	lockPID              // it names a pid
	lockEmpty            // its creator, another program, has not written its pid yet
	lockOther            // anything else: never removed
)

// lockFile is a lock as it was read. The descriptor stays open for the flock probe
// until close.
type lockFile struct {
	path  string
	kind  lockKind
	pid   int
	id    fileID
	mtime time.Time
	uid   uint32
	fd    int // 0 when not open; the runtime keeps 0 to 2 for the standard streams
}

func (f *lockFile) close() {
	if f.fd > 0 {
		unix.Close(f.fd)
		f.fd = 0
	}
}

// same reports whether a second look found the same lock: the same pid, or the same
// empty file.
func (f *lockFile) same(g lockFile) bool {
	if f.kind != g.kind {
		return false
	}
	return f.kind == lockPID && f.pid == g.pid ||
		f.kind == lockEmpty && f.id == g.id && f.mtime.Equal(g.mtime)
}

// look opens and reads a lock without following a link and without waiting on a
// pipe. What is there but is no regular file is an error; what cannot be read is
// lockOther.
func (k locker) look(path string) (lockFile, error) {
	f := lockFile{path: path}
	fd, err := openFD(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err == unix.ENOENT {
		return f, nil
	}
	var st unix.Stat_t
	if err != nil {
		if lerr := unix.Lstat(path, &st); lerr == unix.ENOENT {
			return f, nil
		} else if lerr != nil {
			return f, fmt.Errorf("cannot read lock %s: %w", path, err)
		}
	} else if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return f, fmt.Errorf("cannot read lock %s: %w", path, err)
	} else {
		f.fd = fd
	}
	f.id, f.uid, f.mtime = statID(&st), st.Uid, time.Unix(st.Mtim.Unix())
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		f.close()
		return f, fmt.Errorf("cannot use lock %s: it is a symbolic link; a lock is a plain file", path)
	default:
		f.close()
		return f, fmt.Errorf("cannot use lock %s: it is not a regular file", path)
	}
	f.kind = lockOther
	if f.fd == 0 {
		return f, nil
	}
	var room [lockRoom]byte
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, room[:]) })
	switch {
	case err != nil:
	case n == 0:
		f.kind = lockEmpty
	default:
		if pid, ok := parsePID(room[:n]); ok && n < lockRoom {
			f.kind, f.pid = lockPID, pid
		}
	}
	return f, nil
}

// lookOwn is look for a process that wants the lock: it refuses another user's file,
// whose holder it could neither judge nor clear away.
func (k locker) lookOwn(path string) (lockFile, error) {
	f, err := k.look(path)
	if err == nil && f.kind != lockMissing && int(f.uid) != os.Geteuid() {
		f.close()
		return f, fmt.Errorf("cannot use lock %s: it belongs to uid %d, and this process is uid %d",
			path, f.uid, os.Geteuid())
	}
	return f, err
}

// abandoned judges a lock: its process is gone, or it has stayed empty for too long.
//
// A pid that is alive may have been given out again. Its process then started after
// the lock was written and nobody holds a flock on the file; both must hold, so that
// a step of the clock cannot break a live lock.
func (k locker) abandoned(f lockFile) bool {
	switch f.kind {
	case lockEmpty:
		// A time in the future is as far from now as one in the past: the clock was set
		// back. A creator that only stalled still has its flock.
		return wallClock().Sub(f.mtime).Abs() > emptyGrace && k.probe(f.fd) != flockHeld
	case lockPID:
		started, alive := k.process(f.pid)
		if !alive {
			return true
		}
		slack := startSlack
		if f.mtime.Nanosecond() == 0 {
			slack = coarseSlack
		}
		return started.After(f.mtime.Add(slack)) && k.probe(f.fd) == flockFree
	default:
		return false
	}
}

// holder is the protocol's text for a lock that is there.
func (f *lockFile) holder(abandoned bool) string {
	switch {
	case f.kind == lockEmpty:
		return holderTaking
	case f.kind == lockPID && abandoned:
		return fmt.Sprintf("pid %d, which has exited (if no process is taking the lock over, remove %s%s)",
			f.pid, f.path, breakSuffix)
	case f.kind == lockPID:
		return "pid " + strconv.Itoa(f.pid)
	default:
		return fmt.Sprintf("an unknown process (if none is running, remove %s)", f.path)
	}
}

// parsePID reads what a lock file may hold: digits, with white space around them.
func parsePID(b []byte) (pid int, ok bool) {
	space := func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && space(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int64(c-'0'); n > math.MaxInt32 {
			return 0, false
		}
	}
	return int(n), n > 0
}

// flockState is what a probe found.
type flockState int

const (
	flockUnknown flockState = iota // not supported here
	flockFree
	flockHeld
)

// probe tries a shared flock on a descriptor of its own, and keeps it until the
// descriptor is closed.
func (k locker) probe(fd int) flockState {
	switch k.flock(fd, unix.LOCK_SH|unix.LOCK_NB) {
	case nil:
		return flockFree
	case unix.EWOULDBLOCK:
		return flockHeld
	default:
		return flockUnknown
	}
}

// lockSeam lets tests stand at the points where processes race, and replace what
// the machine says. A nil member is the real thing.
type lockSeam struct {
	at      func(point lockPoint, path string)
	process func(pid int) (started time.Time, alive bool)
	flock   func(fd, how int) error
	write   func(fd int, b []byte) (int, error)
	rename  func(from, to string) error // renameNew
}

// lockPoint is a place in the protocol where another process may come between.
type lockPoint string

const (
	pointCreated lockPoint = "created" // the temporary file is there, empty and not flocked
	pointWritten lockPoint = "written" // it names us; the lock's name is not its own yet
	pointTaken   lockPoint = "taken"   // the lock is ours
	pointExists  lockPoint = "exists"  // creation failed; not yet read
	pointJudged  lockPoint = "judged"  // found abandoned; no turn yet
	pointTurn    lockPoint = "turn"    // the turn is ours; not read again yet
	pointRemove  lockPoint = "remove"  // about to remove the abandoned file
	pointReport  lockPoint = "report"  // about to read who holds it
)

func (k locker) at(p lockPoint, path string) {
	if k.seam != nil && k.seam.at != nil {
		k.seam.at(p, path)
	}
}

func (k locker) process(pid int) (time.Time, bool) {
	if k.seam != nil && k.seam.process != nil {
		return k.seam.process(pid)
	}
	return processStarted(pid)
}

func (k locker) flock(fd, how int) error {
	if k.seam != nil && k.seam.flock != nil {
		return k.seam.flock(fd, how)
	}
	_, err := uninterrupted(func() (int, error) { return 0, unix.Flock(fd, how) })
	return err
}

func (k locker) write(fd int, b []byte) (int, error) {
	if k.seam != nil && k.seam.write != nil {
		return k.seam.write(fd, b)
	}
	return uninterrupted(func() (int, error) { return unix.Write(fd, b) })
}

func (k locker) rename(from, to string) error {
	if k.seam != nil && k.seam.rename != nil {
		return k.seam.rename(from, to)
	}
	return renameNew(from, to)
}

// fileID tells one file from another that took its name.
type fileID struct{ dev, ino uint64 }

func statID(st *unix.Stat_t) fileID { return fileID{dev: uint64(st.Dev), ino: st.Ino} }

func fstatID(fd int) (fileID, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return statID(&st), err
}

func lstatID(path string) (fileID, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	return statID(&st), err
}

// openFD opens a file with mode 0600. Plain descriptors keep a lock at a handful of
// system calls, and nothing closes them behind our back.
func openFD(path string, flags int) (int, error) {
	return uninterrupted(func() (int, error) { return unix.Open(path, flags, 0o600) })
}

// uninterrupted repeats a call that a signal cut short, as the os package does.
func uninterrupted(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// wallClock is the wall clock that file times are taken from. It is asked for
// directly because inside a test's bubble of fake time the two would not compare.
func wallClock() time.Time {
	var tv unix.Timeval
	if err := unix.Gettimeofday(&tv); err != nil {
		return time.Now()
	}
	return time.Unix(tv.Unix())
}
