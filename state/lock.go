package state

import (
	"errors"
	"time"
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
type Lock struct{}

// TryLock takes locks/<name> or says who holds it (a *HeldError). It is not
// reentrant: a second TryLock of a name this process holds reports its own pid.
// The name must be one plain file name.
func (w *Workspace) TryLock(name string) (*Lock, error) { panic("todo") }

// Release removes the lock while it still names this process. Calling it again is
// harmless.
func (l *Lock) Release() error { panic("todo") }

// LockWait retries TryLock until the deadline, every 10 ms.
func (w *Workspace) LockWait(name string, timeout time.Duration) (*Lock, error) { panic("todo") }

// LockService takes the lock that makes this process the only service of the
// workspace, for its life.
func (w *Workspace) LockService() (*Lock, error) { panic("todo") }

// LockInfo is one lock as a reader sees it.
type LockInfo struct {
	Name   string
	PID    int
	Alive  bool   // its holder runs
	Holder string // the protocol's text
}

// Locks lists the locks there are, without touching them.
func (w *Workspace) Locks() ([]LockInfo, error) { panic("todo") }
