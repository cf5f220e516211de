package transient

import (
	"syscall"
	"time"
)

// Spec is a step to run as a unit.
type Spec struct {
	Name        string // of the unit, with .service
	Description string // for people; default: the name

	Path string   // the program, absolute
	Argv []string // as the program sees it, from its name on
	Dir  string   // its working directory, absolute; "": the manager's default

	EnvFile string // absolute; what EnvText wrote
	// Unset names further variables that the manager's default environment may have, and the step must not see. All that
	// systemd and the manager are known to add are in it already. What EnvFile sets stays.
	Unset []string

	Stdout, Stderr string // existing files, absolute, that are appended to; "": nowhere

	User, Group string // "": the manager's default
	Groups      []string
	UMask       uint32

	Grace time.Duration // between SIGTERM and SIGKILL at Stop; at least a millisecond
	Limit time.Duration // how long it may run; 0: for ever

	Memory int64   // bytes for all its processes together; 0: no limit
	CPU    float64 // cores, likewise
	Tasks  int     // processes and threads, likewise

	Properties []Property // they come last, so that they win
	LogFields  []string   // "NAME=value", of what the manager logs about the unit
}

// State is what the manager knows of a unit. The zero State is that of a unit it does not know.
type State struct {
	Loaded  bool
	Running bool // the main process lives
	MainPID int  // 0 unless Running
	// Cgroup is the control group's directory below the cgroup root, without a leading slash; "" once it is removed.
	Cgroup string

	Ended    bool           // the main process has ended, or could not be started
	ExitCode int            // -1 where it was killed, or could not be started
	Signal   syscall.Signal // that killed it, or 0
	Result   string         // systemd's word: success, exit-code, signal, core-dump, oom-kill, timeout, resources…

	CPU time.Duration // of all its processes; it stays when they have ended
	// User and System are the control group's, which is removed at the end: Wait tells what it saw last, up to a second
	// before. So is MemoryPeak, in bytes, before systemd 255. They are 0 where nobody can tell.
	User, System time.Duration
	MemoryPeak   int64

	InvocationID string
	StateChanged time.Time // the main process's end, or else the unit's last change
}
