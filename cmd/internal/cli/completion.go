package cli

import (
	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/state"
)

func newCompletion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: `Print a completion script for a shell. Keys, workflows and run ids are completed too.

  bash: marbles completion bash > /etc/bash_completion.d/marbles
  zsh:  marbles completion zsh > "${fpath[1]}/_marbles"
  fish: marbles completion fish > ~/.config/fish/completions/marbles.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("completion takes one shell: bash, zsh or fish")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return a.root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return a.root.GenZshCompletion(a.Stdout)
			case "fish":
				return a.root.GenFishCompletion(a.Stdout, true)
			}
			return usage("unknown shell %q (want bash, zsh or fish)", args[0])
		},
	}
}

// completeFlag completes the values of a flag that the command has.
func completeFlag(c *cobra.Command, flag string, with completer) {
	if err := c.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // there is no such flag
	}
}

func fixed(values ...string) completer {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeNames completes keys, and workflows too where asked.
func (a *app) completeNames(workflows bool) completer {
	return a.completeDefined(func(catalogs []*catalog.Catalog, offer func(name, what string)) {
		for _, cat := range catalogs {
			for _, sch := range cat.Schedules {
				offer(sch.Key, sch.Cadence.String())
			}
			for _, m := range cat.Monitors {
				offer(m.Key, m.Source.String())
			}
		}
		for _, cat := range catalogs {
			for _, w := range cat.Workflows {
				if workflows {
					offer(w.Name, w.Describe)
				}
			}
		}
	})
}

// completeWorkflows completes workflows.
func (a *app) completeWorkflows() completer {
	return a.completeDefined(func(catalogs []*catalog.Catalog, offer func(name, what string)) {
		for _, cat := range catalogs {
			for _, w := range cat.Workflows {
				offer(w.Name, w.Describe)
			}
		}
	})
}

// completeDefined completes what names offers of the definitions. Broken ones complete to nothing.
func (a *app) completeDefined(names func(catalogs []*catalog.Catalog, offer func(name, what string))) completer {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		s, err := a.settings(c, settings.Options{Reader: true})
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		catalogs, err := a.catalogs(s, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offers []string
		offered := map[string]bool{}
		names(catalogs, func(name, what string) {
			if !offered[name] { // a workflow may be called like a key, which goes first
				offered[name] = true
				offers = append(offers, name+"\t"+what)
			}
		})
		return offers, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRuns completes the newest run ids.
func (a *app) completeRuns(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.offerRuns(c, state.RunQuery{})
}

// completeUnsettled completes runs that have not settled.
func (a *app) completeUnsettled(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.offerRuns(c, state.RunQuery{Statuses: []state.Status{state.Queued, state.Running, state.Suspended}})
}

// completeRetry completes runs that can be retried.
func (a *app) completeRetry(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.offerRuns(c, state.RunQuery{Statuses: []state.Status{state.Failed, state.Cancelled}})
}

// offerRuns offers the newest runs of every workspace; the shell picks those that match.
func (a *app) offerRuns(c *cobra.Command, q state.RunQuery) ([]string, cobra.ShellCompDirective) {
	_, root, err := a.reader(c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	workspaces, _, err := root.Survey() // a list of proposals has no place for damage
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	q.Limit = 20
	var ids []string
	for _, ws := range workspaces {
		list, err := ws.Runs(q)
		if err != nil {
			continue
		}
		for _, r := range list.Runs {
			ids = append(ids, r.ID+"\t"+r.Name+" "+string(r.Status))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeUnsettledAndKeys(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ids, directive := a.completeUnsettled(c, args, prefix)
	names, _ := a.completeNames(false)(c, args, prefix)
	return append(names, ids...), directive
}

func (a *app) completeRunsAndKeys(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ids, directive := a.completeRuns(c, args, prefix)
	names, _ := a.completeNames(false)(c, args, prefix)
	return append(names, ids...), directive
}
