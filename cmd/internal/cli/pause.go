package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"marbles/state"
)

// pausedKey is what `pause` and `resume` did to a key, or to everything, as --json prints it.
type pausedKey struct {
	Key     string `json:"key,omitempty"` // "" for everything
	Project string `json:"project,omitempty"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed"` // false: it was so already
}

type pauseFlags struct {
	reason    string
	all, json bool
}

func newPause(a *app) *cobra.Command {
	var f pauseFlags
	c := &cobra.Command{
		Use:   "pause <run or key> | --all",
		Short: "Stop a run's steps and park it, or let a key, or everything, not run for now",
		Long: `Stop a run's steps and park it; or let a key, or everything under the state root, not run for now.

A run that is paused keeps what it has done, and "marbles resume" lets it go on: the steps that were stopped run again.
A key that is paused has no ticks; what runs already goes on, and the slots that pass are recorded as missed.`,
		Args:              pauseArgs("pause", &f),
		ValidArgsFunction: a.completeUnsettledAndKeys,
		RunE:              func(c *cobra.Command, args []string) error { return a.pause(c, args, true, f) },
	}
	c.Flags().StringVar(&f.reason, "reason", "", "a `text` that is kept and shown")
	c.Flags().BoolVar(&f.all, "all", false, "every key of every workspace under the state root")
	jsonFlag(c, &f.json)
	return c
}

func newResume(a *app) *cobra.Command {
	var f pauseFlags
	c := &cobra.Command{
		Use:   "resume <run or key> | --all",
		Short: "Let go on what was paused",
		Long: `Let go on what was paused. The process that keeps a run goes on with it within a second; where there is none, neither
a service nor another owner, this command goes on with the run itself, as roll would.`,
		Args:              pauseArgs("resume", &f),
		ValidArgsFunction: a.completeUnsettledAndKeys,
		RunE:              func(c *cobra.Command, args []string) error { return a.pause(c, args, false, f) },
	}
	c.Flags().BoolVar(&f.all, "all", false, "end what `pause --all` began; keys that were paused by themselves stay so")
	jsonFlag(c, &f.json)
	return c
}

func pauseArgs(name string, f *pauseFlags) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if f.all && len(args) > 0 {
			return usage("%s takes a run id or key, or --all, not both", name)
		}
		if !f.all && len(args) != 1 {
			return usage("%s takes one run id or key, or --all", name)
		}
		return nil
	}
}

func (a *app) pause(c *cobra.Command, args []string, on bool, f pauseFlags) error {
	act, err := a.actor(c)
	if err != nil {
		return err
	}
	if f.all {
		return act.pauseAll(on, f)
	}
	name := args[0]
	ws, err := act.keyOf(name)
	if err != nil {
		return err
	}
	if ws != nil {
		return act.pauseKey(ws, name, on, f)
	}
	q := state.Request{Action: state.ActionPause, Reason: f.reason}
	if !on {
		q.Action = state.ActionResume
		if err := act.mustBePaused(name); err != nil {
			return err
		}
	}
	done, res, err := act.ask(c, name, q)
	if res.RunID != "" { // it went on here
		return a.rolled(res, err)
	}
	if err != nil {
		return err
	}
	return a.printActed([]acted{done}, f.json)
}

// mustBePaused refuses to resume a run that nothing holds.
func (a *actor) mustBePaused(text string) error {
	_, f, err := a.run(text)
	if err != nil || paused(f) || f.Run.Status.Settled() {
		return err
	}
	err = &codedError{exitRun, fmt.Errorf("cannot resume run %s: it is not paused", f.Run.ID)}
	return state.Hint(err, "marbles show "+f.Run.ID)
}

func (a *actor) pauseAll(on bool, f pauseFlags) error {
	root, err := state.Open(a.root.Dir())
	if err != nil {
		return err
	}
	changed, err := root.SetPause(on, f.reason, a.who(), time.Now())
	if err != nil {
		return err
	}
	return a.printPaused(pausedKey{Paused: on, Changed: changed}, f.json)
}

func (a *actor) pauseKey(ws *state.Workspace, key string, on bool, f pauseFlags) error {
	changed, err := ws.SetPause(key, on, f.reason, a.who(), time.Now())
	if err != nil {
		return err
	}
	if p, err := ws.Pauses(); err == nil && !on && p.Of(key) != nil {
		fmt.Fprintf(a.Stderr, "hint: everything is paused still: %s\n", a.command("resume", "--all"))
	}
	return a.printPaused(pausedKey{Key: key, Project: ws.Project(), Paused: on, Changed: changed}, f.json)
}

// keyOf is the workspace, for writing, whose key a name is: one that is defined here, else one that has a history; nil
// where none is called so.
func (a *actor) keyOf(name string) (*state.Workspace, error) {
	if catalogs, err := a.catalogs(a.s, false); err == nil {
		for _, cat := range catalogs {
			if cat.Schedule(name) == nil && cat.Monitor(name) == nil {
				continue
			}
			root, err := state.Open(a.root.Dir())
			if err != nil {
				return nil, err
			}
			ws, err := root.Workspace(cat.Sources[0].Workspace)
			if err != nil {
				return nil, err
			}
			return ws, ws.Register(cat.Sources[0].Config(), time.Now())
		}
	}
	keys, err := a.findKey(a.root, name)
	switch {
	case len(keys) > 1:
		return nil, errors.Join(err, state.Hint(usage("several workspaces have the key %q", name), "call it from the project, or give --source"))
	case len(keys) == 1:
		return a.writable(keys[0].ws)
	}
	return nil, err
}

func (a *app) printPaused(p pausedKey, asJSON bool) error {
	if asJSON {
		return printJSON(a.Stdout, p)
	}
	what, word := p.Key, "paused"
	if what == "" {
		what = "everything"
	}
	if !p.Paused {
		word = "not paused any more"
	}
	if !p.Changed {
		word = "paused already"
		if !p.Paused {
			word = "not paused"
		}
	}
	_, err := fmt.Fprintf(a.Stdout, "%s is %s\n", what, word)
	return err
}
