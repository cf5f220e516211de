package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"marbles/monitor"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

func TestRetryAt(t *testing.T) {
	asked := func(d time.Duration) error {
		return fmt.Errorf("cannot fetch: %w", &monitor.RetryError{After: d, Err: errors.New("503")})
	}
	plain := errors.New("503")
	tests := []struct {
		name     string
		every    time.Duration
		failures int
		err      error
		want     time.Duration
	}{
		{"first", time.Minute, 1, plain, 10 * time.Second},
		{"second", time.Minute, 2, plain, 20 * time.Second},
		{"third", time.Minute, 3, plain, 40 * time.Second},
		{"at most the cadence", time.Minute, 4, plain, time.Minute},
		{"for ever", time.Minute, 1 << 30, plain, time.Minute},
		{"quick", time.Second, 1, plain, time.Second},
		{"quick, for long", time.Second, 9, plain, time.Second},
		{"a day", 24 * time.Hour, 12, plain, 20480 * time.Second},
		{"slots", 0, 3, plain, 0},
		{"asked for less", time.Minute, 1, asked(time.Second), 10 * time.Second},
		{"asked for more than the cadence", time.Minute, 1, asked(time.Hour), time.Hour},
		{"asked for too much", time.Minute, 1, asked(1000 * time.Hour), 24 * time.Hour},
		{"slots, asked", 0, 1, asked(time.Hour), time.Hour},
		{"asked for nothing", 0, 1, asked(0), 0},
	}
	now := at("2026-11-30T17:00:00Z")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := time.Duration(0)
			if r := retryAt(now, tt.every, tt.failures, tt.err); !r.IsZero() {
				got = r.Sub(now)
			}
			if got != tt.want {
				t.Errorf("again after %s, want %s", got, tt.want)
			}
		})
	}
}

// fire is a tick of the clock.
func (w *world) fire(key string) (res runner.TickResult, next time.Time) {
	w.t.Helper()
	m := w.monitor(key)
	due := &scheduler.Due{Slot: scheduler.Slot{At: time.Now()}}
	res, from := w.desk.monitor(w.t.Context(), w.target, m, Firing{Due: due})
	return res, from.Add(m.Cadence.Interval())
}

func near(got, want time.Time) bool {
	d := got.Sub(want)
	return d > -2*time.Second && d < 2*time.Second
}

// A source that failed is looked at again early, and not before; that outlives the process.
func TestBackoff(t *testing.T) {
	p := serve(t)
	w := watching(t, p.URL, "fail_after: 9")
	if _, next := w.fire("m"); !near(next, time.Now().Add(time.Hour)) {
		t.Errorf("a good look is followed by one at %v", next)
	}
	p.set(503, "")
	w.poll("m")
	begun := time.Now()
	for i, restart := range []bool{false, true, false} {
		if restart {
			w.restart()
		}
		before := p.requests()
		res, next := w.fire("m")
		if res.Outcome != "" || p.requests() != before {
			t.Fatalf("tick %d looks before its time: %+v", i, res)
		}
		if !near(next, begun.Add(10*time.Second)) {
			t.Errorf("tick %d: next look at %v, want 10 s after the failure at %v", i, next, begun)
		}
	}
	// The service arms it with that.
	_, triggers, err := makePlan([]*Target{&w.target}, time.Now(), time.UTC, w.desk.Log)
	if err != nil {
		t.Fatal(err)
	}
	if got := triggers[0].Base.Add(time.Hour); !near(got, begun.Add(10*time.Second)) {
		t.Errorf("a restart arms it for %v, want 10 s after %v", got, begun)
	}
	// The time has come, though the cadence's has not.
	w.age(t, "m", 11*time.Second)
	p.set(200, "v1")
	if res, next := w.fire("m"); res.Outcome != state.SlotRan || !near(next, time.Now().Add(time.Hour)) {
		t.Errorf("the retry: %+v, next %v", res, next)
	}
	if res, _ := w.fire("m"); res.Outcome != "" {
		t.Errorf("after the retry it is due at once: %+v", res)
	}
}

// age lets time pass for what is on record of a monitor's health.
func (w *world) age(t *testing.T, key string, by time.Duration) {
	t.Helper()
	h := w.health(key)
	for _, s := range []*state.Stamp{&h.RetryAt, &h.LastLook, &h.Since} {
		if !s.IsZero() {
			s.Time = s.Add(-by)
		}
	}
	if err := w.ws.WriteHealth(key, h); err != nil {
		t.Fatal(err)
	}
}

func TestRetryAfter(t *testing.T) {
	p := serve(t)
	w := watching(t, p.URL)
	w.monitor("m").Cadence = every(t, "1m")
	w.good("m")
	p.set(429, "")
	p.head("Retry-After", "7200")
	if w.poll("m"); !near(w.health("m").RetryAt.Time, time.Now().Add(2*time.Hour)) {
		t.Fatalf("retry at %v", w.health("m").RetryAt)
	}
	before := p.requests()
	for range 2 {
		res, next := w.fire("m")
		if res.Outcome != "" || p.requests() != before {
			t.Errorf("the server is asked before it wants to be: %+v", res)
		}
		// Again at the cadence, which finds out that it has to wait: never at once.
		if !near(next, time.Now().Add(time.Minute)) {
			t.Errorf("next at %v", next)
		}
		w.restart()
		w.monitor("m").Cadence = every(t, "1m")
	}
	// A clock that was ahead when it was written must not keep the monitor blind.
	w.age(t, "m", -1000*time.Hour)
	if _, next := w.fire("m"); next.After(time.Now().Add(time.Hour)) {
		t.Errorf("next at %v", next)
	}
	p.set(200, "v1")
	w.age(t, "m", 1003*time.Hour)
	if res := w.good("m"); res.Outcome != state.SlotRan {
		t.Errorf("%+v", res)
	}
}

func TestSlotsAreKeptDespiteFailures(t *testing.T) {
	p := serve(t)
	w := newWorld(t, fmt.Sprintf("monitors:\n  - {key: m, watch: %q, cron: '* * * * *', do: 'true'}\n", p.URL))
	p.set(503, "")
	fire := func(slot string) runner.TickResult {
		return w.desk.Monitor(t.Context(), w.target, w.monitor("m"), Firing{Due: &scheduler.Due{Slot: scheduler.Slot{At: at(slot)}}})
	}
	for i, slot := range []string{"2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"} {
		fire(slot)
		if got := p.requests(); got != i+1 {
			t.Errorf("%d requests after %d slots", got, i+1)
		}
	}
	if h := w.health("m"); !h.RetryAt.IsZero() || h.Failures != 2 {
		t.Errorf("health: %+v", h)
	}
	p.set(503, "")
	p.head("Retry-After", "3600")
	fire("2026-01-01T00:03:00Z")
	before := p.requests()
	if res := fire("2026-01-01T00:04:00Z"); res.Outcome != state.SlotSkipped || res.Err != nil || p.requests() != before {
		t.Errorf("a slot before the server wants it: %+v", res)
	}
	entries, err := w.ws.SlotEnds("m", at("2026-01-01T00:04:00Z"))
	if err != nil || len(entries) != 1 || entries[0].Outcome != state.SlotSkipped || !strings.Contains(entries[0].Reason, "its server asked for that") {
		t.Errorf("the ledger says %+v, %v", entries, err)
	}
	if h := w.health("m"); h.Failures != 3 {
		t.Errorf("a look that was not made counts: %+v", h)
	}
}
