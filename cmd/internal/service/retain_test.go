package service

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/state"
)

// settledRuns is a workspace with so many settled runs of each name.
func settledRuns(t *testing.T, n int, names ...string) *state.Workspace {
	t.Helper()
	root, err := state.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	ws, err := root.Workspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Register(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for i := range n {
			at := time.Now().Add(time.Duration(i-n) * time.Second)
			f := &state.RunFile{Run: state.Run{ID: state.NewRunID(at), Step: name, Status: state.Complete,
				Timestamps: state.RunTimes{CreatedAt: state.ToMillis(at), CompletedAt: state.ToMillis(at)}}}
			if err := ws.WriteRun(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return ws
}

// The service deletes after its first minute, and after many runs, and ends when it is told to.
func TestServiceRetains(t *testing.T) {
	ws := settledRuns(t, 2*retainPart/3, "a", "b")
	s := &service{Options: Options{Settings: &settings.Settings{KeepRuns: 3}, Log: slog.New(slog.DiscardHandler)}}
	s.plan.Store(&plan{targets: []*Target{{Workspace: ws, Catalog: &catalog.Catalog{Workflows: []*catalog.Workflow{
		{Workflow: runner.Workflow{Name: "b"}, Keep: state.Keep{Runs: 5}},
	}}}}})
	r := newRetainer(s)
	r.first, r.every = 10*time.Millisecond, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go r.run(ctx) // waited for below
	total := func(want int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			list, err := ws.Runs(state.RunQuery{})
			if err != nil {
				t.Fatal(err)
			}
			if list.Total == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d runs are left, want %d", list.Total, want)
			}
		}
	}
	total(8)
	at := time.Now()
	for i := range 4 {
		id := state.NewRunID(at.Add(time.Duration(i) * time.Millisecond))
		f := &state.RunFile{Run: state.Run{ID: id, Step: "a", Status: state.Complete, Timestamps: state.RunTimes{CreatedAt: state.ToMillis(at), CompletedAt: state.ToMillis(at)}}}
		if err := ws.WriteRun(f); err != nil {
			t.Fatal(err)
		}
	}
	for range retainRuns {
		r.settled()
	}
	total(8)
	stop()
	select {
	case <-r.done:
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
}
