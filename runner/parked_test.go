package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// question is the suspension of a step that asks.
func question(name, members string) state.Suspension {
	return state.Suspension{
		ID: "su-" + name, Kind: state.SuspendInput, Name: name, Status: state.Pending, StepPath: []string{"job", name},
		Request: jsontext.Value(`{"title":"Publish?","choices":["a","b"],"mode":"question"` + members + `}`),
	}
}

func until(name string, at time.Time) state.Suspension {
	return state.Suspension{
		ID: "su-" + name, Kind: state.SuspendWait, Name: name, Status: state.Pending, StepPath: []string{"job", name},
		Request: jsontext.Value(`{"until":"` + at.UTC().Format("2006-01-02T15:04:05.000Z") + `"}`),
	}
}

// parkedFile is a run of the workflow "job" that a dead process left parked.
func parkedFile(t testing.TB, ws *state.Workspace, suspensions ...state.Suspension) *state.RunFile {
	t.Helper()
	return deadFile(t, ws, state.Suspended, func(f *state.RunFile) {
		f.Run.Step = "job"
		for i := range suspensions {
			suspensions[i].RunID = f.Run.ID
		}
		f.Suspensions = suspensions
		noteWaits(f)
	})
}

// deadFile is a run file of a dead process, changed.
func deadFile(t testing.TB, ws *state.Workspace, status state.Status, change func(f *state.RunFile)) *state.RunFile {
	t.Helper()
	f := deadRun(t, ws, state.Running, func(*state.RunFile) {})
	must(t, ws.EditRun(t.Context(), f.Run.ID, nil, func(f *state.RunFile) error {
		f.Run.Status = status
		change(f)
		return nil
	}))
	return runFile(t, ws, f.Run.ID)
}

// keeper is a worker that keeps parked runs, and what it logs.
func keeper(t testing.TB, wf *Workflow, change func(o *Options)) (*Worker, *safeBuffer) {
	t.Helper()
	log := &safeBuffer{}
	o := Options{
		Parks: true, Log: slog.New(slog.NewTextHandler(log, nil)),
		Workflow: func(_ *state.Workspace, name string) *Workflow {
			if wf == nil || name != wf.Name {
				return nil
			}
			return wf
		},
	}
	if change != nil {
		change(&o)
	}
	return newWorker(t, o), log
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// becomes waits until a run has a status.
func becomes(t testing.TB, ws *state.Workspace, id string, status state.Status) *state.RunFile {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		f, err := ws.Run(id)
		if err != nil {
			t.Fatal(err)
		}
		if f.Run.Status == status {
			return f
		}
		if time.Now().After(end) {
			t.Fatalf("run is %s (%+v), want %s", f.Run.Status, f.Run.Error, status)
		}
	}
}

func TestAdopt(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, ws *state.Workspace, f *state.RunFile)
		wf      *Workflow
		want    string
		adopted bool
	}{
		"all four hold": {wf: shell("job", "true"), want: "[run] job recovered ", adopted: true},
		"not defined":   {want: "run is suspended; nothing here can resume it"},
		"owner lives": {
			prepare: func(t *testing.T, ws *state.Workspace, f *state.RunFile) {
				must(t, ws.EditRun(t.Context(), f.Run.ID, nil, func(f *state.RunFile) error {
					f.PID, f.BootID, f.StartTicks = os.Getppid(), "", 0
					return nil
				}))
			},
			wf: shell("job", "true"), want: fmt.Sprintf("run is suspended in pid %d", os.Getppid()),
		},
		"lock is busy": {
			prepare: func(t *testing.T, ws *state.Workspace, f *state.RunFile) {
				lock, err := ws.TryLock("run-" + f.Run.ID)
				must(t, err)
				t.Cleanup(func() { _ = lock.Release() })
			},
			wf: shell("job", "true"), want: fmt.Sprintf("run is suspended in pid %d", os.Getpid()),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t)
			f := parkedFile(t, ws, question("ask", ""))
			if tt.prepare != nil {
				tt.prepare(t, ws, f)
			}
			path := filepath.Join(ws.Dir(), "runs", f.Run.ID+".json")
			before, _ := os.ReadFile(path)
			w, log := keeper(t, tt.wf, nil)
			must(t, w.Adopt(t.Context(), ws))
			if got := log.String(); !strings.Contains(got, tt.want) {
				t.Errorf("log %s, want %s", got, tt.want)
			}
			after, _ := os.ReadFile(path)
			now, err := ws.Run(f.Run.ID)
			must(t, err)
			if tt.adopted != (now.Owner() == state.Self()) || !tt.adopted && !bytes.Equal(before, after) {
				t.Errorf("owner %+v, adopted %v; unchanged %v", now.Owner(), tt.adopted, bytes.Equal(before, after))
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnswer(t *testing.T) {
	ws := newWorkspace(t)
	f := parkedFile(t, ws, question("ask", ""))
	var settled sync.Map
	w, _ := keeper(t, shell("job", `echo '"done"' > $MARBLES_RESULT_FILE`), func(o *Options) {
		o.Settled = func(_ *state.Workspace, f *state.RunFile) {
			if _, twice := settled.LoadOrStore(f.Run.ID, true); twice {
				t.Error("told twice")
			}
		}
	})
	must(t, w.Adopt(t.Context(), ws))
	for answer, want := range map[string]string{"c": "Choose one of: a, b", "": "Choose one of: a, b"} {
		if _, err := ws.AnswerRun(t.Context(), f.Run.ID, "", state.Answer{Answer: answer}); err == nil || err.Error() != want {
			t.Errorf("answer %q: %v, want %s", answer, err, want)
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = ws.AnswerRun(t.Context(), f.Run.ID, "", state.Answer{Answer: "a", By: "u"}) })
	}
	wg.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else if !errors.Is(err, state.ErrAnswered) {
			t.Error(err)
		}
	}
	if taken != 1 {
		t.Errorf("%d answers were taken", taken)
	}
	got := becomes(t, ws, f.Run.ID, state.Complete)
	a, err := got.Suspensions[0].Answer()
	if err != nil || a.Answer != "a" || a.By != "u" {
		t.Errorf("answer %+v, %v", a, err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if list, err := ws.Requests(); err == nil && len(list) == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("requests are left: %v, %v", list, err)
		}
	}
}

// Whoever answers a run of a dead process without a service goes on with it, and only one does.
func TestContinue(t *testing.T) {
	ws := newWorkspace(t)
	dir := t.TempDir()
	wf := shell("job", "echo x >> "+dir+"/ran; sleep 0.1")
	f := parkedFile(t, ws, question("ask", ""))
	_, err := ws.AnswerRun(t.Context(), f.Run.ID, "", state.Answer{Answer: "a"})
	must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		w, _ := keeper(t, wf, func(o *Options) { o.Parks = false })
		wg.Go(func() {
			if r, err := w.Continue(ws, f.Run.ID, nil); err == nil {
				r.Wait()
			}
		})
	}
	wg.Wait()
	becomes(t, ws, f.Run.ID, state.Complete)
	if ran, _ := os.ReadFile(filepath.Join(dir, "ran")); string(ran) != "x\n" {
		t.Errorf("it ran %q", ran)
	}
}

func TestDue(t *testing.T) {
	past, far := time.Now().Add(-time.Hour), time.Now().Add(1000*time.Hour)
	stamp := past.UTC().Format("2006-01-02T15:04:05.000Z")
	tests := map[string]struct {
		s    state.Suspension
		by   string
		want state.Status
	}{
		"default":        {s: question("ask", `,"deadline":"`+stamp+`","default":"b"`), by: "default", want: state.Complete},
		"no default":     {s: question("ask", `,"deadline":"`+stamp+`"`), by: "deadline", want: state.Complete},
		"the clock went": {s: until("nap", past), want: state.Complete},
		"a far wait":     {s: until("nap", far), want: state.Suspended},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t)
			f := parkedFile(t, ws, tt.s)
			w, _ := keeper(t, shell("job", "true"), nil)
			must(t, w.Adopt(t.Context(), ws))
			w.lookRound(time.Now().Round(0))
			got := becomes(t, ws, f.Run.ID, tt.want)
			if a, _ := got.Suspensions[0].Answer(); tt.by != "" && (a == nil || a.By != tt.by) {
				t.Errorf("answer %+v", a)
			}
		})
	}
}

// A pause keeps a run from going on whatever is answered; a resume, and nothing else, ends it.
func TestPauseParked(t *testing.T) {
	ws := newWorkspace(t)
	f := parkedFile(t, ws, question("ask", ""))
	w, _ := keeper(t, shell("job", "true"), nil)
	must(t, w.Adopt(t.Context(), ws))
	pause := state.Request{Run: f.Run.ID, Action: state.ActionPause, Reason: "not now"}
	must(t, w.actParked(t.Context(), ws, pause))
	_, err := ws.AnswerRun(t.Context(), f.Run.ID, "", state.Answer{Answer: "a"})
	must(t, err)
	must(t, w.look(t.Context(), ws, f.Run.ID))
	if now, _ := ws.Run(f.Run.ID); now.Run.Status != state.Suspended {
		t.Fatalf("a paused run is %s", now.Run.Status)
	}
	must(t, ws.Ask(state.Request{Run: f.Run.ID, Action: state.ActionResume}))
	becomes(t, ws, f.Run.ID, state.Complete)
}

func TestCancelParked(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, ws *state.Workspace, q state.Request){
		"by its owner": func(t *testing.T, ws *state.Workspace, q state.Request) {
			w, _ := keeper(t, shell("job", "true"), nil)
			must(t, w.Adopt(t.Context(), ws))
			must(t, ws.Ask(q))
			becomes(t, ws, q.Run, state.Cancelled)
		},
		"not defined any more": func(t *testing.T, ws *state.Workspace, q state.Request) {
			w, _ := keeper(t, nil, nil)
			must(t, w.Adopt(t.Context(), ws))
			must(t, ws.Ask(q))
			becomes(t, ws, q.Run, state.Cancelled)
		},
		"without a service": func(t *testing.T, ws *state.Workspace, q state.Request) {
			w, _ := keeper(t, shell("job", "true"), func(o *Options) { o.Parks = false })
			must(t, ws.Ask(q))
			r, err := w.ActOn(t.Context(), ws, q)
			if err != nil || r != nil {
				t.Fatal(r, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t)
			f := parkedFile(t, ws, question("ask", ""))
			do(t, ws, state.Request{Run: f.Run.ID, Action: state.ActionCancel, Reason: "no longer wanted", At: state.Stamp{Time: time.Now()}})
			got := becomes(t, ws, f.Run.ID, state.Cancelled)
			if got.Run.Error.Message != "no longer wanted" || got.Suspensions[0].Status != state.NoLongerOpen {
				t.Errorf("%+v, %+v", got.Run.Error, got.Suspensions[0])
			}
		})
	}
}

// A run at work is cancelled by a request of another process.
func TestCancelByRequest(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	r := start(t, w, Launch{Workspace: ws, Workflow: shell("job", "exec sleep 30")})
	must(t, ws.Ask(state.Request{Run: r.ID(), Action: state.ActionCancel, Reason: "enough"}))
	if res := r.Wait(); res.Status != state.Cancelled || res.Error.Message != "enough" {
		t.Errorf("%+v", res)
	}
}

func TestRetry(t *testing.T) {
	ws := newWorkspace(t)
	dir := t.TempDir()
	w := newWorker(t, Options{})
	wf := shell("job", "echo x >> "+dir+"/ran; test -e "+dir+"/ok")
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	if res := r.Wait(); res.Status != state.Failed {
		t.Fatalf("%+v", res)
	}
	f, err := ws.Run(r.ID())
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ok"), nil, 0o600))
	again, err := w.Retry(t.Context(), ws, f, Launch{Workflow: wf, Trigger: "manual"}, false)
	must(t, err)
	if res := again.Wait(); res.Status != state.Complete || res.RunID != r.ID() {
		t.Fatalf("%+v", res)
	}
	f = becomes(t, ws, r.ID(), state.Complete)
	if f.Run.Error != nil || f.Run.Timestamps.FailedAt != 0 || f.Marbles.Attempt != 1 {
		t.Errorf("%+v", f.Run)
	}
	starts := 0
	must(t, ws.ReadJournal(r.ID(), func(e state.Entry) error {
		if e.Kind == "start" {
			starts++
		}
		return nil
	}))
	if starts != 2 {
		t.Errorf("the journal has %d starts", starts)
	}
	if _, err := w.Retry(t.Context(), ws, f, Launch{Workflow: wf}, false); err == nil {
		t.Error("a complete run was retried")
	}
	whole, err := w.Retry(t.Context(), ws, f, Launch{Workflow: wf}, true)
	must(t, err)
	whole.Wait()
	if n := becomes(t, ws, whole.ID(), state.Complete); n.Run.Extensions.RetryOf != r.ID() {
		t.Errorf("%+v", n.Run.Extensions)
	}
}

// The restart of an interrupted run is asked for once, whoever dies between its writes.
func TestRestartOnce(t *testing.T) {
	ws := newWorkspace(t)
	f := deadFile(t, ws, state.Running, func(f *state.RunFile) { f.Run.Step, f.Run.Extensions.Kind = "job", kindWorkflow })
	j, err := ws.OpenJournal(f.Run.ID, "job", time.Now())
	must(t, err)
	must(t, j.Spawning(time.Now(), "job", nil))
	must(t, j.Close())
	wf := shell("job", "true")
	wf.OnInterrupt = InterruptRestart
	dead, _ := keeper(t, wf, nil)
	must(t, dead.restart(ws, f)) // and then its process died, before it wrote the file
	w, _ := keeper(t, wf, nil)
	for range 3 {
		if _, err := w.Recover(t.Context(), ws); err != nil {
			t.Fatal(err)
		}
	}
	list, err := ws.Requests()
	must(t, err)
	got := becomes(t, ws, f.Run.ID, state.Failed)
	if len(list) != 1 || list[0].Of != f.Run.ID || got.Run.Extensions.Restarted != list[0].Run {
		t.Errorf("requests %+v, run %+v", list, got.Run.Extensions)
	}
}

func TestOverlapParked(t *testing.T) {
	slot := time.Now().Truncate(time.Minute)
	prepare := func(t *testing.T) (*state.Workspace, *state.RunFile) {
		ws := newWorkspace(t)
		f := deadFile(t, ws, state.Suspended, func(f *state.RunFile) {
			f.Run.Step, f.Run.Extensions.TriggerID, f.Run.Extensions.Trigger = "job", "k", "schedule"
			f.Run.Extensions.Slot = state.Stamp{Time: slot.Add(-time.Minute)}
			s := question("ask", "")
			s.RunID = f.Run.ID
			f.Suspensions = []state.Suspension{s}
			noteWaits(f)
		})
		at := state.Stamp{Time: slot.Add(-time.Minute)}
		must(t, ws.WriteKey("k", &state.KeyRecord{Kind: state.KindSchedule, LastStart: at, Slot: at, Run: f.Run.ID}))
		return ws, f
	}
	wf := shell("job", "true")
	t.Run("skip", func(t *testing.T) {
		ws, f := prepare(t)
		w, _ := keeper(t, wf, nil)
		res := w.Tick(t.Context(), schedule(w, ws, slot, wf))
		want := "run " + f.Run.ID + ` waits for an answer to "Publish?"`
		if res.Outcome != state.SlotSkipped || res.Reason != want || res.Result.RunID != f.Run.ID || res.Err != nil {
			t.Errorf("%+v", res)
		}
		noLocks(t, ws)
	})
	t.Run("replace", func(t *testing.T) {
		ws, f := prepare(t)
		w, _ := keeper(t, wf, nil)
		must(t, w.Adopt(t.Context(), ws))
		tick := schedule(w, ws, slot, wf)
		tick.Overlap = OverlapReplace
		if res := w.Tick(t.Context(), tick); res.Outcome != state.SlotRan || res.Err != nil {
			t.Errorf("%+v", res)
		}
		becomes(t, ws, f.Run.ID, state.Cancelled)
	})
	t.Run("queue", func(t *testing.T) {
		ws, f := prepare(t)
		late := make(chan string, 1)
		w, _ := keeper(t, wf, func(o *Options) {
			o.Late = func(_ *state.Workspace, key string, f *state.RunFile) { late <- f.Run.ID }
		})
		must(t, w.Adopt(t.Context(), ws))
		tick := schedule(w, ws, slot, wf)
		tick.Overlap = OverlapQueue
		done := make(chan TickResult, 1)
		go func() { done <- w.Tick(context.Background(), tick) }() // received below
		select {
		case res := <-done:
			t.Fatalf("it did not wait: %+v", res)
		case <-time.After(300 * time.Millisecond):
		}
		_, err := ws.AnswerRun(t.Context(), f.Run.ID, "", state.Answer{Answer: "a"})
		must(t, err)
		if res := <-done; res.Outcome != state.SlotRan || res.Err != nil {
			t.Errorf("%+v", res)
		}
		if id := <-late; id != f.Run.ID {
			t.Errorf("late %s", id)
		}
	})
}

// Parked runs cost next to nothing while they wait.
func TestManyParked(t *testing.T) {
	ws := newWorkspace(t)
	w, _ := keeper(t, shell("job", "true"), nil)
	const n = 2000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	far := time.Now().Add(time.Hour)
	for i := range n {
		f := &state.RunFile{Suspensions: []state.Suspension{until("nap", far)}}
		f.Run.ID = fmt.Sprintf("rn-%026d", i)
		w.keep(ws, f, nil)
	}
	if each := (int64(heap()) - int64(before)) / n; each > 1024 {
		t.Errorf("%d bytes each", each)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 1 {
		t.Errorf("%d goroutines more", more)
	}
}
