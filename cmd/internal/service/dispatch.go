package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/catalog"
	"marbles/monitor"
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
	Launched func(key string, res runner.Result)

	launches sync.WaitGroup

	mu      sync.Mutex
	partial map[string]string // guarded by mu: what monitors did not see at their latest look, by trigger id
}

// Wait waits until every launched run has ended and Launched was told.
func (d *Dispatcher) Wait() { d.launches.Wait() }

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
	Looks context.Context       // ends looks, but not runs; nil: the tick's own
	// Queued is a run file of a dead owner that never began and is to be started now; nil for a new run.
	Queued *state.RunFile
}

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
			Echo:      d.Echo,
		})
		return err
	}
	return d.Worker.Tick(ctx, tick)
}

// Monitor does one tick of a monitor: it looks, runs the handler, commits what the handler saw,
// and starts the launch that was asked for.
func (d *Dispatcher) Monitor(ctx context.Context, t Target, m *catalog.Monitor, f Firing) runner.TickResult {
	tick := d.tick(t, state.KindMonitor, m.Key, m.Label, m.Cadence, f)
	tick.Overlap = runner.OverlapSkip
	tick.Body = func(ctx context.Context, tk *runner.Ticking) error {
		return d.poll(ctx, t, m, f, tk)
	}
	return d.Worker.Tick(ctx, tick)
}

func trigger(f Firing, by string) string {
	if f.Due == nil && f.Queued == nil {
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
		Forced:    f.Due == nil && f.Queued == nil,
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
			if f.Live != nil && !f.Live(key) {
				return false
			}
			return stillDue(c, tick.Slot, rec, f.Queued, time.Now())
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

// poll is the body of a monitor's tick.
func (d *Dispatcher) poll(ctx context.Context, t Target, m *catalog.Monitor, f Firing, tk *runner.Ticking) error {
	rec, err := t.Workspace.Monitor(m.Key)
	if err != nil {
		return state.Hint(err, "move the file aside to begin with a new baseline")
	}
	if rec != nil && rec.Pending != nil {
		return d.deliver(t, tk, rec)
	}
	looks := ctx
	if f.Looks != nil {
		looks = f.Looks
	}
	obs, err := m.Source.Look(looks, rec, m.Timeout, d.Log.With("key", m.Key))
	if err != nil && looks.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", runner.ErrDraining, err) // the service stops: that is no failure of the source
	}
	if err != nil {
		return err
	}
	d.saw(t, m.Key, obs.Degraded)
	next := obs.Record
	if obs.First && m.Silent || !obs.Changed && rec != nil && next != nil {
		return t.Workspace.WriteMonitor(m.Key, next)
	}
	if !obs.Changed {
		return nil
	}
	launch, err := d.handle(ctx, t, m, f, obs, tk)
	if err != nil {
		return err
	}
	// The observation and the launch it asks for are committed in one write, after the handler
	// succeeded: a crash before it sees the same change again, a crash after it still knows the launch.
	next.Pending = launch
	if err := t.Workspace.WriteMonitor(m.Key, next); err != nil {
		return err
	}
	if launch == nil {
		return nil
	}
	return d.deliver(t, tk, next)
}

// saw logs that a monitor sees only a part, when that changes: not at each look.
func (d *Dispatcher) saw(t Target, key string, degraded []string) {
	id, text := triggerID(t.Workspace, key), strings.Join(degraded, "\n")
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.partial[id] == text:
	case text == "":
		delete(d.partial, id)
		d.Log.Info("monitor sees everything again", "key", key)
	default:
		if d.partial == nil {
			d.partial = map[string]string{}
		}
		d.partial[id] = text
		d.Log.Warn("monitor sees only a part", "key", key, "degraded", degraded)
	}
}

// handle runs the handler on a change and returns the launch that is asked for, if any.
func (d *Dispatcher) handle(ctx context.Context, t Target, m *catalog.Monitor, f Firing, obs *monitor.Observation, tk *runner.Ticking) (*state.PendingLaunch, error) {
	var launch *state.PendingLaunch
	if m.Start != "" {
		launch = &state.PendingLaunch{Workflow: m.Start, Input: m.Input}
	}
	if m.Handler != nil {
		files := map[string][]byte{"MARBLES_CHANGE_FILE": obs.Change, runner.LaunchFile: nil}
		if m.Source.Kind() == monitor.KindHTTP {
			files["MARBLES_BODY_FILE"] = obs.Body
		} else {
			files["MARBLES_PATHS_FILE"] = obs.Paths
		}
		res, err := tk.Launch(ctx, runner.Launch{
			Workspace: t.Workspace,
			Workflow:  m.Handler,
			Trigger:   trigger(f, "monitor"),
			Kind:      "handler",
			Key:       m.Key,
			Slot:      tk.Slot,
			Files:     files,
			Echo:      d.Echo,
		})
		if err != nil {
			return nil, err
		}
		if text := res.Files[runner.LaunchFile]; len(text) > 0 {
			if launch != nil {
				return nil, fmt.Errorf("cannot take the launch of %s: it has `start` and its handler wrote MARBLES_LAUNCH_FILE; use one of them", m.Key)
			}
			if launch, err = parseLaunch(text); err != nil {
				return nil, fmt.Errorf("cannot take the launch of %s: MARBLES_LAUNCH_FILE: %w", m.Key, err)
			}
		}
	}
	if launch != nil {
		if launch.Input == nil {
			launch.Input = jsontext.Value("null")
		}
		launch.Run = state.NewRunID(time.Now())
	}
	return launch, nil
}

func parseLaunch(text []byte) (*state.PendingLaunch, error) {
	var l struct {
		Workflow string         `json:"workflow"`
		Input    jsontext.Value `json:"input"`
	}
	if err := json.Unmarshal(text, &l, json.RejectUnknownMembers(true)); err != nil {
		return nil, err
	}
	if l.Workflow == "" {
		return nil, errors.New("workflow is missing")
	}
	if _, err := runner.MergeInput(nil, l.Input); err != nil {
		return nil, err
	}
	return &state.PendingLaunch{Workflow: l.Workflow, Input: l.Input}, nil
}

// deliver starts a pending launch and then forgets it. It may be called again for the same launch after a
// crash: the run carries its id from the moment it is pending, so it starts once.
func (d *Dispatcher) deliver(t Target, tk *runner.Ticking, rec *state.MonitorRecord) error {
	key, p := tk.Key, rec.Pending
	w := t.Catalog.Workflow(p.Workflow)
	if w == nil {
		rec.Pending = nil
		if err := t.Workspace.WriteMonitor(key, rec); err != nil {
			return err
		}
		return fmt.Errorf("%s: launch target %q is not registered", key, p.Workflow)
	}
	if p.Run == "" { // a record of the first format
		p.Run = state.NewRunID(time.Now())
		if err := t.Workspace.WriteMonitor(key, rec); err != nil {
			return err
		}
	}
	run, err := d.Worker.Start(runner.Launch{
		Workspace: t.Workspace,
		Workflow:  &w.Workflow,
		Input:     p.Input,
		Trigger:   "launch",
		Kind:      "workflow",
		Key:       key,
		RunID:     p.Run,
		Echo:      d.Echo,
	})
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot start %q for %s: %w", p.Workflow, key, err)
	}
	tk.Launched(p.Run)
	if run != nil {
		d.launches.Go(func() { d.Launched(key, run.Wait()) })
	}
	rec.Pending = nil
	return t.Workspace.WriteMonitor(key, rec)
}
