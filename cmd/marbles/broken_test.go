package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

// pipe is a pipe whose ends are closed with the test.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// lineWith reads lines until one holds a text.
func lineWith(t *testing.T, r io.Reader, text string) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("nothing with %q is written before the end", text)
}

// Whoever reads what a roll prints may go away, as `head` does: the roll goes on, and so does what it runs.
func TestRollOutlivesItsReader(t *testing.T) {
	p := newProject(t, `
workflows:
  talk:
    run: |
      echo one
      while ! test -e go; do sleep 0.01; done
      echo two; echo two >&2
      (yes; echo $? >code) | head -n 1
      echo over >over
`)
	r, w := pipe(t)
	roll := p.command("roll", "talk")
	roll.Stdout, roll.Stderr = w, w
	if err := roll.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lineWith(t, r, "one")
	r.Close()
	p.write("go", "")
	if err := roll.Wait(); roll.ProcessState.ExitCode() != 1 {
		t.Errorf("a roll that could not print its result ends with %v, want exit code 1", err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "over")); err != nil {
		t.Errorf("the step did not come to its end: %v", err)
	}
	if runs := p.runs(); len(runs) != 1 || runs[0].Status != state.Complete {
		t.Errorf("runs are %v, want one that is complete", runs)
	}
	// A child must not inherit that a closed pipe is ignored: 141 is the shell's word for SIGPIPE.
	if code, err := os.ReadFile(filepath.Join(p.dir, "code")); err != nil || string(code) != "141\n" {
		t.Errorf("a step's writer to a closed pipe ends with %q, %v; want 141", code, err)
	}
}

const ticking = `
workflows: {tick: {run: "true"}}
schedules: [{run: tick, key: tick, every: 1s}]
`

func (p *project) count(key string) (n int) {
	for _, r := range p.runs() {
		if r.Key == key && r.Status == state.Complete {
			n++
		}
	}
	return n
}

func TestServiceOutlivesItsReader(t *testing.T) {
	p := newProject(t, ticking)
	r, w := pipe(t)
	d := p.spawnTo(w)
	w.Close()
	lineWith(t, r, "service is ready")
	r.Close()
	eventually(t, "ticks run although nobody reads the log", func() bool { return p.count("tick") >= 2 })
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
}

// spawnTo starts a service that logs into a file.
func (p *project) spawnTo(w *os.File, args ...string) *daemon {
	p.t.Helper()
	d := &daemon{t: p.t, cmd: p.command(append([]string{"run", "--log-format", "json"}, args...)...), done: make(chan struct{})}
	d.cmd.Stderr = w
	if err := d.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { // ends with the process, which the cleanup kills
		d.cmd.Wait()
		close(d.done)
	}()
	p.t.Cleanup(func() { d.cmd.Process.Kill(); <-d.done })
	return d
}

// Whoever reads the log may stall: the service runs and stops all the same.
func TestServiceWithAStuckLog(t *testing.T) {
	p := newProject(t, ticking)
	_, w := pipe(t)
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for n := 1 << 16; n > 0; {
		if _, err := syscall.Write(fd, make([]byte, n)); err == syscall.EAGAIN {
			n /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	d := p.spawnTo(w)
	eventually(t, "ticks run although the log is stuck", func() bool { return p.count("tick") >= 2 })
	began := time.Now()
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s", took)
	}
}

// What is damaged costs only itself: the service starts, and other keys run.
func TestServiceBesideDamage(t *testing.T) {
	p := newProject(t, `
workflows: {long: {run: "while test -e .foundry; do sleep 0.1; done"}}
schedules:
  - {run: long, key: lock, every: 1s}
  - {run: long, key: version, every: 1s}
  - {run: long, key: junk, every: 1s}
  - {run: long, key: slots, every: 1s}
`)
	d := p.start()
	keys := []string{"lock", "version", "junk", "slots"}
	eventually(t, "all run", func() bool {
		n := 0
		for _, r := range p.runs() {
			if r.Status == state.Running {
				n++
			}
		}
		return n == len(keys)
	})
	d.kill()
	dir := p.state().Dir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"locks/schedule:lock", "slots/slots.jsonl", "heartbeat.json", "since.json"} {
		if err := os.RemoveAll(in(name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(in(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"schedules/version.json": `{"version":99}`, "schedules/junk.json": "junk"} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	definitions := "workflows: {tick: {run: \"true\"}}\nschedules:\n"
	for _, key := range append(keys, "innocent") {
		definitions += fmt.Sprintf("  - {run: tick, key: %s, every: 1s}\n", key)
	}
	p.define(definitions)
	d = p.start()
	eventually(t, "the innocent key runs", func() bool { return p.count("innocent") >= 2 })
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	if data, err := os.ReadFile(in("schedules/version.json")); err != nil || string(data) != `{"version":99}` {
		t.Errorf("the history of a later version is now %q, %v", data, err)
	}
}

// A state root that goes away under the service is set up again, or given up to whoever has it by then.
func TestServiceWithoutItsState(t *testing.T) {
	type world struct {
		*project
		root string
	}
	lose := map[string]func(w world) error{
		"removed": func(w world) (err error) {
			for range 100 { // what runs may write into it meanwhile
				if err = os.RemoveAll(w.root); err == nil {
					break
				}
			}
			return err
		},
		"moved": func(w world) error { return os.Rename(w.root, w.root+".old") },
	}
	for name, f := range lose {
		t.Run(name, func(t *testing.T) {
			w := world{project: newProject(t, ticking)}
			w.root = filepath.Join(w.home, ".foundry", "marbles")
			d := w.start()
			eventually(t, "it runs", func() bool { return w.count("tick") >= 1 })
			if err := f(w); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the state is set up again", func() bool {
				hb, _ := w.state().Heartbeat()
				since, _ := w.state().Since()
				rec, _ := w.state().Record()
				return hb != nil && hb.PID == d.cmd.Process.Pid && len(since) == 1 && rec != nil && w.count("tick") >= 1
			})
			if _, stderr, code := w.run("run"); code != 1 || !strings.Contains(stderr, "is served by pid ") {
				t.Errorf("a second service exits with %d and says %q, want 1 and the pid of the first", code, stderr)
			}
			if code := d.stop(); code != 0 {
				t.Errorf("the service exits with %d", code)
			}
			if locks, err := w.state().Locks(); err != nil || len(locks) > 0 {
				t.Errorf("locks are left behind: %v, %v", locks, err)
			}
		})
	}
	t.Run("moved away and back", func(t *testing.T) {
		w := world{project: newProject(t, ticking)}
		w.root = filepath.Join(w.home, ".foundry", "marbles")
		d := w.start()
		if err := os.Rename(w.root, w.root+".old"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the state is set up again", func() bool { hb, _ := w.state().Heartbeat(); return hb != nil })
		if err := os.Rename(w.root, w.root+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.root+".old", w.root); err != nil {
			// What runs may have set it up again already.
			if err := os.RemoveAll(w.root); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(w.root+".old", w.root); err != nil {
				t.Skip(err)
			}
		}
		time.Sleep(3 * time.Second) // longer than the service takes to look
		if _, stderr, code := w.run("run"); code != 1 || !strings.Contains(stderr, "is served by pid ") {
			t.Errorf("a second service exits with %d and says %q, want 1 and the pid of the first", code, stderr)
		}
		if code := d.stop(); code != 0 {
			t.Errorf("the service exits with %d", code)
		}
	})
	t.Run("taken by another", func(t *testing.T) {
		w := world{project: newProject(t, ticking)}
		w.root = filepath.Join(w.home, ".foundry", "marbles")
		d := w.start()
		// A root that another service serves already is moved into the place: the first could be faster than a start.
		other := newProject(t, ticking)
		other.dir, other.home = w.dir, t.TempDir()
		second := other.start()
		if err := os.Rename(w.root, w.root+".old"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the other's root has its place", func() bool {
			if os.Rename(filepath.Join(other.home, ".foundry", "marbles"), w.root) == nil {
				return true
			}
			os.RemoveAll(w.root)
			return false
		})
		if code := d.wait(); code != 1 {
			t.Errorf("the first service exits with %d, want 1", code)
		}
		if !strings.Contains(d.text(), fmt.Sprintf("is served by pid %d", second.cmd.Process.Pid)) {
			t.Errorf("the first service does not say who serves it now:\n%s", d.text())
		}
	})
}

// A stop while the service still starts is a stop: nothing fires, and nothing is waited for.
func TestServiceStopsDuringItsStart(t *testing.T) {
	p := newProject(t, `
workflows: {stubborn: {run: "(trap '' TERM; sleep 600) & wait"}}
schedules: [{run: stubborn, key: k, every: 1s}]
`)
	d := p.start()
	eventually(t, "it runs", func() bool { runs := p.runs(); return len(runs) == 1 && runs[0].Status == state.Running })
	time.Sleep(200 * time.Millisecond) // for the trap
	d.kill()
	d = p.spawn("--grace", "20s")
	eventually(t, "the next service recovers", func() bool {
		hb, _ := p.state().Heartbeat()
		return hb != nil && hb.PID == d.cmd.Process.Pid
	})
	time.Sleep(300 * time.Millisecond)
	began := time.Now()
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s, want no wait for the processes of the dead service", took)
	}
	if strings.Contains(d.text(), "service is ready") {
		t.Error("the service became ready after it was told to stop")
	}
	if runs := p.runs(); len(runs) != 1 {
		t.Errorf("%d runs, want none after the stop", len(runs))
	}
	p.define("workflows: {}")
	p.start("--grace", "1s").stop() // ends what is left
}

func TestReloadToNothingWarns(t *testing.T) {
	p := newProject(t, ticking)
	d := p.start()
	p.define("workflows: {tick: {run: \"true\"}}\nschedules: [{run: tick, key: tick, every: 1s, enabled: false}]")
	d.signal(syscall.SIGHUP)
	eventually(t, "the service says that nothing will run", func() bool { return strings.Contains(d.text(), "nothing will run") })
	d.stop()
}

func TestJSONOfNamesThatAreNotUTF8(t *testing.T) {
	p := newProject(t, "{}")
	p.dir = filepath.Join(p.dir, "caf\xe9")
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		t.Skipf("this file system has no such names: %v", err)
	}
	p.define(ticking)
	p.must("roll", "tick")
	id := ""
	for _, args := range [][]string{{"list"}, {"check"}, {"status"}, {"runs", "--all"}, {"show", "tick"}, {"next", "tick"}} {
		out := p.must(append(args, "--json")...)
		if _, rest, ok := strings.Cut(out, `"id": "rn-`); ok {
			id, _, _ = strings.Cut(rest, `"`)
		}
	}
	p.must("show", id, "--json")
	p.must("watch", id, "--json")
}

// Text from elsewhere must not command a terminal.
func TestErrorsHoldNoControlCharacters(t *testing.T) {
	p := newProject(t, "workflows: {bad: {run: exit 3, \"\\e]0;x\\a\": 1}}")
	if err := os.Rename(filepath.Join(p.dir, ".foundry/marbles/jobs.yaml"), filepath.Join(p.dir, ".foundry/marbles/\x1b[31m.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check"},
		{"list"},
		{"list", "--source", "/no/\x1b[31m\rthere"},
		{"--\x1b[31m"},
		{"\x1b[31m"},
		{"show", "\x1b[31m"},
		{"next", "--cron", "\x1b[31m"},
		{"next", "--at", "\x1b[31m"},
		{"list", "--config", "/no/\x1b[31m"},
		{"status", "--state", "/dev/null/\x1b[31m"},
	} {
		stdout, stderr, code := p.run(args...)
		if code == 0 || stderr == "" {
			t.Errorf("%q exits with %d and says %q, want an error", args, code, stderr)
		}
		if strings.ContainsAny(stdout+stderr, "\x1b\a\r") {
			t.Errorf("%q prints control characters: %q", args, stdout+stderr)
		}
	}
}

// Output that cannot be written is an error, whatever the command.
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no device that is always full")
	}
	defer full.Close()
	p := newProject(t, ticking)
	p.must("roll", "tick")
	id := p.runs()[0].ID
	for _, args := range [][]string{
		{"next", "--cron", "* * * * *"}, {"next", "tick", "--json"}, {"check"}, {"list"}, {"version"}, {"--version"}, {"--help"}, {"roll", "--help"},
		{"status"}, {"runs"}, {"runs", "--json"}, {"show", id}, {"show", "tick"}, {"watch", id, "--json"}, {"roll", "tick"},
		{"completion", "bash"}, {"completion", "zsh"}, {"service", "print", "system"}, {"init", "--dry-run"},
	} {
		c := p.command(args...)
		var stderr strings.Builder
		c.Stdout, c.Stderr = full, &stderr
		c.Run()
		if code := c.ProcessState.ExitCode(); code != 1 || strings.Count(stderr.String(), "cannot write the output: ") != 1 {
			t.Errorf("%q exits with %d and says %q, want 1 and that the output cannot be written", args, code, &stderr)
		}
	}
}

func TestShowOfALongName(t *testing.T) {
	p := newProject(t, ticking)
	p.must("roll", "tick")
	for _, n := range []int{249, 250, 251, 255, 256, 5000} {
		for _, command := range []string{"show", "watch"} {
			_, stderr, code := p.run(command, strings.Repeat("k", n))
			if code != 2 || !strings.Contains(stderr, "no run ") {
				t.Errorf("%s of %d characters exits with %d and says %.100q, want 2 and that there is no such run", command, n, code, stderr)
			}
		}
	}
}

// The run's record says how it ended; a journal that does not is named.
func TestWatchOfADamagedJournal(t *testing.T) {
	tests := []struct {
		name     string
		workflow string
		damage   func(path string) error
		code     int
	}{
		{"cut short", "good", func(path string) error { return os.Truncate(path, 150) }, 0},
		{"empty", "good", func(path string) error { return os.Truncate(path, 0) }, 0},
		{"garbage", "bad", func(path string) error { return os.WriteFile(path, []byte("\x00\xff\njunk"), 0o600) }, 1},
		{"deleted", "bad", os.Remove, 1},
		{"whole", "good", func(string) error { return nil }, 0},
	}
	p := newProject(t, `
workflows:
  good: {run: echo out}
  bad: {run: echo out; exit 3}
`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p.run("roll", tt.workflow)
			id := p.runs()[0].ID
			if err := tt.damage(filepath.Join(p.state().Dir(), "output", id+".jsonl")); err != nil {
				t.Fatal(err)
			}
			_, stderr, code := p.run("watch", id)
			if said := strings.Contains(stderr, "incomplete"); code != tt.code || said != (tt.name != "whole") {
				t.Errorf("watch exits with %d and says %q", code, stderr)
			}
		})
	}
}

func TestWatchOfAJournalThatGoesAway(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"deleted":   os.Remove,
		"cut short": func(path string) error { return os.Truncate(path, 10) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, `workflows: {long: {run: echo one; sleep 600}}`)
			roll := p.command("roll", "long")
			if err := roll.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				roll.Process.Signal(syscall.SIGTERM)
				roll.Wait()
			}()
			eventually(t, "the run is there", func() bool { return len(p.runs()) == 1 })
			id := p.runs()[0].ID
			watch := p.command("watch", id)
			var stderr strings.Builder
			watch.Stderr = &stderr
			out, err := watch.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := watch.Start(); err != nil {
				t.Fatal(err)
			}
			lineWith(t, out, "one")
			if err := damage(filepath.Join(p.state().Dir(), "output", id+".jsonl")); err != nil {
				t.Fatal(err)
			}
			watch.Wait()
			if code := watch.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "was "+name) {
				t.Errorf("watch exits with %d and says %q, want 1 and that the journal was %s", code, &stderr, name)
			}
		})
	}
}

// What needs no state root needs no home.
func TestNoHome(t *testing.T) {
	p := newProject(t, ticking)
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"list"}, 0}, {[]string{"check"}, 0}, {[]string{"next", "--every", "1h"}, 0}, {[]string{"version"}, 0},
		{[]string{"status"}, 2}, {[]string{"roll", "tick"}, 2}, {[]string{"run"}, 2},
	} {
		c := p.command(tt.args...)
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		out, _ := c.CombinedOutput()
		if code := c.ProcessState.ExitCode(); code != tt.code || code == 2 && !strings.Contains(string(out), "no home directory") {
			t.Errorf("%q without a home exits with %d and says %q, want %d", tt.args, code, out, tt.code)
		}
	}
}

// A source that cannot be used is a mistake in the command, not a failed run.
func TestSourcesThatCannotBeUsed(t *testing.T) {
	p := newProject(t, ticking)
	for _, source := range []string{"/no/such/folder", "/dev/null", "/dev/null/below"} {
		for _, args := range [][]string{{"list"}, {"check"}, {"roll", "tick"}, {"run"}} {
			_, stderr, code := p.run(append(args, "--source", source)...)
			if code != 2 || !strings.Contains(stderr, "marbles: cannot ") {
				t.Errorf("%q with source %s exits with %d and says %q, want 2", args, source, code, stderr)
			}
		}
	}
}
