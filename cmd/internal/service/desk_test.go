package service

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/runner"
	"marbles/state"
)

// syncBuffer is a log that several goroutines write.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// world is a project with a state root, and the dispatcher of a process that serves it.
type world struct {
	t    *testing.T
	dir  string
	root *state.Root
	ws   *state.Workspace
	log  *syncBuffer

	desk   *Dispatcher
	target Target
}

// newWorld makes a project with these definitions.
func newWorld(t *testing.T, definitions string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), log: &syncBuffer{}}
	var err error
	if w.root, err = state.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	w.define(definitions)
	w.restart()
	return w
}

// define replaces the definitions. They are in force from the next restart or load.
func (w *world) define(definitions string) {
	w.write(".foundry/marbles/jobs.yaml", definitions)
	w.load()
}

func (w *world) load() {
	w.t.Helper()
	source, err := catalog.Locate("", w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := catalog.Load([]catalog.Source{source}, catalog.Options{Now: time.Now(), Local: time.UTC})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.ws == nil {
		if w.ws, err = w.root.Workspace(c.Sources[0].Workspace); err != nil {
			w.t.Fatal(err)
		}
		if err := w.ws.Register(nil, time.Now()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.target = Target{Workspace: w.ws, Catalog: c}
}

// restart ends the process that serves, as a test can, and begins another that reads everything anew.
func (w *world) restart() {
	w.t.Helper()
	if w.desk != nil {
		w.stop(w.desk)
	}
	w.load()
	w.desk = w.process()
}

// process is a further process on the same state.
func (w *world) process() *Dispatcher {
	d := &Dispatcher{
		Worker: runner.New(runner.Options{
			Concurrency: 2, Grace: time.Second, Env: []string{"PATH=" + os.Getenv("PATH")}, TempDir: w.t.TempDir(),
			Log: slog.New(slog.NewTextHandler(w.log, nil)),
		}),
		Log:      slog.New(slog.NewTextHandler(w.log, nil)),
		Local:    func() *time.Location { return time.UTC },
		Launched: func(*state.Workspace, string, runner.Result) {},
	}
	w.t.Cleanup(func() { w.stop(d) })
	return d
}

func (w *world) stop(d *Dispatcher) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := d.Worker.Drain(ctx); err != nil {
		w.t.Error(err)
	}
	d.Wait()
}

func (w *world) monitor(key string) *catalog.Monitor {
	w.t.Helper()
	m := w.target.Catalog.Monitor(key)
	if m == nil {
		w.t.Fatalf("there is no monitor %q", key)
	}
	return m
}

// poll does one tick of a monitor, whatever its cadence says.
func (w *world) poll(key string) runner.TickResult {
	w.t.Helper()
	return w.desk.Monitor(w.t.Context(), w.target, w.monitor(key), Firing{Hint: true})
}

// roll does one by hand.
func (w *world) roll(key string) runner.TickResult {
	w.t.Helper()
	return w.desk.Monitor(w.t.Context(), w.target, w.monitor(key), Firing{})
}

// good polls and fails the test where the tick failed.
func (w *world) good(key string) runner.TickResult {
	w.t.Helper()
	res := w.poll(key)
	if res.Err != nil {
		w.t.Fatalf("tick of %s: %v", key, res.Err)
	}
	return res
}

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// read is a file of the project, "" where there is none.
func (w *world) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(w.dir, name))
	return string(data)
}

// lines are those of a file of the project.
func (w *world) lines(name string) []string {
	return strings.Split(strings.TrimSuffix(w.read(name), "\n"), "\n")
}

// count is how many lines it has.
func (w *world) count(name string) int { return strings.Count(w.read(name), "\n") }

func (w *world) health(key string) *state.Health {
	w.t.Helper()
	h, err := w.ws.Health(key)
	if err != nil {
		w.t.Fatal(err)
	}
	if h == nil {
		h = &state.Health{}
	}
	return h
}

func (w *world) record(key string) *state.MonitorRecord {
	w.t.Helper()
	rec, err := w.ws.Monitor(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return rec
}

// page is a page of an HTTP server that tests change.
type page struct {
	*httptest.Server

	mu      sync.Mutex
	status  int
	body    string
	header  map[string]string
	got     int  // requests
	hang    bool // requests are not answered
	release chan struct{}
}

func serve(t *testing.T) *page {
	p := &page{status: 200, body: "v1", release: make(chan struct{})}
	p.Server = httptest.NewServer(p)
	t.Cleanup(func() { close(p.release); p.Close() })
	return p
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.got++
	status, body, hang := p.status, p.body, p.hang
	for k, v := range p.header {
		w.Header().Set(k, v)
	}
	p.mu.Unlock()
	if hang {
		select {
		case <-r.Context().Done():
		case <-p.release:
		}
		return
	}
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

func (p *page) set(status int, body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.body = status, body
}

func (p *page) head(name, value string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.header = map[string]string{name: value}
}

func (p *page) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

// told makes a handler that appends what MARBLES_CHANGE_FILE holds, as one line.
func told(name string) string {
	return fmt.Sprintf(`tr -d '\n' < "$MARBLES_CHANGE_FILE" >> %[1]s; echo >> %[1]s`, name)
}
