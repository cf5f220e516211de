package scheduler

import (
	"testing"
	"time"
)

// A slot that was decided before and not started is judged as the loop would judge it.
func TestAllows(t *testing.T) {
	slot := time.Date(2026, 11, 30, 2, 30, 0, 0, time.UTC)
	late := share("k", slot.UnixNano(), 10*time.Minute)
	tests := []struct {
		name    string
		trigger Trigger
		age     time.Duration
		want    bool
	}{
		{"on time", Trigger{CatchUp: CatchUp{Never: true}}, time.Minute, true},
		{"late, never", Trigger{CatchUp: CatchUp{Never: true}}, time.Minute + 1, false},
		{"late, always", Trigger{}, 48 * time.Hour, true},
		{"younger than a duration", Trigger{CatchUp: CatchUp{Within: time.Hour}}, time.Hour - 1, true},
		{"as old as a duration", Trigger{CatchUp: CatchUp{Within: time.Hour}}, time.Hour, false},
		{"on time after its share of the jitter", Trigger{ID: "k", Jitter: 10 * time.Minute, CatchUp: CatchUp{Never: true}}, late + time.Minute, true},
		{"late after its share of the jitter", Trigger{ID: "k", Jitter: 10 * time.Minute, CatchUp: CatchUp{Never: true}}, late + time.Minute + 1, false},
	}
	for _, tt := range tests {
		if got := tt.trigger.Allows(slot, slot.Add(tt.age)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
