package service

import (
	"bytes"
	"log/slog"
	"testing"
)

// A monitor that sees only a part says so when that changes, not at each look.
func TestSaysWhatAMonitorDoesNotSeeOnce(t *testing.T) {
	var log bytes.Buffer
	d := &Dispatcher{Log: slog.New(slog.NewTextHandler(&log, nil))}
	target := Target{Workspace: workspace(t)}
	secret, both := []string{"t/secret: permission denied"}, []string{"t/secret: permission denied", "u: input/output error"}
	tests := []struct {
		name     string
		key      string
		degraded []string
		want     int // lines
	}{
		{"whole", "m", nil, 0},
		{"a part", "m", secret, 1},
		{"still", "m", secret, 0},
		{"less", "m", both, 1},
		{"another monitor", "n", both, 1},
		{"whole again", "m", nil, 1},
		{"still whole", "m", nil, 0},
		{"a part again", "m", secret, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log.Reset()
			d.saw(target, tt.key, tt.degraded)
			if got := bytes.Count(log.Bytes(), []byte("\n")); got != tt.want {
				t.Errorf("%d lines are logged, want %d:\n%s", got, tt.want, &log)
			}
		})
	}
}
