package importer

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// timespan reads a time span of systemd.time(7): 1h 30min, 90, 1.5d. infinite is its "infinity".
func timespan(text string) (d time.Duration, infinite bool, err error) {
	rest := strings.TrimSpace(text)
	if rest == "infinity" {
		return 0, true, nil
	}
	if rest == "" {
		return 0, false, fmt.Errorf("cannot read the time span %q", text)
	}
	var sum float64
	for rest != "" {
		n := strings.TrimLeft(rest, "0123456789.")
		number := rest[:len(rest)-len(n)]
		n = strings.TrimLeft(n, " \t")
		after := strings.TrimLeft(n, "abcdefghijklmnopqrstuvwxyzAMBCDEFGHIJKLNOPQRSTUVWXYZµμ")
		unit := n[:len(n)-len(after)]
		rest = strings.TrimLeft(after, " \t")
		v, verr := strconv.ParseFloat(number, 64)
		scale, ok := spanUnit(unit)
		if verr != nil || !ok {
			return 0, false, fmt.Errorf("cannot read the time span %q", text)
		}
		sum += v * scale
	}
	if sum > math.MaxInt64/4/float64(time.Second) {
		return 0, false, fmt.Errorf("the time span %q is too long", text)
	}
	return time.Duration(sum * float64(time.Second)), false, nil
}

// spanUnit is a unit in seconds.
func spanUnit(unit string) (float64, bool) {
	switch unit {
	case "us", "usec", "µs", "μs":
		return 1e-6, true
	case "ms", "msec":
		return 1e-3, true
	case "", "s", "sec", "second", "seconds":
		return 1, true
	case "m", "min", "minute", "minutes":
		return 60, true
	case "h", "hr", "hour", "hours":
		return 3600, true
	case "d", "day", "days":
		return 86400, true
	case "w", "week", "weeks":
		return 7 * 86400, true
	case "M", "month", "months":
		return 30.44 * 86400, true
	case "y", "year", "years":
		return 365.25 * 86400, true
	}
	return 0, false
}

// interval writes a duration of whole seconds as definitions have it.
func interval(d time.Duration) string {
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d%u.d == 0 {
			return fmt.Sprintf("%d%s", d/u.d, u.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// seconds is a duration rounded to whole seconds, at least one.
func seconds(d time.Duration) time.Duration { return max(d.Round(time.Second), time.Second) }
