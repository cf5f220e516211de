package cli

import (
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/initsys"
	"marbles/packaging"
	"marbles/scheduler"
)

func newLaunchd(a *app) *cobra.Command {
	parent := parentCommand("launchd", "Let launchd keep the clock of a key", "install, uninstall")
	var f initFlags
	install := &cobra.Command{
		Use:   "install <key>",
		Short: "Write and load a job that rolls the key",
		Long: `Write and load com.foundry.marbles.<key>, a job of launchd for this user that rolls the key when it is due.

The service leaves the key out from then on, whether it runs or not. What launchd does otherwise is said. --dry-run prints
the property list and the commands, on other systems too.`,
		Args: oneKey, ValidArgsFunction: a.completeNames(false),
		RunE: func(c *cobra.Command, args []string) error { return a.launchdInstall(c, args[0], &f) },
	}
	install.Flags().BoolVar(&f.force, "force", false, "replace a file that marbles did not write")
	f.addBinary(install)
	var g initFlags
	uninstall := &cobra.Command{
		Use:   "uninstall <key>",
		Short: "Take out and remove a key's job: its clock is the service's again",
		Args:  oneKey, ValidArgsFunction: a.completeNames(false),
		RunE: func(c *cobra.Command, args []string) error {
			g.user = true
			return a.takeBack(c, args[0], initsys.Launchd, &g, func(h initsys.Host, s initsys.Scope) initsys.Plan {
				return h.JobPlan(s, initsys.Label(args[0]), nil)
			})
		},
	}
	uninstall.Flags().BoolVar(&g.force, "force", false, "remove a file that somebody has changed, too")
	parent.AddCommand(install, uninstall)
	return parent
}

func (a *app) launchdInstall(c *cobra.Command, key string, f *initFlags) error {
	if err := a.needs(initsys.Launchd); err != nil {
		return err
	}
	f.user = true
	k, err := a.clocked(c, key, f)
	if err != nil {
		return err
	}
	program, err := a.program(f)
	if err != nil {
		return err
	}
	host := a.host()
	logs := host.Logs()
	agent := packaging.Agent{
		Label: initsys.Label(key), Command: k.command(a, c, program), Directory: a.Home,
		Log: filepath.Join(logs, key+".log"), Stop: int(k.stop() / time.Second),
	}
	notes := k.notes("launchd", "start of its job")
	if every := k.cadence.Interval(); every > 0 {
		var more []string
		agent.Every, more = initsys.Interval(every)
		notes = append(notes, more...)
		if len(more) == 0 {
			notes = append(notes, "launchd counts an interval from the start of a run, and leaves out what comes while one is at work or the Mac sleeps; marbles waits for the rest of it")
		}
	} else {
		var more []string
		if agent.Calendar, more, err = initsys.WallTimes(k.cadence, scheduler.NewZone("").Location(), time.Now()); err != nil {
			return usage("cannot hand over %s: %w", key, err)
		}
		notes = append(notes, more...)
		if !k.catchUp.Never {
			notes = append(notes, "a slot that passes while the Mac is off is caught up at the key's next one: launchd only knows of those it slept through")
		}
	}
	text, err := packaging.RenderAgent(agent)
	if err != nil {
		return unitErr(err)
	}
	return a.handOver(c, k, initsys.Launchd, host.JobPlan(k.scope, agent.Label, text, logs), notes, f.force)
}
