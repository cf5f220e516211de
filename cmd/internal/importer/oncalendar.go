package importer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// chain is one item of a component of OnCalendar=: a value, a range, and how it repeats.
type chain struct{ start, stop, repeat int } // stop -1: none; repeat 0: none

// onCalendar is an OnCalendar= expression, as systemd.time(7) has it. A nil component matches everything.
type onCalendar struct {
	weekdays                                     uint8 // Sunday is 0; 0 is any day
	years, months, days, hours, minutes, seconds []chain
	fromEnd                                      bool // days count from the month's last
	fraction                                     bool // of a second, which is left out
	zone                                         string
}

// shorthands of systemd.time(7).
var shorthands = map[string]string{
	"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "monthly": "*-*-01 00:00:00",
	"weekly": "Mon *-*-* 00:00:00", "yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00",
	"quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00",
}

// parseOnCalendar reads an expression.
func parseOnCalendar(text string) (c onCalendar, err error) {
	const longest = 500
	if len(text) > longest {
		return c, fmt.Errorf("it has more than %d characters", longest)
	}
	words := strings.Fields(text)
	if len(words) > 1 || len(words) == 1 && !isShorthand(words[0]) {
		last := words[len(words)-1]
		if strings.EqualFold(last, "UTC") {
			c.zone, words = "UTC", words[:len(words)-1]
		} else if isLetter(rune(last[0])) && len(words) > 1 {
			if _, zerr := time.LoadLocation(last); zerr == nil && last != "Local" {
				c.zone, words = last, words[:len(words)-1]
			}
		}
	}
	if len(words) == 1 && isShorthand(words[0]) {
		words = strings.Fields(shorthands[strings.ToLower(words[0])])
	}
	if len(words) == 0 {
		return c, errors.New("it is empty")
	}
	if strings.HasPrefix(words[0], "@") {
		return c, errors.New("it is one single instant")
	}
	if isLetter(rune(words[0][0])) {
		if c.weekdays, err = weekdaySet(strings.TrimSuffix(words[0], ",")); err != nil {
			return c, err
		}
		words = words[1:]
	}
	clock := "00:00:00"
	if n := len(words); n > 0 && strings.Contains(words[n-1], ":") {
		clock, words = words[n-1], words[:n-1]
	}
	if len(words) > 1 {
		return c, fmt.Errorf("cannot read %q", words[1])
	}
	if len(words) == 1 {
		if err := c.date(words[0]); err != nil {
			return c, err
		}
	}
	return c, c.clock(clock)
}

func isShorthand(word string) bool { return shorthands[strings.ToLower(word)] != "" }

func (c *onCalendar) date(text string) (err error) {
	if before, day, ok := strings.Cut(text, "~"); ok {
		c.fromEnd = true
		text = before + "-" + day
	}
	parts := strings.Split(text, "-")
	switch len(parts) {
	case 3:
		if c.years, err = chains(parts[0], 1970, 2199, true); err != nil {
			return err
		}
		parts = parts[1:]
	case 2:
	default:
		return fmt.Errorf("cannot read the date %q", text)
	}
	if c.months, err = chains(parts[0], 1, 12, false); err != nil {
		return err
	}
	c.days, err = chains(parts[1], 1, 31, false)
	return err
}

func (c *onCalendar) clock(text string) (err error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("cannot read the time %q", text)
	}
	if c.hours, err = chains(parts[0], 0, 23, false); err != nil {
		return err
	}
	if c.minutes, err = chains(parts[1], 0, 59, false); err != nil {
		return err
	}
	seconds := "0"
	if len(parts) == 3 {
		seconds = parts[2]
	}
	var plain []string
	for item := range strings.SplitSeq(seconds, ",") {
		whole, fraction, ok := strings.Cut(item, ".")
		if ok && !strings.Contains(fraction, "/") && !strings.Contains(fraction, "..") && strings.Trim(fraction, "0123456789") == "" {
			c.fraction = c.fraction || strings.Trim(fraction, "0") != ""
			item = whole
		}
		plain = append(plain, item)
	}
	c.seconds, err = chains(strings.Join(plain, ","), 0, 59, false)
	return err
}

// chains reads a component. Years of two digits are those of this century, or from 70 on of the last.
func chains(text string, low, high int, years bool) (all []chain, err error) {
	if text == "*" {
		return nil, nil
	}
	value := func(s string) int {
		v, nerr := strconv.Atoi(s)
		if years && nerr == nil && v < 100 && len(s) <= 2 {
			if v += 2000; v >= 2070 {
				v -= 100
			}
		}
		if nerr != nil || s[0] == '+' || v < low || v > high {
			err = fmt.Errorf("cannot read %q", text)
		}
		return v
	}
	for item := range strings.SplitSeq(text, ",") {
		body, repeat, repeats := strings.Cut(item, "/")
		first, last, ranged := strings.Cut(body, "..")
		k := chain{start: value(first), stop: -1}
		if ranged {
			k.stop, k.repeat = value(last), 1
		}
		if repeats {
			n, nerr := strconv.Atoi(repeat)
			if nerr != nil || n < 1 {
				return nil, fmt.Errorf("cannot read %q", text)
			}
			k.repeat = n
		}
		if err != nil {
			return nil, err
		}
		if ranged && k.stop < k.start {
			return nil, fmt.Errorf("%q runs backwards", item)
		}
		all = append(all, k)
	}
	return all, nil
}

func weekdaySet(text string) (set uint8, err error) {
	day := func(s string) int {
		for d := time.Sunday; d <= time.Saturday; d++ {
			if strings.EqualFold(s, d.String()) || strings.EqualFold(s, d.String()[:3]) {
				return (int(d) + 6) % 7 // systemd's weeks begin on Monday
			}
		}
		err = fmt.Errorf("cannot read the weekday %q", s)
		return 0
	}
	for item := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(item, "..")
		if !ranged {
			first, last, ranged = strings.Cut(item, "-")
		}
		lo := day(first)
		hi := lo
		if ranged {
			hi = day(last)
		}
		if err == nil && hi < lo {
			err = fmt.Errorf("the weekdays %q run backwards", item)
		}
		if err != nil {
			return 0, err
		}
		for d := lo; d <= hi; d++ {
			set |= 1 << ((d + 1) % 7)
		}
	}
	return set, nil
}

// matches reports whether a value is one of a component's. last is the month's last day where days count from it, else 0.
func matches(all []chain, v, last int) bool {
	if all == nil {
		return true
	}
	for _, k := range all {
		start, stop := k.start, k.stop
		if last > 0 {
			start = last - start + 1
			if stop >= 0 {
				start, stop = last-k.stop+1, last-k.start+1
			}
		}
		switch {
		case v == start:
			return true
		case k.repeat == 0 || v < start || stop >= 0 && v > stop:
		case (v-start)%k.repeat == 0:
			return true
		}
	}
	return false
}

// values are the values of a component in a range.
func values(all []chain, low, high int) (found []int) {
	for v := low; v <= high; v++ {
		if matches(all, v, 0) {
			found = append(found, v)
		}
	}
	return found
}

// next is what systemd's timer elapses at after an instant. It skips what a change of the clocks skips.
func (c onCalendar) next(from time.Time, loc *time.Location, n int) []time.Time {
	hours, minutes, seconds := values(c.hours, 0, 23), values(c.minutes, 0, 59), values(c.seconds, 0, 59)
	day := func(year int, month time.Month, day int) bool {
		last := 0
		if c.fromEnd {
			last = time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		}
		weekday := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Weekday()
		return matches(c.years, year, 0) && matches(c.months, int(month), 0) && matches(c.days, day, last) &&
			(c.weekdays == 0 || c.weekdays>>weekday&1 != 0)
	}
	return civilDays(from, loc, n, day, func(d civilDay) (found []time.Time) {
		for _, h := range hours {
			for _, m := range minutes {
				for _, s := range seconds {
					all := occurrences(d.at(h, m, s), loc)
					if len(all) > 0 {
						found = append(found, all[0])
					}
				}
			}
		}
		return found
	})
}

// cron writes the expression as a cron that fires in the same minutes, or says why there is none.
func (c onCalendar) cron() (string, error) {
	switch {
	case c.years != nil:
		return "", errors.New("a cron knows no years")
	case c.fromEnd:
		return "", errors.New("a cron cannot count from a month's end (~)")
	}
	days := cronField(c.days, 1, 31)
	weekdays := "*"
	if c.weekdays != 0 && c.weekdays != 1<<7-1 {
		weekdays = weekdayField(c.weekdays)
	}
	// Date and weekday must both match, which a cron takes so only where one of the fields begins with a star.
	if weekdays != "*" && days[0] != '*' {
		switch {
		case matches(c.days, 1, 0):
			days = "*/31," + days
		case c.weekdays&1 != 0:
			weekdays = "*/7," + weekdays
		default:
			return "", errors.New("a cron cannot ask for a date and a weekday together, unless the first of the month or Sunday is one of them")
		}
	}
	return strings.Join([]string{cronField(c.minutes, 0, 59), cronField(c.hours, 0, 23), days, cronField(c.months, 1, 12), weekdays}, " "), nil
}

func cronField(all []chain, low, high int) string {
	if all == nil {
		return "*"
	}
	var items []string
	for _, k := range all {
		switch {
		case k.repeat == 0:
			items = append(items, strconv.Itoa(k.start))
		case k.stop < 0 && k.start == low:
			items = append(items, fmt.Sprintf("*/%d", k.repeat))
		default:
			stop := k.stop
			if stop < 0 {
				stop = high
			}
			item := fmt.Sprintf("%d-%d", k.start, stop)
			if k.repeat > 1 {
				item += fmt.Sprintf("/%d", k.repeat)
			}
			items = append(items, item)
		}
	}
	return strings.Join(items, ",")
}

func weekdayField(set uint8) string {
	var items []string
	for d := 1; d <= 7; d++ { // from Monday to Sunday
		if set>>(d%7)&1 == 0 {
			continue
		}
		end := d
		for end < 7 && set>>((end+1)%7)&1 != 0 {
			end++
		}
		if end > d+1 {
			items = append(items, fmt.Sprintf("%d-%d", d, end))
			d = end
			continue
		}
		items = append(items, strconv.Itoa(d))
	}
	return strings.Join(items, ",")
}

// everySecond is the interval of an expression that repeats within a minute, every minute; ok is false for others.
func (c onCalendar) everySecond() (time.Duration, bool) {
	if c.weekdays != 0 || c.years != nil || c.months != nil || c.days != nil || c.hours != nil || c.minutes != nil || c.fromEnd {
		return 0, false
	}
	if c.seconds == nil {
		return time.Second, true
	}
	if len(c.seconds) == 1 && c.seconds[0].stop < 0 && c.seconds[0].repeat > 0 && 60%c.seconds[0].repeat == 0 && c.seconds[0].repeat < 60 {
		return time.Duration(c.seconds[0].repeat) * time.Second, true
	}
	return 0, false
}

// passesOver reports that days repeat to the month's end: systemd then passes over the first of them after a month in
// which the repetition runs over the end (seen with 252: 1/7 goes from the 29th to the 8th).
func (c onCalendar) passesOver() bool {
	return !c.fromEnd && slices.ContainsFunc(c.days, func(k chain) bool { return k.repeat > 1 && k.stop < 0 })
}

// wholeMinute reports whether it elapses at full minutes only.
func (c onCalendar) wholeMinute() bool {
	s := values(c.seconds, 0, 59)
	return len(s) == 1 && s[0] == 0 && !c.fraction
}
