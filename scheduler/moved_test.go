package scheduler

import (
	"testing"
	"time"
)

func TestMoved(t *testing.T) {
	tests := []struct{ zone, cron, from, want string }{
		{"Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", "02:30 does not exist on 2026-03-29 in Europe/Berlin: the clocks went from 02:00 to 03:00, so the slot came at 03:30"},
		{"America/New_York", "30 2 * * *", "2026-03-07T12:00:00Z", "02:30 does not exist on 2026-03-08 in America/New_York: the clocks went from 02:00 to 03:00, so the slot came at 03:30"},
		{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03T10:00:00Z", "02:15 does not exist on 2026-10-04 in Australia/Lord_Howe: the clocks went from 02:00 to 02:30, so the slot came at 02:45"},
		{"America/Santiago", "0 0 * * *", "2026-09-05T12:00:00Z", "00:00 does not exist on 2026-09-06 in America/Santiago: the clocks went from 00:00 to 01:00, so the slot came at 01:00"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", "02:30 came twice on 2026-10-25 in Europe/Berlin: the clocks went back from 03:00 to 02:00, and the first time counts"},
		{"America/New_York", "30 1 * * *", "2026-10-31T12:00:00Z", "01:30 came twice on 2026-11-01 in America/New_York: the clocks went back from 02:00 to 01:00, and the first time counts"},
		{"America/New_York", "30 3 * * *", "2026-10-31T12:00:00Z", ""},
		{"Europe/Berlin", "30 3 * * *", "2026-03-28T12:00:00Z", ""},
		{"Europe/Berlin", "30 2 * * *", "2026-05-01T12:00:00Z", ""},
		{"UTC", "30 2 * * *", "2026-03-28T12:00:00Z", ""},
	}
	for _, tt := range tests {
		loc, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := ParseCron(tt.cron)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.Parse(time.RFC3339, tt.from)
		if err != nil {
			t.Fatal(err)
		}
		slot, ok := c.In(loc).Next(from, nil)
		if got := slot.Moved(loc); !ok || got != tt.want {
			t.Errorf("%s %s: got %q, want %q", tt.zone, tt.cron, got, tt.want)
		}
	}
}
