package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/service"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/state"
)

func newRoll(a *app) *cobra.Command {
	var input string
	c := &cobra.Command{
		Use:   "roll <key or workflow>",
		Short: "Run one tick of a key, or a workflow, now",
		Long: `Run one tick of a key, or a workflow, now.

A key takes its lock and writes its history, as a timer's tick would; where another process holds the lock,
roll says who, and exits 0. A workflow takes no lock. Keys are looked up first. What the steps print goes to
stderr live; the result goes to stdout as JSON.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("roll takes one key or workflow name")
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(true),
		RunE: func(c *cobra.Command, args []string) error {
			return a.roll(c, args[0], input)
		},
	}
	c.Flags().StringVar(&input, "input", "", "input as a JSON `object`, laid over the defaults by key")
	return c
}

func (a *app) roll(c *cobra.Command, name, inputText string) (err error) {
	outliveReaders()
	s, err := a.settings(c, settings.Options{})
	if err != nil {
		return err
	}
	var input jsontext.Value
	if c.Flags().Changed("input") {
		if input, err = runner.MergeInput(nil, jsontext.Value(inputText)); err != nil {
			return inputError(err)
		}
	}
	catalogs, err := a.catalogs(s, true)
	if err != nil {
		return err
	}
	cat := pick(catalogs, name)
	if cat == nil {
		return unknownName(catalogs, name)
	}
	root, done, err := a.writer(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	ws, err := root.Workspace(cat.Sources[0].Workspace)
	if err != nil {
		return err
	}
	if err := ws.Register(cat.Sources[0].Config(), time.Now()); err != nil {
		return err
	}
	log := a.log(s)
	if a.dryRun {
		log.Warn("dry run: nothing is written under the state root, but commands are executed")
	}
	worker := runner.New(runner.Options{Concurrency: s.Concurrency, Grace: service.Grace(s), Log: log, Env: a.Env.Env})
	ctx, stop := interrupt(c.Context())
	defer stop()
	if cat.Schedule(name) == nil && cat.Monitor(name) == nil {
		res, err := a.rollWorkflow(ctx, worker, ws, cat.Workflow(name), input)
		return a.rolled(res, errors.Join(err, drain(ctx, worker)))
	}
	return a.rollKey(ctx, worker, service.Target{Workspace: ws, Catalog: cat}, log, name, input)
}

// inputError is what is wrong with the text of --input.
func inputError(err error) error {
	parse := errors.Unwrap(err) // without the runner's own "cannot read"
	if parse == nil {
		return usage("cannot read --input: %w", err)
	}
	return usage(`cannot read --input: want a JSON object, as in '{"from":"me"}': %w`, parse)
}

// rollKey does one tick of a key. What a monitor launches is this process's to carry to its end.
func (a *app) rollKey(ctx context.Context, worker *runner.Worker, target service.Target, log *slog.Logger, key string, input jsontext.Value) error {
	var mu sync.Mutex // guards launched
	var launched []runner.Result
	desk := &service.Dispatcher{
		Worker: worker, Log: log, Echo: a.Stderr,
		Local: func() *time.Location { return time.Local },
		Launched: func(_ string, res runner.Result) {
			mu.Lock()
			defer mu.Unlock()
			launched = append(launched, res)
		},
	}
	var tick runner.TickResult
	if sch := target.Catalog.Schedule(key); sch != nil {
		tick = desk.Schedule(ctx, target, sch, service.Firing{Input: input})
	} else if input != nil {
		return usage("cannot give --input to a monitor: its input is the change")
	} else {
		tick = desk.Monitor(ctx, target, target.Catalog.Monitor(key), service.Firing{})
	}
	derr := drain(ctx, worker)
	desk.Wait()
	if tick.Outcome == state.SlotSkipped {
		fmt.Fprintf(a.Stderr, "skipped: held by %s\n", safe(tick.Holder))
		return derr
	}
	res, err := tick.Result, errors.Join(tick.Err, derr)
	for _, l := range launched {
		if err == nil && (res.RunID == "" || l.Err() != nil) {
			res, err = l, l.Err()
		}
	}
	if err == nil && res.RunID == "" {
		fmt.Fprintf(a.Stderr, "%s: nothing to do\n", key)
		return nil
	}
	return a.rolled(res, err)
}

// rolled prints the result of a run that completed, or says why it did not.
func (a *app) rolled(res runner.Result, err error) error {
	switch {
	case err != nil && (res.RunID == "" || res.Err() == nil): // a run that did what it should is not what failed
		return fmt.Errorf("cannot run: %w", err)
	case err != nil:
		return state.Hint(fmt.Errorf("run %s %s: %w", res.RunID, res.Status, err), "marbles show "+res.RunID)
	case res.Output == nil:
		return printJSON(a.Stdout, jsontext.Value("null"))
	}
	return printJSON(a.Stdout, res.Output)
}

func (a *app) rollWorkflow(ctx context.Context, worker *runner.Worker, ws *state.Workspace, w *catalog.Workflow, input jsontext.Value) (runner.Result, error) {
	run, err := worker.Start(runner.Launch{
		Workspace: ws, Workflow: &w.Workflow, Input: input, Trigger: "manual", Kind: "workflow", Echo: a.Stderr,
	})
	if err != nil {
		return runner.Result{}, err
	}
	unhook := context.AfterFunc(ctx, func() { run.Cancel("interrupted") })
	defer unhook()
	res := run.Wait()
	return res, res.Err()
}

// drain waits for everything the worker still does; an interrupt cancels it.
func drain(ctx context.Context, worker *runner.Worker) error {
	if err := worker.Drain(ctx); err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return nil
}

// pick is the catalog that has a key, else the one that has a workflow of that name.
func pick(catalogs []*catalog.Catalog, name string) *catalog.Catalog {
	for _, c := range catalogs {
		if c.Schedule(name) != nil || c.Monitor(name) != nil {
			return c
		}
	}
	for _, c := range catalogs {
		if c.Workflow(name) != nil {
			return c
		}
	}
	return nil
}

func unknownName(catalogs []*catalog.Catalog, name string) error {
	err := usage("no workflow, schedule or monitor named %q", name)
	for _, c := range catalogs {
		if c.Workflow(name) == nil {
			continue
		}
		for _, s := range c.Schedules {
			if s.Workflow == name {
				return state.Hint(usage("%q is a workflow, not a key", name), fmt.Sprintf("a schedule of it has the key %q", s.Key))
			}
		}
		return state.Hint(usage("%q is a workflow, not a key", name), "no schedule runs it: marbles list")
	}
	for _, c := range catalogs {
		if near := c.Nearest(name); near != "" {
			return state.Hint(err, fmt.Sprintf("did you mean %q? `marbles list` shows all", near))
		}
	}
	return state.Hint(err, "marbles list")
}

// unknownRun reports a file that is not there as an unknown run.
func unknownRun(text string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return state.Hint(usage("no run %q", text), "marbles runs")
	}
	return err
}
