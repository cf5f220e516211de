package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// locks finds locks that nobody holds, and turns at breaking one that nobody ended.
func (x *examiner) locks(w *Workspace) {
	k := w.locker()
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			x.unreadable(w.project, k.dir, err)
		}
		return
	}
	var locks []string
	for _, e := range entries {
		path := filepath.Join(k.dir, e.Name())
		switch {
		case isTemp(e.Name()):
		case strings.HasSuffix(e.Name(), breakSuffix):
			x.brokenOff(w, path)
		default:
			locks = append(locks, path)
		}
	}
	// After the turns, which are in the way of mending them.
	for _, path := range locks {
		x.lock(w, k, path)
	}
}

// breakAge is how long a turn at breaking a lock, which takes a moment, is not worth a word.
const breakAge = time.Minute

func (x *examiner) brokenOff(w *Workspace, path string) {
	info, err := os.Lstat(path)
	if err != nil || x.Now.Sub(info.ModTime()).Abs() < breakAge {
		return
	}
	f := Finding{
		Kind: FoundBreak, Project: w.project, Where: path,
		What:  "nobody can break the lock beside it",
		Cause: "a process was killed while it removed an abandoned lock", Mend: "rm " + path,
	}
	if takerGone(info.ModTime()) {
		f.fix = func() error {
			now, err := os.Lstat(path)
			if err == nil && os.SameFile(info, now) {
				err = os.Remove(path)
			}
			return goneIsFine(err)
		}
	} else {
		f.Cause += "; another marbles that is older than it still runs, and may be at it"
	}
	x.add(f)
}

func goneIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (x *examiner) lock(w *Workspace, k locker, path string) {
	f, err := k.look(path)
	if err != nil {
		x.add(Finding{
			Kind: FoundLock, Project: w.project, Where: path, What: err.Error(),
			Cause: "it is no lock of marbles", Mend: "rm -r " + path,
		})
		return
	}
	defer f.close()
	if f.kind == lockMissing {
		return
	}
	abandoned := k.abandoned(f)
	found := Finding{Kind: FoundLock, Project: w.project, Where: path, Mend: "rm " + path}
	switch _, alive := k.process(f.pid); {
	case f.kind == lockOther:
		found.What, found.Cause = "it names no process", "another program wrote it, or a failing disk"
	case !abandoned:
		return
	case f.kind == lockEmpty:
		found.What, found.Cause = "it is empty", "a power cut, or a program that died before it wrote its pid"
	case alive:
		found.What = fmt.Sprintf("it names pid %d, which is another process by now", f.pid)
		found.Cause = "its holder was killed, and the pid was given out again"
	default:
		found.What = fmt.Sprintf("it names pid %d, which has exited", f.pid)
		found.Cause = "its holder was killed; whoever wants the lock next breaks it"
	}
	if abandoned && int(f.uid) == os.Geteuid() {
		found.fix = func() error { return k.breakDead(path) }
	}
	x.add(found)
}

// breakDead removes a lock that was abandoned, as whoever wants it would.
func (k locker) breakDead(path string) error {
	f, err := k.lookOwn(path)
	if err != nil {
		return err
	}
	defer f.close()
	if f.kind == lockMissing || !k.abandoned(f) {
		return nil
	}
	turn, err := k.breakLock(f)
	if err == nil && !turn {
		err = fmt.Errorf("another process is breaking it, or %s%s was left", path, breakSuffix)
	}
	return err
}
