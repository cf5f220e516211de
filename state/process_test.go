package state

import (
	"math"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSelf(t *testing.T) {
	p := Self()
	if p.PID != os.Getpid() {
		t.Errorf("pid: got %d, want %d", p.PID, os.Getpid())
	}
	if p.BootID == "" || p.StartTicks == 0 {
		t.Errorf("got %+v, want boot id and start ticks", p)
	}
	if again, ok := Identify(p.PID); !ok || again != p {
		t.Errorf("Identify: got %+v, %v; want %+v", again, ok, p)
	}
}

func TestProcessAlive(t *testing.T) {
	me := Self()
	dead := deadPID(t)
	tests := []struct {
		name string
		p    Process
		want bool
	}{
		{"this process", me, true},
		{"only a pid", Process{PID: me.PID}, true},
		{"no start", Process{PID: me.PID, BootID: me.BootID}, true},
		{"no boot id", Process{PID: me.PID, StartTicks: me.StartTicks}, true},
		{"another start", Process{PID: me.PID, BootID: me.BootID, StartTicks: me.StartTicks + 1}, false},
		{"another boot", Process{PID: me.PID, BootID: "0", StartTicks: me.StartTicks}, false},
		{"exited", Process{PID: dead}, false},
		{"init", Process{PID: 1}, true},
		{"none", Process{}, false},
		{"a process group", Process{PID: -me.PID}, false},
		{"beyond any pid", Process{PID: math.MaxInt - 1}, false},
	}
	if wide := int64(1)<<32 + int64(me.PID); strconv.IntSize == 64 {
		tests = append(tests, struct {
			name string
			p    Process
			want bool
		}{"a number whose low 32 bits are this pid", Process{PID: int(wide)}, false})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.p.Alive(); got != tt.want {
				t.Errorf("%+v alive: got %v, want %v", tt.p, got, tt.want)
			}
		})
	}
}

func TestProcessZombieIsGone(t *testing.T) {
	c := exec.Command("true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	// Nobody reaps it before Wait, so the pid stays.
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, ok := Identify(c.Process.Pid); !ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a zombie still counts as running")
		}
		time.Sleep(time.Millisecond)
	}
	if err := unix.Kill(c.Process.Pid, 0); err != nil {
		t.Errorf("signal 0 to the zombie: %v", err)
	}
}

func TestProcessStarted(t *testing.T) {
	before := wallClock()
	c := exec.Command("sleep", "600")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	after := wallClock()
	defer func() { c.Process.Kill(); c.Wait() }()
	got, alive := processStarted(c.Process.Pid)
	if !alive {
		t.Fatal("not alive")
	}
	// startSlack is what the lock protocol allows for.
	if got.Before(before.Add(-startSlack)) || got.After(after.Add(startSlack)) {
		t.Errorf("started: got %v, want between %v and %v", got, before, after)
	}
	if got, alive := processStarted(os.Getpid()); !alive || got.After(before.Add(startSlack)) {
		t.Errorf("this process: got %v, %v; want before %v", got, alive, before)
	}
	if _, alive := processStarted(deadPID(t)); alive {
		t.Error("a dead process is alive")
	}
}

func BenchmarkIdentify(b *testing.B) {
	for b.Loop() {
		if _, ok := Identify(1); !ok {
			b.Fatal("gone")
		}
	}
}
