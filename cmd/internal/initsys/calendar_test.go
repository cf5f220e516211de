package initsys

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"marbles/scheduler"
)

// analyze skips where systemd-analyze is missing; an automated build must have it (CI=true).
func analyze(t *testing.T) string {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("systemd-analyze is not installed, and CI=true")
		}
		t.Skip("systemd-analyze is not installed")
	}
	return tool
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func cron(t *testing.T, expr string) scheduler.Cadence {
	t.Helper()
	c, _, err := scheduler.ParseCron(expr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var instants = regexp.MustCompile(`(?m)(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC$`)

// elapses are the next instants of each of several expressions, as systemd reckons them in a machine's zone.
func elapses(t *testing.T, tool, tz string, base time.Time, n int, exprs []string) [][]time.Time {
	t.Helper()
	cmd := exec.Command(tool, append([]string{
		"calendar", fmt.Sprintf("--iterations=%d", n), "--base-time=" + base.UTC().Format("2006-01-02 15:04:05") + " UTC",
	}, exprs...)...)
	cmd.Env = []string{"TZ=" + tz, "LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze calendar in %s: %v\n%s", tz, err, out)
	}
	blocks := regexp.MustCompile(`(?m)^\s*Original form: |^\s*Normalized form: `).Split(string(out), -1)
	var found [][]time.Time
	for _, b := range blocks[1:] {
		if !strings.Contains(b, "Next elapse") { // it was written in another form
			continue
		}
		var list []time.Time
		for _, m := range instants.FindAllStringSubmatch(b, -1) {
			at, err := time.Parse(time.DateTime, m[1])
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, at)
		}
		found = append(found, list)
	}
	if len(found) != len(exprs) {
		t.Fatalf("systemd-analyze answers %d of %d expressions:\n%s", len(found), len(exprs), out)
	}
	return found
}

// generate makes cadences of every form: crons with steps, ranges, lists, names and days that either or both restrict,
// and slots.
func generate(t *testing.T, r *rand.Rand, n int) (list []scheduler.Cadence) {
	t.Helper()
	item := func(low, high int) string {
		a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
		if a > b {
			a, b = b, a
		}
		switch r.IntN(5) {
		case 0:
			return fmt.Sprintf("%d-%d", a, b)
		case 1:
			return fmt.Sprintf("%d-%d/%d", a, b, 1+r.IntN(7))
		case 2:
			return fmt.Sprintf("*/%d", 1+r.IntN(high-low+1))
		default:
			return fmt.Sprint(a)
		}
	}
	field := func(low, high int, star float64) string {
		if r.Float64() < star {
			return "*"
		}
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = item(low, high)
		}
		return strings.Join(parts, ",")
	}
	for len(list) < n {
		if r.IntN(6) == 0 {
			at := scheduler.At{Hour: r.IntN(24), Minute: r.IntN(60)}
			for range r.IntN(4) {
				at.Weekdays = append(at.Weekdays, time.Weekday(r.IntN(7)))
			}
			c, err := scheduler.NewAt(at)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, c)
			continue
		}
		expr := strings.Join([]string{
			field(0, 59, 0.2), field(0, 23, 0.4), field(1, 31, 0.5), field(1, 12, 0.7), field(0, 7, 0.6),
		}, " ")
		if c, _, err := scheduler.ParseCron(expr); err == nil { // some never fire
			list = append(list, c)
		}
	}
	return list
}

// again reports whether the wall showed an instant's time before.
func again(at time.Time) bool {
	return !scheduler.Resolve(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Location()).Equal(at)
}

// compare holds the next instants of a cadence against systemd's, and allows exactly what the notes say.
func compare(c scheduler.Cadence, local *time.Location, base time.Time, lines []string, notes []string, theirs [][]time.Time) error {
	const n = 50
	union := slices.Concat(theirs...)
	slices.SortFunc(union, time.Time.Compare)
	union = slices.CompactFunc(union, time.Time.Equal)
	end := base.AddDate(100, 0, 0)
	for _, list := range theirs { // as far as every line was asked
		if len(list) == n && list[n-1].Before(end) {
			end = list[n-1]
		}
	}
	loc := c.Location()
	if loc == nil {
		loc = local
	}
	said := strings.Join(notes, "\n")
	var ours []time.Time
	last := base
	for range n {
		s, ok := c.Next(last, local)
		if !ok || s.At.After(end) {
			break
		}
		last = s.At
		at := s.At.In(loc)
		moved := s.Civil != "" && at.Format("2006-01-02T15:04") != s.Civil
		twice := again(at) && !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, " UTC") })
		switch {
		case moved && !strings.Contains(said, "systemd skips a slot"):
			return fmt.Errorf("%s was moved, and the notes do not say so: %q", s.At, notes)
		case twice && !strings.Contains(said, "systemd fires only once"):
			return fmt.Errorf("%s comes the second time, and the notes do not say so: %q", s.At, notes)
		case !moved && !twice:
			ours = append(ours, s.At.UTC())
		}
	}
	for len(union) > 0 && union[len(union)-1].After(last) {
		union = union[:len(union)-1]
	}
	if !slices.EqualFunc(ours, union, time.Time.Equal) {
		i := 0
		for i < min(len(ours), len(union)) && ours[i].Equal(union[i]) {
			i++
		}
		at := func(l []time.Time) string {
			if i < len(l) {
				return l[i].In(loc).String()
			}
			return "none"
		}
		return fmt.Errorf("the %dth instant is %s, and systemd's is %s", i+1, at(ours), at(union))
	}
	if len(ours) == 0 {
		return fmt.Errorf("nothing was compared")
	}
	return nil
}

// TestOnCalendarAgreesWithSystemd compares the next 50 instants of hundreds of cadences, around clock changes and far from
// them, in zones of every kind, with what systemd says of the lines they become.
func TestOnCalendarAgreesWithSystemd(t *testing.T) {
	tool := analyze(t)
	r := rand.New(rand.NewPCG(5, 2026))
	for _, place := range []struct {
		zone  string
		bases []string
	}{
		{"UTC", []string{"2026-02-27T22:00:00Z"}},
		{"Europe/Berlin", []string{"2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z"}},
		{"America/New_York", []string{"2027-03-13T20:00:00Z", "2026-10-31T20:00:00Z"}},
		{"Asia/Kolkata", []string{"2026-12-30T12:00:00Z"}},
		{"Australia/Lord_Howe", []string{"2026-10-03T02:00:00Z", "2027-04-03T02:00:00Z"}},
		{"America/St_Johns", []string{"2026-10-31T20:00:00Z"}},
		{"America/Santiago", []string{"2026-09-05T12:00:00Z"}}, // its gap begins at midnight
	} {
		local := zone(t, place.zone)
		for _, text := range place.bases {
			base, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			cadences := append(generate(t, r, 70),
				cron(t, "30 2 * * *"), cron(t, "*/15 * * * *"), cron(t, "0 */2 * * *"), cron(t, "0 9 1 * 1"), cron(t, "5 2,3 * * 0"),
				cron(t, "@hourly"), cron(t, "@weekly"), cron(t, "0 0 29 2 *"), cron(t, "17 * * * 1-5"), cron(t, "0 0 31 * *"),
			)
			t.Run(place.zone+" "+text, func(t *testing.T) {
				t.Parallel()
				check(t, tool, place.zone, local, base, cadences)
			})
		}
	}
}

// check compares many cadences by one call of systemd's tool.
func check(t *testing.T, tool, tz string, local *time.Location, base time.Time, cadences []scheduler.Cadence) {
	var exprs []string
	type asked struct{ lines, notes []string }
	var all []asked
	for _, c := range cadences {
		lines, notes, ok := OnCalendar(c, local, base)
		if !ok {
			t.Errorf("%s has no calendar expression", c)
			return
		}
		exprs = append(exprs, lines...)
		all = append(all, asked{lines, notes})
	}
	found := elapses(t, tool, tz, base, 50, exprs)
	for i, c := range cadences {
		n := len(all[i].lines)
		if err := compare(c, local, base, all[i].lines, all[i].notes, found[:n]); err != nil {
			t.Errorf("%s in %s from %s: %v\n%q", c, tz, base.Format(time.RFC3339), err, all[i].lines)
		}
		found = found[n:]
	}
}

// TestOnCalendarInAZone does the same for cadences that name their zone, on a machine in another.
func TestOnCalendarInAZone(t *testing.T) {
	tool := analyze(t)
	base := time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC)
	berlin := zone(t, "Europe/Berlin")
	cadences := generate(t, rand.New(rand.NewPCG(7, 7)), 12)
	for i := range cadences {
		cadences[i] = cadences[i].In(berlin)
	}
	check(t, tool, "America/New_York", zone(t, "America/New_York"), base, append(cadences, cron(t, "*/15 * * * *").In(berlin)))
}

func TestOnCalendarText(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	berlin := zone(t, "Europe/Berlin")
	at, err := scheduler.NewAt(scheduler.At{Hour: 2, Minute: 30, Weekdays: []time.Weekday{time.Sunday, time.Monday, time.Tuesday, time.Friday}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		c     scheduler.Cadence
		local *time.Location
		want  []string
		notes int
	}{
		{cron(t, "30 2 * * *"), time.UTC, []string{"*-*-* 02:30:00"}, 0},
		{cron(t, "30 2 * * *").In(berlin), time.UTC, []string{"*-*-* 02:30:00 Europe/Berlin"}, 1},
		{cron(t, "30 4 * * *").In(berlin), time.UTC, []string{"*-*-* 04:30:00 Europe/Berlin"}, 0},
		{cron(t, "*/20 * * * *"), time.UTC, []string{"*-*-* *:00,20,40:00"}, 0},
		{cron(t, "*/20 * * * *").In(berlin), time.UTC, []string{"*-*-* *:00,20,40:00 UTC"}, 0},
		{cron(t, "*/20 * * * *"), berlin, []string{"*-*-* *:00,20,40:00 UTC"}, 1},
		{cron(t, "10 * * * *").In(zone(t, "America/St_Johns")), time.UTC, []string{"*-*-* *:40:00 UTC"}, 0},
		{cron(t, "40 * * * *").In(zone(t, "Australia/Lord_Howe")), time.UTC, []string{"*-*-* *:40:00 Australia/Lord_Howe"}, 1},
		{cron(t, "0 9-17 1,15 1-3 mon"), time.UTC, []string{"*-01..03-01,15 09..17:00:00", "Mon *-01..03-* 09..17:00:00"}, 0},
		{cron(t, "0 9 */10 * mon"), time.UTC, []string{"Mon *-*-01,11,21,31 09:00:00"}, 0},
		{at, time.UTC, []string{"Mon,Tue,Fri,Sun *-*-* 02:30:00"}, 0},
	} {
		got, notes, ok := OnCalendar(tt.c, tt.local, now)
		if !ok || !slices.Equal(got, tt.want) || len(notes) != tt.notes {
			t.Errorf("%s: %q, %q, %v; want %q and %d notes", tt.c, got, notes, ok, tt.want, tt.notes)
		}
	}
}
