package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"marbles/scheduler"
)

func TestJoined(t *testing.T) {
	a, b, c := errors.New("a"), errors.New("b"), errors.New("c")
	both := fmt.Errorf("cannot take lock: %w: %w", a, b)
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"none", nil, ""},
		{"one", a, "a"},
		{"several", errors.Join(a, b), "a|b"},
		{"several in one", errors.Join(a, errors.Join(b, c)), "a|b|c"},
		{"one that wraps two", errors.Join(both, c), "cannot take lock: a: b|c"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, err := range joined(tt.err) {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, "|")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A missed slot says whether no service ran, or the machine slept under one.
func TestAway(t *testing.T) {
	s := &service{started: at("2026-05-01T12:00:00Z")}
	for _, tt := range []struct{ first, last, want string }{
		{"2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z", "off: no service ran then"},
		{"2026-05-01T12:00:00Z", "2026-05-01T14:00:00Z", "asleep, or the clock was set forward"},
		{"2026-05-01T11:00:00Z", "2026-05-01T14:00:00Z", "off: no service ran then, and later asleep, or the clock was set forward"},
	} {
		if got := s.away(scheduler.Stretch{First: at(tt.first), Last: at(tt.last), Count: 2}); got != tt.want {
			t.Errorf("%s to %s: got %q, want %q", tt.first, tt.last, got, tt.want)
		}
	}
}
