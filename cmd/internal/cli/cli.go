package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/service"
	"marbles/cmd/internal/settings"
	"marbles/state"
)

// Env is the process a command runs in, so that nothing below reaches for it by itself.
type Env struct {
	Args   []string // without the program's name
	Env    []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Cwd    string
	Home   string
	Euid   int
}

// Process is the Env of this process.
func Process() Env {
	cwd, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	return Env{
		Args:   os.Args[1:],
		Env:    os.Environ(),
		Stdin:  os.Stdin,
		Stdout: os.Stdout,
		Stderr: os.Stderr,
		Cwd:    cwd,
		Home:   home,
		Euid:   os.Geteuid(),
	}
}

// app is what the commands share.
type app struct {
	Env
	dryRun bool
	root   *cobra.Command
	hooks  *service.Hooks // of the command's worker; nil for none
}

// Main runs the command line and returns the exit code.
func Main(env Env) int {
	out := &output{to: env.Stdout}
	env.Stdout = out
	a := &app{Env: env}
	a.root = newRoot(a)
	a.root.SetArgs(env.Args)
	a.root.SetIn(env.Stdin)
	a.root.SetOut(env.Stdout)
	a.root.SetErr(env.Stderr)
	err := a.root.ExecuteContext(context.Background())
	if err == nil {
		err = out.err
	}
	return a.exit(err)
}

// Command is the whole command line, for those who describe it.
func Command(env Env) *cobra.Command {
	a := &app{Env: env}
	a.root = newRoot(a)
	return a.root
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "marbles",
		Short: "Decide when work runs, notice what changed, run it, and never lose track of it",
		Long: `marbles runs workflows on schedules and on changes of files and URLs, and keeps every run
in plain files. "marbles run" (or "marbles" alone) is the service; "marbles roll KEY" is one tick, now.

` + exitCodesHelp(),
		Args:                       cobra.ArbitraryArgs,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Version:                    version(),
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetVersionTemplate("marbles {{.Version}}\n")
	settings.AddFlags(root.PersistentFlags())
	root.PersistentFlags().BoolVar(&a.dryRun, "dry-run", false, "write nothing under the state root or the artifact root (run and roll still execute commands)")
	completeFlag(root, "log-level", fixed("debug", "info", "warn", "error"))
	completeFlag(root, "log-format", fixed("auto", "journal", "text", "json"))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError(c, err)
	})
	run := newRun(a)
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return run.RunE(c, nil)
	}
	root.AddCommand(
		run, newRoll(a), newRetry(a),
		newAnswer(a), newCancel(a), newPause(a), newResume(a), newAsk(a),
		newList(a), newCheck(a), newNext(a),
		newStatus(a), newRuns(a), newShow(a), newPoll(a), newWatch(a),
		newPrune(a), newDoctor(a),
		newWhy(a), newInit(a), newImport(a), newService(a), newSystemd(a), newLaunchd(a), newCompletion(a), newVersion(a), newArtifacts(a),
	)
	return root
}

// settings reads the settings for a command.
func (a *app) settings(c *cobra.Command, use settings.Options) (*settings.Settings, error) {
	use.Flags, use.Env, use.Home, use.Cwd, use.Euid = c.Flags(), a.Env.Env, a.Home, a.Cwd, a.Euid
	s, err := settings.Load(use)
	if err != nil {
		return nil, &settingsError{err}
	}
	return s, nil
}

// reader opens the state root for reading, which creates nothing.
func (a *app) reader(c *cobra.Command) (*settings.Settings, *state.Root, error) {
	s, err := a.settings(c, settings.Options{Reader: true})
	if err != nil {
		return nil, nil, err
	}
	if err := needState(s); err != nil {
		return nil, nil, err
	}
	root, err := state.OpenReader(s.State)
	return s, root, err
}

// writer opens the state root for writing, or a throw-away one for a dry run.
func (a *app) writer(s *settings.Settings) (root *state.Root, done func() error, err error) {
	done = func() error { return nil }
	if a.dryRun {
		root, remove, err := state.OpenTemporary()
		if err != nil {
			return nil, done, err
		}
		s.Artifacts = filepath.Join(root.Dir(), "artifacts")
		return root, remove, nil
	}
	if err := needState(s); err != nil {
		return nil, done, err
	}
	root, err = state.Open(s.State)
	return root, done, err
}

// needState fails where no state root is known; commands that use none do without.
func needState(s *settings.Settings) error {
	if s.State != "" {
		return nil
	}
	return &settingsError{errors.New("cannot tell the state root: there is no home directory (give --state)")}
}

// catalogs reads the definitions of every source, one catalog for each workspace. Readers are exempt from the rule
// about files that others may write.
func (a *app) catalogs(s *settings.Settings, running bool) ([]*catalog.Catalog, error) {
	if !running && len(s.Sources) == 0 { // readers fall back to the machine's service, as with the state root
		here, err := catalog.Locate("", a.Cwd)
		if _, serr := os.Stat(settings.SystemSources); err == nil && here.Path == "" && serr == nil {
			s.Sources = []string{settings.SystemSources}
		}
	}
	sources, err := catalog.LocateAll(s.Sources, a.Cwd)
	if err != nil {
		return nil, err
	}
	return catalog.LoadAll(sources, catalog.Options{
		Running: running, Now: time.Now(), Local: time.Local, Credentials: a.getenv("CREDENTIALS_DIRECTORY"), Env: a.Env.Env,
	})
}

// here is the workspace of the first source, "" where it cannot be told.
func (a *app) here(s *settings.Settings) string {
	path := ""
	if len(s.Sources) > 0 {
		path = s.Sources[0]
	}
	src, err := catalog.Locate(path, a.Cwd)
	if err != nil {
		return ""
	}
	return src.Workspace
}

// interrupt returns a context that ends with SIGINT or SIGTERM.
func interrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// outliveReaders makes writing to a pipe that nobody reads any more an error, also for stdout and stderr, where it would end
// the process and leave its runs behind. The signal is caught and not ignored, because children would inherit that.
func outliveReaders() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // never read: what does not fit in is dropped
}

// release is the version of a release, put in by the linker (packaging/release): a release is built from a commit, which
// the module's own version does not know.
var release = ""

// version is the release's version, else the module's as the build recorded it.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func (a *app) log(s *settings.Settings) *slog.Logger {
	return newLogger(a.Stderr, s.LogFormat, s.LogLevel, a.getenv)
}

func (a *app) getenv(name string) string {
	for i := len(a.Env.Env) - 1; i >= 0; i-- {
		if v := a.Env.Env[i]; len(v) > len(name) && v[len(name)] == '=' && v[:len(name)] == name {
			return v[len(name)+1:]
		}
	}
	return ""
}
