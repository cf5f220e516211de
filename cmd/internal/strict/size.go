package strict

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// ErrSize is wrapped by every error of [Size].
var ErrSize = errors.New("want a whole number and one of B, KiB, MiB, GiB, as 10MiB")

// Size reads a number of bytes: digits and one of B, KiB, MiB and GiB. It is positive.
func Size(text string) (int64, error) {
	digits := strings.TrimRight(text, "BKMGi")
	unit, ok := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[text[len(digits):]]
	if !ok || digits == "" {
		return 0, fmt.Errorf("cannot read size %q: %w", text, ErrSize)
	}
	var n int64
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("cannot read size %q: %w", text, ErrSize)
		}
		if n > math.MaxInt64/10-1 {
			return 0, fmt.Errorf("size %q is too large: %w", text, ErrSize)
		}
		n = n*10 + int64(c-'0')
	}
	switch {
	case n == 0:
		return 0, fmt.Errorf("size %q is zero: %w", text, ErrSize)
	case n > math.MaxInt64/unit:
		return 0, fmt.Errorf("size %q is too large: %w", text, ErrSize)
	}
	return n * unit, nil
}
