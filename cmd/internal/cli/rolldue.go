package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/initsys"
	"marbles/cmd/internal/service"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// lookAtClock is how long a wait goes on without a look at the wall clock: it may be set, and the machine may sleep.
const lookAtClock = 10 * time.Second

// rollDue does a key's tick if it is due, and waits for one of an interval that is not. What it read before a wait is read
// again after it: definitions and settings may be others by then.
func (a *app) rollDue(c *cobra.Command, name string, f rollFlags) error {
	if f.detach || f.force || f.as != "" || c.Flags().Changed("input") || a.dryRun {
		return usage("roll --due takes no other flag of roll, and has no dry run")
	}
	outliveReaders()
	ctx, stop := interrupt(c.Context())
	defer stop()
	var settled time.Time
	var handed *state.Handed
	for first := true; ; first = false {
		o, err := a.offer(ctx, c, name, settled)
		if err != nil || o.ended {
			return err
		}
		settled = o.Settled
		if first {
			if handed = o.handed; o.Missed > 0 {
				fmt.Fprintf(a.Stderr, "%s: %s missed, and catch_up does not allow them\n", safe(name), count(o.Missed, "slot"))
			}
			fmt.Fprintf(a.Stderr, "%s is not due before %s\n", safe(name), clock(o.Next))
		}
		if !o.wait {
			return nil
		}
		if gone := waitUntil(ctx, o.Next, func() bool { return handed != nil && handed.Off() != "" }); gone || ctx.Err() != nil {
			return nil // nothing was begun
		}
	}
}

// offered is what became of an offer, as rollDue goes on with it.
type offered struct {
	service.Answer
	handed *state.Handed // nil for none
	ended  bool          // there is nothing to wait for
	wait   bool
}

// offer reads everything there is to know and offers the key once.
func (a *app) offer(ctx context.Context, c *cobra.Command, name string, settled time.Time) (o offered, err error) {
	o.ended = true
	s, err := a.settings(c, settings.Options{})
	if err != nil {
		return o, err
	}
	r := &rolling{name: name, s: s}
	if r.catalogs, err = a.catalogs(s, true); err != nil {
		return o, err
	}
	r.cat = pick(r.catalogs, name)
	if r.cat == nil || r.cat.Schedule(name) == nil && r.cat.Monitor(name) == nil {
		return o, unknownName(r.catalogs, name)
	}
	root, done, err := a.writer(s)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if r.ws, err = root.Workspace(r.cat.Sources[0].Workspace); err != nil {
		return o, err
	}
	if err := r.ws.Register(r.cat.Sources[0].Config(), time.Now()); err != nil {
		return o, err
	}
	if o.handed, err = r.ws.Handed(name); err != nil {
		return o, err
	}
	r.log = a.log(s)
	worker := a.worker(s, r.log, r.catalogs...)
	desk, launched := a.desk(worker, r)
	o.Answer, err = desk.Offer(ctx, service.Offer{
		Target: service.Target{Workspace: r.ws, Catalog: r.cat}, Key: name, Zone: scheduler.NewZone(""), Settled: settled, Hooks: a.hooks,
	})
	switch {
	case errors.Is(err, service.ErrNotEnabled):
		fmt.Fprintf(a.Stderr, "skipped: %s\n", safe(err.Error()))
		return o, a.drain(ctx, worker)
	case err != nil:
		return o, errors.Join(err, a.drain(ctx, worker))
	case o.Ticked:
		return o, a.ticked(ctx, worker, desk, r, o.Tick, launched)
	}
	err = a.drain(ctx, worker)
	desk.Wait()
	if o.Reason != "" {
		fmt.Fprintln(a.Stderr, safe(o.Reason))
		return o, err
	}
	cadence, _ := cadenceOf(r.catalogs, name)
	far := o.handed != nil && o.handed.Manager == string(initsys.Launchd) && time.Until(o.Next) > initsys.Looks
	o.ended, o.wait = err != nil || ctx.Err() != nil, cadence.Interval() > 0 && !far || a.jitters(r, o.Next)
	return o, err
}

// jitters reports whether an instant is one that a slot of the present was moved to by its share of the jitter.
func (a *app) jitters(r *rolling, at time.Time) bool {
	sch, m := r.cat.Schedule(r.name), r.cat.Monitor(r.name)
	switch {
	case sch != nil:
		return sch.Cadence.Interval() == 0 && time.Until(at) < sch.Jitter
	case m != nil:
		return m.Cadence.Interval() == 0 && time.Until(at) < m.Jitter
	}
	return false
}

// waitUntil waits for an instant of the wall clock; it is over early where ctx ends, or gone says so.
func waitUntil(ctx context.Context, at time.Time, gone func() bool) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
		if gone() {
			return true
		}
		left := time.Until(at.Round(0)) // without a monotonic reading, which stands still while the machine sleeps
		if left <= 0 {
			return false
		}
		timer.Reset(min(left, lookAtClock))
	}
}

// desk is a dispatcher of this process, which keeps what a monitor launches.
func (a *app) desk(worker *runner.Worker, r *rolling) (*service.Dispatcher, *launches) {
	l := &launches{}
	return &service.Dispatcher{
		Worker: worker, Log: r.log, Echo: a.echo(r.as),
		Local:    func() *time.Location { return time.Local },
		Launched: func(_ *state.Workspace, _ string, res runner.Result) { l.add(res) },
	}, l
}

// ticked waits for everything a tick has begun and says how it ended.
func (a *app) ticked(ctx context.Context, worker *runner.Worker, desk *service.Dispatcher, r *rolling, tick runner.TickResult, l *launches) error {
	derr := a.drain(ctx, worker)
	desk.Wait()
	if tick.Outcome == state.SlotSkipped {
		a.saySkipped(tick)
		return derr
	}
	res, err := tick.Result, errors.Join(tick.Err, derr)
	for _, launched := range l.all() {
		if err == nil && (res.RunID == "" || runErr(launched) != nil) {
			res, err = launched, runErr(launched)
		}
	}
	if err == nil && res.RunID == "" {
		fmt.Fprintf(a.Stderr, "%s: nothing to do\n", r.name)
		return nil
	}
	return a.rolled(res, err)
}
