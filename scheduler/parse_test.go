package scheduler

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestParseEvery(t *testing.T) {
	good := []struct{ text, want string }{
		{"30m", "every 30m"}, {"6h", "every 6h"}, {"1d", "every 1d"}, {"90s", "every 90s"}, {" 60s ", "every 1m"},
		{"24h", "every 1d"}, {"007m", "every 7m"}, {"1440m", "every 1d"}, {"104249991d", "every 104249991d"},
	}
	for _, tt := range good {
		c, err := ParseEvery(tt.text)
		if err != nil || c.String() != tt.want {
			t.Errorf("%q: got %s, %v; want %s", tt.text, c, err, tt.want)
		}
	}
	const malformed = ` (want e.g. 30m, 6h, 1d)`
	const unfit = ` must be a positive interval that fits in a safe integer`
	bad := []struct{ text, want string }{
		{"", `cannot read cadence ""` + malformed}, {"weekly", `cannot read cadence "weekly"` + malformed},
		{"1h30m", `cannot read cadence "1h30m"` + malformed}, {"1.5h", `cannot read cadence "1.5h"` + malformed},
		{"-1m", `cannot read cadence "-1m"` + malformed}, {"2w", `cannot read cadence "2w"` + malformed},
		{"m", `cannot read cadence "m"` + malformed}, {"30", `cannot read cadence "30"` + malformed},
		{"5M", `cannot read cadence "5M"` + malformed}, {"3 m", `cannot read cadence "3 m"` + malformed},
		{"٣m", `cannot read cadence "٣m"` + malformed},
		{"0s", `cadence "0s"` + unfit}, {"000m", `cadence "000m"` + unfit},
		{"104249992d", `cadence "104249992d"` + unfit}, {"9007199254740993d", `cadence "9007199254740993d"` + unfit},
		{"99999999999999999999s", `cadence "99999999999999999999s"` + unfit},
	}
	for _, tt := range bad {
		if _, err := ParseEvery(tt.text); err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestEveryCountsElapsedTime(t *testing.T) {
	day, _ := ParseEvery("1d")
	s, ok := day.Next(instant(t, "2026-03-07T02:30-05:00", time.UTC), zone(t, "America/New_York"))
	if want := "2026-03-08T03:30-04:00"; !ok || s.At.Format(minuteLayout) != want || s.Civil != "" {
		t.Errorf("got %s %q, want %s", s.At, s.Civil, want)
	}
	if day.Interval() != 24*time.Hour {
		t.Errorf("interval %s", day.Interval())
	}
	sub := time.Date(2026, 1, 1, 0, 0, 0, 123456789, time.UTC)
	if s, _ := day.Next(sub, nil); s.At.Sub(sub) != 24*time.Hour {
		t.Errorf("fraction lost: %s", s.At)
	}
	ages, _ := ParseEvery("104249991d")
	if s, ok := ages.Next(sub, nil); ok {
		t.Errorf("a slot in the year %d", s.At.Year())
	}
	if ages.Interval() != 1<<63-1 {
		t.Errorf("interval %s", ages.Interval())
	}
	if long, _ := ParseEvery("200000d"); long.Interval() != 1<<63-1 {
		t.Errorf("interval %s", long.Interval())
	} else if s, ok := long.Next(sub, nil); !ok || s.At.Year() != 2573 {
		t.Errorf("got %s, %t", s.At, ok)
	}
}

func TestAtText(t *testing.T) {
	days := func(d ...time.Weekday) []time.Weekday { return d }
	tests := []struct {
		at   At
		want string // a text or an error
	}{
		{At{Hour: 9, Minute: 5}, "daily at 09:05"},
		{At{Hour: 16, Minute: 30, Weekdays: days(time.Monday, time.Friday)}, "mon, fri at 16:30"},
		{At{Hour: 0, Weekdays: days(time.Sunday, time.Saturday, time.Sunday)}, "sun, sat at 00:00"},
		{At{Hour: 24}, `cannot read calendar slot {"hour":24,"minute":0} (want hour 0–23, minute 0–59)`},
		{At{Hour: -1}, `cannot read calendar slot {"hour":-1,"minute":0} (want hour 0–23, minute 0–59)`},
		{At{Minute: 60, Weekdays: days(time.Monday)},
			`cannot read calendar slot {"hour":0,"minute":60,"weekday":["mon"]} (want hour 0–23, minute 0–59)`},
		{At{Weekdays: days(time.Monday, 7)},
			`cannot read calendar slot {"hour":0,"minute":0,"weekday":["mon",7]} (want hour 0–23, minute 0–59)`},
	}
	for _, tt := range tests {
		c, err := NewAt(tt.at)
		got := c.String()
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestZoneInText(t *testing.T) {
	c := mustCron(t, "0  9 1 * *\t")
	if got, want := c.String(), "cron 0 9 1 * *"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := c.In(zone(t, "Europe/Berlin")).String(), "cron 0 9 1 * * in Europe/Berlin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.In(time.Local).Location() != nil || c.In(nil).Location() != nil {
		t.Error("the machine's zone counts as explicit")
	}
	var none Cadence
	if _, ok := none.Next(time.Now(), nil); ok || none.String() != "never" || none.ShortestGap() != 0 {
		t.Error("the zero Cadence is due some time")
	}
}

func TestParseCronErrors(t *testing.T) {
	tests := []struct{ expr, want string }{
		{"", "it is empty"},
		{"TZ=", "a cron takes no TZ=; use timezone: beside it"},
		{"CRON_TZ=UTC 0 0 * * *", "a cron takes no TZ=; use timezone: beside it"},
		{" tz=UTC 0 0 * * *", "a cron takes no TZ=; use timezone: beside it"},
		{"TZ= 0 * * *", "a cron takes no TZ=; use timezone: beside it"},
		{"0 TZ= * * *", `hour: cannot read "TZ="`},
		{"@every 1h", "@every is no cron; use every: 1h"},
		{"@every 1h30m", "@every is no cron; use every: 90m"},
		{"@every 0s", "@every is no cron; use every: 30m (or the like)"},
		{"@every", "@every is no cron; use every: 30m (or the like)"},
		{"@reboot", "@reboot is no time; use a unit of the init system that runs `marbles roll` at boot"},
		{"@fortnightly", "want @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually"},
		{"@daily 3", "want @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually"},
		{"0 0 * *", "want 5 fields (minute, hour, day-of-month, month, day-of-week), found 4"},
		{"* 12,13 16 11 2 2021", "want 5 fields (minute, hour, day-of-month, month, day-of-week), found 6 (there are no seconds and no years)"},
		{"60 0 * * *", "minute: 60 is above 59"},
		{"0 24 * * *", "hour: 24 is above 23"},
		{"0 0 0 * *", "day-of-month: 0 is below 1"},
		{"0 0 32 * *", "day-of-month: 32 is above 31"},
		{"0 0 * 13 *", "month: 13 is above 12"},
		{"0 0 * * 8", "day-of-week: 8 is above 7"},
		{"0 0 L * *", `day-of-month: cannot read "L"`},
		{"0 0 * * mon#1", `day-of-week: cannot read "mon#1"`},
		{"0 0 * * monday", `day-of-week: cannot read "monday"`},
		{"+5 0 * * *", `minute: cannot read "+5"`},
		{"-5 0 * * *", `minute: cannot read "-5"`},
		{"*-5 0 * * *", `minute: cannot read "*-5"`},
		{"5- 0 * * *", `minute: cannot read "5-"`},
		{"1-2-3 0 * * *", `minute: cannot read "1-2-3"`},
		{"99999999999999999999 0 * * *", `minute: cannot read "99999999999999999999"`},
		{"1,,2 0 * * *", "minute: a value is missing beside a comma"},
		{", 0 * * *", "minute: a value is missing beside a comma"},
		{"*/0 0 * * *", `minute: the step of "*/0" is 0`},
		{"*/ 0 * * *", `minute: cannot read the step of "*/"`},
		{"*/-2 0 * * *", `minute: cannot read the step of "*/-2"`},
		{"*/2/3 0 * * *", `minute: cannot read the step of "*/2/3"`},
		{"0 22-2 * * *", "hour: 22-2 wraps past 23; write 22-23,0-2"},
		{"0 22-2/2 * * *", "hour: 22-2/2 wraps past 23; write the values one by one"},
		{"0 0 * nov-feb *", "month: nov-feb wraps past 12; write 11-12,1-2"},
		{"0 0 * * fri-mon", "day-of-week: fri-mon wraps past 6; write 5-6,0-1"},
		{"0 0 * * 5-0", "day-of-week: 5-0 wraps past 6; write 5-7"},
		{"0 0 * * 7-2", "day-of-week: 7-2 wraps past 6; write 0-2"},
		{"0 0 30 2 *", "it never fires: no such date exists"},
		{"0 0 31 2,4,6,9,11 *", "it never fires: no such date exists"},
		{"0 0 30-31 2 */2", "it never fires: no such date exists"},
		{"0 0 * * 1 \x00", "want 5 fields (minute, hour, day-of-month, month, day-of-week), found 6 (there are no seconds and no years)"},
	}
	for _, tt := range tests {
		want := fmt.Sprintf("cannot read cron %q: %s", tt.expr, tt.want)
		if _, _, err := ParseCron(tt.expr); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestParseCronWarnings(t *testing.T) {
	const either = "day-of-month and day-of-week are both restricted: it fires on days that match either"
	const both = "day-of-month and day-of-week are both restricted and one begins with *: it fires only on days that match both"
	tests := []struct {
		expr string
		want []string
	}{
		{"0 9 1 * *", nil},
		{"*/15 */6 * */3 *", nil},
		{"5/15 0/12 * * *", nil},
		{"10-20/3 * * * *", nil},
		{"0 0 * * 0-7", nil},
		{"0 0 1-31 * 1", []string{either}},
		{"*/60 * * * *", nil},
		{"*/40 * * * *", []string{"minute */40: the step 40 does not divide 60, and starts over every hour"}},
		{"5/40 * * * *", []string{"minute 5/40: the step 40 does not divide 60, and starts over every hour"}},
		{"0 */5 * * *", []string{"hour */5: the step 5 does not divide 24, and starts over every day"}},
		{"0 0 */2 * *", []string{"day-of-month */2: the step 2 does not divide 31, and starts over every month"}},
		{"0 0 * * */2", []string{"day-of-week */2: the step 2 does not divide 7, and starts over every week"}},
		{"0 0 13 * 5", []string{either}},
		{"0 0 */31 * 3", []string{both}},
	}
	for _, tt := range tests {
		_, got, err := ParseCron(tt.expr)
		if err != nil {
			t.Errorf("%s: %v", tt.expr, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.expr, diff)
		}
	}
}

func TestCronWeekdays(t *testing.T) {
	tests := []struct {
		field string
		want  uint8
	}{
		{"7", 1}, {"0", 1}, {"sun", 1}, {"5-7", 0b1100001}, {"fri-sun", 0b1100001}, {"sat-sun", 0b1000001}, {"0-7", allWeekdays},
		{"sun-7", allWeekdays}, {"mon-sun", allWeekdays}, {"1-7/2", 0b0101011}, {"7-7", 1}, {"sun-sun", 1}, {"7,1", 0b11}, {"7/2", 1},
		{"sun-tue", 0b111}, {"?", allWeekdays}, {"5/1", 0b1100000}, {"1-7/2000000000", 0b10},
	}
	for _, tt := range tests {
		if c := mustCron(t, "0 0 * * "+tt.field); c.cal.weekdays != tt.want {
			t.Errorf("%s: got %b, want %b", tt.field, c.cal.weekdays, tt.want)
		}
	}
}

// The descriptors are what their fields would be.
func TestDescriptors(t *testing.T) {
	for name, expr := range map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	} {
		got := mustCron(t, name)
		if got.cal != mustCron(t, expr).cal || got.String() != "cron "+name {
			t.Errorf("%s is not %s", name, expr)
		}
	}
}

func TestCadenceIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Cadence{}); size > 64 {
		t.Errorf("a Cadence takes %d bytes", size)
	}
}

func TestShortestGap(t *testing.T) {
	tests := []struct {
		expr string
		want time.Duration
	}{
		{"* * * * *", time.Minute},
		{"*/40 * * * *", 20 * time.Minute},
		{"30 * * * *", time.Hour},
		{"50,10 2,3 * * *", 20 * time.Minute},
		{"50 2,3,23 * * *", time.Hour},
		{"0 1,23 * * *", 2 * time.Hour},
		{"0 1,23 * * mon", 22 * time.Hour},
		{"0 1 * * mon,thu", 72 * time.Hour},
		{"0 1 * * sun", 7 * 24 * time.Hour},
		{"0 1 1 * *", 28 * 24 * time.Hour},
		{"0 1 31 * *", 31 * 24 * time.Hour},
		{"0 1 1,31 * *", 24 * time.Hour},
		{"0 1 13 * fri", 24 * time.Hour},
		{"0 0 1 1 */7", 1827 * 24 * time.Hour}, // from 2012 to 2017
		{"0 1 29 2 *", 4*365*24*time.Hour + 24*time.Hour},
	}
	for _, tt := range tests {
		if got := mustCron(t, tt.expr).ShortestGap(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.expr, got, tt.want)
		}
	}
	if c, _ := ParseEvery("90s"); c.ShortestGap() != 90*time.Second {
		t.Errorf("every 90s: got %s", c.ShortestGap())
	}
}

func TestClockChange(t *testing.T) {
	tests := []struct{ expr, zone, from, want string }{
		{"30 2 * * *", "Europe/Berlin", "2026-12-01T00:00",
			"02:30 on 2027-03-28 is skipped by the clock change in Europe/Berlin and runs at 03:30 instead"},
		{"30 2 * * *", "Europe/Berlin", "2026-06-01T00:00",
			"02:30 on 2026-10-25 happens twice in Europe/Berlin and runs at its first occurrence"},
		{"30 2 * * mon", "Europe/Berlin", "2026-06-01T00:00", ""},
		{"30 4 * * *", "Europe/Berlin", "2026-06-01T00:00", ""},
		{"30 * * * *", "Europe/Berlin", "2026-06-01T00:00", ""},
		{"30 2 * * *", "Asia/Kathmandu", "2026-06-01T00:00", ""},
		{"30 2 * * *", "UTC", "2026-06-01T00:00", ""},
		{"30 2 30 12 *", "Pacific/Apia", "2011-12-01T00:00",
			"02:30 on 2011-12-30 is skipped by the clock change in Pacific/Apia and runs at 02:30 on 2011-12-31 instead"},
		{"30 23 * * *", "America/Santiago", "2026-01-01T00:00",
			"23:30 on 2026-04-04 happens twice in America/Santiago and runs at its first occurrence"},
		{"40 23 * * *", "America/Scoresbysund", "2026-01-01T00:00",
			"23:40 on 2026-03-28 is skipped by the clock change in America/Scoresbysund and runs at 00:40 on 2026-03-29 instead"},
	}
	for _, tt := range tests {
		loc := zone(t, tt.zone)
		if got := mustCron(t, tt.expr).ClockChange(instant(t, tt.from, loc), loc); got != tt.want {
			t.Errorf("%s from %s in %s:\ngot  %s\nwant %s", tt.expr, tt.from, tt.zone, got, tt.want)
		}
	}
	every, _ := ParseEvery("1h")
	if got := every.ClockChange(time.Now(), zone(t, "Europe/Berlin")); got != "" {
		t.Errorf("an interval: %s", got)
	}
}

// Whatever is typed, the parser answers, and what it accepts fires and can be read again from its own text.
func FuzzParseCron(f *testing.F) {
	for _, seed := range []string{
		"TZ=", "TZ= ", "CRON_TZ=", "* * * * *", "0 0 30 2 *", "@every", "@daily", "@", "5/15 22-2 L ? 7", "*/99 1-7/3 , - /",
		"0 0 29 2 0", "sun-7 * * * *", "\xff * * * *", "0 0 * * 7-7/7", "0\u00a00\u00a0*\u00a0*\u00a0*", "59 23 31 12 6",
	} {
		f.Add(seed)
	}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expr string) {
		c, _, err := ParseCron(expr)
		if err != nil {
			return
		}
		s, ok := c.In(time.UTC).Next(from, nil)
		if !ok || !s.At.After(from) {
			t.Errorf("%q: next is %s, %t", expr, s.At, ok)
		}
		again, _, err := ParseCron(strings.TrimPrefix(c.String(), "cron "))
		if err != nil || again.cal != c.cal {
			t.Errorf("%q: read again: %v", expr, err)
		}
		if c.ShortestGap() < time.Minute {
			t.Errorf("%q: gap %s", expr, c.ShortestGap())
		}
		if bits.OnesCount64(c.cal.minutes>>60) > 0 || c.cal.hours>>24 != 0 {
			t.Errorf("%q: values out of range", expr)
		}
	})
}
