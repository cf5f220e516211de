package service

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"marbles/runner"
)

func TestDelay(t *testing.T) {
	tests := []struct {
		every time.Duration
		times int
		want  time.Duration
	}{
		{time.Second, 1, time.Second},
		{time.Second, 2, 2 * time.Second},
		{time.Second, 4, 8 * time.Second},
		{time.Second, 100, 301 * time.Second},
		{time.Hour, 1, time.Hour},
		{time.Hour, 3, time.Hour + 5*time.Minute},
	}
	for _, tt := range tests {
		if got := delay(tt.every, tt.times); got != tt.want {
			t.Errorf("after %d failures of every %s: got %s, want %s", tt.times, tt.every, got, tt.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b backoff
		failed := runner.TickResult{Err: errors.New("HTTP 503")}
		b.ended("k", time.Minute, failed)
		b.ended("k", time.Minute, failed)
		if got := b.wait("k"); got != 2*time.Minute {
			t.Errorf("after two failures: waits %s, want 2m", got)
		}
		if got := b.wait("other"); got != 0 {
			t.Errorf("another key waits %s", got)
		}
		time.Sleep(2 * time.Minute)
		if got := b.wait("k"); got != 0 {
			t.Errorf("two minutes later: waits %s", got)
		}
		b.ended("k", time.Minute, runner.TickResult{Err: errors.New("exit 1"), Result: runner.Result{RunID: "rn-a"}})
		b.ended("k", time.Minute, failed)
		if got := b.wait("k"); got != time.Minute {
			t.Errorf("after a look that succeeded, and one failure: waits %s, want 1m", got)
		}
	})
}
