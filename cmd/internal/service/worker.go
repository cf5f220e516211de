package service

import (
	"log/slog"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/runner/transient"
	"marbles/state"
)

// WorkerOptions are the options of every worker, of the service's and of the commands' that run something themselves.
// workflow is runner.Options.Workflow.
func WorkerOptions(s *settings.Settings, env []string, log *slog.Logger, workflow func(*state.Workspace, string) *runner.Workflow) runner.Options {
	return runner.Options{
		Concurrency: s.Concurrency,
		Grace:       Grace(s),
		Log:         log,
		Env:         env,
		Workflow:    workflow,
		Compile:     catalog.Compile,
		Artifacts:   state.OpenArtifacts(s.Artifacts),
		OutputLimit: OutputLimit(s),
		Cgroups:     s.Cgroups,
		Units:       transient.Open(),
	}
}
