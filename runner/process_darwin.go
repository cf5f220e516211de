package runner

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fionread asks how much can be read without waiting; FIONREAD of <sys/filio.h>.
const fionread = 0x4004667f

// procState is what the system shows of a process besides: nothing that is needed.
type procState struct{}

// childAttr puts a child into its own process group.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// macOS gives orphans to launchd.
func becomeSubreaper() {}

func onMainThread() bool { return false }

// waitExit returns when a child has ended, and leaves it to be reaped.
func waitExit(pid int) {
	const pPID = 1      // P_PID of <sys/wait.h>
	var info [16]uint64 // room for a siginfo_t
	for {
		_, _, err := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)),
			syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if err != syscall.EINTR {
			return
		}
	}
}

// maxRSS is a process's largest resident set in bytes.
func maxRSS(u *syscall.Rusage) int64 { return u.Maxrss }

func growPipe(*os.File) {}

// newPipe makes a pipe: an end to read without blocking a thread, and one for a child.
func newPipe() (r *os.File, w int, err error) {
	var p [2]int
	syscall.ForkLock.RLock() // no child starts before the ends are marked
	defer syscall.ForkLock.RUnlock()
	if err := unix.Pipe(p[:]); err != nil {
		return nil, 0, os.NewSyscallError("pipe", err)
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return pipeReader(p[0]), p[1], nil
}

// find lists what is in the step's group besides its main process.
func (c *child) find() []proc {
	list, _ := unix.SysctlKinfoProcSlice("kern.proc.pgrp", c.pid)
	var found []proc
	for i := range list {
		if p := kinfo(&list[i]); p.pid != c.pid && !p.zombie {
			found = append(found, p)
		}
	}
	return found
}

func reapZombies() {}

// processZombie is SZOMB of <sys/proc.h>.
const processZombie = 5

func kinfo(k *unix.KinfoProc) proc {
	start := k.Proc.P_starttime
	name := k.Proc.P_comm[:]
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return proc{
		pid: int(k.Proc.P_pid), parent: int(k.Eproc.Ppid), group: int(k.Eproc.Pgid),
		start: uint64(start.Sec)*1e6 + uint64(start.Usec), name: string(name),
		zombie: k.Proc.P_stat == processZombie, procState: procState{},
	}
}

func readProc(pid int) (proc, bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return proc{}, false
	}
	return kinfo(k), true
}

// runIDOf is MARBLES_RUN_ID in the environment a process was started with, "" where it has none or may not be read: the
// system hides the environment of its own programs.
func runIDOf(p proc) string {
	b, err := unix.SysctlRaw("kern.procargs2", p.pid)
	if err != nil || len(b) < 4 {
		return ""
	}
	// The number of arguments; the path, padded with NULs; the arguments and the environment, NUL-terminated.
	n := int(binary.NativeEndian.Uint32(b))
	b = b[4:]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = bytes.TrimLeft(b[i:], "\x00")
	}
	const name = "MARBLES_RUN_ID="
	for i := 0; len(b) > 0; i++ {
		e, rest, _ := bytes.Cut(b, []byte{0})
		if v, ok := bytes.CutPrefix(e, []byte(name)); ok && i >= n {
			return string(v)
		}
		b = rest
	}
	return ""
}

// signalProc signals this very process, as far as can be known.
func signalProc(p proc, sig syscall.Signal) {
	if now, ok := readProc(p.pid); ok && now.start == p.start {
		if err := unix.Kill(p.pid, sig); errors.Is(err, unix.ESRCH) {
			return
		}
	}
}

// allProcs lists the processes of this user that could belong to a run.
func allProcs() []proc {
	list, _ := unix.SysctlKinfoProcSlice("kern.proc.uid", os.Getuid())
	self := os.Getpid()
	var found []proc
	for i := range list {
		if p := kinfo(&list[i]); p.pid > 1 && p.pid != self && !p.zombie {
			found = append(found, p)
		}
	}
	return found
}
