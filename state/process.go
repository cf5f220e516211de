package state

// Process identifies a process across pid reuse and reboots. An empty BootID or
// zero StartTicks is unknown and matches any.
type Process struct {
	PID        int
	BootID     string
	StartTicks uint64 // clock ticks after boot (Linux), microseconds since the epoch (macOS)
}

// Self identifies this process.
func Self() Process { panic("todo") }

// Identify fills in what is known of a live pid; ok is false when it is gone.
func Identify(pid int) (p Process, ok bool) { panic("todo") }

// Alive reports whether this very process still runs: the pid exists (signal 0;
// EPERM counts), is no zombie, and neither boot id nor start ticks contradict it.
func (p Process) Alive() bool { panic("todo") }
