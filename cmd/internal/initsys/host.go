package initsys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Kind is an init system.
type Kind string

// The init systems.
const (
	Systemd Kind = "systemd"
	Launchd Kind = "launchd"
)

// Scope is whose manager: the machine's or a user's.
type Scope string

// The scopes.
const (
	System Scope = "system"
	User   Scope = "user"
)

// Runner runs a command and returns what it said. An error is one of starting it, or of its exit status.
type Runner func(ctx context.Context, argv []string) (said string, err error)

// Host is a machine, or what stands for one.
type Host struct {
	Root string // a directory in place of /, for tests; "" for none
	Home string // of the user
	// Config is where the user's settings are; "" is .config below Home.
	Config string
	UID    int
	Run    Runner
}

// commandTime is how long a command may take. Starting a timer takes moments.
const commandTime = 90 * time.Second

// Commands runs commands of the machine.
func Commands(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%s is not installed", argv[0])
	}
	return strings.TrimSpace(out.String()), err
}

// path is a path of the host.
func (h Host) path(parts ...string) string {
	return filepath.Join(append([]string{"/", h.Root}, parts...)...)
}

// home is a path below the user's home directory.
func (h Host) home(parts ...string) string { return h.path(append([]string{h.Home}, parts...)...) }

// UnitDir is where an administrator's, or a user's, units are.
func (h Host) UnitDir(s Scope) string {
	if s == System {
		return h.path("/etc/systemd/system")
	}
	if h.Config != "" {
		return h.path(h.Config, "systemd/user")
	}
	return h.home(".config/systemd/user")
}

// timerState is where systemd keeps when a persistent timer fired last.
func (h Host) timerState(s Scope) string {
	if s == System {
		return h.path("/var/lib/systemd/timers")
	}
	return h.home(".local/share/systemd/timers")
}

// Packaged is the file of a unit that a package has installed; "" for none.
func (h Host) Packaged(s Scope, unit string) string {
	for _, dir := range []string{"/usr/lib/systemd", "/lib/systemd"} {
		if path := h.path(dir, string(s), unit); exists(path) {
			return path
		}
	}
	return ""
}

// JobDir is where launchd's jobs are.
func (h Host) JobDir(s Scope) string {
	if s == System {
		return h.path("/Library/LaunchDaemons")
	}
	return h.home("Library/LaunchAgents")
}

// Systemctl is a command of systemd's manager.
func Systemctl(s Scope, args ...string) []string {
	if s == User {
		return append([]string{"systemctl", "--user"}, args...)
	}
	return append([]string{"systemctl"}, args...)
}

// SystemdVersion is the version of systemd, 0 where that cannot be told.
func (h Host) SystemdVersion(ctx context.Context) int {
	said, err := h.Run(ctx, []string{"systemctl", "--version"})
	if err != nil {
		return 0
	}
	rest, _ := strings.CutPrefix(said, "systemd ")
	digits, _, _ := strings.Cut(rest, " ")
	version, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return version
}

// domain is what launchd calls a scope.
func (h Host) domain(s Scope) string {
	if s == System {
		return "system"
	}
	return "gui/" + strconv.Itoa(h.UID)
}

// Line is a command as it is typed.
func Line(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = w
		if w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") != "" {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Logs is where launchd's jobs of a user write.
func (h Host) Logs() string { return h.home("Library/Logs/marbles") }
