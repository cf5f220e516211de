package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"marbles/state"
)

const (
	// drainTime is how long a step's streams may stay open after its main process has ended.
	drainTime = 500 * time.Millisecond
	// endingTime is how long what was started may take to end once the streams are closed.
	endingTime = 30 * time.Millisecond
	// closeTime is how long after SIGKILL a run waits for what does not die.
	closeTime = 500 * time.Millisecond
)

// proc is a process as the system lists it. pid and start together are never reused.
type proc struct {
	pid, parent, group int
	start              uint64
	name               string
	zombie             bool
	procState          // what this system shows besides
}

// procID names a process for ever.
type procID struct {
	pid   int
	start uint64
}

func (p proc) id() procID { return procID{p.pid, p.start} }

func (p proc) String() string { return fmt.Sprintf("pid %d %s", p.pid, p.name) }

// child is the main process of a step, with all that descends from it.
//
// Until it is reaped its pid, which is also its process group, cannot be another's. So everything that signals the
// group comes before reap.
type child struct {
	w      *Worker
	pid    int
	runID  string
	exited chan struct{}             // closed when the main process has ended and can be reaped
	group  *cgroup                   // nil where it has none
	told   map[procID]syscall.Signal // what was sent to which process of find
	rest   []string                  // who was there besides the main process, once it had ended
}

// startChild starts a process in a group of its own, which may be nil, and as somebody else where who says so. Its streams
// are the ends of pipes that the caller closes; its standard input is empty.
func (w *Worker) startChild(runID, path string, argv, env []string, dir string, stdout, stderr int, group *cgroup, who *identity) (*child, error) {
	start := func(within, visited *cgroup) (int, error) {
		attr := childAttr()
		within.attr(attr)
		who.attr(attr)
		return w.spawn.start(path, argv, &syscall.ProcAttr{
			Dir:   dir,
			Env:   env,
			Files: []uintptr{0, uintptr(stdout), uintptr(stderr)},
			Sys:   attr,
		}, visited)
	}
	var pid int
	err := error(syscall.ENOSYS)
	if !w.cgroups.visits.Load() {
		pid, err = start(group, nil)
	}
	if group != nil && errors.Is(err, syscall.ENOSYS) {
		// A seccomp filter for namespaces, as systemd's RestrictNamespaces=, must refuse clone3: it cannot see its flags.
		w.cgroups.visits.Store(true)
		pid, err = start(nil, group)
	}
	if err != nil {
		return nil, err
	}
	c := &child{w: w, pid: pid, runID: runID, group: group, exited: make(chan struct{}), told: map[procID]syscall.Signal{}}
	go func() { // ends with the process
		waitExit(pid)
		close(c.exited)
	}()
	return c, nil
}

// identity is what recovery must know of the process, which may have ended already.
func (c *child) identity() state.Process {
	p, _ := readProc(c.pid)
	return state.Process{PID: c.pid, BootID: c.w.self.BootID, StartTicks: p.start}
}

// signal sends a signal to the group and to what has left it. What is stopped gets to see it.
func (c *child) signal(sig syscall.Signal) {
	left := c.find() // before the main process dies, and with it the knowledge of whose parent it was
	_ = syscall.Kill(-c.pid, sig)
	if sig != syscall.SIGKILL {
		_ = syscall.Kill(-c.pid, syscall.SIGCONT)
	}
	for _, p := range left {
		c.tell(p, sig)
	}
}

// tell sends a signal to one process, once.
func (c *child) tell(p proc, sig syscall.Signal) {
	if c.told[p.id()] == sig {
		return
	}
	c.told[p.id()] = sig
	signalProc(p, sig)
	if sig != syscall.SIGKILL {
		signalProc(p, syscall.SIGCONT)
	}
}

// end asks the main process to end, and kills it after the grace. It returns once that has ended, or cannot be ended.
func (c *child) end(killAt time.Time) {
	c.signal(syscall.SIGTERM)
	if c.wait(time.Until(killAt)) {
		return
	}
	c.signal(syscall.SIGKILL)
	c.wait(closeTime / 2)
}

func (c *child) hasEnded() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

func (c *child) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.exited:
		return true
	case <-t.C:
		return false
	}
}

// endRest ends what the main process has left behind, with SIGTERM and from killAt on with SIGKILL, and gives up a
// while after that. What is ending by itself just now, and has closed its streams already, gets a moment for it.
func (c *child) endRest(killAt time.Time) {
	termAt, pause := time.Now().Add(endingTime), time.Millisecond
	for {
		left := c.find()
		if len(left) == 0 {
			return
		}
		now, sig := time.Now(), syscall.SIGTERM
		if now.Before(termAt) && len(c.told) == 0 {
			time.Sleep(pause)
			continue
		}
		if !now.Before(killAt) {
			sig = syscall.SIGKILL
		}
		if now.After(killAt.Add(closeTime)) {
			c.w.o.Log.Error("processes of a run cannot be ended", "run", c.runID, "processes", names(left))
			return
		}
		for _, p := range left {
			if c.told[p.id()] == 0 {
				c.rest = append(c.rest, p.String())
			}
			c.tell(p, sig)
		}
		if sig == syscall.SIGKILL {
			_ = syscall.Kill(-c.pid, sig) // also what was forked just now
			c.group.kill()
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

func names(list []proc) []string {
	var s []string
	for _, p := range list {
		s = append(s, p.String())
	}
	return s
}

// reap collects the exit status. A main process that cannot be ended is left to a goroutine that waits for it.
func (c *child) reap() (status syscall.WaitStatus, usage syscall.Rusage, ok bool) {
	if c.hasEnded() {
		return c.collect()
	}
	go func() { // ends with the process
		<-c.exited
		c.collect()
	}()
	return 0, usage, false
}

func (c *child) collect() (status syscall.WaitStatus, usage syscall.Rusage, ok bool) {
	for {
		_, err := syscall.Wait4(c.pid, &status, 0, &usage)
		if !errors.Is(err, syscall.EINTR) {
			c.w.spawn.gone()
			return status, usage, err == nil
		}
	}
}

// findCommand resolves argv[0] as the step's process would: by its own PATH, from its working directory.
func findCommand(name, dir string, env []string) (string, error) {
	if name == "" {
		return "", errors.New("the command is empty")
	}
	in := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	if strings.Contains(name, "/") {
		return in(name), canRun(in(name))
	}
	path, _ := lookupEnv(env, "PATH")
	var refused error
	for _, d := range strings.Split(path, ":") {
		file := in(filepath.Join(d, name)) // an empty element is the working directory
		err := canRun(file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && refused == nil {
			refused = err
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", fmt.Errorf("command not found: %s (PATH is %s)", name, path)
}

// canRun says why a file cannot be executed.
func canRun(file string) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("command not found: %s: %w", file, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("cannot run %s: %w", file, bare(err))
	case info.IsDir():
		return fmt.Errorf("cannot run %s: it is a directory", file)
	case unix.Access(file, unix.X_OK) != nil || info.Mode()&0o111 == 0:
		return fmt.Errorf("cannot run %s: it is not executable", file)
	}
	return nil
}

// bare is an error without the operation and path that the text around it names already.
func bare(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}
