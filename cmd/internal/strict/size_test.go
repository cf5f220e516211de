package strict

import (
	"errors"
	"testing"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"1B": 1, "10MiB": 10 << 20, "007KiB": 7 << 10, "2GiB": 2 << 30, "8589934591GiB": 8589934591 << 30} {
		if got, err := Size(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "B", "MiB", "0B", "000GiB", "-1B", "1.5MiB", "10MB", "10M", "10 MiB", " 1B", "1BB", "1KiBB", "BKMGi", "١B",
		"8589934592GiB", "9223372036854775808B", "99999999999999999999999GiB"} {
		if got, err := Size(text); !errors.Is(err, ErrSize) {
			t.Errorf("%q: got %v, %v, want an error", text, got, err)
		}
	}
}
