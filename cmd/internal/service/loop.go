package service

import (
	"time"

	"marbles/monitor"
	"marbles/runner"
	"marbles/state"
)

// A handler that writes into what its monitor watches makes changes of its own. Those that come to an end are welcome: a
// formatter finds nothing to do the second time. One that goes on for ever is stopped after maxSelfMade runs in a row.
// What others change while it runs looks the same, and must not wait for ever: so its change is offered again after stoppedFor.
const (
	maxSelfMade = 10
	stoppedFor  = time.Hour
)

// loopLine says so. It is the same each time, so that it is one state and not many.
const loopLine = "handler is stopped after 10 runs in a row, each for what the last one wrote; marbles roll starts it again"

// coarse is how far the times of files may lie behind the clock: a kernel before Linux 6.13 takes them from its last timer
// tick.
const coarse = 20 * time.Millisecond

// selfMade reports whether a change was made while the handler ran last. Where it is not known when it was made, as of
// files that are gone, it was not.
func selfMade(last *state.HandlerLoop, newest time.Time) bool {
	return last != nil && !newest.IsZero() && !newest.Before(last.Start.Add(-coarse)) && !newest.After(last.End.Time)
}

// isStopped reports whether a handler is not to run for a change of its own.
func isStopped(last *state.HandlerLoop, newest, now time.Time) bool {
	return selfMade(last, newest) && last.Count >= maxSelfMade && now.Sub(last.End.Time) < stoppedFor
}

// ran takes note of a run of the handler that succeeded. One that failed is offered its change again whatever it wrote.
func (d *Dispatcher) ran(v *view, obs *monitor.Observation, res runner.Result) {
	if v.m.Source.Kind() != monitor.KindFiles {
		return
	}
	last := v.health.Handler
	count := 1
	switch {
	case last == nil || v.f.byPerson():
	case selfMade(last, obs.Newest):
		count = last.Count + 1
	case obs.Newest.IsZero(): // only removals: they say nothing
		count = last.Count
	}
	next := *v.health
	// Records keep milliseconds: outwards, so that what was written in the first and the last of them is inside.
	next.Handler = &state.HandlerLoop{
		Start: state.Stamp{Time: res.Started.Truncate(time.Millisecond)},
		End:   state.Stamp{Time: res.Finished.Add(time.Millisecond).Truncate(time.Millisecond)},
		Count: count,
	}
	d.keepHealth(v, &next)
}
