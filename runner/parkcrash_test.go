package runner

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"marbles/state"
)

// parkCrash is the process that starts a run that asks, answers it itself, and is killed at a point.
func parkCrash(dir, point string) {
	ws := opened(dir)
	wf := asking(dir)
	w := New(Options{TempDir: dir, Parks: true, Workflow: func(*state.Workspace, string) *Workflow { return wf }})
	armed := strings.HasPrefix(point, "park")
	w.hook = func(at string) {
		if armed && at == point {
			die()
		}
	}
	r, err := w.Start(Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	if err != nil {
		panic(err)
	}
	r.Wait()
	armed = true
	if _, err := ws.AnswerRun(context.Background(), r.ID(), "", state.Answer{Answer: "a"}); err != nil {
		panic(err)
	}
	if point == "answered" {
		die()
	}
	select {}
}

// Whatever a kill leaves of a run that parks or goes on, the next process carries it to its end: no step that completed
// runs again, and what was answered stays so.
func TestParkCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	tests := map[string]struct {
		want   state.Status
		answer bool // it still asks
		ran    string
	}{
		"parking":    {want: state.Failed, ran: "before\n"},
		"parked":     {want: state.Complete, answer: true, ran: "before\nafter\nfinal complete\n"},
		"answered":   {want: state.Complete, ran: "before\nafter\nfinal complete\n"},
		"continuing": {want: state.Complete, ran: "before\nafter\nfinal complete\n"},
		"continued":  {want: state.Complete, ran: "before\nafter\nfinal complete\n"},
		"spawning":   {want: state.Failed, ran: "before\n"},
	}
	for point, tt := range tests {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ws := workspaceIn(t, dir)
			killAt(t, dir, "park:"+point, "")
			wf := asking(dir)
			w, log := keeper(t, wf, nil)
			never, err := w.Recover(t.Context(), ws)
			must(t, err)
			for _, f := range never {
				_, err := w.Start(Launch{Workspace: ws, Workflow: wf, Queued: f, Trigger: "manual"})
				must(t, err)
			}
			must(t, w.Adopt(t.Context(), ws))
			ids, err := filepath.Glob(filepath.Join(ws.Dir(), "runs", "rn-*.json"))
			must(t, err)
			if len(ids) != 1 {
				t.Fatalf("runs %v", ids)
			}
			id := strings.TrimSuffix(filepath.Base(ids[0]), ".json")
			if tt.answer {
				_, err := ws.AnswerRun(t.Context(), id, "", state.Answer{Answer: "a"})
				must(t, err)
			}
			f := becomes(t, ws, id, tt.want)
			if got := ran(dir); got != tt.ran {
				t.Errorf("ran %q, want %q\n%s", got, tt.ran, log)
			}
			if len(f.Steps) == 0 || f.Steps[0].Status != state.Complete {
				t.Errorf("steps %+v", f.Steps)
			}
		})
	}
}
