package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/initsys"
	"marbles/cmd/internal/settings"
	"marbles/packaging"
	"marbles/state"
)

// serviceFlags are the flags of what installs the service.
type serviceFlags struct {
	initFlags
	init string
	json bool
}

func (f *serviceFlags) addTo(c *cobra.Command, force string) {
	f.add(c, force)
	c.Flags().StringVar(&f.init, "init", "", "`systemd` or launchd (default: this machine's)")
	completeFlag(c, "init", fixed(string(initsys.Systemd), string(initsys.Launchd)))
}

func newServiceInstall(a *app) []*cobra.Command {
	var f, g, h serviceFlags
	install := &cobra.Command{
		Use:   "install",
		Short: "Write, enable and start the unit of the service itself",
		Long: `Write, enable and start the unit of the service itself, for the machine or for this user. Done again it changes only what is
different by then. A unit that a package has installed is left alone: enable that. --dry-run prints what would be done.`,
		Args: noArgs("service install"),
		RunE: func(c *cobra.Command, _ []string) error { return a.serviceInstall(c, &f) },
	}
	f.addTo(install, "replace a file that marbles did not write, or that somebody has changed")
	f.addBinary(install)
	uninstall := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service and remove its unit; its state and definitions stay",
		Args:  noArgs("service uninstall"),
		RunE:  func(c *cobra.Command, _ []string) error { return a.serviceUninstall(c, &g) },
	}
	g.addTo(uninstall, "also a unit that marbles did not write, or that somebody has changed")
	status := &cobra.Command{
		Use:   "status",
		Short: "Say whether the service is installed, enabled and running",
		Args:  noArgs("service status"),
		RunE:  func(c *cobra.Command, _ []string) error { return a.serviceStatus(c.Context(), &h) },
	}
	h.addTo(status, "")
	jsonFlag(status, &h.json)
	return []*cobra.Command{install, uninstall, status}
}

// kind is the init system that is meant.
func (a *app) kind(f *serviceFlags) (initsys.Kind, error) {
	kind := initsys.Kind(f.init)
	switch kind {
	case "":
		kind = initsys.Systemd
		if runtime.GOOS == "darwin" {
			kind = initsys.Launchd
		}
	case initsys.Systemd, initsys.Launchd:
	default:
		return "", usage("--init takes systemd or launchd, not %q", f.init)
	}
	return kind, a.needs(kind)
}

// servicePlan is what installs the service; text is false for one that only finds its files.
func (a *app) servicePlan(c *cobra.Command, f *serviceFlags, text bool) (p initsys.Plan, kind initsys.Kind, scope initsys.Scope, err error) {
	if kind, err = a.kind(f); err != nil {
		return p, kind, scope, err
	}
	if scope, err = a.scope(&f.initFlags); err != nil {
		return p, kind, scope, err
	}
	host := a.host()
	var data []byte
	if text {
		if data, err = a.serviceText(c, f, kind, scope); err != nil {
			return p, kind, scope, err
		}
		data = initsys.Seal(data)
	}
	if kind == initsys.Systemd {
		return host.ServicePlan(scope, data), kind, scope, nil
	}
	var dirs []string
	if scope == initsys.System { // what it reads, and where its state goes: neither is there on a Mac
		dirs = []string{filepath.Join(host.Root, settings.SystemSources), filepath.Join(host.Root, filepath.Dir(settings.SystemState))}
	}
	return host.JobPlan(scope, packaging.LaunchdLabel, data, dirs...), kind, scope, nil
}

// serviceText renders the unit or the property list.
func (a *app) serviceText(c *cobra.Command, f *serviceFlags, kind initsys.Kind, scope initsys.Scope) ([]byte, error) {
	for _, flag := range []string{"source", "state", "artifacts"} {
		if c.Flags().Changed(flag) {
			return nil, state.Hint(usage("service install takes no --%s", flag), "name it in a settings file, and give that: --config FILE")
		}
	}
	program, err := a.program(&f.initFlags)
	if err != nil {
		return nil, err
	}
	v := packaging.Values{Binary: program, Home: a.Home}
	if kind == initsys.Systemd {
		v.Systemd = a.host().SystemdVersion(c.Context())
	}
	if flag := c.Flags().Lookup("config"); flag.Changed {
		if v.Config, err = filepath.Abs(flag.Value.String()); err != nil {
			return nil, err
		}
	}
	var text []byte
	switch {
	case kind == initsys.Systemd && scope == initsys.System:
		text, err = packaging.Render(packaging.System, v)
	case kind == initsys.Systemd:
		text, err = packaging.Render(packaging.User, v)
	case scope == initsys.User:
		text, err = packaging.Render(packaging.Launchd, v)
	default:
		words := []string{program, "run"}
		if _, err := os.Stat(settings.SystemFile); v.Config == "" && err == nil {
			v.Config = settings.SystemFile
		}
		if v.Config != "" {
			words = append(words, "--config", v.Config)
		} else {
			words = append(words, "--source", settings.SystemSources)
		}
		words = append(words, "--state", settings.SystemState, "--artifacts", filepath.Join(settings.SystemState, "artifacts"))
		text, err = packaging.RenderDaemon(packaging.Daemon{Command: words, Directory: "/", Log: "/var/log/marbles.log"})
	}
	return text, unitErr(err)
}

func (a *app) serviceInstall(c *cobra.Command, f *serviceFlags) error {
	p, kind, scope, err := a.servicePlan(c, f, true)
	if err != nil {
		return err
	}
	if kind == initsys.Systemd {
		if path := a.host().Packaged(scope, p.Name); path != "" {
			err := &codedError{exitRun, fmt.Errorf("cannot install %s: a package has installed it: %s", p.Name, path)}
			return state.Hint(err, initsys.Line(initsys.Systemctl(scope, "enable", "--now", p.Name)))
		}
	}
	if a.dryRun {
		p.Print(a.Stdout)
		return nil
	}
	if path, err := p.Conflict(p.Sealed()); err != nil {
		return err
	} else if path != "" && !f.force {
		err := &codedError{exitRun, fmt.Errorf("cannot install %s: %s is there, and marbles did not write it, or somebody has changed it since", p.Name, path)}
		return state.Hint(err, "what is changed belongs into a drop-in (systemctl edit); --force replaces the file")
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	changed, err := p.Install(ctx, nil, nil)
	if err != nil {
		return err
	}
	if kind == initsys.Systemd && scope == initsys.User {
		for _, n := range a.surroundings(a.host(), &clocked{scope: scope}, "") {
			fmt.Fprintf(a.Stderr, "note: %s\n", safe(n))
		}
	}
	if !changed {
		_, err = fmt.Fprintf(a.Stdout, "nothing to do: %s is installed, enabled and running\n", p.Name)
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "%s is installed and started\n", p.Name)
	return err
}

func (a *app) serviceUninstall(c *cobra.Command, f *serviceFlags) error {
	p, kind, scope, err := a.servicePlan(c, f, false)
	if err != nil {
		return err
	}
	if !p.There() {
		if path := a.host().Packaged(scope, p.Name); kind == initsys.Systemd && path != "" {
			err := &codedError{exitRun, fmt.Errorf("cannot uninstall %s: it is a package's: %s", p.Name, path)}
			return state.Hint(err, initsys.Line(initsys.Systemctl(scope, "disable", "--now", p.Name)))
		}
		_, err := fmt.Fprintf(a.Stdout, "nothing to do: %s is not installed\n", p.Name)
		return err
	}
	if path := p.Foreign(); path != "" && !f.force {
		err := &codedError{exitRun, fmt.Errorf("cannot uninstall %s: marbles did not write %s; it was neither stopped nor removed", p.Name, path)}
		return state.Hint(err, a.typed()+" --force stops it, and removes the file")
	}
	ours := p.Sealed()
	if a.dryRun {
		p.PrintRemoval(a.Stdout, ours, f.force)
		return nil
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	done, err := p.Remove(ctx, ours, f.force, nil)
	if err != nil {
		return err
	}
	a.sayRemoved(done)
	_, err = fmt.Fprintf(a.Stdout, "%s is stopped; its state and definitions stay\n", p.Name)
	return err
}

// serviceState is `service status --json`.
type serviceState struct {
	Manager   string `json:"manager"`
	Scope     string `json:"scope"`
	Unit      string `json:"unit"`
	File      string `json:"file"` // "" for none
	Installed bool   `json:"installed"`
	Packaged  bool   `json:"packaged"` // by a package, not by `service install`
	Enabled   string `json:"enabled"`  // as the manager says it; "" where it does not
	Active    string `json:"active"`   // likewise
	PID       string `json:"pid,omitempty"`
	Status    string `json:"status,omitempty"`
	Error     string `json:"error,omitempty"` // why the manager could not be asked
}

func (a *app) serviceStatus(ctx context.Context, f *serviceFlags) error {
	kind, err := a.kind(f)
	if err != nil {
		return err
	}
	scope := initsys.User
	switch {
	case f.system && f.user:
		return usage("give --system or --user, not both")
	case f.system || !f.user && a.Euid == 0:
		scope = initsys.System
	}
	host := a.host()
	if !f.system && !f.user && scope == initsys.User && installed(host, kind, initsys.System) && !installed(host, kind, initsys.User) {
		scope = initsys.System
	}
	out := serviceState{Manager: string(kind), Scope: string(scope)}
	if kind == initsys.Systemd {
		p := host.ServicePlan(scope, nil)
		out.Unit, out.File, out.Installed = p.Name, p.Files[0].Path, p.There()
		if path := host.Packaged(scope, p.Name); !out.Installed && path != "" {
			out.File, out.Installed, out.Packaged = path, true, true
		}
		said, err := host.Run(ctx, initsys.Systemctl(scope, "show", p.Name, "-p", "ActiveState", "-p", "SubState", "-p", "UnitFileState", "-p", "MainPID", "-p", "StatusText"))
		out.fill(said, err)
	} else {
		p := host.JobPlan(scope, packaging.LaunchdLabel, nil)
		out.Unit, out.File, out.Installed = p.Name, p.Files[0].Path, p.There()
		out.Active = "not loaded"
		if _, err := host.Run(ctx, p.Up[0]); err == nil {
			out.Active = "loaded"
		}
	}
	if !out.Installed {
		out.File = ""
	}
	if f.json {
		return printJSON(a.Stdout, out)
	}
	rows := [][]string{{out.Manager, out.Unit + " (" + out.Scope + ")"}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, clean(value, 200)})
		}
	}
	add("file", out.File)
	switch {
	case !out.Installed:
		add("installed", "no: marbles service install --"+out.Scope)
	case out.Packaged:
		add("installed", "by a package")
	}
	add("enabled", out.Enabled)
	add("active", out.Active)
	add("pid", out.PID)
	add("status", out.Status)
	add("unknown", out.Error)
	return a.paint(a.Stdout).table(a.Stdout, rows)
}

// installed reports whether a scope has the service's unit, a package's or our own.
func installed(h initsys.Host, kind initsys.Kind, s initsys.Scope) bool {
	if kind == initsys.Launchd {
		return h.JobPlan(s, packaging.LaunchdLabel, nil).There()
	}
	p := h.ServicePlan(s, nil)
	return p.There() || h.Packaged(s, p.Name) != ""
}

// fill reads what systemctl show says.
func (s *serviceState) fill(said string, err error) {
	if err != nil {
		s.Error = fmt.Sprintf("systemctl: %v: %s", err, strings.ReplaceAll(said, "\n", "; "))
		return
	}
	sub := ""
	for line := range strings.Lines(said) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "ActiveState":
			s.Active = value
		case "SubState":
			sub = value
		case "UnitFileState":
			s.Enabled = value
		case "StatusText":
			s.Status = value
		case "MainPID":
			if value != "0" {
				s.PID = value
			}
		}
	}
	if sub != "" && sub != s.Active {
		s.Active += " (" + sub + ")"
	}
}
