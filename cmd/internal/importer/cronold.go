package importer

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// cronOld is a cron expression as Debian's cron reads it.
type cronOld struct {
	minutes, hours, days, months, weekdays uint64
	wild                                   bool // minute or hour begins with a star: it follows the clock, whatever that does
	both                                   bool // a day field begins with a star: both must match
	ignored                                string
}

// parseCronOld reads five fields or a descriptor.
func parseCronOld(expr string) (c cronOld, err error) {
	if full, ok := map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}[expr]; ok {
		expr = full
	}
	f := strings.Fields(expr)
	if len(f) != 5 {
		return c, errors.New("want five fields")
	}
	read := func(text string, low, high int, names ...string) (set uint64) {
		if err == nil {
			set, err = c.field(text, low, high, names)
		}
		return set
	}
	c.minutes = read(f[0], 0, 59)
	c.hours = read(f[1], 0, 23)
	c.days = read(f[2], 1, 31)
	c.months = read(f[3], 1, 12, "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
	c.weekdays = read(f[4], 0, 7, "sun", "mon", "tue", "wed", "thu", "fri", "sat")
	if c.weekdays&(1<<7) != 0 {
		c.weekdays |= 1
	}
	c.wild = f[0][0] == '*' || f[1][0] == '*'
	c.both = f[2][0] == '*' || f[4][0] == '*'
	return c, err
}

// field reads a list of values, ranges and stars, each with a step.
func (c *cronOld) field(text string, low, high int, names []string) (set uint64, err error) {
	value := func(s string) (int, error) {
		for i, n := range names {
			if strings.EqualFold(s, n) {
				return low + i, nil
			}
		}
		v, err := strconv.Atoi(s)
		if err != nil || s == "" || s[0] == '+' || v < low || v > high {
			return 0, fmt.Errorf("cannot read %q", s)
		}
		return v, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		body, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return 0, fmt.Errorf("cannot read the step of %q", item)
			}
		}
		lo, hi := low, high
		if body != "*" {
			a, b, ranged := strings.Cut(body, "-")
			if lo, err = value(a); err != nil {
				return 0, err
			}
			hi = lo
			if ranged {
				if hi, err = value(b); err != nil {
					return 0, err
				}
			} else if stepped {
				c.ignored = fmt.Sprintf("cron ignores the step of %s, which has no range; marbles reads %s-%d/%s", item, a, high, stepText)
			}
			if lo > hi {
				return 0, fmt.Errorf("%s runs backwards", body)
			}
		}
		for v := lo; v <= hi; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

// day reports whether a date matches.
func (c cronOld) day(year int, month time.Month, day int) bool {
	if c.months>>month&1 == 0 {
		return false
	}
	d := c.days>>day&1 != 0
	w := c.weekdays>>time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday()&1 != 0
	if c.both {
		return d && w
	}
	return d || w
}

// next is what cron starts after an instant. Jobs of a fixed time that a change of the clocks skips are started at once
// after it, and those that it repeats are not started again; those with a star in minute or hour follow the clock.
func (c cronOld) next(from time.Time, loc *time.Location, n int) []time.Time {
	return civilDays(from, loc, n, c.day, func(d civilDay) (found []time.Time) {
		for hours := c.hours; hours != 0; hours &= hours - 1 {
			for minutes := c.minutes; minutes != 0; minutes &= minutes - 1 {
				at := d.at(bits.TrailingZeros64(hours), bits.TrailingZeros64(minutes), 0)
				switch all := occurrences(at, loc); {
				case c.wild:
					found = append(found, all...)
				case len(all) > 0:
					found = append(found, all[0])
				default:
					found = append(found, change(at, loc))
				}
			}
		}
		return found
	})
}
