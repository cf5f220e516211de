package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/service"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/state"
)

// actor is what the commands share that act on what is on disk: they read first, which creates nothing, and open the
// state root for writing only once they know what they act on.
type actor struct {
	*app
	s    *settings.Settings
	root *state.Root // for reading
	log  *slog.Logger
	// reading exempts definitions from the rule about files that others may write.
	reading bool
}

func (a *app) actor(c *cobra.Command) (*actor, error) {
	if a.dryRun {
		return nil, usage("%s has no dry run", c.Name())
	}
	s, root, err := a.reader(c)
	if err != nil {
		return nil, err
	}
	return &actor{app: a, s: s, root: root, log: a.log(s)}, nil
}

// run finds a run to act on, and its workspace, for writing.
func (a *actor) run(text string) (*state.Workspace, *state.RunFile, error) {
	ws, id, err := a.findRun(a.root, text)
	if err != nil {
		return nil, nil, err
	}
	if ws, err = a.writable(ws); err != nil {
		return nil, nil, err
	}
	f, err := ws.Run(id)
	if err != nil {
		return nil, nil, unknownRun(text, err)
	}
	return ws, f, nil
}

// writable is a workspace opened for writing.
func (a *actor) writable(ws *state.Workspace) (*state.Workspace, error) {
	root, err := state.Open(a.root.Dir())
	if err != nil {
		return nil, err
	}
	return root.Workspace(ws.Project())
}

// serving is the pid of the service that serves a workspace; 0 for none.
func serving(ws *state.Workspace) int {
	hb, err := ws.Heartbeat()
	if err != nil || hb == nil || !hb.Owner().Alive() {
		return 0
	}
	return hb.PID
}

// whoActs is the pid of the process that does what a run's owner is asked for: the owner, where it lives, else the
// service. 0: nobody but this process.
func whoActs(ws *state.Workspace, f *state.RunFile) int {
	if pid := serving(ws); pid != 0 {
		return pid
	}
	if f.PID != os.Getpid() && f.Owner().Alive() {
		return f.PID
	}
	return 0
}

const (
	lookAgain = 20 * time.Millisecond
	// ownerLeaves is how long an owner that is no service gets to do what it was asked for, or to end. A `roll` that has
	// parked its run ends within moments, and whoever answers in them must not leave the run to nobody.
	ownerLeaves = 3 * time.Second
)

// settleOn waits until it is known who does what a run's owner was asked for: it returns the pid, or 0 where nobody is left
// to do it, and the run as it is then. done tells from the run file that it was done.
func settleOn(ctx context.Context, ws *state.Workspace, id string, done func(*state.RunFile) bool) (int, *state.RunFile, error) {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	late := time.NewTimer(ownerLeaves)
	defer late.Stop()
	for {
		f, err := ws.Run(id)
		if err != nil {
			return 0, nil, err
		}
		pid := whoActs(ws, f)
		if pid == 0 || pid == serving(ws) || done(f) {
			return pid, f, nil
		}
		select {
		case <-look.C:
		case <-late.C:
			return pid, f, nil
		case <-ctx.Done():
			return 0, nil, errors.New("interrupted")
		}
	}
}

// definitions are those of a workspace: of the sources that were given, where they are its, else those its service, or
// who used it last, had. An error of theirs is one of definitions.
func (a *actor) definitions(ws *state.Workspace) (*catalog.Catalog, error) {
	sources, err := catalog.LocateAll(a.s.Sources, a.Cwd)
	if err == nil {
		var ours []catalog.Source
		for _, src := range sources {
			if src.Workspace == ws.Project() {
				ours = append(ours, src)
			}
		}
		if len(ours) > 0 {
			return a.load(ours)
		}
	}
	rec, err := ws.Record()
	if err != nil {
		return nil, err
	}
	if rec == nil || rec.Config == nil {
		return nil, state.Hint(usage("cannot tell where %s is defined", ws.Project()), "give --source")
	}
	return a.load([]catalog.Source{{Workspace: ws.Project(), Path: *rec.Config}})
}

func (a *actor) load(sources []catalog.Source) (*catalog.Catalog, error) {
	return catalog.Load(sources, catalog.Options{
		Running: !a.reading, Now: time.Now(), Local: time.Local, Credentials: a.getenv("CREDENTIALS_DIRECTORY"), Env: a.Env.Env,
	})
}

// worker is a worker of this process for the workspaces of some catalogs.
func (a *app) worker(s *settings.Settings, log *slog.Logger, catalogs ...*catalog.Catalog) *runner.Worker {
	catalogOf := func(ws *state.Workspace) *catalog.Catalog {
		for _, c := range catalogs {
			if c.Sources[0].Workspace == ws.Project() {
				return c
			}
		}
		return nil
	}
	o := service.WorkerOptions(s, a.Env.Env, log, func(ws *state.Workspace, name string) *runner.Workflow {
		if c := catalogOf(ws); c != nil {
			if w := c.Workflow(name); w != nil {
				return &w.Workflow
			}
		}
		return nil
	})
	if a.dryRun {
		return runner.New(o)
	}
	a.hooks = service.NewHooks(log, s, catalogOf)
	a.hooks.Once = true
	o.Started, o.Settled = a.hooks.Started, a.hooks.Settled
	a.hooks.Worker = runner.New(o)
	return a.hooks.Worker
}

// carryOn does something with a worker of this process that may set a run going, waits for its end and says how it ended.
func (a *actor) carryOn(c *cobra.Command, ws *state.Workspace, begin func(ctx context.Context, w *runner.Worker, cat *catalog.Catalog) (*runner.Run, error)) (runner.Result, error) {
	cat, err := a.definitions(ws)
	if err != nil {
		return runner.Result{}, err
	}
	outliveReaders()
	worker := a.worker(a.s, a.log, cat)
	ctx, stop := interrupt(c.Context())
	defer stop()
	run, err := begin(ctx, worker, cat)
	if err != nil || run == nil {
		return runner.Result{}, errors.Join(err, a.drain(ctx, worker))
	}
	unhook := context.AfterFunc(ctx, func() { run.Cancel("interrupted") })
	defer unhook()
	res := run.Wait()
	if res.Status.Settled() && ctx.Err() == nil {
		a.carryOnParents(ctx, ws, worker, run.ID())
	}
	return res, errors.Join(runErr(res), a.drain(ctx, worker))
}

// carryOnParents goes on with the runs that have waited for one that has settled, one after the other, where no other
// process has them.
func (a *actor) carryOnParents(ctx context.Context, ws *state.Workspace, worker *runner.Worker, child string) {
	for {
		f, err := ws.Run(child)
		if err != nil || f.Run.Links == nil || f.Run.Links.ParentRunID == "" {
			return
		}
		parent, err := worker.Continue(ws, f.Run.Links.ParentRunID, a.Stderr)
		if err != nil {
			return // its owner goes on with it, or it has settled
		}
		unhook := context.AfterFunc(ctx, func() { parent.Cancel("interrupted") })
		res := parent.Wait()
		unhook()
		fmt.Fprintf(a.Stderr, "run %s, which started it, is %s\n", res.RunID, res.Status)
		if !res.Status.Settled() {
			return
		}
		child = res.RunID
	}
}

// runErr is why a run did not do what it should; a run that is parked did.
func runErr(res runner.Result) error {
	if res.Status == state.Suspended {
		return nil
	}
	return res.Err()
}

// who is the user that acts, as records name it.
func (a *app) who() string {
	return cmp.Or(a.getenv("SUDO_USER"), a.getenv("USER"), a.getenv("LOGNAME"), "uid "+strconv.Itoa(a.Euid))
}

// command is a marbles command to type, on the state root that this one was told to use.
func (a *app) command(args ...string) string {
	words := []string{"marbles"}
	if flag := a.root.PersistentFlags().Lookup("state"); flag != nil && flag.Changed {
		words = append(words, "--state", shellWord(flag.Value.String()))
	}
	for _, arg := range args {
		words = append(words, shellWord(arg))
	}
	return strings.Join(words, " ")
}

// shellWord quotes a text for a shell where it has to be.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// sayParked tells a person what a run waits for, and what to type.
func (a *app) sayParked(w io.Writer, f *state.RunFile) {
	id := f.Run.ID
	for _, s := range f.Open() {
		fmt.Fprintf(w, "run %s waits for %s\n", id, safe(s.Text()))
		switch s.Kind {
		case state.SuspendInput:
			q, err := s.Question()
			if err != nil {
				fmt.Fprintf(w, "damaged: %s\n", safe(err.Error()))
				continue
			}
			for line := range strings.SplitSeq(strings.TrimRight(q.Body, "\n"), "\n") {
				if q.Body != "" {
					fmt.Fprintf(w, "  %s\n", safe(line))
				}
			}
			if due := s.Due(); !due.IsZero() {
				fmt.Fprintf(w, "  until %s\n", clock(due))
			}
			a.sayAnswers(w, id, s.Short(), q)
		case state.SuspendPause:
			fmt.Fprintf(w, "  %s\n", a.command("resume", id))
		}
	}
}

// sayAnswers prints the command that answers this very question, one for each choice: typed twice it answers nothing else.
func (a *app) sayAnswers(w io.Writer, run, question string, q *state.Question) {
	answers := choices(q)
	if answers == nil {
		answers = []string{"TEXT"}
	}
	for _, answer := range answers {
		fmt.Fprintf(w, "  %s\n", safe(a.command("answer", run, answer, "--question", question)))
	}
}

// choices are the answers that a question takes; nil for any text.
func choices(q *state.Question) []string {
	if q.Mode == state.ModeApproval {
		return []string{state.Approve, state.Reject}
	}
	if len(q.Choices) == 0 {
		return nil
	}
	return q.Choices
}
