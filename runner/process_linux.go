package runner

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fionread asks how much can be read without waiting.
const fionread = unix.TIOCINQ

// procState is how far a process is in its life.
type procState struct {
	bare    bool // it has no memory: it is ending, or the kernel's own
	between bool // its environment is not there: it is executing another program, or not ours to see
}

// childAttr puts a child into its own process group, and ends it with the thread that started it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// becomeSubreaper makes the kernel give this process what its descendants orphan. Without it (very old kernels) orphans
// that have left their group are not found.
func becomeSubreaper() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

func onMainThread() bool { return unix.Gettid() == os.Getpid() }

// waitExit returns when a child has ended, and leaves it to be reaped.
func waitExit(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}

// maxRSS is a process's largest resident set in bytes.
func maxRSS(u *syscall.Rusage) int64 { return u.Maxrss << 10 }

func growPipe(f *os.File) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, largePipe) })
	}
}

// find lists what there is of a step besides its main process: what is in its group or descends from it, among the
// orphans what carries the run's id in its environment, and what descends from those.
func (c *child) find() []proc {
	var found []proc
	seen := map[int]bool{c.pid: true}
	var add func(pid int, p proc)
	add = func(pid int, p proc) {
		if seen[pid] {
			return
		}
		seen[pid] = true
		found = append(found, p)
		for _, kid := range childrenOf(pid) {
			if k, ok := readProc(kid); ok && !k.zombie {
				add(kid, k)
			}
		}
	}
	for _, p := range orphans() {
		if p.group == c.pid || c.told[p.id()] != 0 {
			add(p.pid, p)
			continue
		}
		id := runIDOf(p)
		if id == c.runID {
			add(p.pid, p)
		}
		if now, ok := readProc(p.pid); id == "" && ok && (now.bare || now.zombie) {
			orphans() // it ended before it said whose it is
		}
	}
	for _, p := range c.group.members() {
		add(p.pid, p)
	}
	if c.hasEnded() {
		return found // its children are orphans by now
	}
	for _, kid := range childrenOf(c.pid) {
		if k, ok := readProc(kid); ok && !k.zombie {
			add(kid, k)
		}
	}
	return found
}

// orphanList is held while the list of this process's orphans is read and reaped from. The kernel may leave out an entry
// where another one is reaped meanwhile, and the list is one for all of the process, whoever asks.
var orphanList sync.Mutex

// orphans lists the live processes that the kernel gave to this one, and reaps those that have ended: nobody else waits
// for them. They are the children of the main thread; what this package starts is not among them (see spawner). What
// some other package may have started there is in our own process group, and left to it.
//
// One that is ending just now has lost its memory, and with it what would say whose it is. It gets a moment.
func orphans() []proc {
	orphanList.Lock()
	defer orphanList.Unlock()
	const tries = 50 // of 1 ms
	for range tries {
		list, ending := orphansNow()
		if !ending {
			return list
		}
		time.Sleep(time.Millisecond)
	}
	list, _ := orphansNow()
	return list
}

func orphansNow() (list []proc, ending bool) {
	pid := os.Getpid()
	kids, _ := readFile("/proc/self/task/" + strconv.Itoa(pid) + "/children")
	if len(kids) == 0 {
		return nil, false
	}
	own := unix.Getpgrp()
	for _, kid := range pids(kids) {
		p, ok := readProc(kid)
		if !ok || p.parent != pid {
			continue
		}
		switch {
		case !p.zombie:
			list = append(list, p)
			ending = ending || p.bare && p.group != own
		case p.group != own:
			_, _ = syscall.Wait4(kid, nil, syscall.WNOHANG, nil)
		}
	}
	return list, ending
}

// readFile reads a file of /proc in four system calls: every step needs some of them.
func readFile(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 1024)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, err
		case n == 0:
			return b, nil
		default:
			if b = b[:len(b)+n]; len(b) == cap(b) {
				b = append(b, make([]byte, len(b))...)[:len(b)]
			}
		}
	}
}

// newPipe makes a pipe: an end to read without blocking a thread, and one for a child.
func newPipe() (r *os.File, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, 0, os.NewSyscallError("pipe2", err)
	}
	return pipeReader(p[0]), p[1], nil
}

func reapZombies() { orphans() }

// childrenOf lists the children of a process, of all its threads.
func childrenOf(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []int
	for _, t := range tasks {
		kids, _ := readFile(dir + t.Name() + "/children")
		list = append(list, pids(kids)...)
	}
	return list
}

func pids(text []byte) []int {
	var list []int
	for _, f := range bytes.Fields(text) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 1 {
			list = append(list, pid)
		}
	}
	return list
}

// readProc reads proc_pid_stat(5): the name is in parentheses and may hold any byte.
func readProc(pid int) (proc, bool) {
	b, _ := readFile("/proc/" + strconv.Itoa(pid) + "/stat")
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return proc{}, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 49 {
		return proc{}, false
	}
	p := proc{pid: pid, name: string(b[open+1 : end])}
	p.parent, _ = strconv.Atoi(string(f[1]))
	p.group, _ = strconv.Atoi(string(f[2]))
	p.start, _ = strconv.ParseUint(string(f[19]), 10, 64)
	p.bare = string(f[20]) == "0"
	p.between = !p.bare && string(f[48]) == "0"
	threads, _ := strconv.Atoi(string(f[17]))
	p.zombie = f[0][0] == 'X' || f[0][0] == 'Z' && threads <= 1
	return p, true
}

// runIDOf is MARBLES_RUN_ID in the environment a process was started with, "" where it has none or may not be read.
//
// While a process executes another program it has no environment for a moment, and is looked at again.
func runIDOf(p proc) string {
	const tries = 200 // of 1 ms; a busy machine may stop a process in between
	for range tries {
		env, err := readFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
		if len(env) > 0 {
			return runIDIn(env)
		}
		now, ok := readProc(p.pid)
		if err != nil || !ok || now.start != p.start || !now.between {
			// It may have got its environment between the two looks.
			env, _ = readFile("/proc/" + strconv.Itoa(p.pid) + "/environ")
			return runIDIn(env)
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}

func runIDIn(env []byte) string {
	for len(env) > 0 {
		e, rest, _ := bytes.Cut(env, []byte{0})
		if v, ok := bytes.CutPrefix(e, []byte("MARBLES_RUN_ID=")); ok {
			return string(v)
		}
		env = rest
	}
	return ""
}

// signalProc signals this very process, never one that got its pid afterwards.
func signalProc(p proc, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	} else if errors.Is(err, unix.ESRCH) {
		return
	}
	if now, ok := readProc(p.pid); !ok || now.start != p.start {
		return
	}
	if err == nil {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	} else { // a kernel without pidfds
		_ = unix.Kill(p.pid, sig)
	}
}

// allProcs lists the processes of all users that could belong to a run.
func allProcs() []proc {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	self := os.Getpid()
	var list []proc
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 1 || pid == self {
			continue
		}
		if p, ok := readProc(pid); ok && !p.zombie {
			list = append(list, p)
		}
	}
	return list
}
