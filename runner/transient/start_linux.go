package transient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
)

// cleanTime is what a start that failed has to remove its unit.
const cleanTime = 30 * time.Second

// added are the variables that systemd (system and user manager, of any version) adds to what it starts, but for those
// of a directory or credential that a step has asked for. See systemd.exec(5), "Environment Variables in Spawned
// Processes", and src/core/exec-invoke.c.
var added = []string{
	"PATH", "LANG", "LANGUAGE", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TERM", "COLORTERM", "NO_COLOR", "TMPDIR",
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "MANAGERPIDFDID", "MAINPID", "MAINPIDFDID",
	"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "FDSTORE", "LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES",
	"MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "SYSTEMD_LOG_LEVEL", "SYSTEMD_LOG_TARGET", "SYSTEMD_NSS_DYNAMIC_BYPASS",
	"SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS", "REMOTE_ADDR", "REMOTE_PORT",
	"TRIGGER_UNIT", "TRIGGER_PATH", "TRIGGER_TIMER_REALTIME_USEC", "TRIGGER_TIMER_MONOTONIC_USEC",
	"XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_SESSION_CLASS", "XDG_SEAT", "XDG_VTNR",
	"DBUS_SESSION_BUS_ADDRESS",
}

// askedFor are variables that come with a property.
var askedFor = map[string]string{
	"LoadCredential": "CREDENTIALS_DIRECTORY", "StateDirectory": "STATE_DIRECTORY", "CacheDirectory": "CACHE_DIRECTORY",
	"LogsDirectory": "LOGS_DIRECTORY", "RuntimeDirectory": "RUNTIME_DIRECTORY", "ConfigurationDirectory": "CONFIGURATION_DIRECTORY",
}

// Start starts a unit, and returns once its program was executed. Where that fails, the error says what did, and there is
// no unit. A program that was executed and failed at once is no error, but a State that has Ended.
func (m *Manager) Start(ctx context.Context, s Spec) (State, error) {
	props, err := m.properties(ctx, s)
	if err != nil {
		return State{}, fmt.Errorf("cannot start unit %s: %w", s.Name, err)
	}
	v, ours, err := m.start(ctx, s, props)
	if err != nil {
		if ours {
			m.clean(ctx, s.Name)
		}
		return State{}, fmt.Errorf("cannot start unit %s: %w", s.Name, err)
	}
	return v.State, nil
}

// start tells whether a unit that is there now is the one it asked for, and not another's.
func (m *Manager) start(ctx context.Context, s Spec, props []dbus.Property) (v view, ours bool, err error) {
	job := make(chan string, 1)
	asked := false
	err = m.do(ctx, func(c *link) error {
		_, err := c.StartTransientUnitContext(ctx, s.Name, "fail", props, job)
		if asked && is(err, "org.freedesktop.systemd1.UnitExists") {
			return nil // it is ours: the answer was lost
		}
		asked = true
		return err
	})
	if err != nil {
		var answer godbus.Error
		return v, asked && !errors.As(err, &answer), err
	}
	v, err = m.until(ctx, s.Name, func(v view) bool { return v.active != "activating" && !v.job }, job)
	if err == nil {
		err = failed(s, v)
	}
	return v, true, err
}

// clean removes a unit that could not be started, also when nobody waits for the start any more.
func (m *Manager) clean(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	_, _ = m.Stop(ctx, name) // the start's error tells more
}

type (
	execOld struct {
		Path   string
		Argv   []string
		Ignore bool
	}
	execEx struct {
		Path  string
		Argv  []string
		Flags []string
	}
	envFile struct {
		Path   string
		Ignore bool
	}
)

// properties are what the manager is asked for.
func (m *Manager) properties(ctx context.Context, s Spec) ([]dbus.Property, error) {
	for _, p := range []string{s.Path, s.Dir, s.EnvFile, s.Stdout, s.Stderr} {
		if p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) != p) {
			return nil, fmt.Errorf("%q is not a clean absolute path", p)
		}
	}
	unset, err := m.unset(ctx, s)
	if err != nil {
		return nil, err
	}
	var list []dbus.Property
	set := func(name string, value any) {
		list = append(list, dbus.Property{Name: name, Value: godbus.MakeVariant(value)})
	}
	text := func(name, value string) {
		if value != "" {
			set(name, value)
		}
	}
	description := s.Description
	if description == "" {
		description = s.Name
	}
	set("Description", description)
	set("Type", "exec")
	// systemd 252 keeps ExecStartEx under a name that it does not know when a daemon-reload has it read the unit's file
	// again. ExecStart counts then; but of what it has written there, it reads $ and ; as something else. Such a unit shall
	// rather not start, if a daemon-reload comes before its program was executed. A newer one keeps the last of them.
	if !slices.ContainsFunc(s.Argv, func(a string) bool { return strings.ContainsAny(a, "$;") }) {
		set("ExecStart", []execOld{{s.Path, s.Argv, false}})
		set("ExecStartEx", []execEx{})
	}
	set("ExecStartEx", []execEx{{s.Path, s.Argv, []string{"no-env-expand"}}})
	set("RemainAfterExit", true)
	set("KillMode", "control-group")
	set("IgnoreSIGPIPE", false) // as a step has it that is no unit
	set("CPUAccounting", true)
	set("MemoryAccounting", true)
	set("TasksAccounting", true)
	set("TimeoutStopUSec", uint64(max(s.Grace, time.Millisecond).Microseconds())) // 0 would be for ever
	if s.Limit > 0 {
		set("RuntimeMaxUSec", uint64(max(s.Limit, time.Millisecond).Microseconds()))
	}
	text("WorkingDirectory", s.Dir)
	if s.EnvFile != "" {
		set("EnvironmentFiles", []envFile{{literal(s.EnvFile), false}})
	}
	set("UnsetEnvironment", unset)
	set("StandardInput", "null")
	for _, out := range [][2]string{{"StandardOutput", s.Stdout}, {"StandardError", s.Stderr}} {
		if out[1] == "" {
			set(out[0], "null")
		} else {
			set(out[0]+"FileToAppend", out[1])
		}
	}
	user, group := s.User, s.Group
	if user == "" && m.lower {
		user, group = strconv.Itoa(os.Geteuid()), strconv.Itoa(os.Getegid())
	}
	text("User", user)
	text("Group", group)
	if len(s.Groups) > 0 {
		set("SupplementaryGroups", s.Groups)
	}
	set("UMask", s.UMask)
	if s.Memory > 0 {
		set("MemoryMax", uint64(s.Memory))
	}
	if s.CPU > 0 {
		set("CPUQuotaPerSecUSec", uint64(math.Round(s.CPU*1e6)))
	}
	if s.Tasks > 0 {
		set("TasksMax", uint64(s.Tasks))
	}
	if len(s.LogFields) > 0 {
		fields := make([][]byte, len(s.LogFields))
		for i, f := range s.LogFields {
			fields[i] = []byte(f)
		}
		set("LogExtraFields", fields)
	}
	for _, p := range s.Properties {
		for _, a := range p.set {
			set(a.name, a.value)
		}
	}
	return list, nil
}

// unset returns the variables that the step shall not have: those that systemd adds, and all of the manager's own, but
// not those of the environment file, which would go too.
func (m *Manager) unset(ctx context.Context, s Spec) ([]string, error) {
	names := map[string]bool{}
	for _, n := range slices.Concat(added, s.Unset) {
		names[n] = true
	}
	var own []string
	err := m.do(ctx, func(c *link) error {
		var v godbus.Variant
		manager := c.raw.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
		err := manager.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.systemd1.Manager", "Environment").Store(&v)
		if err != nil {
			return err
		}
		return v.Store(&own)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the manager's environment: %w", err)
	}
	for _, e := range own {
		n, _, _ := strings.Cut(e, "=")
		names[n] = true
	}
	asked := map[string]bool{}
	for _, p := range s.Properties {
		asked[p.name] = true
	}
	for property, variable := range askedFor {
		if asked[property] {
			delete(names, variable)
		} else {
			names[variable] = true
		}
	}
	if s.EnvFile != "" {
		text, err := os.ReadFile(s.EnvFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the environment file: %w", err)
		}
		for n := range envNames(text) {
			delete(names, n)
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// envNames returns the names of the variables in what EnvText wrote.
func envNames(text []byte) map[string]bool {
	names := map[string]bool{}
	for len(text) > 0 {
		name, rest, ok := bytes.Cut(text, []byte(`="`))
		if !ok {
			break
		}
		names[string(name)] = true
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		text = rest[min(end+2, len(rest)):] // behind the quote and the newline
	}
	return names
}

// literal keeps systemd from reading a path as a pattern.
func literal(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// failed tells why a unit's program was not executed.
func failed(s Spec, v view) error {
	switch {
	case !v.Loaded:
		return errors.New("it was removed while it started, by a stop or a daemon-reload at that moment: start it again")
	case v.active == "inactive" && !v.Ended:
		return errors.New("its start was cancelled")
	case !v.Ended || v.Signal != 0:
		return nil
	case v.Result == "exit-code":
		if why, ok := s.why(v.ExitCode); ok {
			return fmt.Errorf("%s (systemd's status %d)", why, v.ExitCode)
		}
		return nil
	case v.ExitCode == -1 && v.Result == "timeout":
		return errors.New("it took too long to be started")
	case v.ExitCode == -1:
		return fmt.Errorf("systemd could not prepare it (%s): its journal says why", v.Result)
	}
	return nil
}

// why tells what of a unit could not be had, from the status that systemd's own process left with before it became the
// program: see systemd.exec(5), "Process Exit Codes". A program that itself ends with one of these statuses within the
// moment of the start is taken for one that did not start.
func (s Spec) why(status int) (string, bool) {
	switch status {
	case 200:
		return fmt.Sprintf("cannot change into its working directory %s", s.Dir), true
	case 203:
		return fmt.Sprintf("cannot execute %s%s", s.Path, reason(s.Path)), true
	case 209:
		return fmt.Sprintf("cannot open its output %s", s.Stdout), true
	case 222:
		return fmt.Sprintf("cannot open its error output %s", s.Stderr), true
	case 216:
		return fmt.Sprintf("cannot become group %s", strings.Join(slices.DeleteFunc(append([]string{s.Group}, s.Groups...), func(g string) bool { return g == "" }), ", ")), true
	case 217:
		return fmt.Sprintf("cannot become user %s", s.User), true
	}
	what, ok := map[int]string{
		201: "set its priority (Nice)", 202: "pass its file descriptors", 204: "get memory", 205: "set its limits (Limit…)",
		206: "set its OOMScoreAdjust", 207: "set its signal mask", 208: "open its input", 210: "change its root (RootDirectory)",
		211: "set its IOSchedulingClass or IOSchedulingPriority", 212: "set its timer slack", 213: "set its secure bits",
		214: "set its CPUSchedulingPolicy", 215: "set its CPUAffinity", 218: "set its capabilities (CapabilityBoundingSet, AmbientCapabilities)",
		219: "put it into its control group", 220: "make its session", 224: "open its PAM session",
		225: "make its network (PrivateNetwork, NetworkNamespacePath)",
		226: "set up its file systems (a path of ReadWritePaths, BindPaths … may be missing)", 227: "set NoNewPrivileges",
		228: "set up its SystemCallFilter", 229: "set its SELinux context", 230: "set its personality", 231: "set its AppArmor profile",
		232: "set up its RestrictAddressFamilies", 233: "make its RuntimeDirectory", 235: "give its files to their user", 236: "set its SMACK label",
		237: "set up its keyring (KeyringMode)", 238: "make its StateDirectory", 239: "make its CacheDirectory", 240: "make its LogsDirectory",
		241: "make its ConfigurationDirectory", 242: "set its NUMA policy", 243: "read its credentials (LoadCredential)", 245: "set up its BPF filter",
	}[status]
	return "cannot " + what, ok
}

// reason guesses why a file was not executed. systemd knows, but tells it only to the journal.
func reason(path string) string {
	info, err := os.Stat(path)
	var e syscall.Errno
	switch {
	case errors.As(err, &e):
		return ": " + e.Error()
	case err != nil:
		return ""
	case info.IsDir():
		return ": it is a directory"
	case info.Mode()&0o111 == 0:
		return ": it is not executable"
	}
	return ": it is no program for this machine, its interpreter is missing, or its user may not"
}

// Stop ends a unit: SIGTERM to all its processes, SIGKILL to those that are left after its Grace. It returns once the
// unit is gone, with the processes it had beside its main process. A unit that is not there is no error.
func (m *Manager) Stop(ctx context.Context, name string) (left []string, err error) {
	v, err := m.look(ctx, name)
	if err != nil || !v.Loaded {
		return nil, err
	}
	if v.Cgroup != "" {
		for _, pid := range processes(v.Cgroup) {
			if pid != v.MainPID {
				left = append(left, process(pid))
			}
		}
	}
	job := make(chan string, 1)
	err = m.do(ctx, func(c *link) error {
		_, err := c.StopUnitContext(ctx, name, "replace", job)
		return err
	})
	if err != nil && !isNoUnit(err) {
		return left, fmt.Errorf("cannot stop unit %s: %w", name, err)
	}
	ended, err := m.until(ctx, name, func(v view) bool { return !v.Loaded || !v.job && (v.active == "inactive" || v.active == "failed") }, job)
	if err != nil {
		return left, err
	}
	if ended.Cgroup != "" {
		if pids := processes(ended.Cgroup); len(pids) > 0 {
			err = fmt.Errorf("cannot end %s of unit %s", process(pids[0]), name)
		}
	}
	return left, errors.Join(err, m.forget(ctx, name))
}

// forget has the manager unload a unit that is stopped, and returns when it has.
func (m *Manager) forget(ctx context.Context, name string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		err := m.do(ctx, func(c *link) error { return c.ResetFailedUnitContext(ctx, name) })
		if err != nil && !isNoUnit(err) {
			return fmt.Errorf("cannot forget unit %s: %w", name, err)
		}
		loaded, err := m.List(ctx, literal(name))
		if err != nil || len(loaded) == 0 {
			return err
		}
		if !m.pause(ctx, pause) {
			return fmt.Errorf("cannot forget unit %s: %w", name, errors.Join(ctx.Err(), m.ctx.Err()))
		}
	}
}

// processes are those in a control group and below.
func processes(cgroup string) []int {
	var pids []int
	_ = filepath.WalkDir(filepath.Join(cgroupRoot, cgroup), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it goes away while we look
		}
		text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for f := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

func process(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return fmt.Sprintf("pid %d %s", pid, strings.TrimSpace(string(name)))
}
