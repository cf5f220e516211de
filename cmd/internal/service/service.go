package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/scheduler"
	"marbles/state"
)

// ErrSecond is wrapped when another service already serves a workspace.
var ErrSecond = errors.New("another service serves this workspace")

// Options are what a service is made of.
type Options struct {
	Settings *settings.Settings
	Cwd      string
	// Open opens the state root; it is called once the definitions are known to be good.
	Open   func() (*state.Root, error)
	Env    []string
	DryRun bool
	Log    *slog.Logger
	Output func(runner.Stream) io.WriteCloser // runner.Options.Output; nil for none
	// Stop, Reload and Kill come from signals: the first Stop drains, a second cuts it short.
	Stop   <-chan struct{}
	Kill   <-chan struct{}
	Reload <-chan struct{}
}

// service is a running service.
type service struct {
	Options
	started time.Time
	clock   string // why slots passed that another clock than the service's should have started; "" for the service's
	root    *state.Root
	sources []catalog.Source // as they were found
	shared  catalog.Shared
	keeper  *keeper
	writes  *writes
	notices func()        // ends what the manager is told of a start or a stop under way
	hears   chan struct{} // received from by the loop that hears signals, whose own the next two are
	reloads bool          // a reload is under way
	outcome string        // of the latest reload; "" for none yet
	zone    *scheduler.Zone
	loop    *scheduler.Loop
	worker  *runner.Worker
	desk    *Dispatcher
	notify  *notifier
	holds   []*hold
	live    *watchers
	hooks   *Hooks
	pauses  *pauses
	handed  *handed

	restarting sync.Mutex // guards what follows
	restarts   map[string]bool

	plan  atomic.Pointer[plan]
	ticks sync.WaitGroup  // every goroutine that handles something due
	looks context.Context // ends when the service stops: cancels looks, not runs
}

// Run is the service: it arms every trigger of every source and returns when it was told to stop and everything it
// started has ended.
func Run(ctx context.Context, o Options) (err error) {
	var cleanup cleanups
	defer func() { err = errors.Join(err, cleanup.run()) }()

	s := &service{Options: o, started: time.Now(), zone: scheduler.NewZone(""), hears: make(chan struct{})}
	s.notify = newNotifier(o.Log)
	if os.Getpid() == 1 { // of a container
		orphans, stop := context.WithCancel(context.WithoutCancel(ctx))
		var reaper sync.WaitGroup
		reaper.Go(func() { runner.ReapOrphans(orphans) })
		cleanup.push("orphans", func() error { stop(); reaper.Wait(); return nil })
	}
	catalogs, err := s.load()
	if err != nil {
		return err
	}
	if s.root, err = o.Open(); err != nil {
		return err
	}
	targets, err := s.claim(catalogs, &cleanup)
	if err != nil {
		return err
	}
	s.hooks, s.pauses, s.handed = NewHooks(o.Log, o.Settings, s.catalog), newPauses(s), newHanded(s)
	s.writes, s.keeper = &writes{probe: targets[0].Workspace.Probe}, newKeeper(s)
	s.notices = func() {}
	cleanup.push("notices", func() error { s.notices(); return nil })
	cleanup.push("keeper", s.keeper.end)
	retain := newRetainer(s)
	s.plan.Store(&plan{targets: targets}) // what dead processes left asks for definitions before anything is armed
	worker := WorkerOptions(o.Settings, o.Env, o.Log, s.workflow)
	worker.Output = o.Output
	worker.TempDir, worker.Parks = runtimeDirectory(o.Env), true
	if !o.DryRun {
		worker.Started = s.hooks.Started
		worker.Settled = func(ws *state.Workspace, f *state.RunFile) { s.hooks.Settled(ws, f); retain.settled() }
	}
	worker.Asked, worker.Late, worker.NextDue = s.asked, s.late, s.nextDue
	s.worker = runner.New(worker)
	s.hooks.Worker = s.worker
	s.desk = &Dispatcher{Worker: s.worker, Log: o.Log, Local: s.zone.Location, Launched: func(ws *state.Workspace, key string, res runner.Result) {
		report(o.Log.With("key", key, "workspace", ws.ID(), "launched", true), runner.TickResult{Result: res, Err: res.Err()})
	}}
	cleanup.push("worker", func() error { return s.drain() })

	looks, stopLooks := context.WithCancel(ctx)
	s.looks = looks
	s.live = newWatchers(s)
	cleanup.push("looks", func() error { stopLooks(); s.live.end(); return nil })

	s.notices = s.extend(func() string { return "starting: ending what an earlier service left" }, s.started.Add(extendMost))
	begun := s.recover(ctx, targets)
	s.pauses.take(targets)
	s.handed.take(targets)
	p, triggers, err := makePlan(targets, time.Now(), s.zone.Location(), s.Log)
	if err != nil {
		return err
	}
	claimed(triggers, begun, time.Now())
	s.loop = scheduler.NewLoop(scheduler.Options{
		Fire:     s.fire,
		Parallel: o.Settings.Concurrency,
		Log:      o.Log,
		Zone:     s.zone,
	})
	s.plan.Store(p) // with something armed in it: from here on there is a loop, see asked
	s.handed.say(nil, p)
	if s.told(ctx) {
		s.stopping()
		return nil
	}
	s.adoptUnits(targets)
	s.resume(begun)
	s.loop.Set(triggers)
	loopCtx, stopLoop := context.WithCancel(ctx)
	loopDone := make(chan error, 1)
	go func() { loopDone <- s.loop.Run(loopCtx) }() // waited for by the cleanup below
	cleanup.push("loop", func() error { stopLoop(); return <-loopDone })
	s.live.watch(p)
	if !o.DryRun {
		retainCtx, stopRetain := context.WithCancel(ctx)
		go retain.run(retainCtx) // waited for by the cleanup below
		cleanup.push("retention", func() error { stopRetain(); <-retain.done; return nil })
	}
	s.notices()

	s.Log.Info("service is ready", "triggers", p.triggers, "workspaces", len(targets), "pid", os.Getpid(), "dry_run", o.DryRun)
	s.warnIdle()
	s.adopt(targets)
	for _, t := range targets {
		s.hooks.Resume(t.Workspace)
	}
	atWork, stop := context.WithCancel(ctx)
	s.keeper.begin(atWork)
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(atWork) })
	err = s.serve(ctx)
	stop()
	watching.Wait()
	s.stopping()
	return err
}

// warnIdle says so where nothing is armed.
func (s *service) warnIdle() {
	if s.plan.Load().triggers == 0 {
		s.Log.Warn("nothing will run: no enabled schedule or monitor is defined", "sources", s.Settings.Sources)
	}
}

// told reports whether the service was told to stop.
func (s *service) told(ctx context.Context) bool {
	select {
	case <-s.Stop:
		return true
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// stopping tells the manager, and goes on asking it for time until notices is called.
func (s *service) stopping() {
	s.notices()
	until := time.Now().Add(s.Settings.Drain)
	line := func() string { return drainLine(s.worker, time.Until(until)) }
	s.notify.stopping(line())
	s.Log.Info("service is stopping", "drain", s.Settings.Drain.String())
	s.notices = s.extend(line, until.Add(s.Settings.Grace+extendMost))
}

// drainLine says what is still waited for, and for how long before it is cancelled.
func drainLine(w *runner.Worker, left time.Duration) string {
	running, _ := w.Active()
	runs := several(running, "run")
	if left <= 0 {
		return "stopping: " + runs + " cancelled and not ended yet"
	}
	return fmt.Sprintf("draining: %s, %s left", runs, left.Round(time.Second))
}

// serve answers signals and keeps the manager informed until it is told to stop, or another service has a workspace. It
// does nothing that can wait for a disk.
func (s *service) serve(ctx context.Context) error {
	s.notify.ready(s.statusLine())
	// What was read to get here (parsed documents, histories) is garbage now, and with many thousands of keys it is most
	// of the memory: give it back before the long quiet time.
	debug.FreeOSMemory()
	status := time.NewTicker(2 * time.Second)
	defer status.Stop()
	for {
		reload := s.Reload
		if s.reloads {
			reload = nil // it waits in its channel
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Stop:
			return nil
		case <-reload:
			s.reloads = true
			s.notify.reloading(s.statusLine())
			s.keeper.reload <- struct{}{}
		case err := <-s.keeper.reloaded:
			s.reloads = false
			s.reloaded(err)
		case err := <-s.keeper.lost:
			return err
		case <-status.C:
			s.notify.status(s.statusLine())
		case <-s.hears:
		}
	}
}

// reloaded tells how a reload ended: READY=1 either way.
func (s *service) reloaded(err error) {
	at := time.Now().In(s.zone.Location()).Format("15:04:05")
	if err != nil {
		s.Log.Error("reload failed, the old definitions stay in force", "error", err)
		s.outcome = "reload failed at " + at + ", old definitions in force: " + brief(err)
	} else {
		s.Log.Info("definitions were reloaded", "triggers", s.plan.Load().triggers)
		s.warnIdle()
		s.outcome = "reloaded at " + at
	}
	s.notify.ready(s.statusLine())
}

// brief is an error's first line, for a status line.
func brief(err error) string {
	const most = 160
	line, rest, _ := strings.Cut(err.Error(), "\n")
	if len(line) > most {
		line, rest = strings.ToValidUTF8(line[:most], ""), "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}

// statusLine says what goes on and what is next, as `systemctl status` shows it.
func (s *service) statusLine() string {
	running, queued := s.worker.Active()
	line := fmt.Sprintf("%s, %d running", several(s.plan.Load().triggers, "trigger"), running)
	switch {
	case s.reloads:
		line = "reloading; " + line
	case s.outcome != "":
		line = s.outcome + "; " + line
	}
	if queued > 0 {
		line += fmt.Sprintf(", %d queued", queued)
	}
	if id, at, ok := s.loop.Next(); ok {
		key := id
		if a, ok := s.plan.Load().armed[id]; ok {
			key = a.key()
		}
		layout := "15:04:05"
		if time.Until(at) > 20*time.Hour {
			layout = "2006-01-02 15:04"
		}
		line += fmt.Sprintf(", next %s at %s", key, at.In(s.zone.Location()).Format(layout))
	}
	return line
}

// several is a number of things, in words for people.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// drain lets running work finish for the drain time, then cancels it.
func (s *service) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Settings.Drain)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	go func() { // ends with the drain: over is closed when it returns
		select {
		case <-s.Kill:
			s.Log.Warn("second signal: cancelling what runs")
			cancel()
		case <-over:
		}
	}()
	err := s.worker.Drain(ctx)
	s.ticks.Wait()
	s.hooks.End()
	s.desk.Wait()
	if p := s.plan.Load(); p != nil {
		for _, t := range p.targets {
			if err := t.Workspace.FlushSlots(); err != nil {
				s.Log.Error("slot ledger cannot be written", "workspace", t.Workspace.ID(), "error", err)
			}
		}
	}
	if err != nil {
		s.Log.Warn("drain time is over, what still ran was cancelled")
	}
	return nil
}

// load reads the definitions. A source that was found once stays where it was: a folder that has vanished since is an
// error, not an empty catalog.
func (s *service) load() ([]*catalog.Catalog, error) {
	for i, known := range s.sources {
		if known.Path != "" {
			continue
		}
		found, err := catalog.Locate("", s.Cwd) // there was none; perhaps there is one now
		if err != nil {
			return nil, err
		}
		s.sources[i] = found
	}
	if s.sources == nil {
		var err error
		if s.sources, err = catalog.LocateAll(s.Settings.Sources, s.Cwd); err != nil {
			return nil, err
		}
	}
	return catalog.LoadAll(s.sources, catalog.Options{
		Running: true, Now: time.Now(), Local: s.zone.Location(),
		Credentials: variable(s.Env, "CREDENTIALS_DIRECTORY"), Env: s.Env,
		Shared: &s.shared,
	})
}

// runtimeDirectory is the directory in memory that systemd made for the service (RuntimeDirectory=), the first of a list;
// "" where there is none.
func runtimeDirectory(env []string) string {
	first, _, _ := strings.Cut(variable(env, "RUNTIME_DIRECTORY"), ":")
	return first
}

// variable is the value of a variable in a list of NAME=value, "" where it is not there.
func variable(env []string, name string) string {
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}

// workflow finds a workflow as it is defined now, for steps that start one and for parked runs; nil where it is not.
func (s *service) workflow(ws *state.Workspace, name string) *runner.Workflow {
	if cat := s.catalog(ws); cat != nil {
		if w := cat.Workflow(name); w != nil {
			return &w.Workflow
		}
	}
	return nil
}

// catalog is the catalog in force for a workspace; nil for none.
func (s *service) catalog(ws *state.Workspace) *catalog.Catalog {
	if t := s.plan.Load().target(ws); t != nil {
		return t.Catalog
	}
	return nil
}

// OutputLimit is the settings' limit as the worker takes it, whose zero value is the default.
func OutputLimit(s *settings.Settings) int64 {
	if s.OutputLimit == 0 {
		return -1
	}
	return s.OutputLimit
}

// Grace is the settings' grace as the worker takes it, whose zero value is the default.
func Grace(s *settings.Settings) time.Duration {
	if s.Grace == 0 {
		return -1
	}
	return s.Grace
}
