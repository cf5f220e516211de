package initsys

import (
	"fmt"
	"path/filepath"

	"marbles/packaging"
	"marbles/state"
)

// TimerName and ServiceName are the units of a key.
func TimerName(key string) string { return "marbles-" + packaging.UnitName(key) + ".timer" }

// ServiceName is the unit that the timer of a key starts.
func ServiceName(key string) string { return "marbles-" + packaging.UnitName(key) + ".service" }

// maxUnit is how long the name of a service may be that systemd can start: a private /tmp is called
// systemd-private-<32 digits>-<name>-<6 letters>, in 255 bytes.
const maxUnit = 255 - len("systemd-private-") - 32 - len("-") - len("-XXXXXX")

// CheckKey refuses a key whose service systemd would take, and then fail to start each time.
func CheckKey(key string) error {
	name := ServiceName(key)
	if len(name) <= maxUnit {
		return nil
	}
	err := fmt.Errorf("cannot hand over %s: the name of its unit has %d bytes, and systemd can start one of %d", key, len(name), maxUnit)
	return state.Hint(err, `a shorter key; each byte but letters, digits and ":_.-" counts as four`)
}

// Label is launchd's name for a key.
func Label(key string) string { return packaging.LaunchdLabel + "." + key }

// TimerPlan installs the timer of a key and the service that it starts.
func (h Host) TimerPlan(s Scope, key string, timer, service []byte) Plan {
	t, svc := TimerName(key), ServiceName(key)
	return Plan{
		Name: t,
		Files: []File{
			{filepath.Join(h.UnitDir(s), t), timer},
			{filepath.Join(h.UnitDir(s), svc), service},
		},
		Link:  filepath.Join(h.UnitDir(s), "timers.target.wants", t),
		Stamp: filepath.Join(h.timerState(s), "stamp-"+t),
		Load: []Step{
			{Argv: Systemctl(s, "daemon-reload")},
			{Argv: Systemctl(s, "enable", t)},
			{Argv: Systemctl(s, "restart", t)}, // starts it too; new times need it
		},
		Up: [][]string{Systemctl(s, "is-enabled", "--quiet", t), Systemctl(s, "is-active", "--quiet", t)},
		Unload: []Step{
			{Argv: Systemctl(s, "disable", "--now", t), Lax: true}, // the file may be gone
			{Argv: Systemctl(s, "clean", "--what=state", t), Lax: true},
		},
		Forget: []Step{
			{Argv: Systemctl(s, "daemon-reload")},
			{Argv: Systemctl(s, "reset-failed", t, svc), Lax: true},
		},
		Host: h,
	}
}

// ServicePlan installs the service itself under systemd.
func (h Host) ServicePlan(s Scope, unit []byte) Plan {
	const name = "marbles.service"
	return Plan{
		Name:  name,
		Files: []File{{filepath.Join(h.UnitDir(s), name), unit}},
		Load: []Step{
			{Argv: Systemctl(s, "daemon-reload")},
			{Argv: Systemctl(s, "enable", name)},
			{Argv: Systemctl(s, "restart", name)},
		},
		Up:     [][]string{Systemctl(s, "is-enabled", "--quiet", name), Systemctl(s, "is-active", "--quiet", name)},
		Unload: []Step{{Argv: Systemctl(s, "disable", "--now", name), Lax: true}},
		Forget: []Step{
			{Argv: Systemctl(s, "daemon-reload")},
			{Argv: Systemctl(s, "reset-failed", name), Lax: true},
		},
		Host: h,
	}
}

// JobPlan installs a job of launchd. An old one of that label is taken out first: launchd refuses a second one, and for a
// moment after it was taken out too.
func (h Host) JobPlan(s Scope, label string, plist []byte, dirs ...string) Plan {
	path := filepath.Join(h.JobDir(s), label+".plist")
	out := Step{Argv: []string{"launchctl", "bootout", h.domain(s) + "/" + label}, Lax: true}
	return Plan{
		Name:   label,
		Files:  []File{{path, plist}},
		Dirs:   dirs,
		Load:   []Step{out, {Argv: []string{"launchctl", "bootstrap", h.domain(s), path}, Again: 4}},
		Up:     [][]string{{"launchctl", "print", h.domain(s) + "/" + label}},
		Unload: []Step{out},
		Host:   h,
	}
}
