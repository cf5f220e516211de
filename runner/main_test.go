package runner

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"marbles/state"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashEnv); dir != "" {
		crash(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// newWorkspace is a workspace with its own state root and project directory.
func newWorkspace(t testing.TB) *state.Workspace {
	t.Helper()
	return workspaceIn(t, t.TempDir())
}

func workspaceIn(t testing.TB, dir string) *state.Workspace {
	t.Helper()
	project := filepath.Join(dir, "project")
	if err := os.MkdirAll(project, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := state.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	ws, err := root.Workspace(project)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Register(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return ws
}

// newWorker is a worker that is drained at the end of the test.
func newWorker(t testing.TB, o Options) *Worker {
	t.Helper()
	if o.Grace == 0 {
		o.Grace = time.Second
	}
	if o.Env == nil {
		o.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "USER=u"}
	}
	if o.Log == nil && testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if o.TempDir == "" {
		o.TempDir = t.TempDir()
	}
	w := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = w.Drain(ctx)
		left, _ := filepath.Glob(filepath.Join(o.TempDir, "marbles-*"))
		if len(left) > 0 {
			t.Errorf("private directories are left: %v", left)
		}
	})
	return w
}

// shell is a workflow with one step.
func shell(name, text string) *Workflow {
	return &Workflow{Name: name, Steps: []Step{{Name: name, Command: Command{Shell: text}}}}
}

func start(t testing.TB, w *Worker, l Launch) *Run {
	t.Helper()
	r, err := w.Start(l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts a workflow and waits for its end.
func run(t testing.TB, w *Worker, ws *state.Workspace, wf *Workflow) Result {
	t.Helper()
	return start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"}).Wait()
}

// output joins the texts of a step's stream.
func output(t testing.TB, ws *state.Workspace, run, step, stream string) string {
	t.Helper()
	var b bytes.Buffer
	err := ws.ReadJournal(run, func(e state.Entry) error {
		if e.Kind == "text" && e.Step == step && e.Stream == stream {
			b.Write(e.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// lines are the step lines of a run's journal.
func lines(t testing.TB, ws *state.Workspace, run string) []string {
	t.Helper()
	var all string
	err := ws.ReadJournal(run, func(e state.Entry) error {
		if e.Kind == "text" && e.Stream == state.StepStream {
			all += string(e.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(all, "\n"), "\n")
}

func runFile(t testing.TB, ws *state.Workspace, id string) *state.RunFile {
	t.Helper()
	f, err := ws.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func text(v jsontext.Value) string { return string(v) }

// eventually waits for something that another process does.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Body is the body of a schedule's tick: it launches one run.
func (w *Worker) Body(l Launch) func(context.Context, *Ticking) error {
	return func(ctx context.Context, t *Ticking) error {
		_, err := t.Launch(ctx, l)
		return err
	}
}
