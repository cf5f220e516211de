package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/runner"
	"marbles/state"
)

type retryFlags struct {
	whole, detach bool
	as            string
}

func newRetry(a *app) *cobra.Command {
	var f retryFlags
	c := &cobra.Command{
		Use:   "retry <run>",
		Short: "Go on with a run that failed or was cancelled, from the step that did not complete",
		Long: `Go on with a run that failed or was cancelled, from the step that did not complete, as the workflow is defined now:
steps that completed keep their results and do not run again. With --whole a new run takes the old one's input and does
everything.

What the steps print goes to stderr live; the result goes to stdout as JSON.`,
		Args:              oneArg("retry", "run id"),
		ValidArgsFunction: a.completeRetry,
		RunE:              func(c *cobra.Command, args []string) error { return a.retry(c, args[0], f) },
	}
	c.Flags().BoolVar(&f.whole, "whole", false, "do the whole workflow again, as a new run")
	c.Flags().BoolVar(&f.detach, "detach", false, "in the background: print the run id and return")
	hiddenFlag(c, &f.as)
	return c
}

func (a *app) retry(c *cobra.Command, text string, f retryFlags) error {
	act, err := a.actor(c)
	if err != nil {
		return err
	}
	ws, run, err := act.run(text)
	if err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		err := fmt.Errorf("cannot retry run %s: "+format, append([]any{run.Run.ID}, args...)...)
		return state.Hint(&codedError{exitRun, err}, "marbles show "+run.Run.ID)
	}
	switch {
	case !run.Run.Status.Settled():
		return refuse("it is %s", run.Run.Status)
	case run.Run.Status == state.Complete && !f.whole:
		return refuse("it is complete; --whole does it again")
	case run.Run.Extensions.Kind != "" && run.Run.Extensions.Kind != "workflow":
		return refuse("it is a %s, which its trigger runs anew", run.Run.Extensions.Kind)
	}
	if f.detach && f.as == "" {
		return act.detachRetry(c, ws, run, f)
	}
	res, err := act.carryOn(c, ws, func(ctx context.Context, w *runner.Worker, cat *catalog.Catalog) (*runner.Run, error) {
		def := cat.Workflow(run.Run.Step)
		if def == nil {
			return nil, refuse("no workflow named %q is defined any more", run.Run.Step)
		}
		l := runner.Launch{Workspace: ws, Workflow: &def.Workflow, Trigger: "manual", Kind: "workflow", Echo: a.echo(f.as)}
		if f.whole {
			l.RunID = f.as
		}
		return w.Retry(ctx, ws, run, l, f.whole)
	})
	if res.RunID == "" && err != nil {
		return err
	}
	return a.rolled(res, err)
}

// detachRetry lets a process of its own do the retry. Its definitions are read here first, so that what is wrong with them
// is said to whoever typed the command.
func (a *actor) detachRetry(c *cobra.Command, ws *state.Workspace, run *state.RunFile, f retryFlags) error {
	if _, err := a.definitions(ws); err != nil {
		return err
	}
	id, before := run.Run.ID, run.Run.Timestamps.Ended()
	begun := func(f *state.RunFile) bool { return !f.Run.Status.Settled() || f.Run.Timestamps.Ended() != before }
	if f.whole {
		id, begun = state.NewRunID(time.Now()), func(*state.RunFile) bool { return true }
	}
	return a.detach(c, ws, id, begun)
}
