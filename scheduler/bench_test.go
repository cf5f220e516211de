package scheduler

import (
	"testing"
	"time"
)

func BenchmarkNext(b *testing.B) {
	loc := zone(b, "Europe/Berlin")
	daily, _ := NewAt(At{Hour: 2, Minute: 30})
	weekly, _ := NewAt(At{Hour: 2, Minute: 30, Weekdays: []time.Weekday{time.Monday}})
	every, _ := ParseEvery("1h")
	for _, bm := range []struct {
		name, from string
		c          Cadence
	}{
		{"every", "2026-07-01T00:00", every},
		{"daily", "2026-07-01T00:00", daily},
		{"daily, 2050", "2050-07-01T00:00", daily},
		{"daily near a change", "2026-03-30T00:00", daily},
		{"weekly", "2026-07-01T00:00", weekly},
		{"minutely", "2026-07-01T00:00", mustCron(b, "* * * * *")},
		{"monthly", "2026-07-01T00:00", mustCron(b, "0 9 1 * *")},
		{"yearly", "2026-07-01T00:00", mustCron(b, "0 9 1 1 *")},
		{"29 February, a Monday", "2026-07-01T00:00", mustCron(b, "0 9 29 2 */6")},
	} {
		from := instant(b, bm.from, loc)
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bm.c.Next(from, loc)
			}
		})
	}
}

func BenchmarkLatest(b *testing.B) {
	loc := zone(b, "Europe/Berlin")
	for _, expr := range []string{"0 9 * * *", "* * * * *", "0 9 1 1 *"} {
		c := mustCron(b, expr)
		after, until := instant(b, "2026-01-01T00:00", loc), instant(b, "2026-07-01T00:00", loc)
		b.Run(expr, func(b *testing.B) {
			for b.Loop() {
				c.Latest(after, until, loc)
			}
		})
	}
}

func BenchmarkParseCron(b *testing.B) {
	for _, expr := range []string{"30 2 * * mon-fri", "0 0 30 2 *"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ParseCron(expr)
			}
		})
	}
}

func BenchmarkClockChange(b *testing.B) {
	loc := zone(b, "Europe/Berlin")
	c := mustCron(b, "30 4 * * *")
	from := instant(b, "2026-07-01T00:00", loc)
	for b.Loop() {
		c.ClockChange(from, loc)
	}
}
