package state

import "testing"

func TestParseStat(t *testing.T) {
	const head = "1 1 1 0 -1 4194560 100 0 0 0 5 6 0 0 20 0 "
	tests := []struct {
		name  string
		stat  string
		ticks uint64
		state processState
	}{
		{"running", "123 (sh) S " + head + "1 0 4711 100 200", 4711, processAlive},
		{"a name with spaces and parentheses", "123 (a) Z (b ) 1) R " + head + "1 0 4711 100 200", 4711, processAlive},
		{"a name with a line end", "123 (a\nb) D " + head + "3 0 4711 100 200", 4711, processAlive},
		{"stopped", "123 (sh) T " + head + "1 0 4711 100 200", 4711, processAlive},
		{"zombie", "123 (sh) Z " + head + "1 0 4711 0 0", 0, processGone},
		{"zombie without threads", "123 (sh) Z " + head + "0 0 4711 0 0", 0, processGone},
		{"main thread gone, others run", "123 (sh) Z " + head + "4 0 4711 0 0", 4711, processAlive},
		{"dead", "123 (sh) X " + head + "0 0 4711 0 0", 0, processGone},
		{"cut short", "123 (sh) S 1 1", 0, processUnknown},
		{"empty", "", 0, processUnknown},
		{"no number", "123 (sh) S " + head + "1 0 x 100 200", 0, processUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ticks, state := parseStat([]byte(tt.stat))
			if ticks != tt.ticks || state != tt.state {
				t.Errorf("got %d, %v; want %d, %v", ticks, state, tt.ticks, tt.state)
			}
		})
	}
}
