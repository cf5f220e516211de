package strict

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// ErrDuration is wrapped by every error of [Duration].
var ErrDuration = errors.New("want a positive duration such as 30s, 10m, 6h or 1d")

// Duration reads an interval: digits and one of s, m, h, d (24 h). It is positive and fits in a time.Duration.
func Duration(text string) (time.Duration, error) {
	digits := strings.TrimRight(text, "smhd")
	if len(text)-len(digits) != 1 || digits == "" {
		return 0, fmt.Errorf("cannot read duration %q: %w", text, ErrDuration)
	}
	unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[text[len(text)-1]]
	var n time.Duration
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("cannot read duration %q: %w", text, ErrDuration)
		}
		if n > math.MaxInt64/10-1 {
			return 0, fmt.Errorf("duration %q is too long: %w", text, ErrDuration)
		}
		n = n*10 + time.Duration(c-'0')
	}
	switch {
	case n == 0:
		return 0, fmt.Errorf("duration %q is zero: %w", text, ErrDuration)
	case n > math.MaxInt64/unit:
		return 0, fmt.Errorf("duration %q is too long: %w", text, ErrDuration)
	}
	return n * unit, nil
}
