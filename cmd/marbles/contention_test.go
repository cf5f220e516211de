package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"marbles/state"
)

// contended is a workflow that tells when it does not run alone.
const contended = `
workflows:
  job:
    run: |
      mkdir busy || { echo "$MARBLES_RUN_ID" >>overlaps; exit 9; }
      echo "$MARBLES_RUN_ID" >>began
      sleep 0.05
      rmdir busy
`

// heldLine is what a roll says where another process holds the key.
var heldLine = regexp.MustCompile(`^skipped: held by (?:pid (\d+)|a process that is taking it now; retry)\n$`)

// contest rolls a key with many processes at once and returns how many of them ran it. Every other one must have said who
// holds it; others are pids, besides the rolls', that may.
func contest(p *project, key string, others ...int) (ran int) {
	p.t.Helper()
	const n = 50
	type rolled struct {
		cmd    *exec.Cmd
		output bytes.Buffer
	}
	rolls := make([]rolled, n)
	for i := range rolls {
		r := &rolls[i]
		r.cmd = p.command("roll", key)
		r.cmd.Stderr = &r.output
	}
	for i := range rolls {
		if err := rolls[i].cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
		others = append(others, rolls[i].cmd.Process.Pid)
	}
	for i := range rolls {
		r := &rolls[i]
		if err := r.cmd.Wait(); err != nil {
			p.t.Errorf("a roll ends with %v:\n%s", err, &r.output)
		}
		said := heldLine.FindStringSubmatch(r.output.String())
		switch {
		case r.output.Len() == 0:
			ran++
		case said == nil:
			p.t.Errorf("a roll says %q", r.output.String())
		case said[1] != "":
			pid, err := strconv.Atoi(said[1])
			if err != nil || pid == r.cmd.Process.Pid || !slices.Contains(others, pid) {
				p.t.Errorf("pid %d says %q, which is none of the others", r.cmd.Process.Pid, said[0])
			}
		}
	}
	return ran
}

// alone checks that the runs of a key never overlapped, that each that began has settled as complete, and returns how many
// there were.
func alone(p *project) int {
	p.t.Helper()
	if text, err := os.ReadFile(filepath.Join(p.dir, "overlaps")); err == nil {
		p.t.Errorf("runs overlapped:\n%s", text)
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "began"))
	if err != nil {
		p.t.Fatal(err)
	}
	began := strings.Fields(string(text))
	slices.Sort(began)
	var complete []string
	for _, r := range p.runs() {
		if r.Status != state.Complete {
			p.t.Errorf("run %s is %s: %s", r.ID, r.Status, r.Error)
		}
		complete = append(complete, r.ID)
	}
	slices.Sort(complete)
	if !slices.Equal(began, complete) {
		p.t.Errorf("runs that began: %v\ncomplete: %v", began, complete)
	}
	return len(began)
}

func noLocks(p *project) {
	p.t.Helper()
	entries, err := os.ReadDir(filepath.Join(p.state().Dir(), "locks"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		p.t.Errorf("locks/%s is left behind", e.Name())
	}
}

// TestContention lets 50 processes roll one key at once. MARBLES_CONTENTION_ROUNDS is how often.
func TestContention(t *testing.T) {
	t.Parallel()
	p := newProject(t, contended+`
schedules:
  - {run: job, key: k, cron: "0 0 1 1 *"}
`)
	all := 0
	for n := range number(t, "MARBLES_CONTENTION_ROUNDS", 3) {
		ok := t.Run(fmt.Sprintf("round %d", n), func(t *testing.T) {
			p.t = t
			ran := contest(p, "k")
			if all += ran; ran == 0 || alone(p) != all {
				t.Errorf("%d rolls ran, %d in all, %d runs began", ran, all, alone(p))
			}
			noLocks(p)
		})
		if !ok {
			return
		}
	}
	t.Logf("%d runs", all)
}

// A service that ticks the key every second is one process among them.
func TestContentionWithService(t *testing.T) {
	t.Parallel()
	p := newProject(t, contended+`
schedules:
  - {run: job, key: k, every: 1s}
`)
	d := p.start()
	rolled := 0
	for range 2 {
		rolled += contest(p, "k", d.cmd.Process.Pid)
	}
	rec := func() *state.KeyRecord {
		rec, err := p.state().Key("k")
		if err != nil {
			t.Fatal(err)
		}
		return rec
	}
	last := rec().Run
	eventually(t, "the service ticks on after the contest", func() bool { return rec().Run != last })
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	all := alone(p)
	skipped := 0
	entries, err := p.state().Slots("k", 0)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, e := range entries {
		switch e.Outcome {
		case state.SlotRan:
			ran++
		case state.SlotSkipped:
			skipped++
			if !strings.HasPrefix(e.Holder, "pid ") && !strings.HasPrefix(e.Holder, "a process that is taking it now") {
				t.Errorf("a skipped slot names %q as its holder", e.Holder)
			}
		default:
			t.Errorf("a slot ended as %+v", e)
		}
	}
	if rolled == 0 || ran+rolled != all {
		t.Errorf("%d rolls and %d slots ran, %d runs began", rolled, ran, all)
	}
	noLocks(p)
	t.Logf("%d rolls and %d slots ran, %d slots were skipped", rolled, ran, skipped)
}

// A kill between two system calls of the lock protocol, as any program may keep it, leaves what the next taker must not
// remove. It says so, and goes on once that is out of the way.
func TestCrashInTheLockProtocol(t *testing.T) {
	t.Parallel()
	p := newProject(t, `
workflows: {job: {run: "true"}}
schedules:
  - {run: job, key: k, cron: "0 0 1 1 *"}
`)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	p.must("roll", "k")
	locks := filepath.Join(p.state().Dir(), "locks")
	put := func(name, text string, age time.Duration) {
		t.Helper()
		path := filepath.Join(locks, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	pid := strconv.Itoa(dead.Process.Pid)
	tests := []struct {
		name, pid string
		age       time.Duration
		turn      bool   // somebody died while it had the turn to break the lock
		want      string // what it says; "" where it takes the lock
	}{
		{name: "dead", pid: pid, age: time.Hour},
		{name: "dead while it was broken", pid: pid, turn: true, want: "pid " + pid + ", which has exited (if no process is taking the lock over, remove <lock>.break)"},
		{name: "dead before it wrote its pid", want: "a process that is taking it now; retry"},
		{name: "dead before it wrote its pid, long ago", age: time.Minute},
		{name: "dead once it was broken", turn: true, pid: "gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &project{t: t, dir: p.dir, home: p.home}
			for _, lock := range []string{"schedule:k", "service"} {
				if tt.pid != "gone" {
					put(lock, tt.pid, tt.age)
				}
				if tt.turn {
					put(lock+".break", "", 0)
				}
			}
			if tt.want != "" {
				held := func(lock string) string {
					return "held by " + strings.Replace(tt.want, "<lock>", filepath.Join(locks, lock), 1)
				}
				if _, stderr, code := p.run("roll", "k"); code != 0 || stderr != "skipped: "+held("schedule:k")+"\n" {
					t.Errorf("roll exits with %d and says %q, want %q", code, stderr, held("schedule:k"))
				}
				_, stderr, code := p.run("run")
				if want := strings.Replace(held("service"), "held", "served", 1); code != 1 || !strings.Contains(stderr, want) {
					t.Errorf("a service exits with %d and says %q, want %q", code, stderr, want)
				}
				for _, lock := range []string{"schedule:k", "service"} {
					if tt.turn {
						lock += ".break"
					}
					if err := os.Remove(filepath.Join(locks, lock)); err != nil {
						t.Error(err)
					}
				}
			}
			if _, stderr, code := p.run("roll", "k"); code != 0 || stderr != "" {
				t.Errorf("roll exits with %d and says %q", code, stderr)
			}
			if code := p.start().stop(); code != 0 {
				t.Errorf("the service exits with %d", code)
			}
			if tt.turn {
				for _, lock := range []string{"schedule:k", "service"} {
					os.Remove(filepath.Join(locks, lock+".break")) // where it stood alone it is in nobody's way
				}
			}
			noLocks(p)
		})
	}
}

// Another program leaves the key's lock empty, after a kill in the midst of a run: nobody can take the lock for a while,
// and yet the next service ends what the run has left.
func TestCrashEndsProcessesUnderALockThatCannotBeTaken(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("processes are listed on Linux only")
	}
	w := newCrashWorld(t, 1)
	w.t = t
	w.prepare(0)
	roll := w.command("roll", "every-family")
	if err := roll.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the step has left processes", func() bool { return len(w.processes()) > 3 })
	roll.Process.Kill()
	roll.Wait()
	if err := os.WriteFile(filepath.Join(w.state().Dir(), "locks", "schedule:every-family"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := w.processes()
	d := w.serve()
	after := w.processes()
	for id, name := range before {
		if after[id] != "" {
			t.Errorf("a process of a dead marbles runs on beside its successor: %s %s", id, name)
		}
	}
	w.kill(d)
}
