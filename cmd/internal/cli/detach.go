package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"marbles/runner"
	"marbles/state"
)

// asFlag is what a command is given that was started by another one with --detach: the id of the run that it is to be.
const asFlag = "as"

func hiddenFlag(c *cobra.Command, as *string) {
	c.Flags().StringVar(as, asFlag, "", "")
	if err := c.Flags().MarkHidden(asFlag); err != nil {
		panic(err) // there is no such flag
	}
}

// echo is where the steps' output goes live: nowhere for a command that goes on in the background.
func (a *app) echo(as string) io.Writer {
	if as != "" {
		return nil
	}
	return a.Stderr
}

// detach starts this command again as a process of its own, which is to carry a run to its end, and prints the run's id
// once that is on disk. Where the process ends before that, what it says is what this command says.
func (a *app) detach(c *cobra.Command, ws *state.Workspace, id string, begun func(*state.RunFile) bool) error {
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot start a background process: %w", err)
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	b := runner.Background{
		Argv: append([]string{binary, "--" + asFlag + "=" + id}, a.Args...),
		Env:  a.Env.Env, Dir: a.Cwd,
		Ready: func() (bool, error) {
			f, err := ws.Run(id)
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return err == nil && begun(f), err
		},
	}
	ended, err := b.Start(ctx)
	if err != nil {
		return err
	}
	if ended != nil {
		fmt.Fprint(a.Stderr, safe(ended.Said))
		if ended.Code != exitDone {
			return &codedError{code: max(ended.Code, exitRun), err: errSilent}
		}
		return nil // there was nothing to run
	}
	_, err = fmt.Fprintln(a.Stdout, id)
	return err
}

// detachRoll hands a workflow, or a schedule's tick, to the service of its workspace, or to a process of its own.
func (a *app) detachRoll(c *cobra.Command, r *rolling) error {
	sch, w := r.cat.Schedule(r.name), r.cat.Workflow(r.name)
	if sch == nil && r.cat.Monitor(r.name) != nil {
		return usage("cannot detach %s: whether a monitor has something to run is known once it has looked", r.name)
	}
	hb, err := r.ws.Heartbeat()
	if err != nil || hb == nil || !hb.Owner().Alive() {
		id := state.NewRunID(time.Now())
		return a.detach(c, r.ws, id, func(*state.RunFile) bool { return true })
	}
	l := runner.Launch{Workspace: r.ws, Input: r.input, Trigger: "manual", Kind: "workflow"}
	if sch != nil {
		if l.Input, err = runner.MergeInput(sch.Input, r.input); err != nil {
			return err
		}
		l.Key, w = sch.Key, r.cat.Workflow(sch.Workflow)
	}
	l.Workflow = &w.Workflow
	worker := a.worker(r.s, r.log, r.cat)
	id, err := worker.HandOver(l, hb.Owner())
	if err = errors.Join(err, a.drain(context.Background(), worker)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stdout, id)
	return err
}
