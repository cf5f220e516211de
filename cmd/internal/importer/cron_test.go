package importer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"marbles/scheduler"
)

func zoneNamed(t interface{ Fatal(...any) }, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// cronField draws a field as both crons read it alike.
func drawField(t *rapid.T, name string, low, high int) string {
	value := rapid.IntRange(low, high)
	one := func() string {
		switch rapid.IntRange(0, 3).Draw(t, name+" form") {
		case 0:
			return fmt.Sprintf("*/%d", rapid.IntRange(1, high).Draw(t, name+" step"))
		case 1:
			lo := value.Draw(t, name+" low")
			return fmt.Sprintf("%d-%d/%d", lo, rapid.IntRange(lo, high).Draw(t, name+" high"), rapid.IntRange(1, 7).Draw(t, name+" step"))
		}
		return fmt.Sprint(value.Draw(t, name))
	}
	switch rapid.IntRange(0, 3).Draw(t, name+" kind") {
	case 0, 1:
		return "*"
	case 2:
		return one()
	}
	return one() + "," + fmt.Sprint(value.Draw(t, name+" second"))
}

// TestCronsAgree: for any cron our next ten instants are Debian's, but around a change of the clocks, as documented.
func TestCronsAgree(t *testing.T) {
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"}
	rapid.Check(t, func(t *rapid.T) {
		expr := strings.Join([]string{
			drawField(t, "minute", 0, 59), drawField(t, "hour", 0, 23), drawField(t, "day", 1, 28),
			drawField(t, "month", 1, 12), drawField(t, "weekday", 0, 7),
		}, " ")
		loc := zoneNamed(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		from := time.Unix(rapid.Int64Range(1704067200, 1956528000).Draw(t, "from"), 0)
		ours1, _, err := scheduler.ParseCron(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		old, err := parseCronOld(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		r := &reading{Options: Options{Local: loc}}
		got := ours(ours1, from, loc, Instants)
		for _, row := range rows(old.next(from, loc, Instants), got, Instants, func(at time.Time) string { return r.why(&Trigger{}, ours1, at) }) {
			if strings.HasPrefix(row.Why, "unexplained") {
				t.Fatalf("%s in %s from %s: old %s, new %s", expr, loc, from, row.Old, row.New)
			}
			if row.Why != "" && (loc.String() == "UTC" || loc.String() == "Asia/Kolkata") {
				t.Fatalf("%s in %s, whose clocks never change: old %s, new %s", expr, loc, row.Old, row.New)
			}
		}
	})
}

// TestDebianCron holds the old side to what cron(8) says, so that the two sides cannot be wrong together.
func TestDebianCron(t *testing.T) {
	berlin := zoneNamed(t, "Europe/Berlin")
	tests := []struct {
		name, expr, from string
		want             []string
	}{
		{"a skipped time is run at once", "30 2 * * *", "2027-03-27T12:00:00+01:00", []string{"2027-03-28T03:00:00+02:00", "2027-03-29T02:30:00+02:00"}},
		{"a repeated time is run once", "30 2 * * *", "2027-10-30T12:00:00+02:00", []string{"2027-10-31T02:30:00+02:00", "2027-11-01T02:30:00+01:00"}},
		{"a star in the hour follows the clock", "30 */2 * * *", "2027-10-31T01:00:00+02:00", []string{"2027-10-31T02:30:00+02:00", "2027-10-31T02:30:00+01:00"}},
		{"a star in the minute too", "*/30 2 * * *", "2027-03-27T12:00:00+01:00", []string{"2027-03-29T02:00:00+02:00", "2027-03-29T02:30:00+02:00"}},
		{"either day", "0 0 13 * 5", "2027-01-01T12:00:00+01:00", []string{"2027-01-08T00:00:00+01:00", "2027-01-13T00:00:00+01:00"}},
		{"both days, where one begins with a star", "0 0 */2 * 1", "2027-01-01T12:00:00+01:00", []string{"2027-01-11T00:00:00+01:00", "2027-01-25T00:00:00+01:00"}},
		{"Sunday is 7", "0 0 * * 7", "2027-01-01T12:00:00+01:00", []string{"2027-01-03T00:00:00+01:00", "2027-01-10T00:00:00+01:00"}},
		{"leap day", "0 0 29 2 *", "2027-01-01T12:00:00+01:00", []string{"2028-02-29T00:00:00+01:00", "2032-02-29T00:00:00+01:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			from, err := time.Parse(time.RFC3339, tt.from)
			if err != nil {
				t.Fatal(err)
			}
			c, err := parseCronOld(tt.expr)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, at := range c.next(from, berlin, len(tt.want)) {
				got = append(got, at.Format(time.RFC3339))
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
