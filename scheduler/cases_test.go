package scheduler

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// minuteLayout is an instant as the case tables write it: local time with its offset.
const minuteLayout = "2006-01-02T15:04Z07:00"

func TestGoldenCrons(t *testing.T) {
	for _, row := range readCSV(t, "testdata/dst.csv") {
		t.Run(row["id"], func(t *testing.T) {
			checkNexts(t, mustCron(t, row["expr"]).In(zone(t, row["zone"])), row["from_local"],
				row["next_1"], row["next_2"], row["next_3"])
		})
	}
}

func TestGoldenSlots(t *testing.T) {
	for _, row := range readCSV(t, "testdata/slots.csv") {
		t.Run(row["id"], func(t *testing.T) {
			at := At{Hour: atoi(t, row["hour"]), Minute: atoi(t, row["minute"])}
			for _, name := range strings.Fields(row["weekday"]) {
				d, ok := weekdayNumber(name)
				if !ok {
					t.Fatalf("weekday %q", name)
				}
				at.Weekdays = append(at.Weekdays, time.Weekday(d))
			}
			c, err := NewAt(at)
			if err != nil {
				t.Fatal(err)
			}
			s, ok := c.In(zone(t, row["zone"])).Next(instant(t, row["last_finish"], time.UTC), nil)
			if !ok {
				t.Fatal("no next slot")
			}
			want := instant(t, row["next_local"], time.UTC)
			if !s.At.Equal(want) || !want.Equal(instant(t, row["next_utc"], time.UTC)) {
				t.Errorf("next is %s, want %s", s.At.Format(time.RFC3339), row["next_local"])
			}
		})
	}
}

// Cases from public reports on other schedulers; a number keeps those of one report together.
func TestReportedCases(t *testing.T) {
	const newYork = "America/New_York"
	tests := []struct {
		name, expr, zone, from string
		want                   []string
	}{
		{"C01 every minute into a gap", "* * * * *", newYork, "2026-03-08T01:58",
			[]string{"2026-03-08T01:59-05:00", "2026-03-08T03:00-04:00", "2026-03-08T03:01-04:00"}},
		{"C01 daily inside the gap", "30 2 * * *", newYork, "2026-03-08T01:30",
			[]string{"2026-03-08T03:30-04:00", "2026-03-09T02:30-04:00"}},
		{"C03 02:00 at spring forward", "0 2 * * *", "America/Los_Angeles", "2025-03-08T12:00-08:00",
			[]string{"2025-03-09T03:00-07:00", "2025-03-10T02:00-07:00"}},
		{"C06 01:30 occurs twice", "30 1 * * *", newYork, "2026-10-31T12:00",
			[]string{"2026-11-01T01:30-04:00", "2026-11-02T01:30-05:00"}},
		{"C11 a date only inside the gap", "0 1 30 3 *", "Europe/Lisbon", "2024-11-15T00:00",
			[]string{"2025-03-30T02:00+01:00", "2026-03-30T01:00+01:00"}},
		{"C15 half-hour change", "15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00+10:30",
			[]string{"2025-10-05T02:45+11:00", "2025-10-06T02:15+11:00"}},
		{"C22 even hours owe nothing for the gap", "0 */2 * * *", newYork, "2026-03-08T00:00",
			[]string{"2026-03-08T04:00-04:00", "2026-03-08T06:00-04:00"}},
		{"C24 a star with a step is unrestricted", "0 0 */2 * 3", "UTC", "2024-08-16T12:00",
			[]string{"2024-08-21T00:00Z", "2024-09-11T00:00Z", "2024-09-25T00:00Z", "2024-10-09T00:00Z"}},
		{"C24 both restricted", "0 0 13 * 5", "UTC", "2024-08-16T12:00",
			[]string{"2024-08-23T00:00Z", "2024-08-30T00:00Z", "2024-09-06T00:00Z", "2024-09-13T00:00Z", "2024-09-20T00:00Z"}},
		{"C26 every second weekday", "0 0 * * */2", "UTC", "2026-01-02T00:00",
			[]string{"2026-01-03T00:00Z", "2026-01-04T00:00Z", "2026-01-06T00:00Z", "2026-01-08T00:00Z"}},
		{"C27 no leap year in 2100", "0 0 29 2 *", "UTC", "2096-03-01T00:00",
			[]string{"2104-02-29T00:00Z", "2108-02-29T00:00Z"}},
		{"C27 months without a 31st are skipped", "0 0 31 * *", "UTC", "2026-01-31T00:00",
			[]string{"2026-03-31T00:00Z", "2026-05-31T00:00Z", "2026-07-31T00:00Z"}},
		{"C29 a start with a step", "5/15 * * * *", "UTC", "2026-01-01T00:00",
			[]string{"2026-01-01T00:05Z", "2026-01-01T00:20Z", "2026-01-01T00:35Z", "2026-01-01T00:50Z", "2026-01-01T01:05Z"}},
		{"C30 Sunday as 7", "0 0 * * 7", "UTC", "2026-01-02T00:00",
			[]string{"2026-01-04T00:00Z", "2026-01-11T00:00Z"}},
		{"C30 a range to 7", "0 0 * * 5-7", "UTC", "2026-01-02T00:00",
			[]string{"2026-01-03T00:00Z", "2026-01-04T00:00Z", "2026-01-09T00:00Z"}},
		{"C30 a range to sun", "0 0 * * FRI-Sun", "UTC", "2026-01-02T00:00",
			[]string{"2026-01-03T00:00Z", "2026-01-04T00:00Z", "2026-01-09T00:00Z"}},
		{"29 February on a Sunday or Monday, across 2100", "0 0 29 2 */7,1", "UTC", "2096-01-01T00:00",
			[]string{"2112-02-29T00:00Z", "2128-02-29T00:00Z"}},
		{"the rarest date", "0 0 29 2 */7", "UTC", "2088-02-29T00:00", []string{"2128-02-29T00:00Z"}},
		{"C44 the evening slot is still to come", "0 17 * * *", "UTC", "2026-01-05T10:57", []string{"2026-01-05T17:00Z"}},
		{"C47 from the last run only", "0 4 * * *", newYork, "2026-02-06T14:59", []string{"2026-02-07T04:00-05:00"}},

		{"a moved slot meets a real one", "30 2,3 * * *", newYork, "2026-03-08T00:00",
			[]string{"2026-03-08T03:30-04:00", "2026-03-09T02:30-04:00", "2026-03-09T03:30-04:00"}},
		{"moved slots mix with later ones", "*/20,45 2,3 * * *", newYork, "2026-03-08T01:00",
			[]string{"2026-03-08T03:00-04:00", "2026-03-08T03:20-04:00", "2026-03-08T03:40-04:00", "2026-03-08T03:45-04:00",
				"2026-03-09T02:00-04:00"}},
		{"moved slots come between others", "10,50 2 8 3 *", newYork, "2026-03-08T01:00",
			[]string{"2026-03-08T03:10-04:00", "2026-03-08T03:50-04:00", "2027-03-08T02:10-05:00"}},
		{"elapsed time through a fold", "*/30 * * * *", "Europe/Berlin", "2026-10-25T01:30+02:00",
			[]string{"2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00", "2026-10-25T02:00+01:00",
				"2026-10-25T02:30+01:00", "2026-10-25T03:00+01:00"}},
		{"? is a star", "0 ?/2 ? * ?", newYork, "2026-03-08T00:00", []string{"2026-03-08T04:00-04:00", "2026-03-08T06:00-04:00"}},
		{"a list with a star does not begin with one", "30 1,* * * *", newYork, "2026-11-01T00:45",
			[]string{"2026-11-01T01:30-04:00", "2026-11-01T02:30-05:00"}},
		{"a missing day", "30 2 * * *", "Pacific/Apia", "2011-12-29T00:00-10:00",
			[]string{"2011-12-29T02:30-10:00", "2011-12-31T02:30+14:00", "2012-01-01T02:30+14:00"}},
		{"a missing Friday", "30 2 * * fri", "Pacific/Apia", "2011-12-29T00:00-10:00",
			[]string{"2011-12-31T02:30+14:00", "2012-01-06T02:30+14:00"}},
		{"a missing Friday in elapsed time", "30 */12 * * fri", "Pacific/Apia", "2011-12-29T00:00-10:00",
			[]string{"2012-01-06T00:30+14:00"}},
		{"midnight gap", "0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00",
			[]string{"2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"}},
		{"midnight fold", "59 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00",
			[]string{"2018-02-17T23:59-02:00", "2018-02-18T23:59-03:00"}},
		{"Dublin's winter has negative DST", "30 1 * * *", "Europe/Dublin", "2026-10-24T12:00",
			[]string{"2026-10-25T01:30+01:00", "2026-10-26T01:30Z"}},
		{"finish in the second pass before the slot", "30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00",
			[]string{"2026-10-26T02:30+01:00"}},
		{"finish inside the moved hour", "30 2 * * *", newYork, "2026-03-08T03:10-04:00",
			[]string{"2026-03-08T03:30-04:00", "2026-03-09T02:30-04:00"}},
		{"finish on the slot", "30 2 * * *", "Europe/Berlin", "2026-03-10T02:30+01:00", []string{"2026-03-11T02:30+01:00"}},
		{"after the rules of the table end", "30 2 * * *", "Europe/Berlin", "2099-03-28T12:00",
			[]string{"2099-03-29T03:30+02:00", "2099-03-30T02:30+02:00"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checkNexts(t, mustCron(t, tt.expr).In(zone(t, tt.zone)), tt.from, tt.want...)
		})
	}
}

// C07: an hourly cron runs 25 times on the day a fold makes 25 hours long.
func TestHourlyOnALongDay(t *testing.T) {
	loc := zone(t, "America/New_York")
	from, to := instant(t, "2026-10-31T23:59", loc), instant(t, "2026-11-01T23:59", loc)
	for _, expr := range []string{"0 * * * *", "@hourly"} {
		_, _, count, _, _ := mustCron(t, expr).In(loc).Latest(from, to, nil)
		if count != 25 {
			t.Errorf("%s: %d slots, want 25", expr, count)
		}
	}
}

// C17: the machine's zone has no say where the cadence has its own.
func TestOwnZoneIgnoresTheMachine(t *testing.T) {
	c := mustCron(t, "0,1,30,59 0,1,2 30 10 *").In(time.UTC)
	from := instant(t, "2022-10-30T00:30Z", time.UTC)
	var got []string
	for range 6 {
		s, _ := c.Next(from, zone(t, "Europe/London"))
		got = append(got, s.At.Format("15:04Z07:00"))
		from = s.At
	}
	want := []string{"00:59Z", "01:00Z", "01:01Z", "01:30Z", "01:59Z", "02:00Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A slot keeps its nominal time where a gap moves it; merged slots keep the later one.
func TestNominalTimes(t *testing.T) {
	tests := []struct {
		name, expr, zone, from string
		want                   []string
	}{
		{"gap", "10,50 2 * * *", "Europe/Berlin", "2026-03-29T00:00", []string{"2026-03-29T02:10", "2026-03-29T02:50", "2026-03-30T02:10"}},
		{"merged", "30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00", []string{"2026-03-29T03:30", "2026-03-30T02:30"}},
		{"fold", "30 2 * * *", "Europe/Berlin", "2026-10-25T00:00", []string{"2026-10-25T02:30", "2026-10-26T02:30"}},
		{"missing day", "30 2 30 12 *", "Pacific/Apia", "2011-12-01T00:00", []string{"2011-12-30T02:30", "2012-12-30T02:30"}},
		{"elapsed time has none", "30 * * * *", "Europe/Berlin", "2026-03-29T00:00", []string{"", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			loc := zone(t, tt.zone)
			c, at := mustCron(t, tt.expr), instant(t, tt.from, loc)
			var got []string
			for range tt.want {
				s, _ := c.Next(at, loc)
				got = append(got, s.Civil)
				at = s.At
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The first column of instants is what time.Date answers, which depends on the side of Greenwich.
func TestResolve(t *testing.T) {
	tests := []struct{ civil, zone, timeDate, want string }{
		{"2026-03-08T02:30", "America/New_York", "2026-03-08T01:30-05:00", "2026-03-08T03:30-04:00"},
		{"2025-03-09T02:00", "America/Los_Angeles", "2025-03-09T01:00-08:00", "2025-03-09T03:00-07:00"},
		{"2018-11-04T00:00", "America/Sao_Paulo", "2018-11-03T23:00-03:00", "2018-11-04T01:00-02:00"},
		{"2025-09-07T00:00", "America/Santiago", "2025-09-06T23:00-04:00", "2025-09-07T01:00-03:00"},
		{"2026-03-29T01:30", "Europe/London", "2026-03-29T02:30+01:00", "2026-03-29T02:30+01:00"},
		{"2026-03-29T02:30", "Europe/Berlin", "2026-03-29T03:30+02:00", "2026-03-29T03:30+02:00"},
		{"2026-10-04T02:30", "Australia/Sydney", "2026-10-04T03:30+11:00", "2026-10-04T03:30+11:00"},
		{"2025-10-05T02:15", "Australia/Lord_Howe", "2025-10-05T02:45+11:00", "2025-10-05T02:45+11:00"},
		{"2025-04-25T00:00", "Africa/Cairo", "2025-04-25T01:00+03:00", "2025-04-25T01:00+03:00"},
		{"2011-12-30T12:00", "Pacific/Apia", "2011-12-31T12:00+14:00", "2011-12-31T12:00+14:00"},
		{"2026-11-01T01:30", "America/New_York", "2026-11-01T01:30-04:00", "2026-11-01T01:30-04:00"},
		{"2026-10-25T01:30", "Europe/London", "2026-10-25T01:30Z", "2026-10-25T01:30+01:00"},
		{"2026-10-25T02:30", "Europe/Berlin", "2026-10-25T02:30+01:00", "2026-10-25T02:30+02:00"},
		{"2026-04-05T02:30", "Australia/Sydney", "2026-04-05T02:30+10:00", "2026-04-05T02:30+11:00"},
		{"2025-04-06T01:45", "Australia/Lord_Howe", "2025-04-06T01:45+10:30", "2025-04-06T01:45+11:00"},
		{"2026-06-01T12:00", "Europe/Berlin", "2026-06-01T12:00+02:00", "2026-06-01T12:00+02:00"},
	}
	for _, tt := range tests {
		t.Run(tt.civil+" "+tt.zone, func(t *testing.T) {
			loc, w := zone(t, tt.zone), instant(t, tt.civil, time.UTC)
			got := Resolve(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), loc).Format(minuteLayout)
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			std := time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), 0, 0, loc).Format(minuteLayout)
			if std != tt.timeDate {
				t.Logf("time.Date answers %s here, no longer %s", std, tt.timeDate)
			}
		})
	}
}

func checkNexts(t *testing.T, c Cadence, from string, want ...string) {
	t.Helper()
	at := instant(t, from, c.Location())
	var got []string
	for range want {
		s, ok := c.Next(at, nil)
		if !ok {
			t.Fatalf("no slot after %s", at)
		}
		got = append(got, s.At.Format(minuteLayout))
		at = s.At
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func mustCron(t testing.TB, expr string) Cadence {
	t.Helper()
	c, _, err := ParseCron(expr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// instant reads an instant with an offset, or else an unambiguous wall time of a zone.
func instant(t testing.TB, text string, loc *time.Location) time.Time {
	t.Helper()
	for _, layout := range []string{time.RFC3339, minuteLayout} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	at, err := time.ParseInLocation("2006-01-02T15:04", text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func readCSV(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, value := range row {
			m[rows[0][i]] = value
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		t.Fatalf("%s holds no rows", path)
	}
	return out
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
