package service

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// A handler that writes into its own glob is stopped after ten runs in a row.
func TestHandlerThatNeverEnds(t *testing.T) {
	w := newWorld(t, `monitors:
  - key: m
    watch: in/*
    every: 1h
    baseline: silent
    do: 'echo $$ > in/stamp; echo >> runs; sleep 0.02'
`)
	w.write("in/f", "v1")
	w.good("m")
	w.write("in/f", "v2")
	looks := func(n int) (err error) {
		for range n {
			err = w.poll("m").Err
		}
		return err
	}
	err := looks(15)
	if got := w.count("runs"); got != 10 {
		t.Errorf("%d runs, want 10", got)
	}
	if err == nil || !strings.Contains(err.Error(), loopLine) {
		t.Errorf("the tick says %v", err)
	}
	if diff := cmp.Diff([]string{loopLine}, w.health("m").Degraded); diff != "" {
		t.Errorf("degraded (-want +got):\n%s", diff)
	}
	w.restart()
	if err := looks(2); err == nil || w.count("runs") != 10 {
		t.Errorf("after a restart: %v, %d runs", err, w.count("runs"))
	}
	// A person runs it anyway, and it begins anew.
	if res := w.roll("m"); res.Err != nil {
		t.Error(res.Err)
	}
	if got := w.health("m"); len(got.Degraded) != 0 || got.Handler.Count != 1 {
		t.Errorf("after a roll: %+v", got)
	}
	looks(15)
	if got := w.count("runs"); got != 20 {
		t.Errorf("%d runs, want ten more with the one by hand", got)
	}
	// So does a change from outside.
	w.write("in/f", "v3")
	looks(15)
	if got := w.count("runs"); got != 30 {
		t.Errorf("%d runs, want ten more", got)
	}
}

func TestHandlersThatComeToAnEnd(t *testing.T) {
	tests := []struct {
		name, do string
		runs     int
	}{
		{"writes the same", `echo same > in/out`, 2},
		{"counts to five", `n=$(cat in/n 2>/dev/null || echo 0); [ $n -ge 5 ] || echo $((n+1)) > in/n`, 6},
		{"fails and writes", `echo $$ > in/log; test -e well`, 15},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "monitors:\n  - key: m\n    watch: in/*\n    every: 1h\n    baseline: silent\n    do: 'echo >> runs; "+tt.do+"'\n")
			w.write("in/f", "v1")
			w.good("m")
			w.write("in/f", "v2")
			for range 15 {
				w.poll("m")
			}
			if got := w.count("runs"); got != tt.runs {
				t.Errorf("%d runs, want %d", got, tt.runs)
			}
			if got := w.health("m").Degraded; len(got) != 0 {
				t.Errorf("degraded: %v", got)
			}
		})
	}
}

func TestSelfMade(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	last := &state.HandlerLoop{Start: state.Stamp{Time: start}, End: state.Stamp{Time: start.Add(time.Second)}, Count: 1}
	for _, tt := range []struct {
		name   string
		last   *state.HandlerLoop
		newest time.Time
		want   bool
	}{
		{"no handler ran", nil, start, false},
		{"not known when", last, time.Time{}, false},
		{"before", last, start.Add(-21 * time.Millisecond), false},
		{"at the start, by a coarse clock", last, start.Add(-10 * time.Millisecond), true},
		{"while it ran", last, start.Add(time.Millisecond), true},
		{"at its end", last, start.Add(time.Second), true},
		{"after", last, start.Add(time.Second + time.Millisecond), false},
	} {
		if got := selfMade(tt.last, tt.newest); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// A handler that was stopped gets its change again after an hour, not never: it may be someone else's.
func TestStoppedForAnHour(t *testing.T) {
	end := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	last := &state.HandlerLoop{Start: state.Stamp{Time: end.Add(-time.Second)}, End: state.Stamp{Time: end}, Count: maxSelfMade}
	for after, want := range map[time.Duration]bool{time.Second: true, time.Hour - time.Second: true, time.Hour: false} {
		if got := isStopped(last, end, end.Add(after)); got != want {
			t.Errorf("after %s: got %v", after, got)
		}
	}
	last.Count--
	if isStopped(last, end, end) {
		t.Error("stopped before its time")
	}
}
