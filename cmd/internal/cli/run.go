package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/service"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/state"
)

func newRun(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the service: every trigger of every source, until SIGTERM",
		Long: `Run the service: every trigger of every source, until SIGTERM.

SIGTERM and SIGINT drain: nothing new starts, what runs gets the drain time, then is cancelled; a second
signal cuts that short. SIGHUP reads the definitions again, all or nothing.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("run takes no name. To run one now: marbles roll %s", args[0])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			outliveReaders()
			s, err := a.settings(c, settings.Options{Service: true})
			if err != nil {
				return err
			}
			done := func() error { return nil }
			defer func() { err = errors.Join(err, done()) }()
			open := func() (root *state.Root, err error) {
				root, done, err = a.writer(s)
				return root, err
			}
			stop, kill, reload, release := signals()
			defer release()
			background := newAsyncLog(a.log(s).Handler())
			defer func() {
				if !background.close(time.Second) {
					a.Stderr = io.Discard // whoever should read it has stalled: nothing more can be said
				}
			}()
			log := background.logger()
			if a.dryRun {
				log.Warn("dry run: nothing is written under the state root, but commands are executed")
			}
			output, finish := a.journalOutput(s, log)
			err = service.Run(context.Background(), service.Options{
				Settings: s, Cwd: a.Cwd, Open: open, Env: a.Env.Env, DryRun: a.dryRun, Log: log,
				Stop: stop, Kill: kill, Reload: reload, Output: output,
			})
			finish()
			if errors.Is(err, service.ErrSecond) {
				return state.Hint(err, "stop it first, or send it SIGHUP to read the definitions again")
			}
			return err
		},
	}
}

// journalOutput is what sends the output of runs to the system journal, nil for none, and what ends it.
func (a *app) journalOutput(s *settings.Settings, log *slog.Logger) (output func(runner.Stream) io.WriteCloser, finish func()) {
	if !s.JournalOutput {
		return nil, func() {}
	}
	h, err := openJournal(journalSocket, slog.LevelInfo)
	if err != nil {
		log.Warn("journal_output has no effect: there is no systemd journal", "error", err)
		return nil, func() {}
	}
	o := newJournalOutput(h)
	return o.stream, func() {
		if lost := o.close(time.Second); lost > 0 {
			log.Warn("output lines were not sent to the systemd journal", "lines", lost)
		}
	}
}

// signals turns SIGTERM and SIGINT into stop (the first) and kill (the second), and SIGHUP into reload.
func signals() (stop, kill, reload <-chan struct{}, release func()) {
	stopped, killed, reloads := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	in := make(chan os.Signal, 4)
	signal.Notify(in, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() { // waited for by release
		defer close(ended)
		n := 0
		for {
			select {
			case <-quit:
				return
			case sig := <-in:
				if sig == syscall.SIGHUP {
					select {
					case reloads <- struct{}{}:
					default: // one is waiting already and will see what this one means
					}
					continue
				}
				if n++; n == 1 {
					close(stopped)
				} else if n == 2 {
					close(killed)
				}
			}
		}
	}()
	return stopped, killed, reloads, func() {
		signal.Stop(in)
		close(quit)
		<-ended
	}
}
