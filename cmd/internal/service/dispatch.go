package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/catalog"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// Dispatcher turns a key into a tick of the worker. The service and `roll` share it, so
// that a tick by hand and a tick by the clock are the same tick.
type Dispatcher struct {
	Worker *runner.Worker
	Log    *slog.Logger
	// Local is the machine's zone now.
	Local func() *time.Location
	// Echo gets the steps' output live; nil for none.
	Echo io.Writer
	// Launched is told how a run ended that a monitor launched. Wait waits for the last of it.
	Launched func(ws *state.Workspace, key string, res runner.Result)

	launches sync.WaitGroup

	mu    sync.Mutex       // guards what follows
	memos map[string]*memo // by trigger id
	gates map[string]*gate // by kind of source
}

// Wait waits until every launched run has ended and Launched was told, and keeps what looks have learnt. It is called once
// no tick is at work.
func (d *Dispatcher) Wait() {
	d.launches.Wait()
	d.saveCaches()
}

// Target is a workspace with the catalog in force for it.
type Target struct {
	Workspace *state.Workspace
	Catalog   *catalog.Catalog
}

// Firing is what a tick is fired for. The zero value is a person's: forced, no slot.
type Firing struct {
	Due   *scheduler.Due        // nil: forced
	Live  func(key string) bool // asked under the lock whether the key is still in force; nil: yes
	Input jsontext.Value        // overrides the schedule's input by key; nil for none
	RunID string                // of the schedule's run; "" for a new one
	// RestartOf is the interrupted run that this one stands for; "" for none.
	RestartOf string
	Looks     context.Context // ends looks, but not runs; nil: the tick's own
	// Hint is a look out of turn because something said that there was a change. It has no slot.
	Hint bool
	// Queued is a run file of a dead owner that never began and is to be started now; nil for a new run.
	Queued *state.RunFile
}

// byPerson reports whether a person asked for it.
func (f Firing) byPerson() bool { return f.Due == nil && f.Queued == nil && !f.Hint }

// live reports whether a key is still in force.
func (f Firing) live(key string) bool { return f.Live == nil || f.Live(key) }

// Schedule does one tick of a schedule and waits for its end.
func (d *Dispatcher) Schedule(ctx context.Context, t Target, s *catalog.Schedule, f Firing) runner.TickResult {
	tick := d.tick(t, state.KindSchedule, s.Key, s.Label, s.Cadence, f)
	tick.Overlap = s.Overlap
	tick.Body = func(ctx context.Context, tk *runner.Ticking) error {
		w := t.Catalog.Workflow(s.Workflow)
		if w == nil {
			return fmt.Errorf("cannot start %s: no workflow named %q", s.Key, s.Workflow)
		}
		input, err := runner.MergeInput(s.Input, f.Input)
		if err != nil {
			return err
		}
		_, err = tk.Launch(ctx, runner.Launch{
			Workspace: t.Workspace,
			Workflow:  &w.Workflow,
			Input:     input,
			Trigger:   trigger(f, "schedule"),
			Kind:      "workflow",
			Key:       s.Key,
			Slot:      tick.Slot,
			Queued:    f.Queued,
			RunID:     f.RunID,
			RestartOf: f.RestartOf,
			Echo:      d.Echo,
		})
		return err
	}
	return d.Worker.Tick(ctx, tick)
}

// Monitor does one tick of a monitor: it looks, runs the handler, commits what the handler saw,
// and starts the launch that was asked for.
func (d *Dispatcher) Monitor(ctx context.Context, t Target, m *catalog.Monitor, f Firing) runner.TickResult {
	res, _ := d.monitor(ctx, t, m, f)
	return res
}

// monitor is Monitor. The instant is that from which the monitor's interval counts.
func (d *Dispatcher) monitor(ctx context.Context, t Target, m *catalog.Monitor, f Firing) (runner.TickResult, time.Time) {
	tick := d.tick(t, state.KindMonitor, m.Key, m.Label, m.Cadence, f)
	tick.Overlap = runner.OverlapSkip
	var v *view // once the lock is held
	last := time.Time{}
	if due := tick.Due; due != nil {
		tick.Due = func(rec *state.KeyRecord) bool {
			v = d.view(t, m, f)
			if rec != nil {
				last = rec.LastFinish.Time
			}
			if v.retry(time.Now()).IsZero() {
				return due(rec)
			}
			return f.live(m.Key) && (f.Hint || !v.retry(time.Now()).After(time.Now()))
		}
	}
	tick.Body = func(ctx context.Context, tk *runner.Ticking) error {
		if v == nil {
			v = d.view(t, m, f)
		}
		return d.poll(ctx, v, tk)
	}
	byCadence := tick.NextDue
	tick.NextDue = func(finish time.Time) time.Time {
		if v != nil {
			if at := v.retry(finish); !at.IsZero() {
				return at
			}
		}
		return byCadence(finish)
	}
	res := d.Worker.Tick(ctx, tick)
	if v != nil {
		now := time.Now()
		if at := v.retry(now); !at.IsZero() {
			return res, earlier(now, at.Add(-m.Cadence.Interval()))
		}
	}
	if res.Outcome == "" && res.Err == nil && !last.IsZero() {
		return res, last // something else looked meanwhile
	}
	return res, res.Finished
}

func trigger(f Firing, by string) string {
	if f.RestartOf != "" {
		return "restart"
	}
	if f.byPerson() {
		return "manual"
	}
	return by
}

func (d *Dispatcher) tick(t Target, kind, key, label string, c scheduler.Cadence, f Firing) runner.Tick {
	tick := runner.Tick{
		Workspace: t.Workspace,
		Key:       key,
		Kind:      kind,
		Label:     label,
		Forced:    f.byPerson(),
		NextDue: func(finish time.Time) time.Time {
			s, ok := c.Next(finish, d.Local())
			if !ok {
				return time.Time{}
			}
			return s.At
		},
	}
	if f.Queued != nil {
		tick.Slot = f.Queued.Run.Extensions.Slot.Time
	}
	if f.Due != nil {
		tick.Slot, tick.SlotLocal = f.Due.Slot.At, f.Due.Slot.Civil
	}
	if !tick.Forced {
		tick.Due = func(rec *state.KeyRecord) bool {
			return f.live(key) && (f.Hint || stillDue(c, tick.Slot, rec, f.Queued, time.Now()))
		}
	}
	return tick
}

// stillDue is the test under the lock: no such or later slot was started. A record
// from the future (the clock was set back) says nothing about now.
func stillDue(c scheduler.Cadence, slot time.Time, rec *state.KeyRecord, queued *state.RunFile, now time.Time) bool {
	if rec == nil {
		return true
	}
	if queued != nil && (rec.Run == queued.Run.ID || slot.IsZero()) {
		return true // its own slot, claimed by a process that died before it spawned anything; or a person's
	}
	if every := c.Interval(); every > 0 {
		return rec.LastFinish.After(now) || !rec.LastFinish.Add(every).After(slot)
	}
	return rec.Slot.IsZero() || rec.Slot.After(now) || rec.Slot.Before(slot.Truncate(time.Millisecond))
}
