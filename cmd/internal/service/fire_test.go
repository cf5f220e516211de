package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
