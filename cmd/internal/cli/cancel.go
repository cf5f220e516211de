package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/runner"
	"marbles/state"
)

// acted is what a command did to one run, as --json prints it.
type acted struct {
	Run    string       `json:"run"`
	Action state.Action `json:"action"`
	PID    int          `json:"pid,omitzero"`     // the process that was asked to
	Status state.Status `json:"status,omitempty"` // of the run, where this process did it
}

func newCancel(a *app) *cobra.Command {
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "cancel <run>…",
		Short: "Stop runs, wherever they are",
		Long: `Stop runs, wherever they are: one that is at work gets SIGTERM, and SIGKILL after the grace; one that is queued
never starts; the questions of one that is parked are closed. Final steps still run.

The process that has the run does it, within a second. Where that is gone, the service does it, or without one this
command.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("cancel takes run ids")
			}
			return nil
		},
		ValidArgsFunction: a.completeUnsettled,
		RunE: func(c *cobra.Command, args []string) error {
			act, err := a.actor(c)
			if err != nil {
				return err
			}
			list := []acted{}
			var errs []error
			for _, text := range args {
				done, _, err := act.ask(c, text, state.Request{Action: state.ActionCancel, Reason: reason})
				if err != nil {
					errs = append(errs, err)
					continue
				}
				list = append(list, done)
			}
			if err := a.printActed(list, asJSON); err != nil {
				return err
			}
			return joinCoded(errs)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "a `text` that the run keeps as its error")
	jsonFlag(c, &asJSON)
	return c
}

// joinCoded is several errors as one, with the exit code of the first.
func joinCoded(errs []error) error {
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	return &codedError{code: code(errs[0]), err: errors.Join(errs...)}
}

// ask asks whoever has a run to do something with it, or does it here. The result is that of a run that went on here.
func (a *actor) ask(c *cobra.Command, text string, q state.Request) (acted, runner.Result, error) {
	none := runner.Result{}
	ws, f, err := a.run(text)
	if err != nil {
		return acted{}, none, err
	}
	id := f.Run.ID
	if f.Run.Status.Settled() {
		return acted{}, none, state.Hint(&codedError{exitRun, fmt.Errorf("cannot %s run %s: it is %s", q.Action, id, f.Run.Status)}, "marbles show "+id)
	}
	q.Version, q.Run, q.By, q.At = 1, id, a.who(), state.Stamp{Time: time.Now()}
	if err := ws.Ask(q); err != nil {
		return acted{}, none, err
	}
	done := acted{Run: id, Action: q.Action}
	before := f.Run.Status
	moved := func(f *state.RunFile) bool { return f.Run.Status != before }
	pid, now, err := settleOn(c.Context(), ws, id, moved)
	switch {
	case err != nil:
		return done, none, err
	case moved(now):
		done.Status = now.Run.Status
		return done, none, nil
	case pid != 0:
		done.PID = pid
		return done, none, nil
	}
	res, err := a.carryOn(c, ws, func(ctx context.Context, w *runner.Worker, _ *catalog.Catalog) (*runner.Run, error) {
		return w.ActOn(ctx, ws, q)
	})
	if res.RunID == "" && err != nil {
		return done, none, fmt.Errorf("cannot %s run %s: %w", q.Action, id, err)
	}
	if f, rerr := ws.Run(id); rerr == nil {
		done.Status = f.Run.Status
	}
	return done, res, err
}

func (a *app) printActed(list []acted, asJSON bool) error {
	if asJSON {
		return printJSON(a.Stdout, list)
	}
	for _, d := range list {
		if d.PID != 0 {
			fmt.Fprintf(a.Stdout, "asked pid %d to %s run %s\n", d.PID, d.Action, d.Run)
		} else {
			fmt.Fprintf(a.Stdout, "run %s is %s\n", d.Run, d.Status)
		}
	}
	return nil
}
