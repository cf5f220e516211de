package state

import (
	"time"

	"golang.org/x/sys/unix"
)

// processZombie is SZOMB of <sys/proc.h>.
const processZombie = 5

func readBootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// probeProcess asks the kernel for a pid's kinfo_proc. An answer of no size, which
// a pid that is not there gets, arrives as an error: signal 0 then decides.
func probeProcess(pid int) (ticks uint64, state processState) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return 0, processUnknown
	}
	if k.Proc.P_stat == processZombie {
		return 0, processGone
	}
	start := k.Proc.P_starttime
	return uint64(start.Sec)*1e6 + uint64(start.Usec), processAlive
}

// startInstant is when a process that started at these ticks did so, by the wall
// clock of that moment.
func startInstant(ticks uint64) time.Time { return time.UnixMicro(int64(ticks)) }
