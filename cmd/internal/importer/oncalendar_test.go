package importer

import (
	"os"
	"testing"
	"time"

	"marbles/scheduler"
)

// calendars are expressions of real timers, and of systemd.time(7).
var calendars = []string{
	"minutely", "hourly", "daily", "weekly", "monthly", "quarterly", "semiannually", "yearly", "Daily",
	"*-*-* 6,18:00", "*-*-* 6:00", "Mon *-*-* 00:00:00", "Sun *-*-* 03:10:00", "Mon..Fri *-*-* 09:00", "Mon-Fri 10:00", "Sat,Sun 12:05",
	"*:0/15", "*:00,10,40", "0/2:30", "10:00..12:00", "10..12:00", "*-*-01 04:00", "*-*-1/7 4:00", "*-*-01,15", "10-15", "*-2..4/2-*",
	"Mon *-*-1..7 10:00", "Sun *-*-8..14 10:00", "2027-*-* 00:00", "2027..2029-01-01", "28-02-29", "*-02-29 12:00",
	"*-*~01", "*-*~3", "Mon *-05~07/1", "*-*~07/2", "*:0/10:30", "*:*:0/20", "05:40:23", "Mon,Wed..Fri *-1,7-* 23:59:59",
	"*-*-* 02:30:00 Europe/Berlin", "Mon 00:00 America/New_York", "12:00 UTC", "Tuesday 8:00", "*-*-* *:45:00",
}

// TestOnCalendarIsSystemds holds our reading to systemd's own, in zones and around changes of the clocks.
func TestOnCalendarIsSystemds(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York"} {
		ask := SystemdAnalyze(zone)
		if ask == nil {
			if os.Getenv("CI") == "true" {
				t.Fatal("systemd-analyze is not installed")
			}
			t.Skip("systemd-analyze is not installed")
		}
		loc := zoneNamed(t, zone)
		for _, from := range []time.Time{
			time.Date(2026, 12, 1, 5, 1, 7, 0, time.UTC),
			time.Date(2027, 3, 26, 22, 0, 0, 0, time.UTC),
		} {
			for _, expr := range calendars {
				c, err := parseOnCalendar(expr)
				if err != nil {
					t.Errorf("%s: %v", expr, err)
					continue
				}
				if c.passesOver() {
					continue // systemd 252 goes from the 29th to the 8th
				}
				want, err := ask(expr, from, 6)
				if err != nil {
					t.Errorf("%s: %v", expr, err)
					continue
				}
				in := loc
				if c.zone != "" {
					in = zoneNamed(t, c.zone)
				}
				got := c.next(from, in, 6)
				if len(got) != len(want) {
					t.Errorf("%s in %s from %s: %d instants, want %d (%s; %s)", expr, zone, from, len(got), len(want), got, want)
					continue
				}
				for i := range got {
					if !got[i].Equal(want[i]) {
						t.Errorf("%s in %s from %s: #%d is %s, want %s", expr, zone, from, i, got[i].UTC(), want[i])
						break
					}
				}
			}
		}
	}
}

// TestOnCalendarAsCron: where there is a cron for an expression it fires in the same minutes.
func TestOnCalendarAsCron(t *testing.T) {
	crons := 0
	for _, expr := range calendars {
		c, err := parseOnCalendar(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		if _, ok := c.everySecond(); ok {
			continue
		}
		cron, err := c.cron()
		if err != nil {
			continue
		}
		crons++
		cadence, _, err := scheduler.ParseCron(cron)
		if err != nil {
			t.Errorf("%s becomes %s: %v", expr, cron, err)
			continue
		}
		from := time.Date(2026, 12, 1, 5, 1, 7, 0, time.UTC)
		got := ours(cadence, from, time.UTC, 20)
		want := c.next(from, time.UTC, 20)
		for i := range min(len(got), len(want)) {
			if !got[i].Equal(want[i].Truncate(time.Minute)) {
				t.Errorf("%s becomes %s: #%d is %s, want %s", expr, cron, i, got[i], want[i])
				break
			}
		}
	}
	if crons < 30 {
		t.Errorf("only %d of %d expressions have a cron", crons, len(calendars))
	}
}

func TestOnCalendarRefuses(t *testing.T) {
	for _, expr := range []string{"", "*:*/15", "Fri..Mon", "Mon..", "today", "*-*-*/2", "25:00", "*-13-01", "@1700000000", "*-*~2..1", "Mon Tue 10:00", "1:2:3:4"} {
		if c, err := parseOnCalendar(expr); err == nil {
			t.Errorf("%q is read as %+v, and systemd refuses it", expr, c)
		}
	}
}

func TestTimespan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1h 30min": 90 * time.Minute, "1d": 24 * time.Hour, "1w": 7 * 24 * time.Hour, "6000": 100 * time.Minute,
		"12h": 12 * time.Hour, "500ms": 500 * time.Millisecond, "1.5h": 90 * time.Minute, "2min5s": 125 * time.Second, "5 s": 5 * time.Second,
	} {
		if got, _, err := timespan(text); err != nil || got != want {
			t.Errorf("%q is %s (%v), want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1x", "h", "1..2s", "99999999999999y"} {
		if got, _, err := timespan(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
