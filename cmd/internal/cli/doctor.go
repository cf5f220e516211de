package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/cmd/internal/strict"
	"marbles/state"
)

// foundLine is one finding, as --json prints it.
type foundLine struct {
	Kind    string `json:"kind"`
	Project string `json:"project,omitempty"`
	Where   string `json:"where"`
	What    string `json:"what"`
	Cause   string `json:"cause"`
	Mend    string `json:"mend"`
	Fixable bool   `json:"fixable"`
	Fixed   bool   `json:"fixed"`
	Error   string `json:"error,omitempty"` // why it could not be mended
}

// diagnosis is `doctor --json`.
type diagnosis struct {
	Root     string      `json:"root"`
	Findings []foundLine `json:"findings"`
	Fixed    int         `json:"fixed"`
	Left     int         `json:"left"`
}

func newDoctor(a *app) *cobra.Command {
	var fix, asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find and explain what is wrong with the state root",
		Long: `Find and explain what is wrong with the state root: for each finding what it is, where, why, and the command that
mends it. Nothing is written without --fix, and what --fix does is safe: it takes files of ours away from others, and
removes locks, temporary files and output that provably nobody has. The rest is left to you.

The exit code is 0 where nothing was found or all of it was mended, 1 where something is left, and 3 where the state
root cannot be used.`,
		Args:              noArgs("doctor"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return a.doctor(c, fix, asJSON) },
	}
	c.Flags().BoolVar(&fix, "fix", false, "mend what can be mended safely")
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) doctor(c *cobra.Command, fix, asJSON bool) error {
	if fix && a.dryRun {
		return usage("--fix has no dry run: without it nothing is written")
	}
	s, root, err := a.reader(c)
	if err != nil {
		return err
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	found, err := root.Examine(ctx, state.Examination{Now: time.Now(), Defined: a.definedIn(s, root)})
	if err != nil {
		return err
	}
	d := diagnosis{Root: root.Dir(), Findings: []foundLine{}}
	for _, f := range found {
		l := foundLine{Kind: f.Kind, Project: f.Project, Where: f.Where, What: f.What, Cause: f.Cause, Mend: f.Mend, Fixable: f.Fixable()}
		if fix && l.Fixable {
			if err := f.Fix(); err != nil {
				l.Error = err.Error()
			} else {
				l.Fixed = true
			}
		}
		if l.Fixed {
			d.Fixed++
		} else {
			d.Left++
		}
		d.Findings = append(d.Findings, l)
	}
	if asJSON {
		err = printJSON(a.Stdout, d)
	} else {
		d.print(a, fix)
	}
	if err == nil && d.Left > 0 {
		err = &codedError{exitRun, errSilent}
	}
	return err
}

// definedIn tells which workflows there are, reading the definitions of a workspace when they are first asked for.
func (a *app) definedIn(s *settings.Settings, root *state.Root) func(ws *state.Workspace, name string) (defined, known bool) {
	act := &actor{app: a, s: s, root: root, reading: true}
	read := map[string]*catalog.Catalog{}
	return func(ws *state.Workspace, name string) (defined, known bool) {
		cat, asked := read[ws.ID()]
		if !asked {
			cat, _ = act.definitions(ws) // nil where they have errors, which check tells
			read[ws.ID()] = cat
		}
		return cat != nil && cat.Workflow(name) != nil, cat != nil
	}
}

func (d diagnosis) print(a *app, fix bool) {
	fixable := 0
	for _, f := range d.Findings {
		fmt.Fprintf(a.Stdout, "%s: %s\n", strict.OneLine(f.Where), strict.OneLine(f.What))
		fmt.Fprintf(a.Stdout, "  cause: %s\n", strict.OneLine(f.Cause))
		switch {
		case f.Fixed:
			fmt.Fprintln(a.Stdout, "  mended")
		case f.Error != "":
			fmt.Fprintf(a.Stdout, "  could not be mended: %s\n", strict.OneLine(f.Error))
		default:
			fmt.Fprintf(a.Stdout, "  mend:  %s\n", strict.OneLine(f.Mend))
		}
		if f.Fixable && !f.Fixed {
			fixable++
		}
	}
	switch {
	case len(d.Findings) == 0:
		fmt.Fprintf(a.Stdout, "nothing is wrong with %s\n", strict.OneLine(d.Root))
	case fix:
		fmt.Fprintf(a.Stdout, "%s, %d mended, %d left\n", count(len(d.Findings), "finding"), d.Fixed, d.Left)
	default:
		fmt.Fprintln(a.Stdout, count(len(d.Findings), "finding"))
		if fixable > 0 {
			fmt.Fprintf(a.Stderr, "hint: %s\n", a.command("doctor", "--fix"))
		}
	}
}
