package service

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/cmd/internal/settings"
	"marbles/runner"
	"marbles/state"
)

// hookWorld is a worker with hooks, and one schedule.
type hookWorld struct {
	ws     *state.Workspace
	hooks  *Hooks
	worker *runner.Worker
	cat    *catalog.Catalog
}

func newHookWorld(t *testing.T, ws *state.Workspace, definitions string) *hookWorld {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/jobs.yaml", []byte(definitions), 0o600); err != nil {
		t.Fatal(err)
	}
	sources, err := catalog.LocateAll([]string{dir}, dir)
	if err != nil {
		t.Fatal(err)
	}
	cats, err := catalog.LoadAll(sources, catalog.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	w := &hookWorld{ws: ws, cat: cats[0]}
	w.hooks = NewHooks(slog.New(slog.DiscardHandler), &settings.Settings{}, func(*state.Workspace) *catalog.Catalog { return w.cat })
	w.hooks.Once = true
	w.worker = runner.New(runner.Options{
		Env: []string{"PATH=" + os.Getenv("PATH")}, TempDir: t.TempDir(), Started: w.hooks.Started, Settled: w.hooks.Settled,
	})
	w.hooks.Worker = w.worker
	t.Cleanup(func() {
		w.hooks.End()
		_ = w.worker.Drain(t.Context())
	})
	return w
}

// roll runs the key once, and waits until everybody was told.
func (w *hookWorld) roll(t *testing.T, input string) {
	t.Helper()
	desk := &Dispatcher{Worker: w.worker, Log: slog.New(slog.DiscardHandler), Local: func() *time.Location { return time.UTC }}
	desk.Schedule(t.Context(), Target{w.ws, w.cat}, w.cat.Schedules[0], Firing{Input: []byte(input)})
	w.hooks.wait.Wait()
}

// What was owed when a process died is told by the next one, once; and a run that nobody had judged is judged.
func TestHooksAfterACrash(t *testing.T) {
	const definitions = `
workflows:
  job: {run: 'exit "$INPUT_CODE"', input: {code: 0}, on_failure: 'echo "$INPUT_RUN" >>told'}
schedules:
  - {run: job, cron: "0 0 1 1 *"}
`
	ws := workspace(t)
	told := func() int {
		b, _ := os.ReadFile(ws.Project() + "/told")
		return strings.Count(string(b), "rn-")
	}
	// The process dies after the run has settled, before anything of the hook is written.
	w := newHookWorld(t, ws, definitions)
	hooks := w.hooks
	w.hooks = NewHooks(hooks.Log, hooks.Settings, func(*state.Workspace) *catalog.Catalog { return nil })
	w.worker = runner.New(runner.Options{Env: []string{"PATH=" + os.Getenv("PATH")}, TempDir: t.TempDir()})
	w.roll(t, `{"code":3}`)
	if n := told(); n != 0 {
		t.Fatalf("told %d times", n)
	}
	_ = w.worker.Drain(t.Context())
	w = newHookWorld(t, ws, definitions)
	w.hooks.Resume(ws)
	w.hooks.wait.Wait()
	if n := told(); n != 1 {
		t.Fatalf("told %d times after the crash", n)
	}
	// It dies after it has recorded what is owed: the run that tells it is there, or is not.
	err := ws.EditTold(t.Context(), "job", func(told *state.Told) (bool, error) {
		told.Owed = []state.Owed{{Event: eventFailure, Input: []byte(`{"run":"rn-again"}`), Run: state.NewRunID(time.Now())}}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.hooks.Resume(ws)
	w.hooks.wait.Wait()
	w.hooks.Resume(ws)
	w.hooks.wait.Wait()
	if n := told(); n != 2 {
		t.Errorf("told %d times, want 2", n)
	}
}

// Three tries, and then it is given up.
func TestHookThatFails(t *testing.T) {
	ws := workspace(t)
	w := newHookWorld(t, ws, `
workflows:
  job: {run: exit 1, on_failure: 'echo x >>tries; exit 1'}
schedules:
  - {run: job, cron: "0 0 1 1 *"}
`)
	w.roll(t, "null")
	for range 4 {
		w.hooks.Resume(ws)
		w.hooks.wait.Wait()
	}
	b, _ := os.ReadFile(ws.Project() + "/tries")
	rec, err := ws.Told("job")
	if n := strings.Count(string(b), "x"); n != hookTries || err != nil || len(rec.Owed) != 0 {
		t.Errorf("tried %d times, owed %+v, %v", n, rec, err)
	}
}

func TestPing(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.URL.Path)
	}))
	defer server.Close()
	ws := workspace(t)
	w := newHookWorld(t, ws, fmt.Sprintf(`
workflows:
  job: {run: 'exit "$INPUT_CODE"', input: {code: 0}}
schedules:
  - {run: job, cron: "0 0 1 1 *", ping: %s/s3cret}
`, server.URL))
	w.roll(t, "null")
	w.roll(t, `{"code":1}`)
	if err := w.worker.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, path := range got {
		count[path]++
	}
	if len(got) != 4 || count["/s3cret/start"] != 2 || count["/s3cret"] != 1 || count["/s3cret/fail"] != 1 {
		t.Errorf("the server was asked for %q", got)
	}
	list, err := ws.Runs(state.RunQuery{})
	if err != nil {
		t.Fatal(err)
	}
	pings := 0
	for _, r := range list.Runs {
		if r.Name != "job:ping" {
			continue
		}
		pings++
		err := ws.ReadJournal(r.ID, func(e state.Entry) error {
			if strings.Contains(string(e.Text), "s3cret") {
				t.Errorf("the journal shows the URL: %s", e.Text)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if pings != 4 {
		t.Errorf("%d pings are recorded", pings)
	}
}

// toldLines is what the hooks wrote down.
func (w *hookWorld) toldLines() string {
	b, _ := os.ReadFile(w.ws.Project() + "/told")
	return string(b)
}

// The schedule's own hook goes before the workflow's, and that before the settings', for each event by itself.
func TestHookLevels(t *testing.T) {
	const workflow = `
workflows:
  job: {run: 'exit "$INPUT_CODE"', input: {code: 0}%s}
schedules:
  - {run: job, cron: "0 0 1 1 *"%s}
`
	tests := []struct{ name, workflow, schedule, settings, want string }{
		{"schedule", `, on_failure: 'echo workflow >>told'`, `, on_failure: 'echo schedule >>told'`, `echo settings >>told`, "schedule"},
		{"workflow", `, on_failure: 'echo workflow >>told'`, ``, `echo settings >>told`, "workflow"},
		{"another event's", ``, `, on_recovery: 'echo schedule >>told'`, `echo settings >>told`, "settings"},
		{"settings", ``, ``, `echo settings >>told`, "settings"},
		{"none", ``, ``, ``, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newHookWorld(t, workspace(t), fmt.Sprintf(workflow, tt.workflow, tt.schedule))
			w.hooks.Settings.OnFailure = tt.settings
			w.roll(t, `{"code":1}`)
			w.roll(t, `{"code":1}`)
			if got := strings.TrimSpace(w.toldLines()); got != tt.want {
				t.Errorf("told %q, want %q", got, tt.want)
			}
		})
	}
}

// A run that is judged late, after a newer one, changes nothing.
func TestRunsThatAreJudgedLate(t *testing.T) {
	w := newHookWorld(t, workspace(t), `
workflows:
  job:
    run: 'exit "$INPUT_CODE"'
    input: {code: 0}
    on_failure: 'echo "$INPUT_EVENT $INPUT_ATTEMPTS $INPUT_FAILED_STEP" >>told'
    on_recovery: 'echo "$INPUT_EVENT" >>told'
schedules:
  - {run: job, cron: "0 0 1 1 *"}
`)
	w.roll(t, `{"code":1}`)
	rec, err := w.ws.Key("job")
	if err != nil {
		t.Fatal(err)
	}
	old, err := w.ws.Run(rec.Run)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond) // stamps are of milliseconds
	w.roll(t, `{"code":0}`)
	w.hooks.judge(w.ws, old, true)
	w.hooks.Resume(w.ws)
	w.hooks.wait.Wait()
	if got, want := w.toldLines(), "failure 1 job\nrecovery\n"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

// Slots that were missed are told with how many they were, and from when to when.
func TestMissedIsTold(t *testing.T) {
	w := newHookWorld(t, workspace(t), `
workflows:
  job: {run: 'true'}
schedules:
  - {run: job, cron: "0 0 1 1 *", on_missed: 'echo "$INPUT_EVENT $INPUT_KEY" >>told; cat "$MARBLES_INPUT_FILE" >>told'}
`)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w.hooks.Missed(w.ws, w.cat.Schedules[0], state.SlotEntry{
		From: state.Stamp{Time: at}, Slot: state.Stamp{Time: at.Add(time.Hour)}, Count: 5, Outcome: state.SlotMissed, Reason: "asleep",
	})
	w.hooks.wait.Wait()
	got := w.toldLines()
	for _, want := range []string{"missed job\n", `"count":5`, `"from":"2026-01-01T00:00:00`, `"to":"2026-01-01T01:00:00`, `"reason":"asleep"`} {
		if !strings.Contains(got, want) {
			t.Errorf("told %q, without %q", got, want)
		}
	}
}

// A monitor that launches a workflow has two rows of states: its handler's, and the workflow's.
func TestOwnersOfHooks(t *testing.T) {
	w := newHookWorld(t, workspace(t), `
workflows:
  job: {run: 'true'}
schedules:
  - {run: job, cron: "0 0 1 1 *"}
monitors:
  - {key: m, watch: 'x/*', every: 1h, start: job}
`)
	for _, tt := range []struct {
		ext  state.RunExtensions
		want string
	}{
		{state.RunExtensions{TriggerID: "job", Trigger: "schedule"}, "job"},
		{state.RunExtensions{Trigger: "manual"}, "workflow:job"},
		{state.RunExtensions{TriggerID: "m", Trigger: "launch"}, "workflow:job"},
		{state.RunExtensions{TriggerID: "m", Trigger: "restart"}, "workflow:job"},
		{state.RunExtensions{TriggerID: "m", Trigger: "monitor", Kind: kindHandler}, "m"},
	} {
		f := &state.RunFile{Run: state.Run{Step: "job", Extensions: tt.ext}}
		if got := w.hooks.owner(w.ws, f); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.ext, got, tt.want)
		}
	}
}
