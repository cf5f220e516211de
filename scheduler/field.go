package scheduler

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// cronField is what one field of a cron expression may hold.
type cronField struct {
	name     string
	min, max int
	cycle    int    // how many values there are before they start over
	period   string // what they start over with
	named    func(string) (int, bool)
}

var cronFields = [...]cronField{
	{name: "minute", max: 59, cycle: 60, period: "hour"},
	{name: "hour", max: 23, cycle: 24, period: "day"},
	{name: "day-of-month", min: 1, max: 31, cycle: 31, period: "month"},
	{name: "month", min: 1, max: 12, cycle: 12, period: "year", named: monthNumber},
	{name: "day-of-week", max: 6, cycle: 7, period: "week", named: weekdayNumber},
}

// plain checks a field and writes it in what the parser understands: without 7 for Sunday and ranges through it. It
// refuses what the parser would misread: empty items, text after a star, signs.
func (f *cronField) plain(text string) (plain, warning string, err error) {
	items := strings.Split(text, ",")
	for i, item := range items {
		r, err := f.item(item)
		if err != nil {
			return "", "", err
		}
		if items[i] = item; r.hi > f.max {
			items[i] = r.sundayLast()
		}
		if r.open && f.cycle%r.step != 0 {
			warning = fmt.Sprintf("%s: the step %d does not divide %d, and starts over every %s", item, r.step, f.cycle, f.period)
		}
	}
	return strings.Join(items, ","), warning, nil
}

// cronRange is one item of a field.
type cronRange struct {
	lo, hi, step int
	open         bool // a step without an upper end
}

// item reads one item: a value, a range or a star, and a step.
func (f *cronField) item(item string) (r cronRange, err error) {
	if item == "" {
		return r, errors.New("a value is missing beside a comma")
	}
	body, step, stepped := strings.Cut(item, "/")
	low, high, ranged := strings.Cut(body, "-")
	r.step = 1
	if stepped {
		if r.step, err = number(step); err != nil {
			return r, fmt.Errorf("cannot read the step of %q", item)
		}
		if r.step == 0 {
			return r, fmt.Errorf("the step of %q is 0", item)
		}
	}
	if body == "*" || body == "?" {
		r.lo, r.hi, r.open = f.min, f.max, stepped
		return r, nil
	}
	if r.lo, err = f.value(low, item); err != nil {
		return r, err
	}
	switch r.hi = r.lo; {
	case ranged:
		if r.hi, err = f.value(high, item); err != nil {
			return r, err
		}
		if f.cycle == 7 && r.hi == 0 && r.lo > 0 && strings.EqualFold(high, "sun") {
			r.hi = 7
		}
	case stepped && r.lo <= f.max:
		r.hi, r.open = f.max, true
	}
	if r.lo > r.hi {
		return r, fmt.Errorf("%s wraps past %d; write %s", item, f.max, f.unwrapped(r, stepped))
	}
	return r, nil
}

// value reads a number or a name.
func (f *cronField) value(text, item string) (int, error) {
	if f.named != nil {
		if v, ok := f.named(text); ok {
			return v, nil
		}
	}
	v, err := number(text)
	if err != nil {
		return 0, fmt.Errorf("cannot read %q", item)
	}
	if v < f.min {
		return 0, fmt.Errorf("%d is below %d", v, f.min)
	}
	top := f.max
	if f.cycle == 7 {
		top = 7 // Sunday again
	}
	if v > top {
		return 0, fmt.Errorf("%d is above %d", v, top)
	}
	return v, nil
}

// number reads digits, and nothing else.
func number(text string) (int, error) {
	v, err := strconv.ParseUint(text, 10, 31)
	return int(v), err
}

// unwrapped is how to write a range that wraps.
func (f *cronField) unwrapped(r cronRange, stepped bool) string {
	switch {
	case stepped:
		return "the values one by one"
	case r.lo > f.max:
		return fmt.Sprintf("%d-%d", f.min, r.hi)
	case f.cycle == 7 && r.hi == 0:
		return fmt.Sprintf("%d-7", r.lo)
	}
	return fmt.Sprintf("%d-%d,%d-%d", r.lo, f.max, f.min, r.hi)
}

// sundayLast lists the weekdays of a range that ends in 7.
func (r cronRange) sundayLast() string {
	var b strings.Builder
	for v := r.lo; v <= r.hi; v += r.step {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('0' + byte(v%7))
	}
	return b.String()
}
