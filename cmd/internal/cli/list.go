package cli

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
)

// listing is `list --json`.
type listing struct {
	Workflows []listedWorkflow `json:"workflows"`
	Schedules []listedSchedule `json:"schedules"`
	Monitors  []listedMonitor  `json:"monitors"`
}

type listedWorkflow struct {
	Name      string `json:"name"`
	Describe  string `json:"describe,omitempty"`
	Steps     int    `json:"steps"`
	Workspace string `json:"workspace"`
	File      string `json:"file"`
	Line      int    `json:"line"`
}

type listedSchedule struct {
	Key       string         `json:"key"`
	Label     string         `json:"label"`
	Workflow  string         `json:"workflow"`
	Cadence   string         `json:"cadence"`
	Enabled   bool           `json:"enabled"`
	Clock     *handedClock   `json:"clock,omitzero"` // whose it is, where it was handed to an init system
	Input     jsontext.Value `json:"input,omitempty"`
	Workspace string         `json:"workspace"`
	File      string         `json:"file"`
	Line      int            `json:"line"`
}

type listedMonitor struct {
	Key       string       `json:"key"`
	Label     string       `json:"label"`
	Kind      string       `json:"kind"`
	Watch     string       `json:"watch"`
	Cadence   string       `json:"cadence"`
	Enabled   bool         `json:"enabled"`
	Clock     *handedClock `json:"clock,omitzero"` // as of a schedule
	Start     string       `json:"start,omitempty"`
	Workspace string       `json:"workspace"`
	File      string       `json:"file"`
	Line      int          `json:"line"`
}

func newList(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:               "list",
		Short:             "List workflows, schedules and monitors",
		Args:              noArgs("list"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.settings(c, settings.Options{Reader: true})
			if err != nil {
				return err
			}
			catalogs, err := a.catalogs(s, false)
			if err != nil {
				return err
			}
			l := newListing(catalogs, handedClocks(s))
			if asJSON {
				return printJSON(a.Stdout, l)
			}
			return l.print(a)
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func newListing(catalogs []*catalog.Catalog, clock func(project, key string) *handedClock) listing {
	l := listing{Workflows: []listedWorkflow{}, Schedules: []listedSchedule{}, Monitors: []listedMonitor{}}
	for _, c := range catalogs {
		ws := c.Sources[0].Workspace
		for _, w := range c.Workflows {
			l.Workflows = append(l.Workflows, listedWorkflow{w.Name, w.Describe, len(w.Steps), ws, w.Position.File, w.Position.Line})
		}
		for _, s := range c.Schedules {
			l.Schedules = append(l.Schedules, listedSchedule{s.Key, s.Label, s.Workflow, s.Cadence.String(), s.Enabled, clock(ws, s.Key), s.Input, ws, s.Position.File, s.Position.Line})
		}
		for _, m := range c.Monitors {
			l.Monitors = append(l.Monitors, listedMonitor{m.Key, m.Label, m.Source.Kind(), m.Source.String(), m.Cadence.String(), m.Enabled, clock(ws, m.Key), m.Start, ws, m.Position.File, m.Position.Line})
		}
	}
	return l
}

func (l listing) print(a *app) error {
	rows := [][]string{{"KIND", "NAME OR KEY", "WHEN", "WHAT"}}
	for _, w := range l.Workflows {
		rows = append(rows, []string{"workflow", clean(w.Name, 60), "-", clean(w.Describe, 60)})
	}
	for _, s := range l.Schedules {
		rows = append(rows, []string{"schedule", s.Key, s.Cadence + disabled(s.Enabled) + s.Clock.mark(), "→ " + clean(s.Label, 60)})
	}
	for _, m := range l.Monitors {
		what := m.Kind + " " + clean(m.Watch, 60)
		if m.Start != "" {
			what += " → " + clean(m.Start, 60)
		}
		rows = append(rows, []string{"monitor", m.Key, m.Cadence + disabled(m.Enabled) + m.Clock.mark(), what})
	}
	if len(rows) == 1 {
		rows = [][]string{{"nothing is defined here; `marbles init` writes a starter"}}
	}
	return a.paint(a.Stdout).table(a.Stdout, rows)
}

func disabled(enabled bool) string {
	if enabled {
		return ""
	}
	return " (disabled)"
}

func noArgs(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usage("%s takes no arguments", name)
		}
		return nil
	}
}

func jsonFlag(c *cobra.Command, p *bool) {
	c.Flags().BoolVar(p, "json", false, "print one JSON document")
}
