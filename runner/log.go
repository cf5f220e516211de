package runner

import (
	"log/slog"

	"marbles/state"
)

// What is said of a run, or of a key, says so by these attributes, whoever says it: run, workspace and key. The journal
// is asked by them.

// logOf is the log about a run that may be another process's.
func (w *Worker) logOf(ws *state.Workspace, f *state.RunFile) *slog.Logger {
	return withKey(w.o.Log.With("run", f.Run.ID, "workspace", ws.ID()), f.Run.Extensions.TriggerID)
}

// log is the log about a run.
func (r *Run) log() *slog.Logger {
	return withKey(r.w.o.Log.With("run", r.id, "workspace", r.ws.ID()), r.launch.Key)
}

// log is the log about a tick.
func (t *Ticking) log() *slog.Logger {
	return t.w.o.Log.With("key", t.Key, "workspace", t.Workspace.ID())
}

func withKey(log *slog.Logger, key string) *slog.Logger {
	if key == "" {
		return log
	}
	return log.With("key", key)
}
