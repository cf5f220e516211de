package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"marbles/cmd/internal/settings"
	"marbles/state"
)

// running is a service in this process.
type running struct {
	*world
	reload chan struct{}
	stop   func() error // again is harmless
}

// run starts a service on a world's project, which must have no process of its own, and waits until it is ready.
func (w *world) run(concurrency int) *running {
	w.t.Helper()
	w.stop(w.desk)
	r := &running{world: w, reload: make(chan struct{})}
	stop, done := make(chan struct{}), make(chan error, 1)
	r.stop = sync.OnceValue(func() error { close(stop); return <-done })
	go func() {
		done <- Run(context.Background(), Options{
			Settings: &settings.Settings{Sources: []string{w.dir}, Concurrency: concurrency, Drain: 2 * time.Second, Grace: time.Second},
			Cwd:      w.dir,
			Open:     func() (*state.Root, error) { return w.root, nil },
			Env:      []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + w.t.TempDir()},
			Log:      slog.New(slog.NewTextHandler(w.log, nil)),
			Stop:     stop, Kill: make(chan struct{}), Reload: r.reload,
		})
	}()
	w.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			w.t.Error(err)
		}
		if w.t.Failed() {
			w.t.Logf("the service's log:\n%s", w.log)
		}
	})
	until(w.t, "the service is ready", func() bool { return strings.Contains(w.log.String(), "service is ready") })
	return r
}

const liveJobs = `monitors:
  - key: m
    watch: in/**
    every: 1h
    live: true
    baseline: silent
    do: '%s'
`

// handled waits until so many lines are in seen, and returns how long after begin that was.
func (r *running) handled(n int, begin time.Time) time.Duration {
	r.t.Helper()
	until(r.t, fmt.Sprint(n, " changes are handled"), func() bool { return r.count("seen") >= n })
	return time.Since(begin)
}

func (r *running) settled() {
	r.t.Helper()
	until(r.t, "the first look", func() bool { return r.record("m") != nil })
}

func TestLiveChangeIsHandledAtOnce(t *testing.T) {
	for _, settle := range []time.Duration{0, time.Second} {
		t.Run(settle.String(), func(t *testing.T) {
			jobs := fmt.Sprintf(liveJobs, "echo >> seen")
			if settle > 0 {
				jobs += "    settle: " + settle.String() + "\n"
			}
			w := newWorld(t, jobs)
			w.write("in/f", "v0")
			r := w.run(4)
			r.settled()
			var worst time.Duration
			for i := range 3 {
				begin := time.Now()
				w.write(fmt.Sprint("in/d", i, "/f"), "v1")
				d := r.handled(i+1, begin)
				worst = max(worst, d)
				if d < settle {
					t.Errorf("handled after %s, before it settled", d)
				}
			}
			t.Logf("handled within %s of the change, %s of that to settle", worst.Round(time.Millisecond), settle)
			if worst > settle+5*time.Second { // 200 ms on a machine that has time
				t.Errorf("a change is handled after %s", worst)
			}
		})
	}
}

// A hint during a tick is one more look after it, also where the tick is the clock's.
func TestLiveChangeDuringTheHandler(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(liveJobs, "echo >> seen; while [ -e in/../hold ]; do sleep 0.02; done"))
	w.write("in/f", "v0")
	r := w.run(4)
	r.settled()
	w.write("hold", "")
	w.write("in/f", "v1")
	r.handled(1, time.Now())
	for i := range 5 {
		w.write("in/f", fmt.Sprint("v2-", i))
		time.Sleep(20 * time.Millisecond)
	}
	if got := w.count("seen"); got != 1 {
		t.Errorf("%d handlers at once", got)
	}
	w.remove("hold")
	r.handled(2, time.Now())
	until(t, "all is committed", func() bool { return r.committed("m", "in/f") == digest("v2-4") })
	if got := w.count("seen"); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
}

// A stop waits for the handler of a live monitor no longer than for any other run.
func TestStopEndsALiveHandler(t *testing.T) {
	w := newWorld(t, fmt.Sprintf(liveJobs, "echo >> seen; exec sleep 60"))
	w.write("in/f", "v0")
	r := w.run(4)
	r.settled()
	w.write("in/f", "v1")
	r.handled(1, time.Now())
	begin := time.Now()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	if got := w.committed("m", "in/f"); got != digest("v0") {
		t.Errorf("committed is %s, and its handler was ended", got)
	}
}

func TestLiveFollowsAReload(t *testing.T) {
	jobs := fmt.Sprintf(liveJobs, "echo >> seen")
	w := newWorld(t, jobs)
	w.write("in/f", "v0")
	w.write("other/f", "v0")
	r := w.run(4)
	r.settled()
	define := func(text string) {
		w.write(".foundry/marbles/jobs.yaml", text)
		n := strings.Count(w.log.String(), "definitions were reloaded")
		r.reload <- struct{}{}
		until(t, "reload", func() bool { return strings.Count(w.log.String(), "definitions were reloaded") > n })
	}
	define(strings.Replace(jobs, "in/**", "other/**", 1))
	until(t, "the first look at the other folder", func() bool {
		rec := r.record("m")
		return rec.Files["other/f"] != ""
	})
	n := w.count("seen")
	w.write("other/f", "v1")
	r.handled(n+1, time.Now())
	define(strings.Replace(jobs, "live: true", "live: false", 1))
	n = w.count("seen")
	w.write("other/f", "v2")
	w.write("in/f", "v2")
	time.Sleep(300 * time.Millisecond)
	if got := w.count("seen"); got != n {
		t.Errorf("it still looks early: %d, %d", n, got)
	}
}

// A server that does not answer holds its own monitor and no other, and no place of a run.
func TestHungServerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	hung, well := serve(t), serve(t)
	hung.hang = true
	var jobs strings.Builder
	jobs.WriteString("workflows:\n  beat: {run: 'echo >> beats'}\nschedules:\n  - {run: beat, every: 1s}\nmonitors:\n")
	for i := range 3 {
		fmt.Fprintf(&jobs, "  - {key: hung%d, watch: '%s/%d', every: 1s, timeout: 4s, do: 'true'}\n", i, hung.URL, i)
	}
	for i := range 5 {
		fmt.Fprintf(&jobs, "  - {key: well%d, watch: '%s/%d', every: 1s, do: 'true'}\n", i, well.URL, i)
	}
	w := newWorld(t, jobs.String())
	w.run(1)
	until(t, "the first looks", func() bool { return well.requests() >= 5 && hung.requests() >= 3 })
	time.Sleep(3500 * time.Millisecond)
	if got := well.requests(); got < 5*3 {
		t.Errorf("5 monitors at 1 s looked %d times in 3.5 s beside 3 that hang", got)
	}
	if got := w.count("beats"); got < 2 {
		t.Errorf("a schedule at 1 s ran %d times in 3.5 s", got)
	}
	if got := hung.requests(); got > 6 {
		t.Errorf("the server that hangs was asked %d times", got)
	}
}
