package scheduler

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ParseCron reads five fields (minute, hour, day of month, month, day of week) or a descriptor
// (@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually).
//
// `?` is `*`, 7 is Sunday, `5/15` is `5-59/15`, and ranges may end in Sunday but not wrap otherwise. A day field that begins with
// `*` or `?` is unrestricted and both day fields must match; otherwise either may (Debian's cron(8)).
//
// Warnings are what is legal but probably not meant: both day fields restricted, a step that
// does not divide its field. A cron that can never fire is an error.
func ParseCron(expr string) (c Cadence, warnings []string, err error) {
	c, warnings, err = parseCron(strings.TrimSpace(expr))
	if err != nil {
		return Cadence{}, nil, fmt.Errorf("cannot read cron %q: %w", expr, err)
	}
	return c, warnings, nil
}

func parseCron(expr string) (Cadence, []string, error) {
	upper := strings.ToUpper(expr)
	switch {
	case expr == "":
		return Cadence{}, nil, errors.New("it is empty")
	case strings.HasPrefix(upper, "TZ=") || strings.HasPrefix(upper, "CRON_TZ="):
		return Cadence{}, nil, errors.New("a cron takes no TZ=; use timezone: beside it")
	case expr[0] == '@':
		return parseDescriptor(expr)
	}
	texts := strings.Fields(expr)
	if len(texts) != len(cronFields) {
		hint := ""
		if len(texts) == len(cronFields)+1 {
			hint = " (there are no seconds and no years)"
		}
		return Cadence{}, nil, fmt.Errorf("want 5 fields (minute, hour, day-of-month, month, day-of-week), found %d%s", len(texts), hint)
	}
	plain := make([]string, len(texts))
	var warnings []string
	for i, text := range texts {
		p, warning, err := cronFields[i].plain(text)
		if err != nil {
			return Cadence{}, nil, fmt.Errorf("%s: %w", cronFields[i].name, err)
		}
		if warning != "" {
			warnings = append(warnings, cronFields[i].name+" "+warning)
		}
		plain[i] = p
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	schedule, err := parser.Parse(strings.Join(plain, " "))
	if err != nil {
		return Cadence{}, nil, err
	}
	c := Cadence{text: "cron " + strings.Join(texts, " "), cal: calendarOf(schedule.(*cron.SpecSchedule))}
	c.cal.elapsed = beginsWithStar(texts[1])
	c.cal.either = !beginsWithStar(texts[2]) && !beginsWithStar(texts[4])
	if c.cal.either || c.cal.days != allDays && c.cal.weekdays != allWeekdays {
		warnings = append(warnings, bothDays(c.cal.either))
	}
	// Any search finds every date that exists at all, so it may start anywhere.
	if _, ok := c.cal.next(0); !ok {
		return Cadence{}, nil, errors.New("it never fires: no such date exists")
	}
	return c, warnings, nil
}

// calendarOf takes over the parser's sets of values. Its highest bit, which is meant to say that the field held
// a star, is dropped: it is unset for `*/2` and set for `1,*`.
func calendarOf(s *cron.SpecSchedule) calendar {
	return calendar{
		minutes:  s.Minute &^ (1 << 63),
		hours:    uint32(s.Hour),
		days:     uint32(s.Dom),
		months:   uint16(s.Month),
		weekdays: uint8(s.Dow),
	}
}

func beginsWithStar(field string) bool { return field[0] == '*' || field[0] == '?' }

func bothDays(either bool) string {
	if either {
		return "day-of-month and day-of-week are both restricted: it fires on days that match either"
	}
	return "day-of-month and day-of-week are both restricted and one begins with *: it fires only on days that match both"
}

func parseDescriptor(expr string) (Cadence, []string, error) {
	word, rest, _ := strings.Cut(expr, " ")
	switch word {
	case "@every":
		return Cadence{}, nil, fmt.Errorf("@every is no cron; use every: %s", suggestInterval(strings.TrimSpace(rest)))
	case "@reboot":
		return Cadence{}, nil, errors.New("@reboot is no time; use a unit of the init system that runs `marbles roll` at boot")
	}
	schedule, err := cron.NewParser(cron.Descriptor).Parse(expr)
	spec, ok := schedule.(*cron.SpecSchedule)
	if err != nil || !ok {
		return Cadence{}, nil, errors.New("want @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually")
	}
	c := Cadence{text: "cron " + expr, cal: calendarOf(spec)}
	c.cal.elapsed = c.cal.hours == allHours
	return c, nil, nil
}

// suggestInterval writes a duration the way `every` reads it.
func suggestInterval(text string) string {
	if c, err := ParseEvery(text); err == nil {
		return strings.TrimPrefix(c.text, "every ")
	}
	if d, err := time.ParseDuration(text); err == nil && d >= time.Second && d%time.Second == 0 {
		return renderInterval(int64(d / time.Second))
	}
	return "30m (or the like)"
}
