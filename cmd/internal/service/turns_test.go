package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/scheduler"
)

// manager is what a service tells its manager.
type manager struct {
	mu   sync.Mutex
	told []string
}

func (m *manager) tell(message string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, message)
	return nil
}

// count is how many messages have the assignment; take also forgets them all.
func (m *manager) count(assignment string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range m.told {
		if slices.Contains(strings.Split(message, "\n"), assignment) {
			n++
		}
	}
	return n
}

func (m *manager) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	told := m.told
	m.told = nil
	return told
}

// quiet is a service with nothing to do, and its manager.
func quiet(t *testing.T) (*service, *manager) {
	t.Helper()
	m := &manager{}
	log := slog.New(slog.DiscardHandler)
	s := &service{Options: Options{Settings: &settings.Settings{Drain: time.Minute, Grace: time.Second}, Log: log}, zone: scheduler.NewZone(""), hears: make(chan struct{})}
	s.notify = &notifier{log: log, tell: m.tell}
	s.loop = scheduler.NewLoop(scheduler.Options{})
	s.worker = runner.New(runner.Options{TempDir: t.TempDir()})
	s.writes = &writes{probe: func() error { return nil }}
	s.keeper = newKeeper(s)
	s.notices = func() {}
	s.plan.Store(&plan{})
	return s, m
}

// The watchdog is fed only while the loop that hears signals, the scheduler's and the disk all go on.
func TestWatchdogWantsEveryPart(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(time.Minute.Microseconds(), 10))
	for _, stuck := range []string{"nothing", "disk", "scheduler", "service"} {
		t.Run(stuck, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := quiet(t)
				release := make(chan struct{})
				block := func(part string) error {
					if part == stuck {
						<-release
					}
					return syscall.ENOSPC // a full disk is an answer
				}
				probes := 0
				s.writes.probe = func() error { probes++; return block("disk") }
				s.loop = scheduler.NewLoop(scheduler.Options{Fire: func(scheduler.Due) { block("scheduler") }})
				s.loop.Set([]scheduler.Trigger{{ID: "x", Cadence: cron(t, "* * * * *")}})
				ctx, cancel := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				defer wait.Wait()
				defer cancel()
				wait.Go(func() { s.loop.Run(ctx) })
				wait.Go(func() { s.watch(ctx) })
				wait.Go(func() {
					for ctx.Err() == nil {
						select {
						case <-s.hears:
							block("service")
						case <-ctx.Done():
						}
					}
				})
				time.Sleep(61 * time.Second) // the trigger is due within it
				m.take()
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				fed := m.count("WATCHDOG=1")
				if stuck == "nothing" {
					if fed != 15 {
						t.Errorf("fed %d times in 5 minutes, want 15", fed)
					}
					return
				}
				if fed != 0 {
					t.Errorf("fed %d times", fed)
				}
				if stuck == "disk" && probes != 1 {
					t.Errorf("%d writes hang, want 1", probes)
				}
				close(release)
				time.Sleep(time.Minute)
				synctest.Wait()
				if m.count("WATCHDOG=1") == 0 {
					t.Error("not fed again")
				}
			})
		})
	}
}

// A start or stop that takes long asks for time again and again, while the disk answers, and within its bound.
func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := quiet(t)
		var hangs atomic.Bool
		release := make(chan struct{})
		s.writes.probe = func() error {
			if hangs.Load() {
				<-release
			}
			return nil
		}
		end := s.extend(func() string { return "starting\nslowly" }, time.Now().Add(time.Minute))
		defer end()
		want := fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extendFor.Microseconds())
		pass := func(d time.Duration, least, most int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			for _, message := range m.take() {
				if message != want+"\nSTATUS=starting slowly" {
					t.Errorf("told %q", message)
				}
				least, most = least-1, most-1
			}
			if least > 0 || most < 0 {
				t.Errorf("%d too few, or %d too many", least, -most)
			}
		}
		pass(21*time.Second, 4, 4)
		hangs.Store(true)
		pass(20*time.Second, 0, 0)
		hangs.Store(false)
		close(release)
		pass(11*time.Second, 2, 4)
		pass(time.Hour, 0, 3)
		pass(time.Hour, 0, 0)
	})
}

// While a reload hangs the service is heard, is not told of the next reload, and stops when it is told to.
func TestReloadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := quiet(t) // whose keeper does nothing
		reload, stop := make(chan struct{}, 1), make(chan struct{})
		s.Reload, s.Stop = reload, stop
		ended := make(chan error)
		go func() { ended <- s.serve(t.Context()) }()
		synctest.Wait()
		if m.count("READY=1") != 1 {
			t.Error("not ready")
		}
		m.take()
		before := monotonic(t)
		reload <- struct{}{}
		synctest.Wait()
		reload <- struct{}{}
		synctest.Wait()
		told := m.take()
		var at int64
		if len(told) != 1 {
			t.Fatalf("told %q", told)
		}
		if _, err := fmt.Sscanf(told[0], "RELOADING=1\nMONOTONIC_USEC=%d\nSTATUS=reloading; 0 triggers", &at); err != nil {
			t.Errorf("told %q: %v", told[0], err)
		}
		if after := monotonic(t); at < before || at > after {
			t.Errorf("the stamp is %d, not from %d to %d", at, before, after)
		}
		if err := s.heard(t.Context()); err != nil {
			t.Error(err)
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.keeper.done = make(chan struct{}) // it was begun, and does not end
		begun := time.Now()
		if err := s.keeper.end(); err != nil || time.Since(begun) > keepPatience {
			t.Errorf("end: %v after %s", err, time.Since(begun))
		}
	})
}

// monotonic is CLOCK_MONOTONIC in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano() / 1000
}

// Either end of a reload is READY=1, and the status line says which it was.
func TestReloadsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := quiet(t)
		reload, stop := make(chan struct{}, 1), make(chan struct{})
		s.Reload, s.Stop = reload, stop
		ended := make(chan error)
		go func() { ended <- s.serve(t.Context()) }()
		at := time.Now().In(s.zone.Location()).Format("15:04:05")
		for _, tc := range []struct {
			err  error
			want string
		}{
			{errors.New("a.yaml:1:2: x\nb.yaml:3:4: y"), "READY=1\nSTATUS=reload failed at " + at + ", old definitions in force: a.yaml:1:2: x …; 0 triggers, 0 running"},
			{nil, "READY=1\nSTATUS=reloaded at " + at + "; 0 triggers, 0 running"},
		} {
			reload <- struct{}{}
			<-s.keeper.reload
			s.keeper.reloaded <- tc.err
			synctest.Wait()
			told := m.take()
			if got := told[len(told)-1]; got != tc.want {
				t.Errorf("told %q, want %q", got, tc.want)
			}
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A workspace that is just being looked after, on a disk that hangs, is not waited for.
func TestReleaseDoesNotHang(t *testing.T) {
	h := &hold{ws: workspace(t)}
	h.mu.Lock()
	if err := h.release(); err == nil {
		t.Error("released")
	}
}

func TestDrainLine(t *testing.T) {
	w := runner.New(runner.Options{TempDir: t.TempDir()})
	for left, want := range map[time.Duration]string{
		14*time.Second + 200*time.Millisecond: "draining: 0 runs, 14s left",
		-time.Second:                          "stopping: 0 runs cancelled and not ended yet",
	} {
		if got := drainLine(w, left); got != want {
			t.Errorf("%s: %q, want %q", left, got, want)
		}
	}
}
