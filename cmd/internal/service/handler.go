package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/monitor"
	"marbles/monitor/filter"
	"marbles/runner"
	"marbles/state"
)

// The handler's files besides runner.LaunchFile, by the variables that name them.
const (
	changeFile    = "MARBLES_CHANGE_FILE"    // the change as JSON
	pathsFile     = "MARBLES_PATHS_FILE"     // files: every changed path, each ended by NUL
	bodyFile      = "MARBLES_BODY_FILE"      // HTTP: the whole body
	selectionFile = "MARBLES_SELECTION_FILE" // HTTP with select: what of it counts
	previousFile  = "MARBLES_PREVIOUS_FILE"  // HTTP: the body before; not on a first look
)

func handlerFiles(kind string, obs *monitor.Observation) map[string][]byte {
	files := map[string][]byte{changeFile: obs.Change, runner.LaunchFile: nil}
	if kind != monitor.KindHTTP {
		files[pathsFile] = obs.Paths
		return files
	}
	files[bodyFile] = obs.Body
	if obs.Selection != nil {
		files[selectionFile] = obs.Selection
	}
	if obs.Previous != nil {
		files[previousFile] = obs.Previous
	}
	return files
}

// handle runs the handler on a change and returns the launch that is asked for, if any.
//
// The program that makes the launch's input from the change is run first: where it fails the handler is not run either,
// again and again, for a change that cannot be committed.
func (d *Dispatcher) handle(ctx context.Context, v *view, tk *runner.Ticking, obs *monitor.Observation) (*state.PendingLaunch, error) {
	launch, err := fixedLaunch(ctx, v, obs)
	if err != nil {
		return nil, err
	}
	if v.m.Handler != nil {
		res, err := tk.Launch(ctx, runner.Launch{
			Workspace: v.t.Workspace,
			Workflow:  v.m.Handler,
			Trigger:   trigger(v.f, "monitor"),
			Kind:      "handler",
			Key:       v.m.Key,
			Slot:      tk.Slot,
			Files:     handlerFiles(v.m.Source.Kind(), obs),
			Echo:      d.Echo,
		})
		if err != nil {
			return nil, err
		}
		d.ran(v, obs, res)
		if text := res.Files[runner.LaunchFile]; len(text) > 0 {
			if launch != nil {
				return nil, fmt.Errorf("cannot take the launch of %s: it has `start` and its handler wrote MARBLES_LAUNCH_FILE; use one of them", v.m.Key)
			}
			if launch, err = parseLaunch(text); err != nil {
				return nil, fmt.Errorf("cannot take the launch of %s: MARBLES_LAUNCH_FILE: %w", v.m.Key, err)
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

// fixedLaunch is the launch that the monitor's own `start` asks for; nil where it has none.
func fixedLaunch(ctx context.Context, v *view, obs *monitor.Observation) (*state.PendingLaunch, error) {
	if v.m.Start == "" {
		return nil, nil
	}
	launch := &state.PendingLaunch{Workflow: v.m.Start, Input: v.m.Input}
	if v.m.InputProgram == nil {
		return launch, nil
	}
	var err error
	if launch.Input, err = InputOf(ctx, v.m.InputProgram, obs.Change); err != nil {
		return nil, fmt.Errorf("cannot make the input of %q for %s: %w", v.m.Start, v.m.Key, err)
	}
	return launch, nil
}

// inputTime bounds an input program.
const inputTime = 10 * time.Second

// InputOf is the one result of an input program: an object or null.
func InputOf(ctx context.Context, p *filter.Program, change []byte) (jsontext.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, inputTime)
	defer cancel()
	results, err := p.Run(ctx, change)
	if err != nil {
		return nil, err
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("want one result, an object or null, not %d", len(results))
	}
	if _, err := runner.MergeInput(nil, results[0]); err != nil {
		return nil, err
	}
	return results[0], nil
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
func (d *Dispatcher) deliver(v *view, tk *runner.Ticking, rec *state.MonitorRecord) error {
	key, p := tk.Key, rec.Pending
	w := v.t.Catalog.Workflow(p.Workflow)
	if w == nil {
		rec.Pending = nil
		if err := v.commit(rec); err != nil {
			return err
		}
		return fmt.Errorf("%s: launch target %q is not registered", key, p.Workflow)
	}
	if p.Run == "" { // a record of the first format
		p.Run = state.NewRunID(time.Now())
		if err := v.commit(rec); err != nil {
			return err
		}
	}
	run, err := d.Worker.Start(runner.Launch{
		Workspace: v.t.Workspace,
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
		d.launches.Go(func() { d.Launched(v.t.Workspace, key, run.Wait()) })
	}
	rec.Pending = nil
	return v.commit(rec)
}
