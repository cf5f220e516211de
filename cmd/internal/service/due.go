package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// Offer is a key that somebody else's clock says is due: an init system's timer, or cron.
type Offer struct {
	Target Target
	Key    string
	Zone   *scheduler.Zone
	// Settled is up to when an earlier offer of this process has decided; zero for none.
	Settled time.Time
	Hooks   *Hooks // that are told of what was missed; nil for none
}

// Answer is what became of an offer.
type Answer struct {
	Ticked bool
	Tick   runner.TickResult
	// Missed is how many slots catch_up gave up.
	Missed int
	// Next is when the key is due next; zero where nobody knows. Settled is for the next offer.
	Next, Settled time.Time
	// Reason is why the key has no next instant.
	Reason string
}

// soon is how early a clock may be, whose second is another than ours.
const soon = 2 * time.Second

// ErrNotEnabled is wrapped when a key is not enabled.
var ErrNotEnabled = errors.New("is not enabled")

// Offer does the tick of a key where its history says that one is due, as the service's loop would: what was missed is
// judged by catch_up and written down, and a slot that was started is not started again, whoever offers it.
func (d *Dispatcher) Offer(ctx context.Context, o Offer) (Answer, error) {
	now := time.Now()
	h, err := readHistories(&o.Target, now, o.Zone.Location(), d.Log)
	if err != nil {
		return Answer{}, err
	}
	var a armed
	var tr scheduler.Trigger
	enabled := false
	o.Target.each(func(one armed, t scheduler.Trigger, on bool) {
		if one.key() == o.Key {
			a, tr, enabled = one, t, on
		}
	})
	switch {
	case a.target == nil:
		return Answer{}, fmt.Errorf("no key is called %q", o.Key)
	case !enabled:
		return Answer{}, fmt.Errorf("%s %w", o.Key, ErrNotEnabled)
	case h.pauses.Of(o.Key) != nil:
		return Answer{Ticked: true, Tick: runner.TickResult{Outcome: state.SlotSkipped, Reason: pausedReason(h.pauses.Of(o.Key))}}, nil
	case !h.arm(o.Key, &tr):
		return Answer{}, fmt.Errorf("cannot run %s: its history cannot be read", o.Key)
	}
	tr.Base = later(tr.Base, o.Settled)
	options := scheduler.Options{Zone: o.Zone, Log: d.Log}
	record := h.handed[o.Key]
	if record != nil && record.Manager == "systemd" { // its timer has the jitter
		options.Delay, tr.Jitter = tr.Jitter, 0
	}
	s := &service{Options: Options{Log: d.Log}, started: now, hooks: o.Hooks}
	answer := Answer{Settled: o.Settled}
	decided := make(chan scheduler.Due, 16) // more than a look can bring: Fire must not block
	options.Fire = func(due scheduler.Due) { decided <- due }
	loop := scheduler.NewLoop(options)
	loop.Set([]scheduler.Trigger{tr})
	for {
		_, at, ok := loop.Next()
		if !ok {
			answer.Reason = fmt.Sprintf("%s (%s) is never due again", o.Key, a.cadence())
			return answer, nil
		}
		if answer.Next = at; at.After(time.Now().Add(soon)) {
			return answer, nil
		}
		due, ok := next(ctx, loop, decided)
		if !ok {
			return answer, nil
		}
		s.clock = o.away(due.Missed)
		s.account(a, due)
		answer.Missed += due.Missed.Count
		if !due.Fire {
			answer.Settled = due.Slot.At
			if tr.Cadence.Interval() > 0 {
				answer.Settled = now
			}
			continue
		}
		f := Firing{Due: &due, Live: func(key string) bool {
			pauses, err := o.Target.Workspace.Pauses()
			return err != nil || pauses.Of(key) == nil
		}}
		answer.Ticked = true
		if a.schedule != nil {
			answer.Tick = d.Schedule(ctx, o.Target, a.schedule, f)
		} else {
			answer.Tick = d.Monitor(ctx, o.Target, a.monitor, f)
		}
		return answer, nil
	}
}

// away is why nobody offered slots in time. A timer whose service is at work starts nothing, and does not say so.
func (o *Offer) away(st scheduler.Stretch) string {
	rec, err := o.Target.Workspace.Key(o.Key)
	if err == nil && rec != nil && !st.First.Before(rec.LastStart.Time) && !st.Last.After(rec.LastFinish.Time) {
		return "the key's last run was at work"
	}
	return "off, asleep, or its timer did not run"
}

// next runs a loop until it has decided once; ok is false where ctx ended before that.
func next(ctx context.Context, loop *scheduler.Loop, decided <-chan scheduler.Due) (due scheduler.Due, ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }() // waited for below
	select {
	case due = <-decided:
		ok = true
	case <-ctx.Done():
	}
	cancel()
	<-ended
	return due, ok
}
