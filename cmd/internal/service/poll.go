package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"marbles/monitor"
	"marbles/runner"
	"marbles/state"
)

// poll is the body of a monitor's tick: a launch that is still pending is started, and the tick is over; else it looks,
// takes note of the source's health, tells of it where something is to be told, and handles the change.
func (d *Dispatcher) poll(ctx context.Context, v *view, tk *runner.Ticking) error {
	committed, pending, err := v.committed()
	if err != nil {
		return err
	}
	if pending {
		rec, err := committed.Load()
		if err != nil {
			return err
		}
		return d.deliver(v, tk, rec)
	}
	if at := v.health.RetryAt; !v.f.byPerson() && !v.f.Hint && at.After(time.Now()) {
		// An interval is not due before; a slot comes when it comes.
		return &runner.SkipError{Reason: fmt.Sprintf("cannot look at %s before %s: its server asked for that", v.m.Source, at.In(d.Local()).Format(time.DateTime))}
	}
	obs, err := d.look(ctx, v, committed)
	if errors.Is(err, runner.ErrDraining) {
		return err
	}
	stopped := obs != nil && obs.Changed && !v.f.byPerson() && isStopped(v.health.Handler, obs.Newest, time.Now())
	d.note(v, obs, err, stopped)
	told := d.tell(ctx, v, tk)
	switch {
	case err != nil:
	case stopped:
		err = errors.New(loopLine)
	default:
		err = d.change(ctx, v, tk, obs)
	}
	return errors.Join(told, err)
}

// look looks once, in its turn among the monitors that are due with it. What it learnt of files is kept.
func (d *Dispatcher) look(ctx context.Context, v *view, committed monitor.Committed) (*monitor.Observation, error) {
	looks := ctx
	if v.f.Looks != nil {
		var cancel context.CancelCauseFunc
		looks, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(v.f.Looks, func() { cancel(context.Cause(v.f.Looks)) })()
	}
	src := d.source(v)
	leave, err := d.gate(src.Kind()).enter(looks)
	var obs *monitor.Observation
	if err == nil {
		obs, err = src.Look(looks, committed, monitor.LookOptions{
			Timeout: v.m.Timeout,
			Log:     d.Log.With("key", v.m.Key, "workspace", v.t.Workspace.ID()),
			Fresh:   v.f.Hint || v.f.byPerson(),
		})
		leave()
		d.saveCache(v)
	}
	if err != nil && looks.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", runner.ErrDraining, err) // the service stops: that is no failure of the source
	}
	return obs, err
}

// note keeps the monitor's health after a look, and says so where what it sees has changed.
func (d *Dispatcher) note(v *view, obs *monitor.Observation, err error, stopped bool) {
	now := time.Now()
	old := v.health
	next := *old
	next.LastLook = state.Stamp{Time: now}
	if err != nil {
		failed(&next, v.m, now, err)
	} else {
		succeeded(&next, v.m, now, obs)
		lines := slices.Clone(obs.Degraded)
		if cert := CertLine(next.CertExpires.Time, now, v.m.CertDays); cert != "" {
			lines = append(lines, cert)
		}
		if stopped {
			lines = append(lines, loopLine)
		}
		degrade(&next, now, lines)
	}
	d.keepHealth(v, &next)
	d.logHealth(v, old)
}

// change handles what a look found, and commits exactly that once the handler succeeded. The launch it asks for is
// committed in the same write: a crash before it sees the same change again, a crash after it still knows the launch.
func (d *Dispatcher) change(ctx context.Context, v *view, tk *runner.Ticking, obs *monitor.Observation) error {
	next := obs.Record
	switch {
	case next == nil && (!obs.Changed || obs.First && v.m.Silent):
		return nil
	case obs.First && v.m.Silent:
		return v.commit(next)
	case !obs.Changed:
		// It says the same, and only knows something better. Where it does so each time, that must not keep the disk busy.
		if v.before.IsZero() || time.Since(v.memo.better) < keptEvery {
			return nil
		}
		v.memo.better = time.Now()
		return v.commit(next)
	}
	launch, err := d.handle(ctx, v, tk, obs)
	if err != nil {
		return err
	}
	next.Pending = launch
	if err := v.commit(next); err != nil {
		return err
	}
	if launch == nil {
		return nil
	}
	return d.deliver(v, tk, next)
}
