package booted

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// machine is a booted system, until the test ends.
type machine struct {
	t   *testing.T
	pid string // of its PID 1
}

// need skips where a booted system cannot be had; an automated build must have it (CI=true).
func need(t *testing.T, suite string) {
	t.Helper()
	if os.Getenv("MARBLES_BOOTED") == "off" {
		t.Skip("MARBLES_BOOTED=off")
	}
	why := "not root"
	if os.Geteuid() == 0 {
		out, err := exec.Command("./machine.sh", "root", suite).CombinedOutput()
		if err == nil {
			return
		}
		why = cmp.Or(strings.TrimSpace(string(out)), err.Error())
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no system can be booted, and CI=true: %s", why)
	}
	t.Skipf("no system can be booted: %s", why)
}

func boot(t *testing.T, suite string) *machine {
	t.Helper()
	cmd := exec.Command("./machine.sh", "boot", suite)
	cmd.Stderr = os.Stderr
	hold, err := cmd.StdinPipe() // its end powers the machine off, also where this process is killed
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t}
	t.Cleanup(func() {
		if t.Failed() && m.pid != "" {
			out, _ := m.try("systemctl status --no-pager -l marbles; journalctl --sync; journalctl --no-pager -o short-monotonic -u marbles -u init.scope | tail -n 150")
			t.Logf("what the machine says:\n%s", out)
		}
		hold.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the machine was not shut down cleanly: %v", err)
		}
	})
	pid, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if m.pid = strings.TrimSpace(string(pid)); m.pid == "" {
		t.Fatal("the machine does not boot")
	}
	m.until("it has booted", func() bool {
		out, _ := m.try("systemctl is-system-running")
		return out == "running\n" || out == "degraded\n"
	})
	if failed := m.sh("systemctl --failed --plain --no-legend"); failed != "" {
		t.Errorf("units have failed:\n%s", failed)
	}
	return m
}

// in is the machine as a subtest sees it.
func (m *machine) in(t *testing.T) *machine { return &machine{t: t, pid: m.pid} }

// commandTime bounds one command in the machine, in seconds.
const commandTime = "60"

// try runs a script in the machine, by its own shell, and returns what it prints and its exit status.
func (m *machine) try(script string) (out string, code int) {
	m.t.Helper()
	// --no-fork and a shell outside of the PID namespace as the parent: nsenter itself would stop for good with its child.
	cmd := exec.Command("nsenter", "--target", m.pid, "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--no-fork", "--",
		"/usr/bin/env", "-i", "HOME=/root", "USER=root", "LANG=C.UTF-8", "SYSTEMD_PAGER=cat", "SYSTEMD_COLORS=0", "DEBIAN_FRONTEND=noninteractive",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"/bin/sh", "-c", `"$@"; exit $?`, "sh", "timeout", "-k", "5", commandTime, "/bin/sh", "-c", script)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return both.String(), cmd.ProcessState.ExitCode()
}

// sh runs a script that must succeed.
func (m *machine) sh(script string) string {
	m.t.Helper()
	out, code := m.try(script)
	if code != 0 {
		m.t.Fatalf("%s\nexits with %d:\n%s", script, code, out)
	}
	return out
}

// path is where a file of the machine is seen from here.
func (m *machine) path(name string) string { return filepath.Join("/proc", m.pid, "root", name) }

func (m *machine) write(name, text string) { m.put(name, []byte(text), 0o644) }

func (m *machine) put(name string, data []byte, mode os.FileMode) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), data, mode); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Chmod(m.path(name), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) copy(from, name string, mode os.FileMode) {
	m.t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		m.t.Fatal(err)
	}
	m.put(name, data, mode)
}

// patience is how long something may take that should come to pass.
const patience = 45 * time.Second

func (m *machine) until(what string, is func() bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("it does not come to pass that %s", what)
		}
	}
}

// property is a property of a unit, as systemctl shows it.
func (m *machine) property(unit, name string) string {
	m.t.Helper()
	return strings.TrimSpace(m.sh("systemctl show --value -p " + name + " " + unit))
}

func (m *machine) status() string { m.t.Helper(); return m.property("marbles", "StatusText") }

// number is a property that is one.
func (m *machine) number(name string) int {
	m.t.Helper()
	n, err := strconv.Atoi(m.property("marbles", name))
	if err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
	return n
}

// run is one of the runs that `marbles runs --json` lists.
type run struct {
	ID, Workflow, Key, Status, Error string
	Output                           string `json:"-"`
}

// runs are the runs of a workflow, newest first.
func (m *machine) runs(workflow string) []run {
	m.t.Helper()
	out := m.sh("marbles runs --json --workflow " + workflow)
	var list struct{ Runs []run }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	return list.Runs
}

// ran waits for a run of a workflow that has ended, and returns the latest with its output.
func (m *machine) ran(workflow string) run {
	m.t.Helper()
	var r run
	m.until("a run of "+workflow+" has ended", func() bool {
		runs := m.runs(workflow)
		i := slices.IndexFunc(runs, func(r run) bool { return r.Status != "running" && r.Status != "queued" })
		if i >= 0 {
			r = runs[i]
		}
		return i >= 0
	})
	r.Output = m.output(r.ID)
	return r
}

// output is what the steps of a run have printed.
func (m *machine) output(id string) string {
	m.t.Helper()
	out := m.sh("cat /var/lib/marbles/*/output/" + id + ".jsonl")
	var text strings.Builder
	for line := range strings.Lines(out) {
		var rec struct{ Kind, Stream, Text string }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		if rec.Kind == "text" && rec.Stream != "step" {
			text.WriteString(rec.Text)
		}
	}
	return text.String()
}

// define puts definitions into force.
func (m *machine) define(definitions string) {
	m.t.Helper()
	m.write("/etc/marbles/jobs/jobs.yaml", definitions)
	m.sh("systemctl reload marbles")
}

// drop writes the only drop-in of the service, "" for none, and starts it anew.
func (m *machine) drop(text string) {
	m.t.Helper()
	if text == "" {
		m.sh("rm -rf /etc/systemd/system/marbles.service.d")
	} else {
		m.write("/etc/systemd/system/marbles.service.d/test.conf", text)
	}
	m.sh("systemctl daemon-reload; systemctl restart marbles")
}

// journal are the entries that match, as the fields of each.
func (m *machine) journal(match string) []map[string]any {
	m.t.Helper()
	var entries []map[string]any
	for line := range strings.Lines(m.sh("journalctl --sync; journalctl --no-pager -o json " + match)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			m.t.Fatalf("%v: %s", err, line)
		}
		entries = append(entries, e)
	}
	return entries
}

// job is a workflow of one command, started a second after it is first seen, and again a second after each end.
func job(name, command string) string {
	return fmt.Sprintf("workflows: {%s: {run: %q}}\nschedules: [{run: %s, every: 1s}]\n", name, command, name)
}
