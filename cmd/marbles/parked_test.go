package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"marbles/state"
)

const gated = `
workflows:
  job:
    steps:
      - {name: first, run: echo x >> first}
      - {name: gate, approve: "Well?"}
      - {name: second, run: 'echo x >> second; echo done > "$MARBLES_RESULT_FILE"'}
`

// times is how often a step has run.
func (p *project) times(name string) int {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	return strings.Count(string(data), "x\n")
}

func (p *project) status(id string) state.Status {
	p.t.Helper()
	f, err := p.state().Run(id)
	if err != nil {
		p.t.Fatal(err)
	}
	return f.Run.Status
}

// park rolls the job, which parks, and returns its id.
func (p *project) park() string {
	p.t.Helper()
	_, stderr, code := p.run("roll", "job")
	runs := p.runs()
	if code != 0 || len(runs) == 0 || runs[0].Status != state.Suspended {
		p.t.Fatalf("roll exits with %d, %+v:\n%s", code, runs, stderr)
	}
	return runs[0].ID
}

// Of many that answer at once, one is heard, and the run goes on once.
func TestAnswersAtOnce(t *testing.T) {
	for _, served := range []bool{false, true} {
		name := "alone"
		if served {
			name = "with a service"
		}
		t.Run(name, func(t *testing.T) {
			p := newProject(t, gated)
			id := p.park()
			if served {
				p.start()
			}
			var mu sync.Mutex // guards taken
			taken := 0
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					_, stderr, code := p.run("answer", id, "approve")
					mu.Lock()
					defer mu.Unlock()
					switch {
					case code == 0:
						taken++
					case code != 1 || !strings.Contains(stderr, "marbles: This question is no longer waiting for an answer.\n"):
						t.Errorf("answer exits with %d: %s", code, stderr)
					}
				})
			}
			all.Wait()
			if taken != 1 {
				t.Errorf("%d answers were taken", taken)
			}
			eventually(t, "the run completes", func() bool { return p.status(id) == state.Complete })
			if first, second := p.times("first"), p.times("second"); first != 1 || second != 1 {
				t.Errorf("the steps ran %d and %d times", first, second)
			}
		})
	}
}

// A parked run outlives the service that parked it, however that ends, and the next one goes on with it.
func TestParkedRunOutlivesItsService(t *testing.T) {
	for name, end := range map[string]func(d *daemon){
		"killed":  func(d *daemon) { d.kill() },
		"stopped": func(d *daemon) { d.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, gated)
			d := p.start()
			id := strings.TrimSpace(p.must("roll", "--detach", "job"))
			eventually(t, "the run parks", func() bool { return p.status(id) == state.Suspended })
			end(d)
			if got := p.status(id); got != state.Suspended {
				t.Fatalf("the run is %s", got)
			}
			next := p.start()
			eventually(t, "the next one adopts it", func() bool { return strings.Contains(next.text(), "[run] job recovered "+id) })
			p.must("answer", id, "approve")
			eventually(t, "the run completes", func() bool { return p.status(id) == state.Complete })
			if first, second := p.times("first"), p.times("second"); first != 1 || second != 1 {
				t.Errorf("the steps ran %d and %d times", first, second)
			}
		})
	}
}

// The answer of one terminal is followed in another, over the death of the service between them.
func TestWatchOverOwners(t *testing.T) {
	p := newProject(t, gated)
	id := p.park()
	d := &daemon{t: t, cmd: p.command("watch", id), done: make(chan struct{})}
	d.cmd.Stderr = d
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() { d.cmd.Process.Kill(); <-d.done })
	eventually(t, "it says what the run waits for", func() bool {
		return strings.Contains(d.text(), "run "+id+` waits for an answer to "Well?"`)
	})
	s := p.start()
	s.kill()
	p.must("answer", id, "approve")
	if code := d.wait(); code != 0 {
		t.Errorf("watch exits with %d:\n%s", code, d.text())
	}
}

// What goes on in the background has a session of its own, so that a terminal that closes does not end it.
func TestDetachedRunOutlivesItsTerminal(t *testing.T) {
	p := newProject(t, "workflows: {job: {run: 'echo x >> begun; while ! test -e go; do sleep 0.02; done'}}\n")
	c := p.command("roll", "--detach", "job")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	if got := p.status(id); got != state.Running && got != state.Queued {
		t.Fatalf("the run is %s", got)
	}
	_ = syscall.Kill(-c.Process.Pid, syscall.SIGHUP) // nobody is left there, or it must not matter
	eventually(t, "its step began", func() bool { return p.times("begun") == 1 })
	p.write("go", "")
	eventually(t, "the run completes, and its process ends", func() bool {
		f, err := p.state().Run(id)
		return err == nil && f.Run.Status == state.Complete && !f.Owner().Alive()
	})
}

// A run that dies with its service is launched once more where its workflow wants that, and once only.
func TestRestartAfterAKill(t *testing.T) {
	p := newProject(t, "workflows: {job: {on_interrupt: restart, run: 'echo x >>begun; test -e go || sleep 60'}}\n")
	d := p.start("--grace", "1s")
	id := strings.TrimSpace(p.must("roll", "job", "--detach"))
	eventually(t, "its step began", func() bool { return p.times("begun") == 1 })
	d.kill()
	p.write("go", "")
	d = p.start("--grace", "1s")
	eventually(t, "another run stands for it", func() bool {
		f, err := p.state().Run(id)
		if err != nil || f.Run.Extensions.Restarted == "" {
			return false
		}
		again, err := p.state().Run(f.Run.Extensions.Restarted)
		return err == nil && again.Run.Status == state.Complete && again.Run.Extensions.RestartOf == id
	})
	d.kill()
	p.start("--grace", "1s").stop()
	if n := p.times("begun"); n != 2 {
		t.Errorf("the step began %d times, want 2", n)
	}
}
