package initsys

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"marbles/scheduler"
)

// OnCalendar writes a cadence that names slots as calendar expressions of systemd, which fire at every one of its slots but
// those that the notes speak of, and at nothing else. local is the machine's zone, now when it is asked.
//
// systemd reads a wall time in the zone at its end, else in the machine's. One that a clock change skips it skips; one
// that occurs twice fires at its first occurrence only.
func OnCalendar(c scheduler.Cadence, local *time.Location, now time.Time) (lines, notes []string, ok bool) {
	f, ok := c.Fields()
	if !ok {
		return nil, nil, false
	}
	zone, suffix := local, ""
	if loc := c.Location(); loc != nil {
		zone, suffix = loc, " "+loc.String()
	}
	changes := changesAhead(zone, now)
	if f.Elapsed && len(changes) > 0 {
		if utc, ok := inUTC(f, zone, now, changes); ok {
			if c.Location() == nil {
				notes = append(notes, "it is written in UTC, so that it goes on through clock changes; install it again after the machine has moved to a zone that is not whole hours away")
			}
			return []string{wallClock(utc.Minutes, nil) + " UTC"}, notes, true
		}
	}
	dates, weekdays := "*-*-*", ""
	if !f.EveryMonth() || !f.EveryDate() {
		dates = "*-" + list(f.Months, f.EveryMonth(), "%02d") + "-" + list(f.Days, f.EveryDate(), "%02d")
	}
	if !f.EveryWeekday() {
		weekdays = days(f.Weekdays) + " "
	}
	hours := f.Hours
	if f.EveryHour() {
		hours = nil
	}
	clock := wallClock(f.Minutes, hours)[len("*-*-* "):]
	if f.Either {
		months := "*-" + list(f.Months, f.EveryMonth(), "%02d") + "-*"
		lines = []string{dates + " " + clock + suffix, weekdays + months + " " + clock + suffix}
	} else {
		lines = []string{weekdays + dates + " " + clock + suffix}
	}
	return lines, append(notes, changeNotes(c, f, zone, now, changes)...), true
}

// wallClock is the time of every day; nil hours are all.
func wallClock(minutes, hours []int) string {
	return "*-*-* " + list(hours, hours == nil, "%02d") + ":" + list(minutes, len(minutes) == 60, "%02d") + ":00"
}

// list writes a set of values: a run of them as a range, any other set one by one. systemd's steps are left aside: over
// the end of a month some versions of it lose values.
func list(values []int, all bool, form string) string {
	if all {
		return "*"
	}
	var parts []string
	for i := 0; i < len(values); {
		j := i
		for j+1 < len(values) && values[j+1] == values[j]+1 {
			j++
		}
		switch {
		case j-i >= 2:
			parts = append(parts, fmt.Sprintf(form+".."+form, values[i], values[j]))
		default:
			for _, v := range values[i : j+1] {
				parts = append(parts, fmt.Sprintf(form, v))
			}
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// days writes weekdays, Monday first.
func days(set []time.Weekday) string {
	names := [...]string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
	var from []int
	for _, d := range set {
		from = append(from, (int(d)+6)%7)
	}
	slices.Sort(from)
	text := list(from, false, "%d")
	for i := range names {
		text = strings.ReplaceAll(text, strconv.Itoa(i), names[i])
	}
	return text
}

// change is a change of a zone's clocks, by so many seconds.
type change struct {
	at time.Time
	by int
}

// changesAhead are the changes of a zone's clocks in the years to come. Rules further ahead are not known anyway.
func changesAhead(zone *time.Location, now time.Time) (list []change) {
	for t, end := now.In(zone), now.AddDate(10, 0, 0); ; {
		_, next := t.ZoneBounds()
		if !next.After(t) || next.After(end) {
			return list
		}
		_, before := next.Add(-time.Second).Zone()
		_, after := next.Zone()
		if before != after {
			list = append(list, change{next, after - before})
		}
		t = next
	}
}

// inUTC is a cron that follows elapsed time, every day and hour, with its minutes as UTC has them; not ok where they are
// not the same all along.
func inUTC(f scheduler.Fields, zone *time.Location, now time.Time, changes []change) (scheduler.Fields, bool) {
	if !f.EveryHour() || !f.EveryDate() || !f.EveryMonth() || !f.EveryWeekday() {
		return f, false
	}
	_, offset := now.In(zone).Zone()
	first := shifted(f.Minutes, offset)
	for _, c := range changes {
		_, offset := c.at.Zone()
		if first == nil || !slices.Equal(first, shifted(f.Minutes, offset)) {
			return f, false
		}
	}
	f.Minutes = first
	return f, first != nil
}

// shifted is minutes of a zone so many seconds east of Greenwich as UTC has them; nil where those are no whole minutes.
func shifted(minutes []int, offset int) []int {
	if offset%60 != 0 {
		return nil
	}
	out := make([]int, len(minutes))
	for i, m := range minutes {
		out[i] = ((m-offset/60)%60 + 60) % 60
	}
	slices.Sort(out)
	return out
}

// changeNotes say what systemd does otherwise at the next clock changes that matter to a cadence.
func changeNotes(c scheduler.Cadence, f scheduler.Fields, zone *time.Location, now time.Time, changes []change) (notes []string) {
	name := zone.String()
	if name == "Local" {
		name = "this machine's zone"
	}
	var skips, halves bool
	for _, ch := range changes {
		switch {
		case ch.by > 0 && !f.Elapsed && !skips:
			from := ch.at.Add(-time.Second)
			for s, ok := c.Next(from, zone); ok && s.At.Before(ch.at.Add(time.Duration(ch.by)*time.Second)); s, ok = c.Next(s.At, zone) {
				if s.Civil != "" && s.At.In(zone).Format("2006-01-02T15:04") != s.Civil {
					notes = append(notes, fmt.Sprintf("systemd skips a slot that a clock change removes, as %s on %s in %s; the service would start it at %s",
						s.Civil[11:], s.Civil[:10], name, s.At.In(zone).Format("15:04")))
					skips = true
					break
				}
			}
		case ch.by < 0 && f.Elapsed && !halves:
			from := ch.at.Add(-time.Second)
			if s, ok := c.Next(from, zone); ok && s.At.Before(ch.at.Add(-time.Duration(ch.by)*time.Second)) {
				notes = append(notes, fmt.Sprintf("systemd fires only once at wall times that a clock change brings twice, as %s on %s in %s; the service starts both",
					s.At.In(zone).Format("15:04"), s.At.In(zone).Format(time.DateOnly), name))
				halves = true
			}
		}
	}
	return notes
}
