package scheduler

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// manyTriggers have slots far in the future, of all forms.
func manyTriggers(tb testing.TB, n int) []Trigger {
	var cadences []Cadence
	for _, text := range []string{"every 30d", "at 09:30", "30 2 1 1 *", "*/5 3 1 1 *"} {
		cadences = append(cadences, cadenceOf(tb, text))
	}
	ts := make([]Trigger, n)
	for i := range ts {
		ts[i] = Trigger{
			ID: fmt.Sprintf("workspace/%06d", i), Cadence: cadences[i%len(cadences)], Jitter: time.Minute,
			Base: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), Civil: "2026-03-02T09:30",
			CivilAt: time.Date(2026, 3, 2, 9, 30, 0, 0, time.UTC),
		}
	}
	return ts
}

// stillLoop is a loop at a fixed instant.
func stillLoop(fire func(Due)) *Loop {
	at := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	return newLoop(Options{Fire: fire, Zone: &Zone{fixed: true, loc: time.UTC}}, func() (time.Time, time.Duration) { return at, 0 })
}

// A turn in which nothing is due makes no garbage, however many triggers there are.
func TestIdleTurn(t *testing.T) {
	l := stillLoop(func(d Due) { t.Errorf("fired %+v", d) })
	l.Set(manyTriggers(t, 100_000))
	if got := testing.AllocsPerRun(100, func() { l.turn() }); got > 0 {
		t.Errorf("a turn makes %v allocations", got)
	}
}

// 100,000 triggers take at most about 200 bytes each beside their IDs and the texts of their cadences.
func TestMemoryOfTriggers(t *testing.T) {
	const n = 100_000
	ts := manyTriggers(t, n)
	l := stillLoop(func(Due) {})
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	l.Set(ts)
	if got := float64(held()-before) / n; got > 210 {
		t.Errorf("a trigger takes %.0f bytes", got)
	}
	runtime.KeepAlive(ts)
	runtime.KeepAlive(l)
}

func BenchmarkIdleTurn(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := stillLoop(func(Due) {})
			l.Set(manyTriggers(b, n))
			b.ReportAllocs()
			for b.Loop() {
				l.turn()
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	ts := manyTriggers(b, 100_000)
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			stillLoop(func(Due) {}).Set(ts)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		l := stillLoop(func(Due) {})
		l.Set(ts)
		for b.Loop() {
			l.Set(ts)
		}
	})
}

// BenchmarkFlood fires 100,000 slots that are due in one second.
func BenchmarkFlood(b *testing.B) {
	ts := manyTriggers(b, 100_000)
	c := cadenceOf(b, "* * * * *")
	for i := range ts {
		ts[i].Cadence, ts[i].Jitter = c, 0
		ts[i].Base = ts[i].Base.Add(-time.Minute)
	}
	for b.Loop() {
		n := 0
		l := stillLoop(func(Due) { n++ })
		l.Set(ts)
		l.turn()
		if n != len(ts) {
			b.Fatalf("fired %d", n)
		}
	}
}
