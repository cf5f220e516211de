package main

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

func TestServiceRunsWhatIsDue(t *testing.T) {
	p := newProject(t, `
workflows:
  tick: {run: echo tick}
schedules:
  - {run: tick, key: tick, every: 1s}
monitors:
  - {watch: "*.txt", key: notes, every: 1s, do: 'cat "$MARBLES_CHANGE_FILE"'}
`)
	p.write("a.txt", "one")
	d := p.start()
	eventually(t, "two ticks and the monitor's handler ran", func() bool {
		n := map[string]int{}
		for _, r := range p.runs() {
			if r.Status == state.Complete {
				n[r.Key]++
			}
		}
		return n["tick"] >= 2 && n["notes"] == 1
	})
	status := p.must("status")
	for _, want := range []string{"service: pid", "tick   schedule  complete", "notes  monitor   complete"} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	if _, stderr, code := p.run("run"); code != 1 || !strings.Contains(stderr, "is served by pid ") {
		t.Errorf("a second service exits with %d and says %q, want 1 and the pid of the first", code, stderr)
	}
	if code := d.stop(); code != 0 {
		t.Errorf("after SIGTERM the service exits with %d", code)
	}
	if hb, err := p.state().Heartbeat(); err != nil || hb != nil {
		t.Errorf("a heartbeat is left behind: %v, %v", hb, err)
	}
	if locks, err := p.state().Locks(); err != nil || len(locks) > 0 {
		t.Errorf("locks are left behind: %v, %v", locks, err)
	}
}

// What a long run must not do: hold up another key, a reload, or a stop beyond the drain time.
func TestServiceKeysAreIndependent(t *testing.T) {
	p := newProject(t, `
workflows:
  long: {run: sleep 600}
  quick: {run: "true"}
schedules:
  - {run: long, key: long, every: 1s}
  - {run: quick, key: quick, every: 1s}
`)
	d := p.start("--drain", "1s", "--grace", "1s")
	eventually(t, "quick ran twice beside long", func() bool {
		long, quick := 0, 0
		for _, r := range p.runs() {
			if r.Key == "long" && r.Status == state.Running {
				long++
			}
			if r.Key == "quick" && r.Status == state.Complete {
				quick++
			}
		}
		return long == 1 && quick >= 2
	})
	p.define(`
workflows:
  long: {run: sleep 600}
  other: {run: "true"}
schedules:
  - {run: long, key: long, every: 1s}
  - {run: other, key: other, every: 1s}
`)
	d.signal(syscall.SIGHUP)
	eventually(t, "the new key runs while the old run goes on", func() bool {
		other, long := false, false
		for _, r := range p.runs() {
			other = other || r.Key == "other"
			long = long || r.Key == "long" && r.Status == state.Running
		}
		return other && long
	})
	p.define("workflows: {long: {rum: sleep 600}}")
	d.signal(syscall.SIGHUP)
	eventually(t, "the bad definitions are refused", func() bool { return strings.Contains(d.text(), "reload failed") })
	if err := os.RemoveAll(filepath.Join(p.dir, ".foundry")); err != nil {
		t.Fatal(err)
	}
	before := len(p.runs())
	d.signal(syscall.SIGHUP)
	eventually(t, "the old definitions stay in force", func() bool { return len(p.runs()) > before+2 })
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	for _, r := range p.runs() {
		if r.Key == "long" && r.Status != state.Cancelled {
			t.Errorf("long is %s after the drain, want cancelled", r.Status)
		}
	}
}

// notifySocket listens as a service manager does and collects what it is told.
func notifySocket(t *testing.T) (path string, lines func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1000)
	go func() { // ends when the socket is closed
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			got <- string(buf[:n])
		}
	}()
	t.Cleanup(func() { conn.Close() })
	var all strings.Builder
	return path, func() string {
		for {
			select {
			case s := <-got:
				all.WriteString(s + "\n")
			default:
				return all.String()
			}
		}
	}
}

func TestServiceSpeaksTheSystemdProtocol(t *testing.T) {
	p := newProject(t, `
workflows: {env: {run: 'env > env.txt'}}
schedules:
  - {run: env, key: env, every: 1s}
  - {run: env, key: yearly, cron: "0 0 1 1 *"}
`)
	path, lines := notifySocket(t)
	d := &daemon{t: t, cmd: p.command("run", "--log-format", "json"), done: make(chan struct{})}
	d.cmd.Env = append(d.cmd.Env, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=300000", "LISTEN_FDS=0", "SECRET=x")
	d.cmd.Stderr = d
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() { d.cmd.Process.Kill(); <-d.done })
	eventually(t, "ready, a status line and the watchdog", func() bool {
		s := lines()
		return strings.Contains(s, "READY=1") && strings.Contains(s, "STATUS=2 triggers") &&
			strings.Contains(s, "next ") && strings.Count(s, "WATCHDOG=1") > 2
	})
	d.signal(syscall.SIGHUP)
	eventually(t, "reloading, then ready again", func() bool {
		_, after, ok := strings.Cut(lines(), "RELOADING=1\nMONOTONIC_USEC=")
		return ok && strings.Contains(after, "READY=1")
	})
	eventually(t, "a step ran", func() bool { _, err := os.Stat(filepath.Join(p.dir, "env.txt")); return err == nil })
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	if s := lines(); !strings.Contains(s, "STOPPING=1") || !strings.Contains(s, "EXTEND_TIMEOUT_USEC=") {
		t.Errorf("the manager was not told of the stop:\n%s", s)
	}
	env, err := os.ReadFile(filepath.Join(p.dir, "env.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", "SECRET"} {
		if strings.Contains(string(env), name+"=") {
			t.Errorf("%s leaks into a step", name)
		}
	}
}

// A watcher sees output within 100 ms and ends with the run.
func TestWatchFollowsLive(t *testing.T) {
	p := newProject(t, `workflows: {talk: {run: 'echo one; read -r x < go; echo two; exit 3'}}`)
	if err := syscall.Mkfifo(filepath.Join(p.dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	roll := p.command("roll", "talk")
	if err := roll.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the run is there", func() bool { return len(p.runs()) == 1 })
	watch := p.command("watch", p.runs()[0].ID)
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "one" {
		t.Fatalf("watch begins with %q, want one", lines.Text())
	}
	gate, err := os.OpenFile(filepath.Join(p.dir, "go"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	wrote := time.Now()
	gate.WriteString("x\n")
	gate.Close()
	if !lines.Scan() || lines.Text() != "two" {
		t.Fatalf("watch goes on with %q, want two", lines.Text())
	}
	t.Logf("seen after %s", time.Since(wrote))
	watch.Wait()
	if code := watch.ProcessState.ExitCode(); code != 1 {
		t.Errorf("watch of a failed run exits with %d, want 1", code)
	}
	roll.Wait()
}

func TestWatchReportsAnInterruption(t *testing.T) {
	p := newProject(t, `workflows: {long: {run: echo begun; sleep 600}}`)
	roll := p.command("roll", "long")
	if err := roll.Start(); err != nil {
		t.Fatal(err)
	}
	var id string
	eventually(t, "the run printed", func() bool {
		for _, r := range p.runs() {
			id = r.ID
		}
		found := false
		if id != "" {
			p.state().ReadJournal(id, func(e state.Entry) error { found = found || string(e.Text) == "begun\n"; return nil })
		}
		return found
	})
	roll.Process.Kill()
	roll.Wait()
	stdout, stderr, code := p.run("watch", id)
	if code != 1 || stdout != "begun\n" || !strings.Contains(stderr, "interrupted") {
		t.Errorf("watch exits with %d and prints %q, %q; want 1, its output and that it was interrupted", code, stdout, stderr)
	}
	if status := p.must("status"); !strings.Contains(status, "orphaned (pid gone)") {
		t.Errorf("status does not call the run orphaned:\n%s", status)
	}
	d := p.start()
	eventually(t, "the next service settles it", func() bool { return p.runs()[0].Status == state.Failed })
	d.stop()
}
