package state

import (
	"errors"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Process identifies a process across pid reuse and reboots. An empty BootID or
// zero StartTicks is unknown and matches any.
type Process struct {
	PID        int
	BootID     string
	StartTicks uint64 // clock ticks after boot (Linux), microseconds since the epoch (macOS)
}

// self and bootID do not change while this process lives, so they are read once.
var (
	self = sync.OnceValue(func() Process {
		pid := os.Getpid()
		if p, ok := Identify(pid); ok {
			return p
		}
		return Process{PID: pid, BootID: bootID()}
	})
	bootID = sync.OnceValue(readBootID)
)

// Self identifies this process.
func Self() Process { return self() }

// Identify fills in what is known of a live pid; ok is false when it is gone. A
// process that has exited and is not yet reaped is gone.
func Identify(pid int) (p Process, ok bool) {
	if pid <= 0 || pid > math.MaxInt32 {
		return Process{}, false // would name a process group, or another pid once cut to 32 bits
	}
	ticks, state := probeProcess(pid)
	if state == processUnknown && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		state = processGone
	}
	if state == processGone {
		return Process{}, false
	}
	return Process{PID: pid, BootID: bootID(), StartTicks: ticks}, true
}

// Alive reports whether this very process still runs: the pid exists (signal 0;
// EPERM counts), is no zombie, and neither boot id nor start ticks contradict it.
func (p Process) Alive() bool {
	if boot := bootID(); p.BootID != "" && boot != "" && p.BootID != boot {
		return false
	}
	now, ok := Identify(p.PID)
	if !ok {
		return false
	}
	return p.StartTicks == 0 || now.StartTicks == 0 || p.StartTicks == now.StartTicks
}

// processState is what the system's process table says of a pid.
type processState int

const (
	processUnknown processState = iota // the table does not say; signal 0 decides
	processGone
	processAlive
)

// processStarted is when a live process started, by the present wall clock; the
// zero time where that is unknown. alive is false when the pid is gone.
func processStarted(pid int) (started time.Time, alive bool) {
	p := Self()
	if pid != p.PID {
		if p, alive = Identify(pid); !alive {
			return time.Time{}, false
		}
	}
	if p.StartTicks == 0 {
		return time.Time{}, true
	}
	return startInstant(p.StartTicks), true
}
