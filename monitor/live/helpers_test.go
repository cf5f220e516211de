package live

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everything is a tree of all directories below root, save those called "skip".
func everything(root string) Tree {
	return Tree{Name: "**", Root: root, Dirs: func(ctx context.Context, under string, yield func(Dir) bool) {
		root, err := filepath.EvalSymlinks(root)
		if err != nil {
			return
		}
		_ = filepath.WalkDir(filepath.Join(root, under), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil
			}
			if d.Name() == "skip" {
				return fs.SkipDir
			}
			rel, _ := filepath.Rel(root, path)
			if rel == "." {
				rel = ""
			}
			if !yield(Dir{Path: rel}) {
				return fs.SkipAll
			}
			return nil
		})
	}}
}

// lines keeps the messages of a log with their level.
type lines struct {
	mu  sync.Mutex
	got []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String()
	r.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, text)
	return nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.got...)
}

// quick is a hub that gathers events for less time, so that tests wait less.
func quick(log *lines) *Hub {
	h := New(nil)
	if log != nil {
		h = New(slog.New(log))
	}
	h.pace.gather = 10 * time.Millisecond
	return h
}

// listener counts hints.
type listener struct {
	t     testing.TB
	hints chan struct{}
	stop  func()
}

func listen(t testing.TB, h *Hub, tree Tree) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{t: t, hints: make(chan struct{}, 10_000)}
	var done sync.WaitGroup
	done.Go(func() { h.Watch(ctx, tree, func() { l.hints <- struct{}{} }) })
	l.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(l.stop)
	l.expect("the first hint")
	return l
}

// expect waits for a hint. How long it took stands in the log of a verbose test.
func (l *listener) expect(what string) {
	l.t.Helper()
	began := time.Now()
	select {
	case <-l.hints:
		l.t.Logf("%s: after %s", what, time.Since(began).Round(time.Millisecond))
	case <-time.After(10 * time.Second):
		l.t.Fatalf("no hint for %s", what)
	}
}

// quiet lets what is under way end, and forgets its hints.
func (l *listener) quiet() {
	for {
		select {
		case <-l.hints:
		case <-time.After(80 * time.Millisecond):
			return
		}
	}
}

func (l *listener) none(what string) {
	l.t.Helper()
	select {
	case <-l.hints:
		l.t.Fatalf("a hint for %s", what)
	case <-time.After(80 * time.Millisecond):
	}
}

func put(t testing.TB, elem ...string) {
	t.Helper()
	path := filepath.Join(elem...)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(t, err)
	_, err = f.WriteString("x")
	must(t, err)
	must(t, f.Close())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
