package scheduler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world drives a loop's turns by hand, with a wall and a monotonic clock of its own, and keeps the record that a caller
// would.
type world struct {
	t    *rapid.T
	loop *Loop
	zone *Zone
	wall time.Time
	mono time.Duration
	keys map[string]*record

	turns     int
	decisions int
	moves     bool // the zone changes: only the properties that hold then are checked
	disturbed bool // the clock or the zone moved, or the service was down, since the last turn
}

// record is what a caller keeps of one key, and what the test knows besides.
type record struct {
	Trigger
	decided time.Time // slots up to here are decided: fired, merged or missed
	fired   time.Time // the newest slot that was fired
	civil   string    // and its civil time
	turn    int       // the turn it was fired in
	run     time.Duration
	running bool
	endsIn  time.Duration
}

func (w *world) clock() (time.Time, time.Duration) { return w.wall, w.mono }

// restart makes a new loop from the record.
func (w *world) restart() {
	var ts []Trigger
	for i := range len(w.keys) {
		r := w.keys[fmt.Sprint("k", i)]
		if r.Cadence.Interval() > 0 && r.running {
			r.running, r.decided = false, w.wall // its tick ended with the service
		}
		tr := r.Trigger
		tr.Base, tr.Civil, tr.CivilAt = r.decided, r.civil, r.fired
		ts = append(ts, tr)
	}
	w.loop = newLoop(Options{Zone: w.zone, Fire: w.fire}, w.clock)
	w.loop.Set(ts)
	w.disturbed = true
}

// fire checks one decision.
func (w *world) fire(d Due) {
	w.decisions++
	r := w.keys[d.ID]
	at, now := d.Slot.At, w.wall
	loc := w.zone.Location()
	fireAt := at.Add(share(d.ID, at.UnixNano(), r.Jitter))
	if fireAt.After(now) {
		w.t.Fatalf("%s at %v: slot %v is fired before its instant %v", d.ID, now, at, fireAt)
	}
	late := now.Sub(fireAt) > time.Minute
	if d.Late != (late && d.Fire) {
		w.t.Fatalf("%s at %v: %+v says late %v", d.ID, now, d, d.Late)
	}
	allowed := !r.CatchUp.Never && (r.CatchUp.Within == 0 || now.Sub(at) < r.CatchUp.Within)
	if late && d.Fire != allowed || !late && !d.Fire {
		w.t.Fatalf("%s at %v: %+v against the catch-up rule %+v", d.ID, now, d, r.CatchUp)
	}
	if d.Fire {
		if r.turn == w.turns {
			w.t.Fatalf("%s at %v: fired twice in one look", d.ID, now)
		}
		if !at.After(r.fired) {
			w.t.Fatalf("%s at %v: slot %v is fired after %v", d.ID, now, at, r.fired)
		}
		if d.Slot.Civil != "" && d.Slot.Civil <= r.civil {
			w.t.Fatalf("%s at %v: local slot %s is fired after %s", d.ID, now, d.Slot.Civil, r.civil)
		}
		if !w.disturbed && !now.Equal(fireAt) {
			w.t.Fatalf("%s: slot %v is fired at %v, not at %v", d.ID, at, now, fireAt)
		}
	}
	if r.Cadence.Interval() > 0 {
		if want := r.decided.Add(r.Cadence.Interval()); !at.Equal(want) {
			w.t.Fatalf("%s at %v: slot %v, want %v", d.ID, now, at, want)
		}
	} else if !w.moves {
		w.contiguous(r, d, loc)
	}
	if d.Fire {
		r.fired, r.civil, r.turn = at, d.Slot.Civil, w.turns
	}
	switch {
	case r.Cadence.Interval() == 0:
		r.decided = at
	case d.Fire:
		r.running, r.endsIn = true, r.run
	default:
		r.decided = now
	}
}

// contiguous checks that a decision is about all slots since the last one.
func (w *world) contiguous(r *record, d Due, loc *time.Location) {
	oldest, newest, count, more, ok := r.Cadence.Latest(r.decided, d.Slot.At, loc)
	if !ok || !newest.At.Equal(d.Slot.At) {
		w.t.Fatalf("%s at %v: %+v is not about a slot after %v", d.ID, w.wall, d, r.decided)
	}
	first, told := d.Slot.At, d.Older.Count+d.Missed.Count
	if d.Older.Count > 0 {
		first = d.Older.First
	}
	if d.Missed.Count > 0 {
		first = d.Missed.First
	}
	if d.Fire {
		told++
	}
	if !first.Equal(oldest.At) || !more && told != count || more != (d.Older.More || d.Missed.More) && told < maxCount {
		w.t.Fatalf("%s at %v: %+v leaves out some of %d slots since %v", d.ID, w.wall, d, count, r.decided)
	}
	if !w.disturbed && (told != 1 || !d.Fire) {
		w.t.Fatalf("%s at %v: %+v though nothing held the loop up", d.ID, w.wall, d)
	}
}

// turn lets the loop look, and checks that nothing was left lying.
func (w *world) turn() time.Duration {
	w.turns++
	before := w.decisions
	sleep := w.loop.turn()
	if sleep < 0 || sleep > lookEvery {
		w.t.Fatalf("sleeps %v", sleep)
	}
	if before == w.decisions && !w.disturbed {
		return sleep
	}
	for id, r := range w.keys {
		slot, ok := w.loop.NextOf(id)
		if ok == r.running {
			w.t.Fatalf("%s: running %v, armed %v", id, r.running, ok)
		}
		if r.running || w.moves {
			continue
		}
		want, _ := r.Cadence.Next(r.decided, w.zone.Location())
		if !slot.At.Equal(want.At) || slot.Civil != want.Civil {
			w.t.Fatalf("%s at %v: waits for %v, want %v", id, w.wall, slot, want)
		}
		if at := want.At.Add(share(id, want.At.UnixNano(), r.Jitter)); !at.After(w.wall) {
			w.t.Fatalf("%s: slot %v is left lying at %v", id, want.At, w.wall)
		}
	}
	w.disturbed = false
	return sleep
}

// pass lets time pass, with the looks and the ends of ticks that come in it.
func (w *world) pass(d time.Duration) {
	for d > 0 {
		sleep := min(w.turn(), d)
		for _, r := range w.keys {
			if r.running {
				sleep = min(sleep, r.endsIn)
			}
		}
		w.wall, w.mono, d = w.wall.Add(sleep), w.mono+sleep, d-sleep
		for id, r := range w.keys {
			if !r.running {
				continue
			}
			if r.endsIn -= sleep; r.endsIn <= 0 {
				r.running, r.decided = false, w.wall
				w.loop.Finished(id, w.wall)
			}
		}
	}
}

// step moves the wall clock, and lets the loop notice.
func (w *world) step(by time.Duration) {
	w.wall = w.wall.Add(by)
	w.disturbed = true
	for _, r := range w.keys {
		w.forget(r, by < -time.Minute)
	}
	w.turn()
}

// forget reads what is ahead of the clock as now, as the contract says.
func (w *world) forget(r *record, all bool) {
	ahead := time.Minute
	if all || r.Cadence.Interval() > 0 {
		ahead = 0
	}
	limit := w.wall.Add(ahead)
	if r.decided.After(limit) {
		r.decided = w.wall
	}
	if r.fired.After(limit) {
		r.fired, r.civil = w.wall, ""
	}
}

func TestLoopProperties(t *testing.T) {
	cadences := map[string]Cadence{}
	var names []string
	for _, text := range []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "15,45 * * * *", "*/10 9-17 * * *", "at 09:00", "0 6,18 * * *", "30 2 * * *", "0 9 * * 1",
		"every 5s", "every 90s", "every 1h", "every 1d",
	} {
		cadences[text] = cadenceOf(t, text)
		names = append(names, text)
	}
	zones := map[string]*time.Location{}
	var places []string
	for _, name := range []string{"America/New_York", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland", "UTC"} {
		zones[name] = zone(t, name)
		places = append(places, name)
	}
	seconds := func(from, to int) *rapid.Generator[time.Duration] {
		return rapid.Map(rapid.IntRange(from, to), func(n int) time.Duration { return time.Duration(n) * time.Second })
	}
	check := func(moves bool) func(*rapid.T) {
		return func(t *rapid.T) {
			w := &world{
				t: t, keys: map[string]*record{}, moves: moves,
				zone: &Zone{fixed: true, loc: zones[rapid.SampledFrom(places).Draw(t, "zone")]},
				// Near one of the year's clock changes, or anywhere.
				wall: time.Unix(0, rapid.SampledFrom([]int64{1772924400e9, 1774746000e9, 1792890000e9, 1793512800e9, 1780000000e9}).Draw(t, "around")).
					Add(seconds(-100_000, 100_000).Draw(t, "from")),
			}
			for i := range rapid.IntRange(1, 4).Draw(t, "keys") {
				c := cadences[rapid.SampledFrom(names).Draw(t, "cadence")]
				r := &record{Trigger: Trigger{ID: fmt.Sprint("k", i), Cadence: c}, decided: w.wall, run: seconds(0, 200).Draw(t, "run")}
				if rapid.Bool().Draw(t, "jittered") {
					r.Jitter = min(c.ShortestGap()-time.Second, seconds(1, 7200).Draw(t, "jitter"))
				}
				switch rapid.IntRange(0, 2).Draw(t, "catch-up") {
				case 1:
					r.CatchUp.Never = true
				case 2:
					r.CatchUp.Within = seconds(60, 7200).Draw(t, "within")
				}
				w.keys[r.ID] = r
			}
			w.restart()
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				switch op := rapid.IntRange(0, 6).Draw(t, "op"); op {
				case 0, 1:
					w.pass(seconds(1, 4000).Draw(t, "pass"))
				case 2:
					w.step(seconds(1, 200_000).Draw(t, "sleep"))
				case 3:
					w.step(-seconds(2, 60).Draw(t, "back a little"))
				case 4:
					w.step(-seconds(61, 100_000).Draw(t, "back"))
				case 5:
					// Down for a while; what was decided is on record.
					w.wall = w.wall.Add(seconds(0, 200_000).Draw(t, "down"))
					w.restart()
					w.turn()
				case 6:
					if moves {
						w.zone.loc = zones[rapid.SampledFrom(places).Draw(t, "move")]
						w.disturbed = true
						w.turn()
					}
				}
			}
			w.pass(time.Hour)
		}
	}
	t.Run("in one zone", rapid.MakeCheck(check(false)))
	t.Run("between zones", rapid.MakeCheck(check(true)))
}
