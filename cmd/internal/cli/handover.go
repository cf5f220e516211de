package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/initsys"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// initFlags are the flags of what writes files of an init system.
type initFlags struct {
	system, user, force bool
	binary              string
}

func (f *initFlags) add(c *cobra.Command, force string) {
	c.Flags().BoolVar(&f.system, "system", false, "for the machine (as root: the default)")
	c.Flags().BoolVar(&f.user, "user", false, "for this user (else the default)")
	if force != "" {
		c.Flags().BoolVar(&f.force, "force", false, force)
	}
}

func (f *initFlags) addBinary(c *cobra.Command) {
	c.Flags().StringVar(&f.binary, "binary", "", "`path` of marbles in what is written (default: this program)")
}

// scope is whose manager is meant.
func (a *app) scope(f *initFlags) (initsys.Scope, error) {
	switch {
	case f.system && f.user:
		return "", usage("give --system or --user, not both")
	case f.system || !f.user && a.Euid == 0:
		if a.Euid != 0 && !a.dryRun {
			return "", state.Hint(usage("cannot write units of the machine: that takes root"), "sudo "+a.typed())
		}
		return initsys.System, nil
	}
	return initsys.User, nil
}

// typed is the command as it was typed.
func (a *app) typed() string { return initsys.Line(append([]string{"marbles"}, a.Args...)) }

// needs refuses to touch an init system that this machine does not have.
func (a *app) needs(kind initsys.Kind) error {
	mac := runtime.GOOS == "darwin"
	if a.dryRun || mac == (kind == initsys.Launchd) {
		return nil
	}
	what, other := "launchd is macOS's init system, and this is "+runtime.GOOS, "systemd"
	if mac {
		what, other = "systemd is Linux's init system, and this is macOS", "launchd"
	}
	return state.Hint(usage("%s", what), "marbles "+other+" install does the same here; --dry-run prints what this would do")
}

// host is this machine.
func (a *app) host() initsys.Host {
	config := a.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		config = ""
	}
	return initsys.Host{Home: a.Home, Config: config, UID: a.Euid, Run: initsys.Commands}
}

// systemDefaults makes a command read what the packaged service of the machine reads, where it was not told otherwise.
func (a *app) systemDefaults(c *cobra.Command) error {
	flags := c.Flags()
	if !flags.Changed("config") && a.getenv("MARBLES_CONFIG") == "" {
		name, path := "config", settings.SystemFile
		if _, err := os.Stat(path); err != nil { // it comes with the service's first start
			name, path = "source", settings.SystemSources
		}
		if _, err := os.Stat(path); err == nil && !flags.Changed(name) {
			if err := flags.Set(name, path); err != nil {
				return err
			}
		}
	}
	if !flags.Changed("state") && a.getenv("MARBLES_STATE") == "" {
		return flags.Set("state", settings.SystemState)
	}
	return nil
}

// program is the path by which an init system starts marbles: that under which a shell finds this program, which an
// upgrade keeps, before the file that it leads to.
func (a *app) program(f *initFlags) (string, error) {
	if f.binary != "" {
		if !filepath.IsAbs(f.binary) {
			return "", usage("--binary takes an absolute path, not %q", f.binary)
		}
		return filepath.Clean(f.binary), nil
	}
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot tell where this program is: %w", err)
	}
	found, err := exec.LookPath(filepath.Base(own))
	if err != nil || !filepath.IsAbs(found) {
		return own, nil
	}
	x, err1 := os.Stat(found)
	y, err2 := os.Stat(own)
	if err1 == nil && err2 == nil && os.SameFile(x, y) {
		return found, nil
	}
	return own, nil
}

// clocked is a key of a catalog, as an init system's clock is made for it.
type clocked struct {
	key, label string
	cadence    scheduler.Cadence
	jitter     time.Duration
	catchUp    scheduler.CatchUp
	overlap    runner.Overlap
	monitor    bool
	live       bool
	enabled    bool

	scope initsys.Scope
	s     *settings.Settings
	cat   *catalog.Catalog
}

// clocked finds the key that is to be handed over.
func (a *app) clocked(c *cobra.Command, key string, f *initFlags) (*clocked, error) {
	scope, err := a.scope(f)
	if err != nil {
		return nil, err
	}
	if scope == initsys.System {
		if err := a.systemDefaults(c); err != nil {
			return nil, err
		}
	}
	k := &clocked{key: key, scope: scope}
	if k.s, err = a.settings(c, settings.Options{}); err != nil {
		return nil, err
	}
	if err := needState(k.s); err != nil {
		return nil, err
	}
	catalogs, err := a.catalogs(k.s, !a.dryRun)
	if err != nil {
		return nil, err
	}
	k.cat = pick(catalogs, key)
	if k.cat == nil || k.cat.Schedule(key) == nil && k.cat.Monitor(key) == nil {
		return nil, unknownName(catalogs, key)
	}
	if s := k.cat.Schedule(key); s != nil {
		k.label, k.cadence, k.jitter, k.catchUp, k.overlap, k.enabled = s.Label, s.Cadence, s.Jitter, s.CatchUp, s.Overlap, s.Enabled
	} else {
		m := k.cat.Monitor(key)
		k.label, k.cadence, k.jitter, k.live, k.enabled, k.monitor = m.Label, m.Cadence, m.Jitter, m.Live, m.Enabled, true
	}
	if !k.enabled {
		return nil, usage("cannot hand over %s: it is not enabled", key)
	}
	return k, nil
}

// command is what the init system's clock starts.
func (k *clocked) command(a *app, c *cobra.Command, program string) []string {
	words := []string{program}
	if k.s.File != "" {
		words = append(words, "--config", k.s.File)
	}
	// Sources that the settings file names are its to change.
	if c.Flags().Changed("source") || a.getenv("MARBLES_SOURCES") != "" || k.s.File == "" || len(k.s.Sources) == 0 {
		for _, src := range k.cat.Sources {
			words = append(words, "--source", cmp.Or(src.Path, src.Workspace))
		}
	}
	words = append(words, "--state", k.s.State)
	artifacts := k.s.Artifacts
	if k.s.State == settings.SystemState && artifacts == filepath.Join(filepath.Dir(settings.SystemState), "artifacts") {
		artifacts = filepath.Join(settings.SystemState, "artifacts") // as the service has it, by $STATE_DIRECTORY
	}
	return append(words, "--artifacts", artifacts, "roll", "--due", k.key)
}

// stop is how long a run may take to end.
func (k *clocked) stop() time.Duration { return max(k.s.Grace+45*time.Second, 75*time.Second) }

// notes are what is different where an init system keeps the clock, whichever it is.
func (k *clocked) notes(manager, unit string) (notes []string) {
	if k.overlap == runner.OverlapQueue || k.overlap == runner.OverlapReplace {
		notes = append(notes, fmt.Sprintf("%s starts nothing while the key's run is at work: overlap: %s is like skip here", manager, k.overlap))
	}
	if k.live {
		notes = append(notes, "live: true needs the service: the monitor looks by its cadence only")
	}
	if k.monitor {
		notes = append(notes, "a source that fails is looked at again at the next "+unit+", not sooner")
	}
	return notes
}

// handedBefore is the record of a key that was handed over, read without changing anything; nil for none. A record for
// another manager whose files are there is an error.
func (k *clocked) handedBefore(kind initsys.Kind) (*state.Handed, error) {
	root, err := state.OpenReader(k.s.State)
	if err != nil {
		return nil, err
	}
	ws, err := root.Workspace(k.cat.Sources[0].Workspace)
	if err != nil {
		return nil, err
	}
	old, err := ws.Handed(k.key)
	if err != nil || old == nil {
		return nil, err
	}
	if old.Left() && (old.Manager != string(kind) || old.Scope != string(k.scope)) {
		err := usage("cannot hand over %s: its clock is %s already (%s)", k.key, old, old.Scope)
		if old.Idle || old.Off() != "" {
			err = usage("cannot hand over %s: files of %s (%s) are still there", k.key, old, old.Scope)
		}
		return nil, state.Hint(err, fmt.Sprintf("marbles %s uninstall %s --%s", old.Manager, k.key, old.Scope))
	}
	return old, nil
}

// digests are what was written, by path.
func digests(h *state.Handed) initsys.Written {
	all := initsys.Written{}
	if h != nil {
		for _, f := range h.Files {
			all.Add(f.Path, f.SHA256)
		}
	}
	return all
}

// handOver carries a plan out and writes the record, all or nothing.
func (a *app) handOver(c *cobra.Command, k *clocked, kind initsys.Kind, plan initsys.Plan, notes []string, force bool) error {
	say := func() {
		for _, n := range notes {
			fmt.Fprintf(a.Stderr, "note: %s\n", safe(n))
		}
	}
	if a.dryRun {
		plan.Print(a.Stdout)
		say()
		return nil
	}
	old, err := k.handedBefore(kind)
	if err != nil {
		return err
	}
	if path, err := plan.Conflict(digests(old)); err != nil {
		return err
	} else if path != "" && !force {
		err := &codedError{exitRun, fmt.Errorf("cannot install %s: %s is there already, and is not what marbles wrote for this key", plan.Name, path)}
		return state.Hint(err, "--force replaces it; a key: of its own tells equal keys of two projects apart")
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	src := k.cat.Sources[0]
	now := time.Now()
	in := func(f func(*state.Workspace) error) error {
		return state.AsOwner(k.s.State, src.Workspace, src.Config(), now, f)
	}
	record, begun := k.record(kind, plan, now, old), false
	plan.Anew = old == nil || !same(old, record)
	changed, err := plan.Install(ctx, func() error {
		begun = true
		return in(func(ws *state.Workspace) error { return ws.WriteHanded(intent(record, old)) })
	}, func() error {
		return in(func(ws *state.Workspace) error { return k.keep(ws, record, plan.Link, now) })
	})
	if err != nil && begun {
		return errors.Join(err, in(func(ws *state.Workspace) error {
			if old == nil {
				return ws.RemoveHanded(k.key)
			}
			return ws.WriteHanded(old)
		}))
	}
	if err != nil {
		return err
	}
	say()
	if !changed {
		_, err = fmt.Fprintf(a.Stdout, "nothing to do: the clock of %s is %s's %s\n", k.key, kind, plan.Name)
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "the clock of %s is %s's %s\n", k.key, kind, plan.Name)
	return err
}

// record is what is written down where a plan has been carried out.
func (k *clocked) record(kind initsys.Kind, plan initsys.Plan, now time.Time, old *state.Handed) *state.Handed {
	record := &state.Handed{
		Key: k.key, Manager: string(kind), Scope: string(k.scope), Unit: plan.Name, At: state.Stamp{Time: now}, Cadence: k.cadence.String(),
	}
	for _, f := range plan.Files {
		record.Files = append(record.Files, state.HandedFile{Path: f.Path, SHA256: f.Digest()})
	}
	if old != nil {
		record.Unknown = old.Unknown
	}
	return record
}

// intent is what is written down before: an install that is cut short is found by an uninstall, and the service goes on with
// the key unless a timer that was there before has its clock.
func intent(record, old *state.Handed) *state.Handed {
	out := *record
	out.Idle = true
	if old == nil {
		return &out
	}
	if !old.Idle && old.Off() == "" {
		out.Idle, out.Link, out.Cadence, out.At = false, old.Link, old.Cadence, old.At
	}
	for _, f := range old.Files {
		if slices.ContainsFunc(record.Files, func(n state.HandedFile) bool { return n.Path == f.Path && n.SHA256 != f.SHA256 }) {
			out.Files = append(out.Files[:len(out.Files):len(out.Files)], f)
		}
	}
	return &out
}

// keep writes down that the key was handed over, and when it was first seen with its cadence, from which it counts.
func (k *clocked) keep(ws *state.Workspace, record *state.Handed, link string, now time.Time) error {
	since, err := ws.Since()
	if err != nil {
		return err
	}
	if since[k.key].Cadence != k.cadence.String() {
		since[k.key] = state.Since{Cadence: k.cadence.String(), At: state.Stamp{Time: now}}
		if err := ws.WriteSince(since); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(link); err == nil {
		record.Link = link
	}
	if old, err := ws.Handed(k.key); err == nil && old != nil && old.Link == record.Link && same(old, record) {
		return nil
	}
	return ws.WriteHanded(record)
}

// same reports whether two records say the same, but for their time and whether a link is there.
func same(a, b *state.Handed) bool {
	if a.Manager != b.Manager || a.Scope != b.Scope || a.Unit != b.Unit || a.Cadence != b.Cadence || a.Idle != b.Idle || len(a.Files) != len(b.Files) {
		return false
	}
	for i := range a.Files {
		if a.Files[i].Path != b.Files[i].Path || a.Files[i].SHA256 != b.Files[i].SHA256 {
			return false
		}
	}
	return true
}

// takeBack undoes a handover: it removes exactly what was written, and the record of it.
func (a *app) takeBack(c *cobra.Command, key string, kind initsys.Kind, f *initFlags, plan func(initsys.Host, initsys.Scope) initsys.Plan) error {
	if err := a.needs(kind); err != nil {
		return err
	}
	scope, err := a.scope(f)
	if err != nil {
		return err
	}
	if scope == initsys.System {
		if err := a.systemDefaults(c); err != nil {
			return err
		}
	}
	s, root, err := a.reader(c)
	if err != nil {
		return err
	}
	ws, record, err := a.handedBy(root, s, key, kind, scope)
	if err != nil {
		return err
	}
	if record == nil {
		_, err := fmt.Fprintf(a.Stdout, "nothing to do: the clock of %s was not handed to %s\n", key, kind)
		return err
	}
	p, ours := plan(a.host(), scope), digests(record)
	for _, file := range record.Files {
		if !strings.HasPrefix(file.Path, filepath.Dir(p.Files[0].Path)+string(filepath.Separator)) {
			return &codedError{exitRun, fmt.Errorf("cannot uninstall %s: its record names %s, which is not below %s", p.Name, file.Path, filepath.Dir(p.Files[0].Path))}
		}
	}
	if a.dryRun {
		p.PrintRemoval(a.Stdout, ours, f.force)
		return nil
	}
	ctx, stop := interrupt(c.Context())
	defer stop()
	var config *string
	if rec, err := ws.Record(); err == nil && rec != nil {
		config = rec.Config
	}
	in := func(f func(*state.Workspace) error) error {
		return state.AsOwner(root.Dir(), ws.Project(), config, time.Now(), f)
	}
	if !record.Idle { // the service has the key from here on, however far this gets
		record.Idle = true
		if err := in(func(ws *state.Workspace) error { return ws.WriteHanded(record) }); err != nil {
			return err
		}
	}
	done, err := p.Remove(ctx, ours, f.force, func() error {
		return in(func(ws *state.Workspace) error { return ws.RemoveHanded(key) })
	})
	a.sayRemoved(done)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "the clock of %s is the service's again\n", key)
	return err
}

func (a *app) sayRemoved(r initsys.Removal) {
	for _, path := range r.Removed {
		fmt.Fprintf(a.Stdout, "removed %s\n", safe(path))
	}
	for _, path := range r.Gone {
		fmt.Fprintf(a.Stdout, "%s was gone already\n", safe(path))
	}
	for _, path := range r.Kept {
		fmt.Fprintf(a.Stderr, "left %s: somebody has changed it since it was written\nhint: --force removes it too\n", safe(path))
	}
}

// handedBy finds the record of a key: in the workspace of the sources that are in force, else in any other.
func (a *app) handedBy(root *state.Root, s *settings.Settings, key string, kind initsys.Kind, scope initsys.Scope) (*state.Workspace, *state.Handed, error) {
	all, err := root.Workspaces()
	if err != nil {
		return nil, nil, err
	}
	var ws *state.Workspace
	var record *state.Handed
	here := a.here(s)
	for _, w := range all {
		h, err := w.Handed(key)
		if err != nil {
			return nil, nil, err
		}
		if h == nil || h.Manager != string(kind) || h.Scope != string(scope) {
			continue
		}
		if w.Project() == here {
			return w, h, nil
		}
		if ws != nil {
			return nil, nil, state.Hint(usage("several workspaces have handed over %s", key), "call it from the project, or give --source")
		}
		ws, record = w, h
	}
	return ws, record, nil
}

// unitErr is an error of rendering as one of usage.
func unitErr(err error) error {
	if err == nil {
		return nil
	}
	return &codedError{exitUsage, err}
}

func oneKey(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("%s takes one key", c.Name())
	}
	return nil
}
