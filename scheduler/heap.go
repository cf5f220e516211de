package scheduler

import (
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"
)

// standing says where a trigger stands. Only armed ones are in the heap.
type standing uint8

const (
	unarmed standing = iota // its cadence has no further slot
	armed
	waiting // an interval whose tick runs: Finished arms it
	overdue // taken out of the heap in this look, to be fired late
	removed // no longer among the triggers
)

const (
	noCivil = math.MinInt32     // a slot without a nominal civil time
	never   = time.Duration(-1) // an entry's form of CatchUp.Never

	lastSecond = 7258118400 // the year 2200: a later slot never comes
)

// entry is one trigger in the loop. 100,000 of them are held, so instants are Unix nanoseconds and civil times
// minutes.
type entry struct {
	id       string
	cadence  Cadence
	jitter   time.Duration
	within   time.Duration // the catch-up's limit; 0 always, or never
	settled  int64         // slots up to here are decided
	slot     int64         // the first slot after settled
	due      int64         // when the loop acts: the slot's fire instant, or later where granted
	ranAt    int64         // instant of the last fired slot
	ran      int32         // its civil time
	civil    int32         // the civil time of slot
	seq      int32         // place among the triggers: the order of equal instants
	index    int32         // place in the heap, -1 outside
	standing standing
	granted  bool // its catch-up is allowed already, and it waits for its turn among many
}

// interval says that the trigger counts from its last finish.
func (e *entry) interval() bool { return e.cadence.Interval() > 0 }

// past reads an instant that is ahead of the clock as now. A slot trigger keeps one that is at most 60 s ahead, as a small
// step back leaves it, so that the step repeats no slot.
func (e *entry) past(at, now int64) int64 {
	ahead := onTime
	if e.interval() {
		ahead = 0
	}
	if at > now+int64(ahead) {
		return now
	}
	return at
}

// location is the zone that the trigger's slots are in.
func (e *entry) location(local *time.Location) *time.Location {
	if loc := e.cadence.Location(); loc != nil {
		return loc
	}
	return local
}

// fireAt is when a slot is fired. It depends on the ID and the slot only, so that a restart does not roll again.
func (e *entry) fireAt(slot int64) int64 { return slot + int64(share(e.id, slot, e.jitter)) }

// catches says whether the catch-up rule runs for a missed slot.
func (e *entry) catches(slot, now int64) bool {
	return e.granted || CatchUp{Never: e.within == never, Within: e.within}.catches(time.Duration(now-slot))
}

// catches says whether the rule runs for a missed slot of an age.
func (c CatchUp) catches(age time.Duration) bool {
	return !c.Never && (c.Within <= 0 || age < c.Within)
}

// Allows says whether a slot may still be started: on time, its share of the jitter taken into account, or by the catch-up
// rule. The loop judges by the same; this is for a slot that was decided before and not started.
func (t Trigger) Allows(slot, now time.Time) bool {
	fire := slot.Add(share(t.ID, slot.UnixNano(), t.Jitter))
	return now.Sub(fire) <= onTime || t.CatchUp.catches(now.Sub(slot))
}

// share is a slot's part of the jitter, in [0, jitter): the first eight bytes of SHA-256 over the slot's Unix
// second (big-endian, eight bytes) and the ID, modulo the jitter. Only the second counts, because an interval's
// base loses its nanoseconds on the way through a record.
func share(id string, slot int64, jitter time.Duration) time.Duration {
	if jitter <= 0 {
		return 0
	}
	var room [72]byte
	text := binary.BigEndian.AppendUint64(room[:0], uint64(slot/int64(time.Second)))
	sum := sha256.Sum256(append(text, id...))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) % uint64(jitter))
}

// agenda is the armed entries as a heap, the soonest first.
type agenda []*entry

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	if a[i].due != a[j].due {
		return a[i].due < a[j].due
	}
	return a[i].seq < a[j].seq
}

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = int32(i), int32(j)
}

func (a *agenda) Push(x any) {
	e := x.(*entry)
	e.index = int32(len(*a))
	*a = append(*a, e)
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	e.index = -1
	return e
}

// place puts one entry where its standing and its due instant want it.
func (a *agenda) place(e *entry) {
	switch {
	case e.standing != armed:
		if e.index >= 0 {
			heap.Remove(a, int(e.index))
		}
	case e.index < 0:
		heap.Push(a, e)
	default:
		heap.Fix(a, int(e.index))
	}
}

// rebuild puts all entries in, after many of them moved. It costs one pass, where placing each costs n log n.
func (a *agenda) rebuild(entries map[string]*entry) {
	clear(*a)
	*a = (*a)[:0]
	for _, e := range entries {
		e.index = -1
		if e.standing == armed {
			a.Push(e)
		}
	}
	heap.Init(a)
}

// nanos is a Unix time in nanoseconds, kept between 1970 and lastSecond, so that sums of it fit.
func nanos(t time.Time) int64 {
	return min(max(t.Unix(), 0), lastSecond)*int64(time.Second) + int64(t.Nanosecond())
}

// civilMinutes reads "2006-01-02T15:04" as minutes since 1970 on that calendar, zone left aside; noCivil for
// anything else.
func civilMinutes(text string) int32 {
	if text == "" {
		return noCivil
	}
	t, err := time.Parse(civilForm, text)
	if err != nil {
		return noCivil
	}
	return int32(t.Unix() / 60)
}

// renderCivil is the inverse of civilMinutes.
func renderCivil(minutes int32) string {
	if minutes == noCivil {
		return ""
	}
	return time.Unix(int64(minutes)*60, 0).UTC().Format(civilForm)
}

const civilForm = "2006-01-02T15:04"
