package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/service"
	"marbles/cmd/internal/settings"
	"marbles/cmd/internal/strict"
	"marbles/state"
)

// prunedRun is one run that is deleted, as --json prints it.
type prunedRun struct {
	Run      string  `json:"run"`
	Workflow string  `json:"workflow"`
	Key      string  `json:"key,omitempty"`
	EndedAt  *string `json:"endedAt"`
	Bytes    int64   `json:"bytes"`
	Why      string  `json:"why"`
	Project  string  `json:"project"`
}

// prunedAll is `prune --json`.
type prunedAll struct {
	Runs    []prunedRun `json:"runs"` // newest first
	Orphans []string    `json:"orphans"`
	Ledgers []string    `json:"ledgers"`
	Bytes   int64       `json:"bytes"` // that the plan would free
	Kept    int         `json:"kept"`
	Freed   *int64      `json:"freed"` // null for a plan that was not carried out
	Damaged []string    `json:"damaged"`
}

type pruneFlags struct {
	runs, age, bytes string
	json             bool
}

func newPrune(a *app) *cobra.Command {
	var f pruneFlags
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete the history that retention does not keep",
		Long: `Delete the history that retention does not keep, in every workspace under the state root: first the plan, then what
was done. With --dry-run only the plan.

What is kept is set by keep_runs, keep_age and keep_bytes, and by a workflow's own keep. Runs that have not settled, the
newest of each key and workflow, and those that something still needs are never deleted. A service does this by itself,
and may be up meanwhile.`,
		Args:              noArgs("prune"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, _ []string) error { return a.prune(c, f) },
	}
	c.Flags().StringVar(&f.runs, "keep-runs", "", "keep so `many` settled runs of each workflow, whatever its own keep says; 0: no limit")
	c.Flags().StringVar(&f.age, "keep-age", "", "keep runs that settled within this `duration`, likewise; 0: no limit")
	c.Flags().StringVar(&f.bytes, "keep-bytes", "", "keep so many `bytes` of each workspace, as 2GiB; 0: no limit")
	jsonFlag(c, &f.json)
	return c
}

func (a *app) prune(c *cobra.Command, f pruneFlags) error {
	s, root, err := a.reader(c)
	if err != nil {
		return err
	}
	over, err := f.keep(s)
	if err != nil {
		return err
	}
	workspaces, damaged, err := root.Survey()
	if err != nil {
		return err
	}
	if !a.dryRun && len(workspaces) > 0 {
		if root, err = state.Open(root.Dir()); err != nil {
			return err
		}
		if workspaces, damaged, err = root.Survey(); err != nil {
			return err
		}
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	all := prunedAll{Runs: []prunedRun{}, Orphans: []string{}, Ledgers: []string{}, Damaged: []string{}}
	for _, err := range damaged {
		all.Damaged = append(all.Damaged, err.Error())
	}
	act := &actor{app: a, s: s, root: root, reading: true}
	plans := make([]*state.PrunePlan, len(workspaces))
	for i, ws := range workspaces {
		keep := over
		if keep.Names, err = f.named(act, ws); err != nil {
			all.Damaged = append(all.Damaged, fmt.Sprintf("%s is left out, because its definitions, which may say what is kept, have errors", ws.Project()))
			plans[i] = &state.PrunePlan{}
			continue
		}
		if plans[i], err = ws.PlanPrune(ctx, keep, time.Now()); err != nil {
			return fmt.Errorf("cannot plan what is deleted of %s: %w", ws.Project(), err)
		}
		all.add(ws, plans[i])
	}
	if !f.json {
		if err := a.printPlan(all, len(workspaces) > 1); err != nil {
			return err
		}
	}
	if !a.dryRun {
		err = a.carryOut(ctx, workspaces, plans, &all, f.json)
	}
	if f.json {
		err = errors.Join(printJSON(a.Stdout, all), err)
	}
	return err
}

// carryOut does what the plans say.
func (a *app) carryOut(ctx context.Context, workspaces []*state.Workspace, plans []*state.PrunePlan, all *prunedAll, asJSON bool) error {
	var freed int64
	var errs []error
	for i, ws := range workspaces {
		if plans[i].Empty() {
			continue
		}
		n, err := ws.Prune(ctx, plans[i])
		freed += n
		errs = append(errs, err)
	}
	all.Freed = &freed
	if !asJSON && freed > 0 {
		fmt.Fprintf(a.Stdout, "freed %s\n", bytesText(freed))
	}
	return errors.Join(errs...)
}

// named are the workflows' own keeps of a workspace, as far as no flag goes before. Where its definitions are gone, or
// not known, there are none; where they have errors, nobody knows.
func (f pruneFlags) named(act *actor, ws *state.Workspace) (map[string]state.Keep, error) {
	cat, err := act.definitions(ws)
	if diags := (catalog.Diagnostics)(nil); errors.As(err, &diags) {
		return nil, err
	}
	if err != nil {
		return nil, nil
	}
	names := service.Keeps(cat)
	for name, k := range names {
		if f.runs != "" {
			k.Runs = 0
		}
		if f.age != "" {
			k.Age = 0
		}
		names[name] = k
	}
	return names, nil
}

// keep is what is kept: by the settings, or by the flags instead.
func (f pruneFlags) keep(s *settings.Settings) (state.Keep, error) {
	k := state.Keep{Runs: s.KeepRuns, Age: s.KeepAge, Bytes: s.KeepBytes}
	if f.runs != "" {
		n, err := strconv.Atoi(f.runs)
		if err != nil || n < 0 {
			return k, usage("cannot read --keep-runs %q: want a whole number from 0", f.runs)
		}
		k.Runs = n
	}
	var err error
	switch f.age {
	case "":
	case "0":
		k.Age = 0
	default:
		if k.Age, err = strict.Duration(f.age); err != nil {
			return k, usage("--keep-age: %v", err)
		}
	}
	switch f.bytes {
	case "":
	case "0":
		k.Bytes = 0
	default:
		if k.Bytes, err = strict.Size(f.bytes); err != nil {
			return k, usage("--keep-bytes: %v", err)
		}
	}
	return k, nil
}

func (all *prunedAll) add(ws *state.Workspace, p *state.PrunePlan) {
	for _, d := range p.Runs {
		all.Runs = append(all.Runs, prunedRun{
			Run: d.Run.ID, Workflow: d.Run.Name, Key: d.Run.Key, EndedAt: instant(d.Run.Ended), Bytes: d.Bytes, Why: d.Why, Project: ws.Project(),
		})
	}
	all.Orphans = append(all.Orphans, p.Orphans...)
	all.Ledgers = append(all.Ledgers, p.Ledgers...)
	all.Bytes += p.Bytes
	all.Kept += p.Kept
}

func (a *app) printPlan(all prunedAll, project bool) error {
	a.warnDamaged(all.Damaged)
	if len(all.Runs) > 0 {
		rows := [][]string{{"RUN", "WORKFLOW", "ENDED", "SIZE", "WHY"}}
		for _, r := range all.Runs {
			row := []string{r.Run, clean(r.Workflow, 40), localText(r.EndedAt), bytesText(r.Bytes), clean(r.Why, 80)}
			if project {
				row[4] += "  " + clean(r.Project, 60)
			}
			rows = append(rows, row)
		}
		if err := a.paint(a.Stdout).table(a.Stdout, rows); err != nil {
			return err
		}
	}
	for _, path := range all.Orphans {
		fmt.Fprintf(a.Stdout, "%s belongs to nothing\n", strict.OneLine(path))
	}
	for _, path := range all.Ledgers {
		fmt.Fprintf(a.Stdout, "%s is too long\n", strict.OneLine(path))
	}
	text := "nothing to delete"
	if n := len(all.Runs); n+len(all.Orphans) > 0 {
		text = count(n, "run")
		if m := len(all.Orphans); m > 0 {
			text += " and " + count(m, "other file")
		}
		text += ", " + bytesText(all.Bytes)
	}
	fmt.Fprintf(a.Stdout, "%s; %s stay\n", text, count(all.Kept, "run"))
	return nil
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, name := float64(n)/unit, "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if value < unit {
			break
		}
		value, name = value/unit, next
	}
	return fmt.Sprintf("%.1f %s", value, name)
}
