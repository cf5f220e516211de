package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// bench runs a loop in a bubble of fake time, with a wall clock that can be set apart from the monotonic one.
type bench struct {
	t      *testing.T
	loop   *Loop
	zone   *Zone
	cancel context.CancelFunc
	ended  chan error
	start  time.Time

	mu   sync.Mutex
	wall time.Duration // what the wall clock is ahead of the bubble's
	dues []Due
	ats  []time.Time
	log  []string
	// onFire is called for each decision, from within Fire.
	onFire func(Due)
}

// newBench makes a loop at a wall time (RFC 3339, or without an offset in UTC) in the machine zone named.
// Its log shows instants in that zone.
func newBench(t *testing.T, at, name string, o Options) *bench {
	t.Helper()
	b := &bench{t: t, zone: &Zone{fixed: true, loc: zone(t, name)}, start: time.Now()}
	b.wall = wallTime(t, at, name).Sub(b.start)
	o.Zone = b.zone
	o.Fire = b.fire
	b.loop = newLoop(o, b.clock)
	t.Cleanup(b.stop)
	return b
}

func (b *bench) clock() (time.Time, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Round(0).Add(b.wall), time.Since(b.start)
}

func (b *bench) now() time.Time {
	wall, _ := b.clock()
	return wall
}

func (b *bench) fire(d Due) {
	line := b.now().In(b.zone.Location()).Format("02 15:04:05") + " " + b.render(d)
	b.mu.Lock()
	b.dues = append(b.dues, d)
	b.ats = append(b.ats, time.Now().Round(0).Add(b.wall))
	b.log = append(b.log, line)
	b.mu.Unlock()
	if b.onFire != nil {
		b.onFire(d)
	}
}

// render writes a decision as "key fire 09:00 late older 2 07:00-08:00".
func (b *bench) render(d Due) string {
	hm := func(t time.Time) string { return strings.TrimSuffix(t.In(b.zone.Location()).Format("15:04:05"), ":00") }
	var s strings.Builder
	s.WriteString(d.ID)
	if d.Fire {
		s.WriteString(" fire " + hm(d.Slot.At))
	}
	if d.Late {
		s.WriteString(" late")
	}
	for _, p := range []struct {
		name string
		s    Stretch
	}{{"older", d.Older}, {"missed", d.Missed}} {
		if p.s.Count > 0 {
			fmt.Fprintf(&s, " %s %d", p.name, p.s.Count)
			if p.s.More {
				s.WriteString("+")
			}
			s.WriteString(" " + hm(p.s.First))
			if p.s.Count > 1 {
				s.WriteString("-" + hm(p.s.Last))
			}
		}
	}
	return s.String()
}

func (b *bench) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.cancel, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.loop.Run(ctx) }()
	synctest.Wait()
}

func (b *bench) stop() {
	if b.cancel == nil {
		return
	}
	b.cancel()
	b.cancel = nil
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run returned %v", err)
	}
}

// step sets the wall clock ahead or back. A step ahead is also what a sleep of the machine looks like.
func (b *bench) step(by time.Duration) {
	b.mu.Lock()
	b.wall += by
	b.mu.Unlock()
}

// until lets time pass up to a wall time in the machine's zone.
func (b *bench) until(at string) {
	b.t.Helper()
	d := wallTime(b.t, at, b.zone.Location().String()).Sub(b.now())
	if d < 0 {
		b.t.Fatalf("%s lies behind %s", at, b.now())
	}
	b.pass(d)
}

func (b *bench) pass(d time.Duration) {
	// The lock orders what the test read before with what the loop writes next.
	b.step(0)
	time.Sleep(d)
	synctest.Wait()
}

func (b *bench) move(name string) {
	loc := zone(b.t, name)
	b.zone.mu.Lock()
	defer b.zone.mu.Unlock()
	b.zone.loc = loc
}

// want compares the log since the last call.
func (b *bench) want(lines ...string) {
	b.t.Helper()
	b.mu.Lock()
	got := b.log
	b.log = nil
	b.mu.Unlock()
	if diff := cmp.Diff(lines, got); diff != "" {
		b.t.Errorf("decisions (-want +got):\n%s", diff)
	}
}

// wallTime reads a wall time of a zone, or an instant in RFC 3339.
func wallTime(t testing.TB, text, name string) time.Time {
	t.Helper()
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, text, zone(t, name)); err == nil {
			return at
		}
	}
	t.Fatalf("not a time: %s", text)
	return time.Time{}
}

// trigger is a key with a cadence in short form: "every 6h", "at 09:30", or a cron.
func trigger(t testing.TB, id, cadence string, base time.Time) Trigger {
	t.Helper()
	return Trigger{ID: id, Cadence: cadenceOf(t, cadence), Base: base}
}

func cadenceOf(t testing.TB, text string) (c Cadence) {
	t.Helper()
	var err error
	if d, ok := strings.CutPrefix(text, "every "); ok {
		c, err = ParseEvery(d)
	} else if at, ok := strings.CutPrefix(text, "at "); ok {
		var slot At
		if _, err = fmt.Sscanf(at, "%d:%d", &slot.Hour, &slot.Minute); err == nil {
			c, err = NewAt(slot)
		}
	} else {
		c, _, err = ParseCron(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoopFiresOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:58:30", "UTC", Options{})
		now := b.now()
		b.loop.Set([]Trigger{
			trigger(t, "nine", "at 09:00", now),
			trigger(t, "minute", "* * * * *", now),
			trigger(t, "often", "every 45s", now),
			trigger(t, "night", "30 2 * * *", now),
		})
		b.run()
		b.until("2026-03-02T09:01:59")
		b.want(
			"02 08:59:00 minute fire 08:59",
			"02 08:59:15 often fire 08:59:15",
			"02 09:00:00 nine fire 09:00",
			"02 09:00:00 minute fire 09:00",
			"02 09:01:00 minute fire 09:01",
		)
		if got, want := b.dues[2].Slot.Civil, "2026-03-02T09:00"; got != want {
			t.Errorf("civil time: got %q, want %q", got, want)
		}
		if got := b.dues[0].Slot.Civil + b.dues[1].Slot.Civil; got != "" {
			t.Errorf("civil time of a minute and an interval: got %q, want none", got)
		}
		id, at, ok := b.loop.Next()
		if got, want := fmt.Sprint(id, at, ok), "minute2026-03-02 09:02:00 +0000 UTC true"; got != want {
			t.Errorf("Next: got %s, want %s", got, want)
		}
		if slot, ok := b.loop.NextOf("nine"); !ok || slot.Civil != "2026-03-03T09:00" {
			t.Errorf("NextOf nine: got %v, %v", slot, ok)
		}
		for _, id := range []string{"often", "nobody"} {
			if slot, ok := b.loop.NextOf(id); ok {
				t.Errorf("NextOf %s: got %v, want none", id, slot)
			}
		}
	})
}

func TestLoopWithoutTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		b.run()
		if id, _, ok := b.loop.Next(); ok {
			t.Errorf("Next: got %q", id)
		}
		b.pass(time.Hour)
		if _, now := b.loop.now(); now-b.loop.mono > lookEvery {
			t.Errorf("looked %v ago", now-b.loop.mono)
		}
		// A sleeping loop is woken by new triggers.
		b.loop.Set([]Trigger{trigger(t, "a", "every 3s", b.now())})
		b.pass(3 * time.Second)
		b.want("02 09:00:03 a fire 09:00:03")
		// So is one that sleeps longer than a finished interval lets it.
		b.pass(5 * time.Second)
		b.loop.Finished("a", b.now())
		b.pass(3 * time.Second)
		b.want("02 09:00:11 a fire 09:00:11")
	})
}

func TestIntervalCountsFromFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		b.onFire = func(d Due) {
			if d.ID != "slow" {
				return
			}
			time.AfterFunc(25*time.Second, func() { b.loop.Finished("slow", b.now()) })
		}
		b.loop.Set([]Trigger{
			trigger(t, "slow", "every 10s", b.now().Add(-10*time.Second)),
			trigger(t, "other", "* * * * *", b.now()),
		})
		b.run()
		b.pass(100 * time.Second)
		b.want(
			"02 08:00:00 slow fire 08:00",
			"02 08:00:35 slow fire 08:00:35",
			"02 08:01:00 other fire 08:01",
			"02 08:01:10 slow fire 08:01:10",
		)
	})
}

func TestFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		base := b.now()
		b.loop.Set([]Trigger{
			trigger(t, "i", "every 1m", base),
			trigger(t, "slot", "at 09:00", base),
			trigger(t, "gone", "every 1h", base),
		})
		b.run()
		b.pass(time.Minute)
		b.want("02 08:01:00 i fire 08:01")
		// In the future: read as now.
		b.loop.Finished("i", base.Add(time.Hour))
		if slot, _ := b.loop.NextOf("i"); !slot.At.Equal(base.Add(2 * time.Minute)) {
			t.Errorf("after a finish in the future: got %v", slot)
		}
		// A skipped tick's finish while it is armed moves it on, an older one does not.
		b.pass(30 * time.Second)
		b.loop.Finished("i", b.now())
		b.loop.Finished("i", base)
		if slot, _ := b.loop.NextOf("i"); !slot.At.Equal(base.Add(150 * time.Second)) {
			t.Errorf("after a second finish: got %v", slot)
		}
		// A slot trigger is not moved, a removed one does not come back.
		b.loop.Finished("slot", b.now().Add(24*time.Hour))
		b.loop.Set([]Trigger{trigger(t, "slot", "at 09:00", base)})
		b.loop.Finished("gone", b.now())
		b.loop.Finished("i", b.now())
		b.until("2026-03-02T10:00")
		b.want("02 09:00:00 slot fire 09:00")
	})
}

func TestSetKeepsWhatDidNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		base := b.now()
		b.loop.Set([]Trigger{
			trigger(t, "kept", "every 1m", base),
			trigger(t, "running", "every 30s", base),
			trigger(t, "changed", "every 1h", base),
			trigger(t, "removed", "every 50s", base),
		})
		b.run()
		b.pass(40 * time.Second)
		b.want("02 08:00:30 running fire 08:00:30")
		now := b.now()
		b.loop.Set([]Trigger{
			trigger(t, "kept", "every 1m", now),     // its base is ignored
			trigger(t, "running", "every 30s", now), // its tick still runs
			trigger(t, "changed", "every 5m", now),
			trigger(t, "new", "every 10m", now),
		})
		if slot, ok := b.loop.NextOf("running"); ok {
			t.Errorf("a running interval is armed by Set: %v", slot)
		}
		b.until("2026-03-02T08:12")
		b.want(
			"02 08:01:00 kept fire 08:01",
			"02 08:05:40 changed fire 08:05:40",
			"02 08:10:40 new fire 08:10:40",
		)
		b.loop.Finished("running", b.now())
		b.pass(30 * time.Second)
		b.want("02 08:12:30 running fire 08:12:30")
	})
}

// A slot that this loop fired is not fired again because a reload came before it was recorded.
func TestSetWithAnOldBase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:59", "UTC", Options{})
		base := b.now()
		b.loop.Set([]Trigger{trigger(t, "a", "0 9 * * *", base)})
		b.run()
		b.pass(time.Minute)
		b.want("02 09:00:00 a fire 09:00")
		b.loop.Set([]Trigger{trigger(t, "a", "0 9,10 * * *", base)})
		b.pass(time.Hour)
		b.want("02 10:00:00 a fire 10:00")
	})
}

// A loop that sleeps for long is woken by a ping, and one whose Fire does not return answers none.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		release := make(chan struct{})
		b.onFire = func(Due) { <-release }
		b.run()
		at := time.Now()
		if err := b.loop.Ping(t.Context()); err != nil || !time.Now().Equal(at) {
			t.Errorf("Ping: %v after %v", err, time.Since(at))
		}
		b.loop.Set([]Trigger{trigger(t, "a", "every 1s", b.now())})
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := b.loop.Ping(ctx); err == nil {
			t.Error("a loop that is stuck in Fire answers a ping")
		}
		close(release)
		if err := b.loop.Ping(t.Context()); err != nil {
			t.Errorf("Ping after it: %v", err)
		}
	})
}

func TestCallsFromWithinFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		again := []Trigger{trigger(t, "b", "every 2s", b.now())}
		b.onFire = func(d Due) {
			b.loop.Next()
			b.loop.NextOf(d.ID)
			if d.ID == "a" {
				b.loop.Finished("a", b.now())
				b.loop.Set(again)
			}
		}
		b.loop.Set([]Trigger{trigger(t, "a", "every 1s", b.now())})
		b.run()
		b.pass(5 * time.Second)
		b.want("02 08:00:01 a fire 08:00:01", "02 08:00:02 b fire 08:00:02")
	})
}

func TestAThousandKeysInOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:59:59", "UTC", Options{Parallel: 4})
		var ts []Trigger
		for i := range 1000 {
			ts = append(ts, trigger(t, fmt.Sprintf("key-%03d", i), "at 09:00", b.now()))
		}
		b.loop.Set(ts)
		b.run()
		b.pass(time.Second)
		if got := len(b.dues); got != 1000 {
			t.Fatalf("got %d decisions in the second, want 1000", got)
		}
		for i, d := range b.dues {
			if d.ID != ts[i].ID || !d.Fire || d.Late {
				t.Fatalf("decision %d: got %+v, want %s on time, in the order given", i, d, ts[i].ID)
			}
		}
	})
}

// A cadence without a further slot is not armed, and the loop still sleeps and stops.
func TestNeverDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T08:00", "UTC", Options{})
		b.loop.Set([]Trigger{{ID: "never", Base: b.now()}, trigger(t, "far", "every 100000d", b.now())})
		b.run()
		if id, at, ok := b.loop.Next(); ok {
			t.Errorf("Next: got %s at %v, want none", id, at)
		}
		b.pass(24 * time.Hour)
		b.want()
	})
}

func TestJitter(t *testing.T) {
	// The shares are part of the contract: a restart with another version must not roll again.
	golden := []struct {
		id   string
		slot string
		want time.Duration
	}{
		{"sweep", "2026-03-02T09:00", 2311014543192},
		{"sweep", "2026-03-02T10:00", 988119071740},
		{"backup", "2026-03-02T09:00", 1980461837705},
	}
	for _, g := range golden {
		at := wallTime(t, g.slot, "UTC").UnixNano()
		if got := share(g.id, at, time.Hour); got != g.want {
			t.Errorf("share of %s at %s: got %v, want %v", g.id, g.slot, got, g.want)
		}
		if got := share(g.id, at+999_999_999, time.Hour); got != share(g.id, at, time.Hour) {
			t.Errorf("share of %s depends on a part of a second", g.id)
		}
	}
	var all []time.Duration
	for i := range 1000 {
		all = append(all, share(fmt.Sprint("key", i), 0, time.Minute))
	}
	slices.Sort(all)
	if all[0] > time.Second || all[999] < 59*time.Second || all[999] >= time.Minute || all[500] < 25*time.Second || all[500] > 35*time.Second {
		t.Errorf("shares of a minute are not spread: least %v, median %v, most %v", all[0], all[500], all[999])
	}
	if got := share("a", 0, 0); got != 0 {
		t.Errorf("without jitter: got %v", got)
	}
}

// With a jitter close to the gap every slot fires once, each at its own share.
func TestJitterLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "2026-03-02T00:00", "UTC", Options{})
		tr := trigger(t, "a", "0 6,18 * * *", b.now())
		tr.Jitter = 12*time.Hour - time.Second
		b.loop.Set([]Trigger{tr})
		b.run()
		b.pass(30 * 24 * time.Hour)
		slot := wallTime(t, "2026-03-02T06:00", "UTC")
		for i, d := range b.dues {
			if !d.Fire || d.Late || d.Older.Count+d.Missed.Count > 0 || !d.Slot.At.Equal(slot) {
				t.Fatalf("decision %d: got %+v, want slot %v on time", i, d, slot)
			}
			if want := slot.Add(share("a", slot.UnixNano(), tr.Jitter)); !b.ats[i].Equal(want) {
				t.Errorf("slot %v: fired at %v, want %v", slot, b.ats[i], want)
			}
			slot = slot.Add(12 * time.Hour)
		}
		if got := len(b.dues); got < 59 {
			t.Errorf("got %d slots in 30 days", got)
		}
	})
}

// A restart between a slot and its share of the jitter keeps the instant; a restart after it fires nothing twice.
func TestJitterAcrossRestarts(t *testing.T) {
	for _, cadence := range []string{"0 * * * *", "every 1h"} {
		t.Run(cadence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				at := "2026-03-02T08:00"
				tr := trigger(t, "a", cadence, wallTime(t, at, "UTC"))
				tr.Jitter = 50 * time.Minute
				first := newBench(t, at, "UTC", Options{})
				first.loop.Set([]Trigger{tr})
				_, want, _ := first.loop.Next()
				second := newBench(t, want.Add(-time.Second).Format(time.RFC3339Nano), "UTC", Options{})
				second.loop.Set([]Trigger{tr})
				second.run()
				second.pass(time.Second)
				if len(second.dues) != 1 || second.dues[0].Late {
					t.Errorf("at %v: got %v", want, second.log)
				}
			})
		})
	}
}

func TestRunEndsAndLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	fired := make(chan Due, 10)
	l := NewLoop(Options{Fire: func(d Due) { fired <- d }})
	l.Set([]Trigger{{ID: "a", Cadence: cadenceOf(t, "every 1h"), Base: time.Now().Add(-time.Hour)}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()
	if d := <-fired; d.ID != "a" || d.Late {
		t.Errorf("got %+v", d)
	}
	if err := l.Run(ctx); err == nil {
		t.Error("a second Run beside the first gave no error")
	}
	if err := l.Ping(ctx); err != nil {
		t.Errorf("Ping of a loop that runs: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	// It can be run again.
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := l.Run(ctx); err != nil {
		t.Errorf("second Run: %v", err)
	}
}

// Calls from everywhere while it runs; the race detector judges.
func TestConcurrentCalls(t *testing.T) {
	var l *Loop
	l = NewLoop(Options{Parallel: 2, Fire: func(d Due) { go l.Finished(d.ID, time.Now()) }})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				var ts []Trigger
				for i := range 20 {
					ts = append(ts, trigger(t, fmt.Sprint(i), fmt.Sprintf("every %ds", 1+(i+n)%3), time.Now().Add(-time.Duration(i*7)*time.Second)))
				}
				l.Set(ts[n:])
				l.Next()
				l.NextOf("7")
				l.Ping(ctx)
				l.Finished("3", time.Now())
			}
		})
	}
	if err := l.Run(ctx); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
