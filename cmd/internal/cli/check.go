package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/cmd/internal/strict"
)

// checked is `check --json`.
type checked struct {
	Errors   []finding `json:"errors"`
	Warnings []finding `json:"warnings"`
	Files    []string  `json:"files"`
}

type finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Message string `json:"message"`
	Nearest string `json:"nearest,omitempty"`
}

func newCheck(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check",
		Short: "Check the definition files: every error and warning, with its place",
		Long: `Check the definition files: every error and warning, with its place. Errors end with exit code 2;
warnings change no exit code.`,
		Args:              noArgs("check"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.settings(c, settings.Options{Reader: true})
			if err != nil {
				return err
			}
			catalogs, err := a.catalogs(s, false)
			var diags catalog.Diagnostics
			if err != nil && !errors.As(err, &diags) {
				return &codedError{code: exitUsage, err: err}
			}
			report := checked{Errors: findings(diags), Warnings: []finding{}, Files: []string{}}
			if len(diags) == 0 && a.Euid == 0 { // what root may read, but not run
				var refused catalog.Diagnostics
				if _, err := a.catalogs(s, true); errors.As(err, &refused) {
					report.Warnings = append(report.Warnings, findings(refused)...)
					for _, d := range refused {
						if !asJSON {
							fmt.Fprintf(a.Stdout, "%s (warning: run and roll refuse it)\n", strict.OneLine(d.String()))
						}
					}
				}
			}
			defined := 0
			for _, cat := range catalogs {
				report.Warnings = append(report.Warnings, findings(cat.Warnings)...)
				report.Files = append(report.Files, cat.Files...)
				defined += len(cat.Workflows) + len(cat.Schedules) + len(cat.Monitors)
				if !asJSON {
					for _, w := range cat.Warnings {
						fmt.Fprintf(a.Stdout, "%s (warning)\n", strict.OneLine(w.String()))
					}
				}
			}
			if asJSON {
				if err := printJSON(a.Stdout, report); err != nil {
					return err
				}
				if len(diags) > 0 {
					return &codedError{code: exitUsage, err: errSilent}
				}
				return nil
			}
			if len(diags) > 0 {
				return diags
			}
			fmt.Fprintf(a.Stdout, "%s in %s, %s\n", count(defined, "definition"), count(len(report.Files), "file"), count(len(report.Warnings), "warning"))
			return nil
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func findings(diags []catalog.Diagnostic) []finding {
	out := make([]finding, 0, len(diags))
	for _, d := range diags {
		out = append(out, finding{d.File, d.Line, d.Column, d.Path, d.Message, d.Nearest})
	}
	return out
}
