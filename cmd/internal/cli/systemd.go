package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/initsys"
	"marbles/packaging"
	"marbles/runner"
	"marbles/scheduler"
)

func newSystemd(a *app) *cobra.Command {
	parent := parentCommand("systemd", "Let systemd keep the clock of a key", "install, uninstall")
	var f initFlags
	install := &cobra.Command{
		Use:   "install <key>",
		Short: "Write, enable and start a timer that rolls the key",
		Long: `Write, enable and start marbles-<key>.timer and marbles-<key>.service, which roll the key when it is due.

The service leaves the key out from then on, whether it runs or not. What systemd does otherwise is said. Doing it again
after a change of the cadence or the settings writes what has changed. --dry-run prints the units and the commands.`,
		Args: oneKey, ValidArgsFunction: a.completeNames(false),
		RunE: func(c *cobra.Command, args []string) error { return a.systemdInstall(c, args[0], &f) },
	}
	f.add(install, "replace files that marbles did not write")
	f.addBinary(install)
	var g initFlags
	uninstall := &cobra.Command{
		Use:   "uninstall <key>",
		Short: "Stop and remove a key's timer: its clock is the service's again",
		Args:  oneKey, ValidArgsFunction: a.completeNames(false),
		RunE: func(c *cobra.Command, args []string) error {
			return a.takeBack(c, args[0], initsys.Systemd, &g, func(h initsys.Host, s initsys.Scope) initsys.Plan {
				return h.TimerPlan(s, args[0], nil, nil)
			})
		},
	}
	g.add(uninstall, "remove files that somebody has changed, too")
	parent.AddCommand(install, uninstall)
	return parent
}

// parentCommand is a command that has only others below it.
func parentCommand(name, short, commands string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return usageError(c, usage("%s takes a command: %s", name, commands))
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
}

func (a *app) systemdInstall(c *cobra.Command, key string, f *initFlags) error {
	if err := a.needs(initsys.Systemd); err != nil {
		return err
	}
	k, err := a.clocked(c, key, f)
	if err != nil {
		return err
	}
	if err := initsys.CheckKey(key); err != nil {
		return unitErr(err)
	}
	program, err := a.program(f)
	if err != nil {
		return err
	}
	timer := packaging.Timer{
		Description: fmt.Sprintf("the clock of %s: %s", key, k.cadence),
		Service:     initsys.ServiceName(key),
		Persistent:  !k.catchUp.Never,
		Jitter:      k.jitter,
		Every:       k.cadence.Interval(),
	}
	notes := k.notes("systemd", "firing of its timer")
	if timer.Every == 0 {
		lines, more, _ := initsys.OnCalendar(k.cadence, scheduler.NewZone("").Location(), time.Now())
		timer.OnCalendar, notes = lines, append(notes, more...)
	} else {
		notes = append(notes, fmt.Sprintf("systemd's own count of an interval ends with a boot: after one, and after a sleep or a roll by hand, marbles waits in %s until the key is due",
			timer.Service))
	}
	if k.jitter > 0 {
		notes = append(notes, fmt.Sprintf("systemd rolls the dice for each start anew: the jitter (%s) is another each time, where the service's depends on the slot alone", runner.Brief(k.jitter)))
	}
	timerText, err := packaging.RenderTimer(timer)
	if err != nil {
		return unitErr(err)
	}
	serviceText, err := packaging.RenderRoll(packaging.Roll{
		User: k.scope == initsys.User, Description: fmt.Sprintf("marbles: %s (%s)", key, k.cadence),
		Command: k.command(a, c, program), Waits: timer.Every > 0, Stop: k.stop(),
	})
	if err != nil {
		return unitErr(err)
	}
	host := a.host()
	notes = append(notes, a.surroundings(host, k, program)...)
	return a.handOver(c, k, initsys.Systemd, host.TimerPlan(k.scope, key, timerText, serviceText), notes, f.force)
}

// surroundings are what stands in the way of the unit on this machine.
func (a *app) surroundings(h initsys.Host, k *clocked, program string) (notes []string) {
	if k.scope == initsys.User {
		user := a.getenv("USER")
		if _, err := os.Stat(filepath.Join(h.Root, "/var/lib/systemd/linger", user)); user == "" || err != nil {
			notes = append(notes, "it runs while you are logged in, or always after: loginctl enable-linger")
		}
		return notes
	}
	if _, err := os.Stat(filepath.Join(h.UnitDir(k.scope), "marbles.service.d")); err == nil {
		notes = append(notes, "drop-ins of marbles.service are not the key's: put what it needs into "+filepath.Join(h.UnitDir(k.scope), "marbles-.service.d"))
	}
	for _, path := range append([]string{program, k.s.File}, k.s.Sources...) {
		for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
			if strings.HasPrefix(path, hidden) {
				notes = append(notes, fmt.Sprintf("%s is not visible in the unit's sandbox (ProtectHome=, PrivateTmp=)", path))
			}
		}
	}
	return notes
}
