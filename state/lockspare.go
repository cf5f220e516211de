package state

import (
	"sync"

	"golang.org/x/sys/unix"
)

// spareLocks are the files of locks that were released, each complete, with our pid and our flock, under a temporary
// name: to take a lock again is one rename. To make and remove a file for each of many short ticks is dear: ext4 passes
// over every inode that was freed in the last half minute whenever it looks for a free one.
type spareLocks struct {
	mu    sync.Mutex
	room  int // how many may be kept
	files []spareLock
}

type spareLock struct {
	path string
	fd   int
	id   fileID
}

// KeepLocks says that this process will take locks of the workspace again and again: up to n files of released locks
// are kept for that, as temporary files in locks/. With 0 they are removed; a kill leaves them for [Workspace.Sweep].
func (w *Workspace) KeepLocks(n int) {
	s := w.spares.Load()
	if s == nil {
		if n <= 0 {
			return
		}
		w.spares.CompareAndSwap(nil, new(spareLocks))
		s = w.spares.Load()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = max(n, 0)
	for _, f := range s.files[min(s.room, len(s.files)):] {
		f.remove()
	}
	s.files = s.files[:min(s.room, len(s.files))]
}

func (f spareLock) remove() {
	unix.Unlink(f.path) // what is left is swept
	unix.Close(f.fd)
}

// keep takes the file of a lock away from its name; it is not kept where there is no room, or no rename.
func (s *spareLocks) keep(l *Lock) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) >= s.room {
		return false
	}
	tmp := tempName(l.path)
	if err := (osFiles{}).renameNew(l.path, tmp); err != nil {
		return false
	}
	s.files = append(s.files, spareLock{path: tmp, fd: l.fd, id: l.id})
	l.fd = -1
	return true
}

// take gives a file that is still as it was kept.
func (s *spareLocks) take() (spareLock, bool) {
	if s == nil {
		return spareLock{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) > 0 {
		f := s.files[len(s.files)-1]
		s.files = s.files[:len(s.files)-1]
		if id, err := lstatID(f.path); err == nil && id == f.id {
			return f, true
		}
		unix.Close(f.fd) // somebody removed it
	}
	return spareLock{}, false
}

// fromSpare makes the lock of a spare, if there is one. Without an error and without a lock there is none, or another
// lock is in the way.
func (k locker) fromSpare(path string) (*Lock, error) {
	f, ok := k.spares.take()
	if !ok {
		return nil, nil
	}
	return k.place(&Lock{path: path, fd: f.fd, id: f.id, spares: k.spares}, f.path)
}
