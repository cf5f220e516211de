package service

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGate(t *testing.T) {
	// Looks that hang are passed by; those that are quick never are more than the places.
	tests := []struct {
		name           string
		hung, quick    int
		most           int64         // quick ones at once
		within, beyond time.Duration // when the last quick one has ended
	}{
		{"quick ones", 0, 1000, 10, 10 * time.Second, 9 * time.Second},
		{"fewer than places hang", 5, 100, 10, 3 * time.Second, time.Second},
		{"more than places hang", 35, 10, 10, 5 * time.Second, 3 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(10, time.Second)
				begin := time.Now()
				look := func(d time.Duration, now, most *atomic.Int64) {
					leave, err := g.enter(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					time.Sleep(d)
					now.Add(-1)
					leave()
				}
				var hung, quick, hungMost, quickMost atomic.Int64
				for range tt.hung {
					go look(time.Hour, &hung, &hungMost)
				}
				synctest.Wait()
				done := make(chan struct{})
				for range tt.quick {
					go func() { look(100*time.Millisecond, &quick, &quickMost); done <- struct{}{} }()
				}
				for range tt.quick {
					<-done
				}
				if got := quickMost.Load(); got > tt.most {
					t.Errorf("%d at once, want at most %d", got, tt.most)
				}
				if took := time.Since(begin); took > tt.within || took < tt.beyond {
					t.Errorf("took %s, want %s to %s", took, tt.beyond, tt.within)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

func TestGateEndsWithItsContext(t *testing.T) {
	g := newGate(1, time.Hour)
	leave, err := g.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.enter(ctx); err == nil {
		t.Error("it waits for ever")
	}
	leave()
	leave() // harmless
	again, err := g.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again()
}
