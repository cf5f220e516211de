package cli

import (
	"fmt"
	"io"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/importer"
	"marbles/cmd/internal/settings"
	"marbles/cmd/internal/strict"
	"marbles/scheduler"
	"marbles/state"
)

// imported is `import --json`.
type imported struct {
	Definitions string             `json:"definitions"`
	Written     *string            `json:"written"`
	Schedules   []importedSchedule `json:"schedules"`
	Notes       []importedNote     `json:"notes"`
}

type importedSchedule struct {
	Key      string            `json:"key"`
	Workflow string            `json:"workflow"`
	Cadence  string            `json:"cadence"`
	File     string            `json:"file"`
	Line     int               `json:"line"`
	Note     string            `json:"note,omitempty"`
	Instants []importedInstant `json:"instants"`
}

type importedInstant struct {
	Old *string `json:"old"`
	New *string `json:"new"`
	Why string  `json:"why,omitempty"`
}

type importedNote struct {
	Effect importer.Effect `json:"effect"`
	File   string          `json:"file"`
	Line   int             `json:"line"`
	What   string          `json:"what"`
	Next   string          `json:"next,omitempty"`
}

type importFlags struct {
	from, out string
	json      bool
}

func newImport(a *app) *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import <file or ->…",
		Short: "Make definitions of crontabs, systemd timers and launchd plists",
		Long: `Make definitions of crontabs, systemd timers (with the services they start) and launchd plists.

The definitions go to stdout, or with -o to a new file; the report goes to stderr: the next instants of each
schedule, old and new side by side, and everything that does not carry over, with its place and what to do.`,
		Example: `  crontab -l | marbles import - -o .foundry/marbles/crontab.yaml
  marbles import /etc/crontab /etc/cron.d
  marbles import /usr/lib/systemd/system/logrotate.timer
  marbles import ~/Library/LaunchAgents/org.example.backup.plist`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return state.Hint(usage("import takes files, or - for the standard input"), c.CommandPath()+" --help")
			case f.from != "" && !slices.Contains(importer.Kinds(), f.from):
				return usage("--from takes one of %s", strings.Join(importer.Kinds(), ", "))
			case slices.Index(args, "-") >= 0 && slices.Contains(args[slices.Index(args, "-")+1:], "-"):
				return usage("the standard input can be read once")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return a.importFiles(c, f, args) },
	}
	c.Flags().StringVar(&f.from, "from", "", "what the files are: "+strings.Join(importer.Kinds(), ", ")+" (default: told by name and content)")
	c.Flags().StringVarP(&f.out, "output", "o", "", "`file` to write, which must not exist")
	completeFlag(c, "from", fixed(importer.Kinds()...))
	jsonFlag(c, &f.json)
	return c
}

func (a *app) importFiles(c *cobra.Command, f importFlags, files []string) error {
	out := f.out
	if out != "" && !filepath.IsAbs(out) {
		out = filepath.Join(a.Cwd, out)
	}
	workspace, err := a.importInto(c, out)
	if err != nil {
		return err
	}
	zone := scheduler.NewZone("").Location()
	plan, err := importer.Read(files, importer.Options{
		From: f.from, Stdin: a.Stdin, Home: a.Home, Workspace: workspace, Now: time.Now().Truncate(time.Second), Local: zone,
		Account: func(name string) (string, bool) {
			u, err := user.Lookup(name)
			if err != nil {
				return "", false
			}
			return u.HomeDir, true
		},
		Calendar: systemdAnalyze(zone),
	})
	if err != nil {
		return &codedError{code: exitUsage, err: err}
	}
	var written *string
	if out != "" && !a.dryRun {
		if err := writeNew(out, []byte(plan.Text), 0o600); err != nil {
			return err
		}
		written = &out
	}
	if f.json {
		return printJSON(a.Stdout, importReport(plan, written))
	}
	if written == nil {
		if _, err := io.WriteString(a.Stdout, plan.Text); err != nil {
			return err
		}
	}
	if err := a.printImport(a.Stderr, plan, zone); err != nil {
		return err
	}
	switch {
	case written != nil:
		fmt.Fprintf(a.Stdout, "wrote %s\n", strict.OneLine(out))
		fmt.Fprintln(a.Stderr, "hint: marbles check, marbles list; then take the jobs away from what ran them before")
	case out != "":
		fmt.Fprintf(a.Stderr, "would write %s\n", strict.OneLine(out))
	}
	return nil
}

// systemdAnalyze asks systemd itself, where it is installed and the machine's zone has a name that both know.
func systemdAnalyze(zone *time.Location) func(string, time.Time, int) ([]time.Time, error) {
	if loc, err := time.LoadLocation(zone.String()); err != nil || zone.String() == "Local" || loc.String() != zone.String() {
		return nil
	}
	return importer.SystemdAnalyze(zone.String())
}

// importInto is the workspace that the definitions will be in.
func (a *app) importInto(c *cobra.Command, out string) (string, error) {
	if out != "" {
		dir := filepath.Dir(out)
		if project, _, ok := strings.Cut(dir+"/", "/.foundry/marbles/"); ok {
			return project, nil
		}
		return dir, nil
	}
	s, err := a.settings(c, settings.Options{Reader: true})
	if err != nil {
		return "", err
	}
	if here := a.here(s); here != "" {
		return here, nil
	}
	return a.Cwd, nil
}

func importReport(p *importer.Plan, written *string) imported {
	out := imported{Definitions: p.Text, Written: written, Schedules: []importedSchedule{}, Notes: []importedNote{}}
	for _, s := range p.Compare {
		one := importedSchedule{Key: s.Key, Workflow: s.Workflow, Cadence: s.Cadence, File: s.File, Line: s.Line, Note: s.Note, Instants: []importedInstant{}}
		for _, r := range s.Rows {
			one.Instants = append(one.Instants, importedInstant{Old: instant(r.Old), New: instant(r.New), Why: r.Why})
		}
		out.Schedules = append(out.Schedules, one)
	}
	for _, n := range p.Notes {
		out.Notes = append(out.Notes, importedNote{n.Effect, n.File, n.Line, n.What, n.Next})
	}
	return out
}

// printImport writes the report for a person.
func (a *app) printImport(w io.Writer, p *importer.Plan, zone *time.Location) error {
	paint := a.paint(w)
	show := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.In(zone).Format("Mon 2006-01-02 15:04:05 -0700")
	}
	for _, s := range p.Compare {
		fmt.Fprintf(w, "\n%s: %s (%s)\n", strict.OneLine(s.Key), s.Cadence, s.Place)
		if s.Note != "" {
			fmt.Fprintf(w, "  %s\n", strict.OneLine(s.Note))
		}
		rows := [][]string{{"OLD", "NEW", ""}}
		for _, r := range s.Rows {
			why := ""
			if r.Why != "" {
				why = "! " + r.Why
			}
			rows = append(rows, []string{show(r.Old), show(r.New), why})
		}
		if err := paint.table(w, rows); err != nil {
			return err
		}
	}
	for _, group := range []struct {
		effect importer.Effect
		title  string
	}{{importer.Lost, "Does not carry over"}, {importer.Changed, "Works otherwise"}, {importer.Dropped, "Left out, and not missed"}} {
		head := false
		for _, n := range p.Notes {
			if n.Effect != group.effect {
				continue
			}
			if !head {
				fmt.Fprintf(w, "\n%s:\n", group.title)
				head = true
			}
			fmt.Fprintf(w, "  %s: %s\n", n.Place, strict.OneLine(n.What))
			if n.Next != "" {
				fmt.Fprintf(w, "    next: %s\n", strict.OneLine(n.Next))
			}
		}
	}
	lost := 0
	for _, n := range p.Notes {
		if n.Effect == importer.Lost {
			lost++
		}
	}
	_, err := fmt.Fprintf(w, "\n%s from %s; %s not carried over\n", importCount(p), count(len(p.Files), "file"), count(lost, "thing"))
	return err
}

func importCount(p *importer.Plan) string {
	monitors := 0
	for _, j := range p.Jobs {
		monitors += len(j.Watches)
	}
	text := count(len(p.Jobs), "workflow") + ", " + count(len(p.Compare), "schedule")
	if monitors > 0 {
		text += ", " + count(monitors, "monitor")
	}
	return text
}
