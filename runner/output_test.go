package runner

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// also gets what runs put out, by step and stream.
type also struct {
	mu   sync.Mutex
	got  map[string]string
	open map[string]bool
}

type alsoStream struct {
	a    *also
	name string
}

func (s alsoStream) Write(b []byte) (int, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.got[s.name] += string(b)
	return len(b), nil
}

func (s alsoStream) Close() error {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	delete(s.a.open, s.name)
	return nil
}

// TestOutputGoesElsewhereToo: all of it, with its secrets masked, also what the journal has no room for.
func TestOutputGoesElsewhereToo(t *testing.T) {
	ws := newWorkspace(t)
	a := &also{got: map[string]string{}, open: map[string]bool{}}
	w := newWorker(t, Options{OutputLimit: 10, Output: func(s Stream) io.WriteCloser {
		a.mu.Lock()
		defer a.mu.Unlock()
		name := s.Workspace.ID() + " " + s.Key + " " + s.Step + " " + s.Name
		a.open[name] = true
		return alsoStream{a, name}
	}})
	wf := shell("say", `echo "the token is $TOKEN"; seq 1000; printf 'no end' >&2`)
	wf.Secrets = []Secret{{Name: "TOKEN", From: "a test", Read: func() (string, error) { return "s3cr3t-value", nil }}}
	res := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual", Key: "k"}).Wait()
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	out, errs := a.got[ws.ID()+" k say stdout"], a.got[ws.ID()+" k say stderr"]
	if !strings.HasPrefix(out, "the token is ***\n1\n2\n") || !strings.HasSuffix(out, "\n999\n1000\n") || strings.Contains(out, "s3cr3t") {
		t.Errorf("stdout is %.100q… (%d bytes)", out, len(out))
	}
	if errs != "no end" {
		t.Errorf("stderr is %q", errs)
	}
	if len(a.open) > 0 {
		t.Errorf("these were not closed: %v", a.open)
	}
}

// TestLogOfARunNamesIt: what is said of a run has the attributes that the journal is asked by.
func TestLogOfARunNamesIt(t *testing.T) {
	ws := newWorkspace(t)
	var buf bytes.Buffer
	w := newWorker(t, Options{Log: slog.New(slog.NewJSONHandler(&buf, nil))})
	wf := &Workflow{Name: "w", Steps: []Step{{Name: "w", Call: func(context.Context, Call) (jsontext.Value, error) { panic("oh") }}}}
	res := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual", Key: "k"}).Wait()
	if res.Err() == nil {
		t.Fatal("a step that panics completes")
	}
	for line := range strings.Lines(buf.String()) {
		var record struct {
			Run       string `json:"run"`
			Key       string `json:"key"`
			Workspace string `json:"workspace"`
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatal(err)
		}
		if record.Run != res.RunID || record.Key != "k" || record.Workspace != ws.ID() {
			t.Errorf("a record of run %s of %s is %s", res.RunID, ws.ID(), line)
		}
	}
	if buf.Len() == 0 {
		t.Error("a panic is not logged")
	}
}
