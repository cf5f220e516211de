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

type rollFlags struct {
	input         string
	detach, force bool
	due           bool
	as            string // see asFlag
}

func newRoll(a *app) *cobra.Command {
	var f rollFlags
	c := &cobra.Command{
		Use:   "roll <key or workflow>",
		Short: "Run one tick of a key, or a workflow, now",
		Long: `Run one tick of a key, or a workflow, now.

A key takes its lock and writes its history, as a timer's tick would; where another process holds the lock, or the key
is paused, roll says so, and exits 0. A workflow takes no lock. Keys are looked up first. What the steps print goes to
stderr live; the result goes to stdout as JSON. A run that has to wait for an answer or a time is parked: roll says what
it waits for and what to type, and exits 0.

--due is for the timer of an init system, or cron: the key's tick is done only where its history says that a slot is
due, as the service would, and never twice for one slot, whoever else asks. A slot that is not due is no failure. A key
of an interval that is not due yet is waited for.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("roll takes one key or workflow name")
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(true),
		RunE: func(c *cobra.Command, args []string) error {
			if f.due {
				return a.rollDue(c, args[0], f)
			}
			return a.roll(c, args[0], f)
		},
	}
	c.Flags().StringVar(&f.input, "input", "", "input as a JSON `object`, laid over the defaults by key")
	c.Flags().BoolVar(&f.detach, "detach", false, "let the service do it, or without one a process in the background: print the run id and return")
	c.Flags().BoolVar(&f.force, "force", false, "also where the key is paused")
	c.Flags().BoolVar(&f.due, "due", false, "only where a slot of the key is due: for timers")
	hiddenFlag(c, &f.as)
	return c
}

// rolling is a roll that is about to begin.
type rolling struct {
	rollFlags
	name  string
	input jsontext.Value // nil for none
	s     *settings.Settings
	log   *slog.Logger
	cat   *catalog.Catalog
	ws    *state.Workspace
	// catalogs are those of every source: a step may start what another file defines.
	catalogs []*catalog.Catalog
}

func (a *app) roll(c *cobra.Command, name string, f rollFlags) (err error) {
	outliveReaders()
	s, err := a.settings(c, settings.Options{})
	if err != nil {
		return err
	}
	r := &rolling{rollFlags: f, name: name, s: s}
	if c.Flags().Changed("input") {
		if r.input, err = runner.MergeInput(nil, jsontext.Value(f.input)); err != nil {
			return inputError(err)
		}
	}
	if f.detach && a.dryRun {
		return usage("roll cannot both detach and have a dry run: its state would go with this process")
	}
	if r.catalogs, err = a.catalogs(s, true); err != nil {
		return err
	}
	if r.cat = pick(r.catalogs, name); r.cat == nil {
		return unknownName(r.catalogs, name)
	}
	if err := r.checkInput(); err != nil {
		return err
	}
	root, done, err := a.writer(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if r.ws, err = root.Workspace(r.cat.Sources[0].Workspace); err != nil {
		return err
	}
	if err := r.ws.Register(r.cat.Sources[0].Config(), time.Now()); err != nil {
		return err
	}
	r.log = a.log(s)
	isKey := r.cat.Schedule(name) != nil || r.cat.Monitor(name) != nil
	if isKey && !f.force {
		if held, err := a.heldByPause(r.ws, name); held || err != nil {
			return err
		}
	}
	if f.detach && f.as == "" {
		return a.detachRoll(c, r)
	}
	if a.dryRun {
		r.log.Warn("dry run: nothing is written under the state root, but commands are executed")
	}
	worker := a.worker(s, r.log, r.catalogs...)
	ctx, stop := interrupt(c.Context())
	defer stop()
	if !isKey {
		res, err := a.rollWorkflow(ctx, worker, r)
		return a.rolled(res, errors.Join(err, a.drain(ctx, worker)))
	}
	return a.rollKey(ctx, worker, r)
}

// checkInput refuses an input that the workflow does not take, before anything is written. The worker does that too.
func (r *rolling) checkInput() error {
	w, parts := r.cat.Workflow(r.name), []jsontext.Value{r.input}
	if sch := r.cat.Schedule(r.name); sch != nil {
		w, parts = r.cat.Workflow(sch.Workflow), []jsontext.Value{sch.Input, r.input}
	}
	if w == nil || w.Schema == nil || r.cat.Monitor(r.name) != nil {
		return nil
	}
	input := w.Input
	for _, part := range parts {
		var err error
		if input, err = runner.MergeInput(input, part); err != nil {
			return err
		}
	}
	if input == nil {
		input = jsontext.Value("{}")
	}
	if err := w.Schema.Validate(input); err != nil {
		return usage("cannot start %s: input does not fit its input_schema: %w", w.Name, err)
	}
	return nil
}

// heldByPause reports whether a key is paused, and says so.
func (a *app) heldByPause(ws *state.Workspace, key string) (bool, error) {
	pauses, err := ws.Pauses()
	if err != nil {
		return false, err
	}
	p := pauses.Of(key)
	if p == nil {
		return false, nil
	}
	fmt.Fprintf(a.Stderr, "skipped: %s\nhint: --force runs it all the same\n", safe(pausedText(p)))
	return true, nil
}

// pausedText says since when a pause lasts, and why.
func pausedText(p *state.Pause) string {
	text := "paused since " + clock(p.Since.Time)
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// inputError is what is wrong with the text of --input.
func inputError(err error) error {
	parse := errors.Unwrap(err) // without the runner's own "cannot read"
	if parse == nil {
		return usage("cannot read --input: %w", err)
	}
	return usage(`cannot read --input: want a JSON object, as in '{"from":"me"}': %w`, parse)
}

// launches are the ends of runs that a monitor has launched.
type launches struct {
	mu   sync.Mutex // guards runs
	runs []runner.Result
}

func (l *launches) add(res runner.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, res)
}

func (l *launches) all() []runner.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs
}

// rollKey does one tick of a key. What a monitor launches is this process's to carry to its end.
func (a *app) rollKey(ctx context.Context, worker *runner.Worker, r *rolling) error {
	desk, launched := a.desk(worker, r)
	target := service.Target{Workspace: r.ws, Catalog: r.cat}
	var tick runner.TickResult
	if sch := r.cat.Schedule(r.name); sch != nil {
		tick = desk.Schedule(ctx, target, sch, service.Firing{Input: r.input, RunID: r.as})
	} else if r.input != nil {
		return usage("cannot give --input to a monitor: its input is the change")
	} else {
		tick = desk.Monitor(ctx, target, r.cat.Monitor(r.name), service.Firing{})
	}
	return a.ticked(ctx, worker, desk, r, tick, launched)
}

// saySkipped says what stood in a tick's way.
func (a *app) saySkipped(tick runner.TickResult) {
	if tick.Holder != "" {
		fmt.Fprintf(a.Stderr, "skipped: held by %s\n", safe(tick.Holder))
		return
	}
	fmt.Fprintf(a.Stderr, "skipped: %s\n", safe(tick.Reason))
}

// rolled prints the result of a run that completed, or what it waits for, or says why it did not complete.
func (a *app) rolled(res runner.Result, err error) error {
	switch {
	case err != nil && (res.RunID == "" || runErr(res) == nil): // a run that did what it should is not what failed
		return fmt.Errorf("cannot run: %w", err)
	case err != nil:
		return state.Hint(fmt.Errorf("run %s %s: %w", res.RunID, res.Status, err), "marbles show "+res.RunID)
	case res.Status == state.Suspended:
		if res.File != nil {
			a.sayParked(a.Stderr, res.File)
		}
		return nil
	case res.Output == nil:
		return printJSON(a.Stdout, jsontext.Value("null"))
	}
	return printJSON(a.Stdout, res.Output)
}

func (a *app) rollWorkflow(ctx context.Context, worker *runner.Worker, r *rolling) (runner.Result, error) {
	run, err := worker.Start(runner.Launch{
		Workspace: r.ws, Workflow: &r.cat.Workflow(r.name).Workflow, Input: r.input, Trigger: "manual", Kind: "workflow",
		RunID: r.as, Echo: a.echo(r.as),
	})
	if err != nil {
		return runner.Result{}, err
	}
	unhook := context.AfterFunc(ctx, func() { run.Cancel("interrupted") })
	defer unhook()
	res := run.Wait()
	return res, runErr(res)
}

// drain waits for everything the worker still does; an interrupt cancels it.
func (a *app) drain(ctx context.Context, worker *runner.Worker) error {
	if a.hooks != nil {
		told := make(chan struct{})
		go func() { // ends with what is being told, which the worker's drain ends where ctx ends first
			a.hooks.End()
			close(told)
		}()
		defer func() { <-told }()
		select {
		case <-told:
		case <-ctx.Done():
		}
	}
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
