package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

// project is a folder with definitions, and a home and state root of its own.
type project struct {
	t    *testing.T
	dir  string
	home string
	env  []string // besides what command sets
}

func newProject(t *testing.T, definitions string) *project {
	t.Helper()
	p := &project{t: t, dir: t.TempDir(), home: t.TempDir()}
	p.define(definitions)
	return p
}

func (p *project) define(definitions string) {
	p.t.Helper()
	p.write(".foundry/marbles/jobs.yaml", definitions)
}

func (p *project) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// command is the real program on this project.
func (p *project) command(args ...string) *exec.Cmd {
	c := exec.Command("marbles", args...)
	c.Dir = p.dir
	c.Env = []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "TZ=UTC", "GORACE=atexit_sleep_ms=0"}
	c.Env = append(c.Env, p.env...)
	return c
}

// run runs it to its end.
func (p *project) run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	var out, errs bytes.Buffer
	c := p.command(args...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		p.t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// must runs it and wants exit code 0.
func (p *project) must(args ...string) string {
	p.t.Helper()
	stdout, stderr, code := p.run(args...)
	if code != 0 {
		p.t.Fatalf("marbles %s exits with %d:\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// state is the project's workspace on disk, for looking at it as the program does.
func (p *project) state() *state.Workspace {
	p.t.Helper()
	root, err := state.OpenReader(filepath.Join(p.home, ".foundry", "marbles"))
	if err != nil {
		p.t.Fatal(err)
	}
	ws, err := root.Workspace(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	return ws
}

func (p *project) runs() []state.RunSummary {
	p.t.Helper()
	list, err := p.state().Runs(state.RunQuery{})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, err := range list.Damaged {
		p.t.Errorf("damaged: %v", err)
	}
	return list.Runs
}

// daemon is a running service.
type daemon struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

func (d *daemon) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.Write(b)
}

func (d *daemon) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// start starts a service and waits until it is ready. It is killed with the test.
func (p *project) start(args ...string) *daemon {
	p.t.Helper()
	d := p.spawn(args...)
	eventually(p.t, "the service is ready", func() bool {
		select {
		case <-d.done:
			p.t.Fatalf("the service ended:\n%s", d.text())
		default:
		}
		return strings.Contains(d.text(), "service is ready")
	})
	return d
}

func (p *project) spawn(args ...string) *daemon {
	p.t.Helper()
	d := &daemon{t: p.t, cmd: p.command(append([]string{"run", "--log-format", "json"}, args...)...), done: make(chan struct{})}
	d.cmd.Stderr = d
	if err := d.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { // ends with the process, which the cleanup kills
		d.cmd.Wait()
		close(d.done)
	}()
	p.t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-d.done
		if p.t.Failed() {
			p.t.Logf("the service's log:\n%s", d.text())
		}
	})
	return d
}

func (d *daemon) signal(s syscall.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// stop sends SIGTERM and returns the exit code.
func (d *daemon) stop() int {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	return d.wait()
}

// kill is kill -9.
func (d *daemon) kill() {
	d.t.Helper()
	d.signal(syscall.SIGKILL)
	d.wait()
}

func (d *daemon) wait() int {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(60 * time.Second):
		d.t.Fatalf("the service does not end:\n%s", d.text())
	}
	return d.cmd.ProcessState.ExitCode()
}

// eventually waits for something that real processes bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still not so after 30 s: %s", what)
}
