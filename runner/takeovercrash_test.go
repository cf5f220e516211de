package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"marbles/state"
)

// failing is a workflow whose second step fails until there is a file.
func failing(dir string) *Workflow {
	wf := shell("job", "echo before >> "+dir+"/ran")
	wf.Steps = append(wf.Steps, Step{Name: "gate", Command: Command{Shell: "echo gate >> " + dir + "/ran; test -e " + dir + "/go"}})
	return wf
}

// takeover is the process that takes over what another one has left, by adopting or retrying it, and is killed at a point.
func takeover(dir, how, point string) {
	ws := opened(dir)
	wf := asking(dir)
	if how == "retry" {
		wf = failing(dir)
	}
	w := New(Options{TempDir: dir, Parks: true, Workflow: func(*state.Workspace, string) *Workflow { return wf }})
	w.hook = func(at string) {
		if at == point {
			die()
		}
	}
	if how == "adopt" {
		if err := w.Adopt(context.Background(), ws); err != nil {
			panic(err)
		}
		select {}
	}
	list, err := ws.Runs(state.RunQuery{})
	if err != nil {
		panic(err)
	}
	f, err := ws.Run(list.Runs[0].ID)
	if err != nil {
		panic(err)
	}
	if _, err := w.Retry(context.Background(), ws, f, Launch{Workflow: wf, Trigger: "manual"}, false); err != nil {
		panic(err)
	}
	select {}
}

// onlyRun is the one run of a workspace.
func onlyRun(t *testing.T, ws *state.Workspace) *state.RunFile {
	t.Helper()
	list, err := ws.Runs(state.RunQuery{})
	must(t, err)
	if len(list.Runs) != 1 || len(list.Damaged) != 0 {
		t.Fatalf("runs %+v, damaged %v", list.Runs, list.Damaged)
	}
	return runFile(t, ws, list.Runs[0].ID)
}

// A kill within an adoption costs nothing: the next process adopts the run, and it goes on where it was.
func TestAdoptionCrash(t *testing.T) {
	for _, point := range []string{"claimed", "adopted"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ws := workspaceIn(t, dir)
			killAt(t, dir, "park:parked", "")
			killAt(t, dir, "takeover:adopt:"+point, "")
			w, _ := keeper(t, asking(dir), nil)
			_, err := w.Recover(t.Context(), ws)
			must(t, err)
			must(t, w.Adopt(t.Context(), ws))
			f := onlyRun(t, ws)
			if f.Run.Status != state.Suspended || f.PID != os.Getpid() {
				t.Fatalf("the run is %s, of pid %d", f.Run.Status, f.PID)
			}
			_, err = ws.AnswerRun(t.Context(), f.Run.ID, "", state.Answer{Answer: "a"})
			must(t, err)
			becomes(t, ws, f.Run.ID, state.Complete)
			if got := ran(dir); got != "before\nafter\nfinal complete\n" {
				t.Errorf("ran %q", got)
			}
		})
	}
}

// A kill within a retry leaves a run that can be retried, or is begun by the next process; what was complete stays so.
func TestRetryCrash(t *testing.T) {
	for _, point := range []string{"reopening", "journal", "running", "keyed", "spawning", "spawned", "ended", "settled"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ws := workspaceIn(t, dir)
			wf := failing(dir)
			w, _ := keeper(t, wf, nil)
			if res := run(t, w, ws, wf); res.Status != state.Failed {
				t.Fatalf("%+v", res)
			}
			must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			killAt(t, dir, "takeover:retry:"+point, "")
			never, err := w.Recover(t.Context(), ws)
			must(t, err)
			for _, f := range never {
				r, err := w.Start(Launch{Workspace: ws, Workflow: wf, Queued: f, Trigger: "manual"})
				must(t, err)
				r.Wait()
			}
			f := onlyRun(t, ws)
			if f.Run.Status == state.Failed {
				r, err := w.Retry(t.Context(), ws, f, Launch{Workflow: wf, Trigger: "manual"}, false)
				must(t, err)
				r.Wait()
				f = onlyRun(t, ws)
			}
			if f.Run.Status != state.Complete {
				t.Errorf("the run is %s: %+v", f.Run.Status, f.Run.Error)
			}
			if n := strings.Count(ran(dir), "before"); n != 1 {
				t.Errorf("the step that was complete ran %d times", n)
			}
		})
	}
}
