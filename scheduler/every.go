package scheduler

import (
	"fmt"
	"strconv"
	"strings"
)

// maxInterval is the longest interval in seconds: 2^53-1 ms, so that every reader of our records can hold it.
const maxInterval = (1<<53 - 1) / 1000

// ParseEvery reads an interval: digits and one of s, m, h, d, positive. A day is 24 hours whatever the clock does.
func ParseEvery(text string) (Cadence, error) {
	s := strings.TrimSpace(text)
	digits := strings.TrimLeft(s, "0123456789")
	var unit int64
	switch digits {
	case "s":
		unit = 1
	case "m":
		unit = 60
	case "h":
		unit = 60 * 60
	case "d":
		unit = 24 * 60 * 60
	}
	if unit == 0 || len(s) == len(digits) {
		return Cadence{}, fmt.Errorf("cannot read cadence %q (want e.g. 30m, 6h, 1d)", text)
	}
	n, err := strconv.ParseInt(s[:len(s)-1], 10, 64)
	if err != nil || n == 0 || n > maxInterval/unit {
		return Cadence{}, fmt.Errorf("cadence %q must be a positive interval that fits in a safe integer", text)
	}
	return Cadence{every: n * unit, text: "every " + renderInterval(n*unit)}, nil
}

// renderInterval writes seconds in the largest unit that divides them.
func renderInterval(seconds int64) string {
	switch {
	case seconds%(24*60*60) == 0:
		return strconv.FormatInt(seconds/(24*60*60), 10) + "d"
	case seconds%(60*60) == 0:
		return strconv.FormatInt(seconds/(60*60), 10) + "h"
	case seconds%60 == 0:
		return strconv.FormatInt(seconds/60, 10) + "m"
	}
	return strconv.FormatInt(seconds, 10) + "s"
}
