package scheduler

import "time"

// verdict is a decision that is not yet taken.
type verdict struct {
	due     Due
	settled int64 // what it settles
}

// judge says what happens to a trigger whose pending slot's fire instant has come. It changes nothing.
func (l *Loop) judge(e *entry, now int64) verdict {
	if e.interval() {
		return l.judgeInterval(e, now)
	}
	newest, older := l.dueSlots(e, now)
	at := newest.At.UnixNano()
	v := verdict{due: Due{ID: e.id, Slot: newest, Fire: true, Older: older}, settled: at}
	late := now-e.fireAt(at) > l.patience()
	if late && !e.catches(at, now) {
		v.due.Fire, v.due.Older = false, Stretch{}
		v.due.Missed = older.and(newest)
		return v
	}
	v.due.Late = late
	if late || older.Count == 0 {
		return v
	}
	prev := older.Last.UnixNano()
	if e.catches(prev, now) {
		return v
	}
	v.due.Missed, v.due.Older = older, Stretch{}
	if now-e.fireAt(prev) <= l.patience() {
		// Jitter brought two slots close together: the older one is on time too, and is merged under any rule.
		v.due.Older = Stretch{First: older.Last, Last: older.Last, Count: 1}
		v.due.Missed = l.stretch(e, older.Last)
	}
	return v
}

// judgeInterval judges an interval, whose one slot is an interval after what was settled.
func (l *Loop) judgeInterval(e *entry, now int64) verdict {
	slot := l.pending(e)
	v := verdict{due: Due{ID: e.id, Slot: slot, Fire: true}, settled: e.settled}
	v.due.Late = now-e.fireAt(e.slot) > l.patience()
	if v.due.Late && !e.catches(e.slot, now) {
		v.due.Fire, v.due.Late = false, false
		v.due.Missed = Stretch{}.and(slot)
		v.settled = now
	}
	return v
}

// dueSlots is the newest slot whose fire instant has come, and those before it.
func (l *Loop) dueSlots(e *entry, now int64) (newest Slot, older Stretch) {
	first := l.pending(e)
	if next, ok := e.cadence.Next(first.At, l.local); !ok || e.fireAt(next.At.UnixNano()) > now {
		return first, Stretch{}
	}
	after, until := first.At.Add(-1), time.Unix(0, now)
	for {
		_, s, _, _, ok := e.cadence.Latest(after, until, l.local)
		if !ok || !s.At.After(first.At) {
			return first, Stretch{}
		}
		if e.fireAt(s.At.UnixNano()) <= now {
			return s, l.stretch(e, s.At)
		}
		// Its share of the jitter is still to come: it will fire by itself.
		until = s.At.Add(-1)
	}
}

// stretch is an entry's undecided slots before an instant.
func (l *Loop) stretch(e *entry, before time.Time) Stretch {
	oldest, newest, count, more, ok := e.cadence.Latest(time.Unix(0, e.slot-1), before.Add(-1), l.local)
	if !ok {
		return Stretch{}
	}
	return Stretch{First: oldest.At, Last: newest.At, Count: count, More: more}
}

// and is the stretch with one more slot at its end.
func (s Stretch) and(slot Slot) Stretch {
	if s.Count == 0 {
		s.First = slot.At
	}
	s.Last = slot.At
	if !s.More {
		s.Count++
	}
	return s
}

// decide takes a decision: it goes to the batch, and the entry is armed for what comes after it.
func (l *Loop) decide(e *entry, v verdict) {
	e.settled, e.granted = v.settled, false
	if v.due.Fire && e.interval() {
		e.standing = waiting
	} else {
		if v.due.Fire {
			e.ran, e.ranAt = civilMinutes(v.due.Slot.Civil), v.settled
		}
		l.arm(e)
	}
	l.agenda.place(e)
	l.batch = append(l.batch, v.due)
}

// arm finds the first slot after what is settled. It leaves the heap to the caller.
func (l *Loop) arm(e *entry) {
	e.standing, e.granted, e.civil = unarmed, false, noCivil
	for {
		after := time.Unix(0, e.settled)
		s, ok := e.cadence.Next(after, l.local)
		if !ok || s.At.Unix() > lastSecond {
			return
		}
		if !s.At.After(after) {
			// A loop around such a cadence would never sleep.
			l.o.Log.Error("cadence does not move on", "key", e.id, "cadence", e.cadence.String(), "after", after)
			return
		}
		civil := civilMinutes(s.Civil)
		if !l.ranElsewhere(e, civil) {
			e.slot, e.civil = s.At.UnixNano(), civil
			break
		}
		e.settled = s.At.UnixNano()
	}
	e.due = e.fireAt(e.slot)
	e.standing = armed
}

// ranElsewhere says that the local slot with a civil time was fired already, in the zone that the machine was in
// then. One that lies after what is settled was fired before the clock was set back, and does not count.
func (l *Loop) ranElsewhere(e *entry, civil int32) bool {
	if civil == noCivil || e.ran == noCivil || civil > e.ran || e.ranAt > e.settled || e.cadence.Location() != nil {
		return false
	}
	t := time.Unix(int64(e.ran)*60, 0).UTC()
	here := Resolve(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), l.local).UnixNano()
	// Zones are less than 27 h apart: what differs by more is damage, or a clock that was wrong, and must not silence
	// the trigger.
	apart := max(here-e.ranAt, e.ranAt-here)
	return apart > 0 && apart < int64(27*time.Hour)
}

// patience is how late a slot may be and still be on time, in nanoseconds.
func (l *Loop) patience() int64 { return int64(onTime + l.o.Delay) }
