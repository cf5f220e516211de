package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

func requestWorkspace(t *testing.T) *Workspace {
	t.Helper()
	root, err := Open(filepath.Join(t.TempDir(), "state"))
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
	return ws
}

func TestRequests(t *testing.T) {
	ws := requestWorkspace(t)
	run := NewRunID(time.Now())
	file := func(a Action) Request {
		q := Request{Run: run, Action: a, At: Stamp{Time: time.Now()}}
		if err := ws.Ask(q); err != nil {
			t.Fatal(err)
		}
		return q
	}
	only := func(want Action) {
		t.Helper()
		list, err := ws.Requests()
		if err != nil || len(list) != 1 || list[0].Action != want {
			t.Fatalf("%+v, %v, want %s", list, err, want)
		}
	}
	look := file(ActionLook)
	file(ActionPause)
	file(ActionLook)
	only(ActionPause)
	if err := ws.Done(look); err != nil {
		t.Fatal(err)
	}
	only(ActionPause) // another one was filed since
	cancel := file(ActionCancel)
	file(ActionResume)
	only(ActionCancel)
	before, err := ws.RequestStamp()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if err := ws.Done(cancel); err != nil {
		t.Fatal(err)
	}
	if after, err := ws.RequestStamp(); err != nil || after == before {
		t.Errorf("stamp %v, %v", after, err)
	}
	bad := filepath.Join(ws.Dir(), "requests", run+".json")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := ws.Requests(); len(list) != 0 || err == nil {
		t.Errorf("a damaged request: %v, %v", list, err)
	}
	if list, err := ws.Requests(); len(list) != 0 || err != nil {
		t.Errorf("it was not set aside: %v, %v", list, err)
	}
	for _, name := range []string{"../x", "", "a/b"} {
		if ws.Ask(Request{Run: name, Action: ActionCancel}) == nil {
			t.Errorf("a request for %q was filed", name)
		}
	}
}

// askedRun is a parked run, owned by a process that is not this one, with the questions given.
func askedRun(t *testing.T, ws *Workspace, questions ...string) string {
	t.Helper()
	f := &RunFile{Run: Run{ID: NewRunID(time.Now()), Step: "w", Status: Suspended}}
	for i, q := range questions {
		f.Suspensions = append(f.Suspensions, Suspension{
			ID: "su-" + q[:1], RunID: f.Run.ID, Kind: SuspendInput, Name: []string{"one", "two"}[i], Status: Pending, Request: jsontext.Value(q[1:]),
		})
	}
	if err := ws.CreateRun(f); err != nil {
		t.Fatal(err)
	}
	err := ws.EditRun(t.Context(), f.Run.ID, nil, func(f *RunFile) error {
		f.PID, f.StartTicks = 7, 7
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f.Run.ID
}

func TestAnswerRun(t *testing.T) {
	const choice = `a{"title":"T","choices":["a","b"],"mode":"question"}`
	const free = `b{"title":"T","choices":[],"mode":"question"}`
	const approval = `c{"title":"T","choices":[],"mode":"approval"}`
	const past = `d{"title":"T","choices":[],"mode":"question","deadline":"2020-01-01T00:00:00.000Z"}`
	tests := map[string]struct {
		questions []string
		step      string
		a         Answer
		want      string
	}{
		"a choice":          {[]string{choice}, "", Answer{Answer: "b"}, ""},
		"no choice":         {[]string{choice}, "", Answer{Answer: "c"}, "Choose one of: a, b"},
		"nothing":           {[]string{free}, "", Answer{Answer: " "}, "An answer is required."},
		"approval":          {[]string{approval}, "", Answer{Answer: "yes"}, "Choose one of: approve, reject"},
		"a long note":       {[]string{approval}, "", Answer{Answer: "approve", Note: strings.Repeat("ä", 2001)}, "a note has at most 2000 characters; this one has 2001"},
		"a note":            {[]string{approval}, "", Answer{Answer: "reject", Note: strings.Repeat("ä", 2000)}, ""},
		"past its deadline": {[]string{past}, "", Answer{Answer: "x"}, "This question is no longer waiting for an answer."},
		"which of two":      {[]string{choice, free}, "", Answer{Answer: "a"}, "asks 2 questions, in the steps one, two"},
		"this of two":       {[]string{choice, free}, "two", Answer{Answer: "x"}, ""},
		"another step":      {[]string{choice}, "two", Answer{Answer: "a"}, "This question is no longer waiting for an answer."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ws := requestWorkspace(t)
			run := askedRun(t, ws, tt.questions...)
			_, err := ws.AnswerRun(t.Context(), run, tt.step, tt.a)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			f, err := ws.Run(run)
			if err != nil || f.PID != 7 || len(f.Open()) != len(tt.questions)-map[bool]int{true: 1}[tt.want == ""] {
				t.Errorf("%v, pid %d, open %d", err, f.PID, len(f.Open()))
			}
			if _, err := ws.AnswerRun(t.Context(), run, "one", tt.a); tt.want == "" && tt.step == "" && !errors.Is(err, ErrAnswered) {
				t.Errorf("answered twice: %v", err)
			}
		})
	}
}

// Of many that edit a run at once none is lost.
func TestEditRun(t *testing.T) {
	ws := requestWorkspace(t)
	run := askedRun(t, ws, `1{}`)
	var wg sync.WaitGroup
	const n = 20
	for range n {
		wg.Go(func() {
			err := ws.EditRun(t.Context(), run, nil, func(f *RunFile) error {
				f.Steps = append(f.Steps, StepRecord{Name: "s", Status: Complete})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f, err := ws.Run(run); err != nil || len(f.Steps) != n || f.PID != 7 {
		t.Errorf("%d steps, pid %d, %v", len(f.Steps), f.PID, err)
	}
}

// A settled run that goes on is one that has not settled, whatever the lists knew.
func TestReopenRun(t *testing.T) {
	ws := requestWorkspace(t)
	f := &RunFile{Run: Run{ID: NewRunID(time.Now()), Step: "w", Status: Failed, Timestamps: RunTimes{CreatedAt: 1, FailedAt: 2}}}
	if err := ws.CreateRun(f); err != nil {
		t.Fatal(err)
	}
	if files, _, err := ws.Unsettled(); err != nil || len(files) != 0 {
		t.Fatal(files, err)
	}
	f.Run.Status = Queued
	if err := ws.ReopenRun(f); err != nil {
		t.Fatal(err)
	}
	if files, _, err := ws.Unsettled(); err != nil || len(files) != 1 {
		t.Error(files, err)
	}
}
