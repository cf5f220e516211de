package booted

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// suites are the releases of Debian that are booted, and what their systemd makes of the service.
var suites = []struct {
	name   string
	reload bool // it knows Type=notify-reload
}{{"bookworm", false}, {"trixie", true}}

// TestBooted boots each system once. Its parts follow one another on it; each puts definitions of its own into force.

func TestBooted(t *testing.T) {
	debs := packages(t)
	binary := sync.OnceValues(func() (string, error) { return build(t.TempDir()) })
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			need(t, s.name)
			t.Parallel()
			m := boot(t, s.name)
			part := func(name string, f func(*machine)) {
				if !t.Run(name, func(t *testing.T) { f(m.in(t)) }) {
					t.FailNow() // what follows would say the same once more
				}
			}
			part("install", func(m *machine) { m.install(debs, binary) })
			part("starts and is ready", started)
			if len(debs) > 1 {
				part("upgrade keeps the state", func(m *machine) { m.upgrade(debs) })
			}
			waits := s.reload && len(debs) > 0 // by a drop-in of the package
			part("a schedule fires", fires)
			part("a step's environment", environment)
			part("reload", func(m *machine) { reloads(m, waits) })
			part("a process that got away", escapes)
			part("credentials", credentials)
			part("a frozen process", freezes)
			part("a killed process", killed)
			part("a key's timer", timer)
			part("a unit of its own", isolated)
			part("a slow start", startsSlowly)
			part("output in the journal", tells)
			part("a long drain begins", drains)
			part("a user's service", func(m *machine) { m.users(len(debs) > 0) }) // meanwhile, and without a daemon-reload
			part("a long drain ends", drained)
			m.sh("cp /usr/bin/marbles /root/program")
			if len(debs) > 0 {
				part("removal and purge", purge)
			} else {
				m.sh("systemctl disable --now marbles && rm -r /usr/bin/marbles /etc/systemd/system/marbles.service*")
			}
			part("the service installs itself", installs)
		})
	}
}

// packages are the .deb files in $MARBLES_DEBS, the previous version first; none where it is not set.

func packages(t *testing.T) []string {
	t.Helper()
	dir := os.Getenv("MARBLES_DEBS")
	if dir == "" {
		return nil
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) == 0 {
		t.Fatalf("no packages in %s: %v", dir, err)
	}
	version := func(deb string) string {
		out, err := exec.Command("dpkg-deb", "--field", deb, "Version").Output()
		if err != nil {
			t.Fatalf("%s: %v", deb, err)
		}
		return strings.TrimSpace(string(out))
	}
	slices.SortFunc(debs, func(a, b string) int {
		if exec.Command("dpkg", "--compare-versions", version(a), "lt", version(b)).Run() == nil {
			return -1
		}
		return 1
	})
	return debs
}

// definitions that are in force from the first start.
const first = `
workflows: {first: {run: "echo first"}}
schedules: [{run: first, every: 1s}]
`

// build builds the program.

func build(dir string) (string, error) {
	binary := filepath.Join(dir, "marbles")
	cmd := exec.Command("go", "build", "-trimpath", "-o", binary, "marbles/cmd/marbles")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

// install installs the oldest package, or lays out what one would hold.

func (m *machine) install(debs []string, binary func() (string, error)) {
	m.write("/etc/marbles/jobs/jobs.yaml", first)
	// For users: what pam_systemd would set, which has no place in so small a system.
	m.write("/etc/systemd/system/user@.service.d/test.conf", "[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i\n")
	if len(debs) > 0 {
		m.dpkg(debs[0])
		return
	}
	program, err := binary()
	if err != nil {
		m.t.Fatal(err)
	}
	m.copy(program, "/usr/bin/marbles", 0o755)
	m.copy("../systemd/marbles.service", "/etc/systemd/system/marbles.service", 0o644)
	m.copy("../etc/marbles.yaml", "/etc/marbles/marbles.yaml", 0o644)
	m.sh("systemctl daemon-reload && systemctl enable --now marbles")
}

func (m *machine) dpkg(deb string) {
	m.t.Helper()
	m.copy(deb, "/var/tmp/marbles.deb", 0o644)
	m.t.Log(m.sh("dpkg --install /var/tmp/marbles.deb"))
}

func (m *machine) upgrade(debs []string) {
	old := m.ran("first")
	pid := m.number("MainPID")
	m.dpkg(debs[len(debs)-1])
	if m.property("marbles", "ActiveState") != "active" || m.number("MainPID") == pid {
		m.t.Error("the new program does not run")
	}
	after := m.runs("first")
	if !slices.ContainsFunc(after, func(r run) bool { return r.ID == old.ID && r.Status == "complete" }) {
		m.t.Errorf("run %s from before the upgrade is not among %+v", old.ID, after)
	}
	m.until("it goes on", func() bool { return len(m.runs("first")) > len(after) })
}

// reloads: waits says that "systemctl reload" returns once the reload is over.

// escapes: a grandchild with a session and an environment of its own is ended with its step.

// credentials: a plain and an encrypted one reach a step, and nothing else that lasts.

// freezes: a process that does not go on is killed by the watchdog, and started again.

// killed: a run whose service is killed is settled by the next, and none of its processes is left.

// timer: a key whose clock was handed to systemd is started by it, left out by the service, and taken back.

// isolated: a step in a unit of its own goes on while the service is restarted and killed, and none of its output is lost.

// startsSlowly: what a killed service left, and takes long to end, does not use up the time that a start has.

// drains: what runs at a stop goes on for as long as the settings say, however short TimeoutStopSec= is; for longer, too,

// than the service asks for at once. Only a daemon-reload must not come in between: systemd forgets then what it was asked.

// purge: removal keeps state and what the administrator wrote, purge only the latter, and says so.

func purge(m *machine) {
	m.t.Log(m.sh("dpkg --remove marbles"))
	m.sh("ls /var/lib/private/marbles/*/runs/*.json /etc/marbles/marbles.yaml >/dev/null")
	if out, code := m.try("systemctl is-active marbles"); code == 0 {
		m.t.Errorf("it is still %s", out)
	}
	said := m.sh("rm -f /var/tmp/marbles.deb; dpkg --purge marbles")
	if !strings.Contains(said, "/etc/marbles/jobs is kept") {
		m.t.Errorf("purge says %q", said)
	}
	left := m.sh("find / -xdev -iname '*marbles*' -not -path '/proc/*' -not -path '/sys/*' | sort")
	if want := "/.marbles-booted\n/etc/marbles\n"; left != want {
		m.t.Errorf("purge leaves\n%s", left)
	}
	if out, _ := m.try("systemctl list-units --all --plain --no-legend 'marbles*'"); out != "" {
		m.t.Errorf("purge leaves units:\n%s", out)
	}
}

// tells: entries say where they come from, and where the settings say so, steps' output is among them.

// users: the service of a user, and a timer of one, by the user's own manager.

func (m *machine) users(packaged bool) {
	m.sh("useradd --create-home --shell /bin/sh ann && loginctl enable-linger ann && systemctl start user@$(id -u ann)")
	ann := func(command string) string {
		m.t.Helper()
		return m.sh(`cd /home/ann && exec setpriv --reuid=ann --regid=ann --init-groups env HOME=/home/ann USER=ann LOGNAME=ann XDG_RUNTIME_DIR=/run/user/$(id -u ann) ` + command)
	}
	ann("mkdir -p .foundry/marbles")
	m.write("/home/ann/.foundry/marbles/jobs.yaml", "workflows: {mine: {run: 'id -un; echo ${INVOCATION_ID-}'}, timed: {run: 'true'}}\nschedules: [{run: mine, every: 1s}, {run: timed, every: 1s}]\n")
	has := func(workflow string) func() bool {
		return func() bool { return strings.Contains(ann("marbles runs --workflow "+workflow), " complete ") }
	}
	install, uninstall := "marbles service install --user", "marbles service uninstall --user"
	if packaged {
		for _, scope := range []string{"system", "user"} {
			if out, code := m.try("marbles service install --" + scope); code == 0 || !strings.Contains(out, "a package has installed it") {
				m.t.Errorf("beside the package: exit status %d, %s", code, out)
			}
		}
		install, uninstall = "systemctl --user enable --now marbles", "systemctl --user disable --now marbles"
	}
	m.t.Log(ann(install))
	m.until("the user's service works", has("mine"))
	if got := ann("systemctl --user show --value -p StatusText marbles"); !strings.HasPrefix(got, "2 triggers, ") {
		m.t.Errorf("the status line is %q", got)
	}
	out := ann(`sh -c 'marbles watch $(marbles runs --json --workflow mine | sed -n "s/.*\"id\": \"\(.*\)\",/\1/p" | tail -n 1)'`)
	if !strings.Contains(out, "ann\n\n") {
		m.t.Errorf("the step printed %q", out)
	}
	ann("systemctl --user stop marbles")
	before := ann("marbles runs --workflow timed")
	m.t.Log(ann("marbles systemd install timed --user"))
	m.until("the user's timer fires", func() bool { return ann("marbles runs --workflow timed") != before })
	m.t.Log(ann("marbles systemd uninstall timed --user"))
	m.t.Log(ann(uninstall))
	if left := m.sh("find /home/ann/.config -type f -o -type l"); left != "" {
		m.t.Errorf("left over:\n%s", left)
	}
	m.sh("loginctl disable-linger ann; systemctl stop user@$(id -u ann); userdel --remove ann")
}

// installs: without a package, the program installs its own unit, once however often, and removes it.

func installs(m *machine) {
	m.sh("mv /root/program /usr/local/bin/marbles")
	m.write("/etc/marbles/jobs/jobs.yaml", job("own", "echo own"))
	m.t.Log(m.sh("marbles service install"))
	for name, want := range map[string]string{"ActiveState": "active", "UnitFileState": "enabled", "DynamicUser": "yes"} {
		if got := m.property("marbles", name); got != want {
			m.t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	m.ran("own")
	pid := m.number("MainPID")
	m.t.Log(m.sh("marbles service install; marbles service status"))
	if now := m.number("MainPID"); now != pid {
		m.t.Error("what is installed was started anew")
	}
	m.t.Log(m.sh("marbles service uninstall"))
	if got := m.property("marbles", "LoadState"); got != "not-found" {
		m.t.Errorf("the unit is still %s", got)
	}
	if left := m.sh("find /etc/systemd /run/systemd/system -name '*marbles*'"); left != "" {
		m.t.Errorf("left over:\n%s", left)
	}
	m.sh("ls /var/lib/private/marbles/*/runs/*.json >/dev/null")
}
