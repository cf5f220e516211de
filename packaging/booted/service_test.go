package booted

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

func started(m *machine) {
	for name, want := range map[string]string{"ActiveState": "active", "SubState": "running", "UnitFileState": "enabled", "DynamicUser": "yes"} {
		if got := m.property("marbles", name); got != want {
			m.t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if s := m.status(); !strings.HasPrefix(s, "1 trigger, ") || !strings.Contains(s, "next first at ") && !strings.Contains(s, "1 running") {
		m.t.Errorf("the status line is %q", s)
	}
	if mode := m.sh("stat -L -c %a:%u /var/lib/marbles"); !strings.HasPrefix(mode, "700:") || strings.HasPrefix(mode, "700:0\n") {
		m.t.Errorf("mode and owner of the state: %s", mode)
	}
	if r := m.ran("first"); r.Status != "complete" || r.Output != "first\n" {
		m.t.Errorf("%+v", r)
	}
}

func fires(m *machine) {
	m.define(job("tick", "echo tick $MARBLES_RUN_ID"))
	r := m.ran("tick")
	if r.Status != "complete" || r.Output != "tick "+r.ID+"\n" {
		m.t.Errorf("%+v", r)
	}
	var found bool
	for _, e := range m.journal("MARBLES_KEY=tick") {
		if e["_SYSTEMD_UNIT"] != "marbles.service" || e["PRIORITY"] == nil {
			m.t.Errorf("an entry without its unit or priority: %v", e)
		}
		found = found || e["MARBLES_RUN"] == r.ID
	}
	if !found {
		m.t.Errorf("the journal has no entry of tick's run %s: %v", r.ID, m.journal("MARBLES_KEY=tick"))
	}
}

func environment(m *machine) {
	m.define(job("env", `env; cat /proc/self/cgroup; echo kept >"$LOGS_DIRECTORY/log"; id -u`))
	r := m.ran("env")
	if r.Status != "complete" {
		m.t.Fatalf("%+v", r)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_", "CREDENTIALS_DIRECTORY", "INVOCATION_ID", "JOURNAL_STREAM", "MAINPID", "MANAGERPID", "SYSTEMD_EXEC_PID"} {
		if strings.Contains("\n"+r.Output, "\n"+name) {
			m.t.Errorf("%s reaches a step:\n%s", name, r.Output)
		}
	}
	if strings.HasSuffix(r.Output, "\n0\n") {
		m.t.Error("a step runs as root")
	}
	if out := m.sh("cat /var/log/marbles/log"); out != "kept\n" {
		m.t.Errorf("in the directory for logs is %q", out)
	}
	if !strings.Contains(r.Output, "0::/system.slice/marbles.service/") {
		m.t.Errorf("the step was in no cgroup of its own:\n%s", r.Output)
	}
}

func reloads(m *machine, waits bool) {
	want := "notify"
	if waits {
		want = "notify-reload"
	}
	if got := m.property("marbles", "Type"); got != want {
		m.t.Errorf("Type is %s, want %s", got, want)
	}
	m.define("workflows: {bad: {rum: x}}")
	failed := func() bool {
		s := m.status()
		return strings.HasPrefix(s, "reload failed at ") && strings.Contains(s, "old definitions in force") && strings.Contains(s, "jobs.yaml:1")
	}
	if waits {
		if !failed() {
			m.t.Errorf("after a bad reload the status is %q", m.status())
		}
	}
	m.until("the bad definitions are refused", failed)
	n := len(m.runs("env"))
	m.until("the old definitions stay in force", func() bool { return len(m.runs("env")) > n })

	m.define(job("again", "echo again") + "  # and one more\n")
	reloaded := func() bool {
		s := m.status()
		return strings.HasPrefix(s, "reloaded at ") && strings.Contains(s, "1 trigger")
	}
	if waits {
		if !reloaded() {
			m.t.Errorf("after a good reload the status is %q", m.status())
		}
	}
	m.until("the good ones are in force", reloaded)
	m.ran("again")
	if n := m.number("NRestarts"); n != 0 {
		m.t.Errorf("the service was restarted %d times", n)
	}
	if sub := m.property("marbles", "SubState"); sub != "running" {
		m.t.Errorf("SubState is %s", sub)
	}
}

func escapes(m *machine) {
	m.define(job("escape", "setsid env -i /bin/sleep 1234567 & echo left $!"))
	r := m.ran("escape")
	if r.Status != "complete" || !strings.HasPrefix(r.Output, "left ") {
		m.t.Errorf("%+v", r)
	}
	m.define("workflows: {idle: {run: 'true'}}")
	m.until("nothing of it is left", func() bool {
		out, _ := m.try("pgrep -f 'sleep 123456[7]'")
		return out == ""
	})
}

func credentials(m *machine) {
	plain, sealed := "plain-Xq7vT2mB9c", "sealed-Jw4kR8nZ3f"
	m.put("/etc/marbles/secrets/plain", []byte(plain), 0o600)
	m.put("/run/sealed", []byte(sealed), 0o600)
	m.sh("systemd-creds encrypt --with-key=host --name=sealed /run/sealed /etc/marbles/secrets/sealed.cred && rm /run/sealed")
	m.write("/etc/marbles/jobs/jobs.yaml", `
workflows:
  secret:
    secrets: {PLAIN: {credential: plain}, SEALED: {credential: sealed}}
    run: 'printf %s "$PLAIN" | sha256sum; printf %s "$SEALED" | sha256sum; echo "$PLAIN $SEALED"; echo "$SEALED" >&2; exit 3'
schedules: [{run: secret, every: 1s}]
`)
	m.drop("[Service]\nLoadCredential=plain:/etc/marbles/secrets/plain\nLoadCredentialEncrypted=sealed:/etc/marbles/secrets/sealed.cred\n")
	r := m.ran("secret")
	sum := func(secret string) string { return fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(secret))) }
	for _, want := range []string{sum(plain), sum(sealed), "*** ***\n"} {
		if !strings.Contains(r.Output, want) {
			m.t.Errorf("the step printed\n%s\nwithout\n%s", r.Output, want)
		}
	}
	if entries := m.journal("MARBLES_KEY=secret"); len(entries) == 0 {
		m.t.Error("the journal has nothing of the run")
	}
	for _, secret := range []string{plain, sealed} {
		if out, code := m.try("journalctl --sync; journalctl --no-pager -o export | grep -a -e '" + secret + "'"); code == 0 {
			m.t.Errorf("a secret is in the journal: %s", out)
		}
		if out, code := m.try("grep -r -l -e '" + secret + "' /var /tmp /etc/systemd"); code == 0 {
			m.t.Errorf("a secret is in a file: %s", out)
		}
		if out, code := m.try("systemctl show marbles | grep -e '" + secret + "'"); code == 0 {
			m.t.Errorf("a secret is in the unit: %s", out)
		}
	}
	m.drop("")
	m.sh("rm -r /etc/marbles/secrets")
}

func freezes(m *machine) {
	m.write("/etc/marbles/jobs/jobs.yaml", job("thaw", "echo thaw"))
	m.drop("[Service]\nWatchdogSec=2\n")
	timeouts := func() (n int) {
		for _, e := range m.journal("UNIT=marbles.service") {
			if strings.Contains(fmt.Sprint(e["MESSAGE"]), "Watchdog timeout") {
				n++
			}
		}
		return n
	}
	const begun = 300_000 // microseconds: it counts from the start until it is fed
	m.until("it has been fed", func() bool {
		return m.number("WatchdogTimestampMonotonic") > m.number("ActiveEnterTimestampMonotonic")+begun
	})
	restarts := m.number("NRestarts")
	m.sh("systemctl kill --kill-whom=main --signal=STOP marbles")
	m.until("it is restarted", func() bool {
		return m.number("NRestarts") > restarts && m.property("marbles", "ActiveState") == "active"
	})
	if n := timeouts(); n != 1 {
		m.t.Errorf("the watchdog has struck %d times", n)
	}
	runs := len(m.runs("thaw"))
	m.until("it is at work again", func() bool { return len(m.runs("thaw")) > runs })
	m.drop("")
}

func killed(m *machine) {
	m.define(job("victim", "echo begun; exec sleep 7654321"))
	var id string
	m.until("it runs", func() bool {
		for _, r := range m.runs("victim") {
			id = r.ID
			return r.Status == "running" && m.output(id) != ""
		}
		return false
	})
	m.define(job("after", "echo after"))
	restarts := m.number("NRestarts")
	m.sh("systemctl kill --kill-whom=main --signal=KILL marbles")
	m.until("it is restarted", func() bool {
		return m.number("NRestarts") > restarts && m.property("marbles", "ActiveState") == "active"
	})
	r := m.ran("victim")
	if r.ID != id || r.Status != "failed" || !strings.Contains(r.Error, "died") || r.Output != "begun\n" {
		m.t.Errorf("%+v", r)
	}
	if out, _ := m.try("pgrep -f 'sleep 765432[1]'"); out != "" {
		m.t.Errorf("its process is left: %s", out)
	}
	m.ran("after")
}

func timer(m *machine) {
	m.define(`
workflows: {clocked: {run: 'echo $MARBLES_KEY'}, other: {run: "true"}}
schedules: [{run: clocked, every: 3s}, {run: other, every: 1h}]
`)
	m.until("the service has the key", func() bool { return strings.Contains(m.status(), "2 triggers") })
	m.t.Log(m.sh("marbles --config /etc/marbles/marbles.yaml systemd install clocked"))
	m.until("the service leaves it out", func() bool { return strings.Contains(m.status(), "1 trigger") })
	for name, want := range map[string]string{"ActiveState": "active", "UnitFileState": "enabled"} {
		if got := m.property("marbles-clocked.timer", name); got != want {
			m.t.Errorf("the timer's %s is %s, want %s", name, got, want)
		}
	}
	n := len(m.runs("clocked"))
	m.until("the timer fires", func() bool { return len(m.runs("clocked")) > n })
	if r := m.ran("clocked"); r.Status != "complete" || r.Key != "clocked" || r.Output != "clocked\n" {
		m.t.Errorf("%+v", r)
	}
	if len(m.journal("_SYSTEMD_UNIT=marbles-clocked.service")) == 0 {
		m.t.Error("the journal has nothing of the timer's service")
	}
	m.t.Log(m.sh("marbles --config /etc/marbles/marbles.yaml systemd uninstall clocked"))
	m.until("the service has it back", func() bool { return strings.Contains(m.status(), "2 triggers") })
	if out := m.sh("find /etc/systemd /run/systemd/system /var/lib/private/marbles/*/handed -name '*clocked*'"); out != "" {
		m.t.Errorf("left over:\n%s", out)
	}
	if out := m.sh("systemctl list-units --all --plain --no-legend 'marbles-clocked*'"); out != "" {
		m.t.Errorf("left over:\n%s", out)
	}
}

func isolated(m *machine) {
	const conf = "../systemd/marbles.service.d/isolate-unit.conf"
	const lines, pieces = 50_000, 12
	each := (lines + pieces - 1) / pieces
	m.write("/etc/marbles/jobs/jobs.yaml", fmt.Sprintf(`
workflows:
  apart:
    steps:
      - name: count
        isolate: unit
        unit: {MemoryMax: 64M, TasksMax: 20}
        run: 'i=1; while [ $i -le %d ]; do seq $i $((i + %d)); i=$((i + %d)); sleep 0.5; done | head -n %d; grep ^0:: /proc/self/cgroup'
      - {name: then, run: echo then}
schedules: [{run: apart, every: 1s}]
`, lines, each-1, each, lines))
	m.copy(conf, "/etc/systemd/system/marbles.service.d/isolate-unit.conf", 0o644)
	m.sh("systemctl daemon-reload; systemctl restart marbles")
	var unit string
	m.until("the step's unit is there", func() bool {
		unit, _, _ = strings.Cut(m.sh("systemctl list-units --plain --no-legend --state=running 'marbles-step-*'"), " ")
		return unit != ""
	})
	for name, want := range map[string]string{"MemoryMax": "67108864", "TasksMax": "20", "Transient": "yes"} {
		if got := m.property(unit, name); got != want {
			m.t.Errorf("%s of %s is %s, want %s", name, unit, got, want)
		}
	}
	pid := m.property(unit, "MainPID")
	for _, how := range []string{"systemctl restart marbles", "systemctl restart marbles", "systemctl kill --kill-whom=main --signal=KILL marbles", "systemctl restart marbles"} {
		old := m.number("MainPID")
		m.sh(how)
		m.until("another service is there", func() bool {
			now := m.number("MainPID")
			return now != 0 && now != old && m.property("marbles", "ActiveState") == "active"
		})
		if state := m.property(unit, "ActiveState"); state != "active" {
			m.t.Errorf("after a restart of the service %s is %s", unit, state)
		}
	}
	if now := m.property(unit, "MainPID"); now != pid {
		m.t.Errorf("the step's process was %s, and is %s", pid, now)
	}
	r := m.ran("apart")
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	got, rest, _ := strings.Cut(r.Output, "0::/")
	if r.Status != "complete" || got != want.String() || !strings.Contains(rest, unit) || !strings.HasSuffix(rest, "\nthen\n") {
		m.t.Errorf("run %s is %s (%s), with %d of %d bytes of output, and then %.200q", r.ID, r.Status, r.Error, len(got), want.Len(), rest)
	}
	if len(m.runs("apart")) > 2 {
		m.t.Errorf("it was started again: %+v", m.runs("apart"))
	}
	m.drop("")
}

func startsSlowly(m *machine) {
	m.write("/etc/marbles/jobs/jobs.yaml", job("stubborn", `(trap "" TERM; echo begun; sleep 7654322) & wait`))
	m.drop("[Service]\nKillMode=process\nTimeoutStartSec=7\n")
	m.until("it runs", func() bool {
		runs := m.runs("stubborn")
		return len(runs) == 1 && m.output(runs[0].ID) != ""
	})
	m.write("/etc/marbles/jobs/jobs.yaml", job("idle", "true"))
	pid := m.number("MainPID")
	m.sh("systemctl kill --kill-whom=main --signal=KILL marbles")
	m.until("it is about to start again", func() bool { return m.number("MainPID") != pid && m.property("marbles", "ActiveState") == "activating" })
	m.until("it says what it does", func() bool { return m.status() == "starting: ending what an earlier service left" })
	m.until("it has started", func() bool { return m.property("marbles", "ActiveState") == "active" })
	if n := m.number("NRestarts"); n != 1 {
		m.t.Errorf("it was started %d times", n)
	}
	if r := m.ran("stubborn"); r.Status != "failed" || !strings.Contains(r.Error, "died") {
		m.t.Errorf("%+v", r)
	}
	if out, _ := m.try("pgrep -f 'sleep 765432[2]'"); out != "" {
		m.t.Errorf("its process is left: %s", out)
	}
	m.drop("")
}

func drains(m *machine) {
	m.sh("echo 'drain: 60s' >>/etc/marbles/marbles.yaml")
	m.write("/etc/marbles/jobs/jobs.yaml", job("long", "echo begun; sleep 26; echo done"))
	m.drop("[Service]\nTimeoutStopSec=2\n")
	m.until("it runs", func() bool {
		runs := m.runs("long")
		return len(runs) == 1 && m.output(runs[0].ID) != ""
	})
	m.sh("systemctl stop --no-block marbles")
	m.until("it says that it drains", func() bool { return strings.HasPrefix(m.status(), "draining: 1 run, ") })
}

func drained(m *machine) {
	m.until("it has stopped", func() bool { return m.property("marbles", "ActiveState") != "deactivating" })
	for name, want := range map[string]string{"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"} {
		if got := m.property("marbles", name); got != want {
			m.t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if r := m.ran("long"); r.Status != "complete" || r.Output != "begun\ndone\n" {
		m.t.Errorf("%+v", r)
	}
	m.sh("sed -i '/^drain: 60s/d' /etc/marbles/marbles.yaml")
	m.write("/etc/marbles/jobs/jobs.yaml", job("last", "echo last"))
	m.drop("")
	m.ran("last")
}

func tells(m *machine) {
	m.write("/etc/marbles/jobs/jobs.yaml", job("tell", "echo out; echo err >&2; exit 3"))
	m.drop("[Service]\nEnvironment=MARBLES_JOURNAL_OUTPUT=true\n")
	r := m.ran("tell")
	got := map[string]string{}
	for _, e := range m.journal("MARBLES_RUN=" + r.ID) {
		if s, ok := e["MARBLES_STREAM"].(string); ok {
			got[s] = fmt.Sprint(e["MESSAGE"], e["PRIORITY"], e["MARBLES_KEY"])
		} else if e["CODE_FILE"] == nil || e["CODE_LINE"] == nil || e["MARBLES_WORKSPACE"] == nil {
			m.t.Errorf("an entry that does not say where it is from: %v", e)
		}
	}
	if got["stdout"] != "out6tell" || got["stderr"] != "err5tell" {
		m.t.Errorf("of the output the journal has %v", got)
	}
	m.drop("")
}
