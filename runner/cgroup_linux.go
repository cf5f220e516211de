package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups makes a control group (cgroup v2) for each step, where this process may: then all that a step has started is
// known, also what left its group and session and cleared its environment.
//
// A cgroup is only ever made below one that was given to us: systemd says so by an attribute of the unit's cgroup
// (Delegate=), which is that of its parent too where the service runs in a subgroup. See
// https://systemd.io/CGROUP_DELEGATION.
type cgroups struct {
	base string // below which they are made; "" for none
	why  error  // why there is none, where they were asked for
	n    atomic.Uint64
	// visits says that no process can be started in another group than this one's here. This process goes there for the
	// moment of the fork then.
	visits atomic.Bool
	home   atomic.Pointer[string] // the group this process lives in

	enable sync.Mutex // held while controllers are enabled
}

const (
	cgroupPrefix = "marbles-"
	// supervisorGroup is where this process goes when controllers are enabled: a group with controllers for its children
	// holds no processes itself.
	supervisorGroup = "supervisor"
)

// newCgroups finds out where cgroups may be made.
func newCgroups(mode string) *cgroups {
	g := &cgroups{}
	if mode == CgroupsOff {
		return g
	}
	own, err := ownCgroup()
	if err != nil {
		g.why = err
		return g
	}
	home := own
	g.home.Store(&home)
	for dir := own; len(dir) > len("/"); dir = filepath.Dir(dir) {
		if delegated(dir) {
			own, g.base = dir, dir
			break
		}
		if unit := filepath.Ext(dir); unit == ".service" || unit == ".scope" {
			break // above our own unit: what is delegated there is somebody else's, a user's manager most of all
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
			break // above the hierarchy
		}
	}
	if g.base == "" && mode == CgroupsOn {
		g.base = strings.TrimSuffix(own, "/"+supervisorGroup)
	}
	if g.base == "" {
		return g
	}
	if err := unix.Access(g.base, unix.W_OK); err != nil {
		g.base, g.why = "", fmt.Errorf("cannot make cgroups in %s: %w", g.base, err)
	}
	return g
}

func delegated(dir string) bool {
	var b [8]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, b[:]); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}

// ownCgroup is the directory of this process's cgroup v2.
func ownCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	path := ""
	for line := range strings.Lines(string(text)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			path = p
		}
	}
	if path == "" {
		return "", errors.New("this system has no cgroup v2")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		rel, err := filepath.Rel(f[3], path)
		if err == nil && !strings.HasPrefix(rel, "..") {
			return filepath.Join(f[4], rel), nil
		}
	}
	return "", errors.New("cgroup v2 is not mounted here")
}

// cgroup is the control group of one step at work.
type cgroup struct {
	g   *cgroups
	dir string
	fd  int // -1 once it is closed
}

// make makes a group for a step of a run; nil where there are to be none. Limits that cannot be kept are an error.
func (g *cgroups) make(run string, l Limits) (*cgroup, error) {
	if g.base == "" {
		if l == (Limits{}) {
			return nil, nil
		}
		return nil, g.noLimits(l)
	}
	if err := g.control(l); err != nil {
		return nil, err
	}
	dir := filepath.Join(g.base, fmt.Sprintf("%s%s-%d-%d", cgroupPrefix, run, os.Getpid(), g.n.Add(1)))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make a cgroup: %w", err)
	}
	c := &cgroup{g: g, dir: dir, fd: -1}
	for file, value := range l.files() {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0); err != nil {
			c.remove()
			return nil, limitError(fmt.Errorf("cannot set %s to %s: %w", file, value, bare(err)))
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		c.remove()
		return nil, fmt.Errorf("cannot open cgroup %s: %w", dir, err)
	}
	c.fd = fd
	return c, nil
}

func limitError(err error) error { return failed("LimitError", "could not be started: %v", err) }

// files are what the limits are written into.
func (l Limits) files() map[string]string {
	const period = 100_000 // microseconds
	m := map[string]string{}
	if l.Memory > 0 {
		m["memory.max"] = strconv.FormatInt(l.Memory, 10)
	}
	if l.CPU > 0 {
		m["cpu.max"] = fmt.Sprintf("%d %d", max(int64(l.CPU*period), 1000), period)
	}
	if l.Tasks > 0 {
		m["pids.max"] = strconv.Itoa(l.Tasks)
	}
	return m
}

// controllers are what the limits need, by the names people use and the kernel's.
func (l Limits) controllers() (list [][2]string) {
	if l.Memory > 0 {
		list = append(list, [2]string{"memory", "memory"})
	}
	if l.CPU > 0 {
		list = append(list, [2]string{"cpu", "cpu"})
	}
	if l.Tasks > 0 {
		list = append(list, [2]string{"tasks", "pids"})
	}
	return list
}

// noLimits says why limits cannot be kept where there are no cgroups.
func (g *cgroups) noLimits(l Limits) error {
	why := g.why
	if why == nil {
		why = errors.New("no cgroup was delegated to marbles (under systemd: Delegate=yes)")
	}
	return limitError(fmt.Errorf("cannot limit %s: %w", l.controllers()[0][0], why))
}

// control lets the groups below base have the controllers that the limits need.
func (g *cgroups) control(l Limits) error {
	need := l.controllers()
	if len(need) == 0 {
		return nil
	}
	g.enable.Lock()
	defer g.enable.Unlock()
	has, err := words(filepath.Join(g.base, "cgroup.controllers"))
	if err != nil {
		return limitError(err)
	}
	on, err := words(filepath.Join(g.base, "cgroup.subtree_control"))
	if err != nil {
		return limitError(err)
	}
	var more []string
	for _, c := range need {
		switch {
		case !slices.Contains(has, c[1]):
			list := "none"
			if len(has) > 0 {
				list = strings.Join(has, ", ")
			}
			return limitError(fmt.Errorf("cannot limit %s: this cgroup has no %s controller (it has: %s)", c[0], c[1], list))
		case !slices.Contains(on, c[1]):
			more = append(more, "+"+c[1])
		}
	}
	if len(more) == 0 {
		return nil
	}
	control := filepath.Join(g.base, "cgroup.subtree_control")
	err = os.WriteFile(control, []byte(strings.Join(more, " ")), 0)
	if errors.Is(err, unix.EBUSY) { // we are in it ourselves
		if err = g.moveOut(); err == nil {
			err = os.WriteFile(control, []byte(strings.Join(more, " ")), 0)
		}
	}
	if err != nil {
		return limitError(fmt.Errorf("cannot enable controllers (%s) in %s: %w", strings.Join(more, " "), g.base, bare(err)))
	}
	return nil
}

// moveOut moves this process from base into a group of its own.
func (g *cgroups) moveOut() error {
	dir := filepath.Join(g.base, supervisorGroup)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	if err == nil {
		g.home.Store(&dir)
	}
	return err
}

func words(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	return strings.Fields(string(text)), err
}

// attr lets a process be started in the group.
func (c *cgroup) attr(a *syscall.SysProcAttr) {
	if c != nil {
		a.UseCgroupFD, a.CgroupFD = true, c.fd
	}
}

// visit moves this process into the group, so that what it forks is born there, and returns what moves it back. Where it
// cannot go the fork is outside of it, and what the step leaves is found as without a group.
func (c *cgroup) visit() (back func()) {
	if c == nil {
		return func() {}
	}
	self := []byte(strconv.Itoa(os.Getpid()))
	if os.WriteFile(filepath.Join(c.dir, "cgroup.procs"), self, 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(filepath.Join(*c.g.home.Load(), "cgroup.procs"), self, 0) }
}

// members are the processes in the group, and in groups below it.
func (c *cgroup) members() []proc {
	if c == nil {
		return nil
	}
	return cgroupMembers(c.dir)
}

func cgroupMembers(dir string) (list []proc) {
	text, err := readFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, pid := range pids(text) {
		if p, ok := readProc(pid); ok && !p.zombie {
			list = append(list, p)
		}
	}
	if n, err := readFile(filepath.Join(dir, "cgroup.stat")); err != nil || strings.HasPrefix(string(n), "nr_descendants 0\n") {
		return list
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, cgroupMembers(filepath.Join(dir, e.Name()))...)
		}
	}
	return list
}

// kill ends all that is in the group at once, also what is being forked.
func (c *cgroup) kill() {
	if c != nil {
		_ = os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0) // a kernel before 5.14 has none
	}
}

// usage is what the group has used: processor time, peak memory in bytes (0 where that is not counted), and whether it ran out of memory.
func (c *cgroup) usage() (user, system time.Duration, memory int64, oom bool, ok bool) {
	text, err := readFile(filepath.Join(c.dir, "cpu.stat"))
	if err != nil {
		return 0, 0, 0, false, false
	}
	stat := table(string(text))
	user, system = time.Duration(stat["user_usec"])*time.Microsecond, time.Duration(stat["system_usec"])*time.Microsecond
	if text, err := readFile(filepath.Join(c.dir, "memory.peak")); err == nil {
		memory, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	if text, err := readFile(filepath.Join(c.dir, "memory.events")); err == nil {
		oom = table(string(text))["oom_kill"] > 0
	}
	return user, system, memory, oom, true
}

func table(text string) map[string]int64 {
	m := map[string]int64{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			m[f[0]], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return m
}

// remove removes the group. Nothing lives in it any more; what cannot be removed yet is found by sweep.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		c.fd = -1
	}
	removeCgroup(c.dir)
}

func removeCgroup(dir string) {
	const tries = 20
	for range tries {
		err := unix.Rmdir(dir)
		if !errors.Is(err, unix.EBUSY) {
			return
		}
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.IsDir() {
				removeCgroup(filepath.Join(dir, e.Name()))
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// path is what the journal says of the group, "" for none.
func (c *cgroup) path() string {
	if c == nil {
		return ""
	}
	return c.dir
}

// ofRun are the groups that a run of a dead owner has left: those that its journal names, and those of its name that are
// beside them or ours. Any other path is not believed.
func (g *cgroups) ofRun(run string, recorded []string) (dirs []string) {
	parents := []string{}
	if g.base != "" {
		parents = append(parents, g.base)
	}
	for _, dir := range recorded {
		parent := filepath.Dir(filepath.Clean(dir))
		if strings.HasPrefix(filepath.Base(dir), cgroupPrefix+run+"-") && isCgroup(parent) && !slices.Contains(parents, parent) {
			parents = append(parents, parent)
		}
	}
	for _, parent := range parents {
		found, _ := filepath.Glob(filepath.Join(escapeGlob(parent), cgroupPrefix+escapeGlob(run)+"-*"))
		dirs = append(dirs, found...)
	}
	return dirs
}

// isCgroup reports whether a directory is on a cgroup v2 file system.
func isCgroup(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// escapeGlob is a path as a pattern for itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
