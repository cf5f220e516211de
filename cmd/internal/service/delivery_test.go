package service

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"marbles/runner"
	"marbles/state"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// committed is the digest of a file in the committed observation.
func (w *world) committed(key, file string) string {
	w.t.Helper()
	rec := w.record(key)
	if rec == nil {
		return ""
	}
	return rec.Files[file]
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

// What changes while the handler runs is a new change, one, however often it changed; what is committed is what the
// handler saw.
func TestChangeWhileTheHandlerRuns(t *testing.T) {
	w := newWorld(t, `monitors:
  - key: m
    watch: in/*
    every: 1h
    baseline: silent
    do: 'touch begun; while [ ! -e go ]; do sleep 0.02; done; echo >> runs'
`)
	w.write("in/f", "v0")
	w.good("m")
	w.write("in/f", "v1")
	done := make(chan runner.TickResult)
	go func() { done <- w.poll("m") }()
	until(t, "the handler runs", func() bool { return w.read("begun") == "" && exists(w, "begun") })
	for i := range 20 {
		w.write("in/f", fmt.Sprint("v2-", i))
	}
	if got := w.committed("m", "in/f"); got != digest("v0") {
		t.Errorf("while the handler runs %s is committed", got)
	}
	w.write("go", "")
	if res := <-done; res.Err != nil {
		t.Fatal(res.Err)
	}
	if got := w.committed("m", "in/f"); got != digest("v1") {
		t.Errorf("committed is %s, want the digest of v1", got)
	}
	for range 3 {
		w.good("m")
	}
	if got := w.count("runs"); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
	if got := w.committed("m", "in/f"); got != digest("v2-19") {
		t.Errorf("committed is %s, want the digest of the last write", got)
	}
}

func exists(w *world, name string) bool {
	_, err := os.Stat(filepath.Join(w.dir, name))
	return err == nil
}

// A change is offered until its handler succeeded; one that is gone by then is none.
func TestChangeIsOfferedUntilItIsHandled(t *testing.T) {
	w := newWorld(t, `monitors:
  - key: m
    watch: in/*
    every: 1h
    baseline: silent
    do: 'echo >> runs; test -e well'
`)
	w.write("in/f", "v1")
	w.good("m")
	w.write("in/f", "v2")
	for i := range 3 {
		if res := w.poll("m"); res.Err == nil || w.count("runs") != i+1 || w.committed("m", "in/f") != digest("v1") {
			t.Fatalf("look %d: %v, %d runs, committed %s", i, res.Err, w.count("runs"), w.committed("m", "in/f"))
		}
	}
	w.restart()
	w.poll("m")
	if got := w.count("runs"); got != 4 {
		t.Errorf("%d runs after a restart, want 4", got)
	}
	w.write("in/f", "v1")
	w.good("m")
	if got := w.count("runs"); got != 4 {
		t.Errorf("%d runs: what went back is no change", got)
	}
	w.write("in/f", "v2")
	w.write("well", "")
	w.good("m")
	w.good("m")
	if got := w.count("runs"); got != 5 || w.committed("m", "in/f") != digest("v2") {
		t.Errorf("%d runs, want 5; committed %s", got, w.committed("m", "in/f"))
	}
}

const launching = `workflows:
  work:
    run: 'tr -d " \n" < "$MARBLES_INPUT_FILE" >> done; echo >> done'
monitors:
  - key: m
    watch: in/*
    every: 1h
    baseline: silent
    start: work
`

// The crashes between what asks for a launch and what acknowledges it.
func TestPendingLaunchStartsOnce(t *testing.T) {
	settled := func(w *world, id string) *state.RunFile {
		until(t, "the launch has ended", func() bool {
			f, err := w.ws.Run(id)
			return err == nil && f.Run.Status.Settled()
		})
		f, _ := w.ws.Run(id)
		return f
	}
	t.Run("before its start", func(t *testing.T) {
		w := newWorld(t, launching)
		w.write("in/f", "v1")
		w.good("m")
		rec := w.record("m")
		id := state.NewRunID(time.Now())
		rec.Files["in/f"] = digest("v2")
		rec.Pending = &state.PendingLaunch{Workflow: "work", Input: jsontext.Value(`{"a":1}`), Run: id}
		if err := w.ws.WriteMonitor("m", rec); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.write("in/f", "v1") // a launch that is pending is not withdrawn
		if res := w.good("m"); res.Quiet {
			t.Errorf("%+v", res)
		}
		if f := settled(w, id); f.Run.Status != state.Complete {
			t.Errorf("run: %+v", f.Run)
		}
		if got := w.record("m"); got.Pending != nil || got.Files["in/f"] != digest("v2") {
			t.Errorf("after it: %+v", got)
		}
		w.restart()
		w.good("m") // v1 is a change from v2 now
		until(t, "the next launch", func() bool { return w.count("done") == 2 })
	})
	t.Run("after its start", func(t *testing.T) {
		w := newWorld(t, launching)
		w.write("in/f", "v1")
		w.good("m")
		w.write("in/f", "v2")
		w.good("m")
		until(t, "the launch", func() bool { return w.count("done") == 1 })
		rec := w.record("m")
		list, err := w.ws.Runs(state.RunQuery{})
		if err != nil || len(list.Runs) != 1 {
			t.Fatal(list, err)
		}
		rec.Pending = &state.PendingLaunch{Workflow: "work", Input: jsontext.Value("null"), Run: list.Runs[0].ID}
		if err := w.ws.WriteMonitor("m", rec); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.good("m")
		w.restart()
		if got := w.count("done"); got != 1 {
			t.Errorf("it was started %d times", got)
		}
		if got := w.record("m"); got.Pending != nil {
			t.Errorf("it is still pending: %+v", got.Pending)
		}
	})
	t.Run("target gone", func(t *testing.T) {
		w := newWorld(t, launching)
		w.write("in/f", "v1")
		w.good("m")
		rec := w.record("m")
		rec.Pending = &state.PendingLaunch{Workflow: "gone", Input: jsontext.Value("null"), Run: state.NewRunID(time.Now())}
		if err := w.ws.WriteMonitor("m", rec); err != nil {
			t.Fatal(err)
		}
		if res := w.poll("m"); res.Err == nil || !strings.Contains(res.Err.Error(), `launch target "gone" is not registered`) {
			t.Errorf("%v", res.Err)
		}
		w.good("m")
		if got := w.record("m"); got.Pending != nil {
			t.Errorf("it is still pending: %+v", got.Pending)
		}
	})
	t.Run("cannot start", func(t *testing.T) {
		w := newWorld(t, launching)
		w.write("in/f", "v1")
		w.good("m")
		w.write("in/f", "v2")
		runs := filepath.Join(w.ws.Dir(), "runs")
		if err := fsErrors(os.Rename(runs, runs+"-away"), os.WriteFile(runs, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if res := w.poll("m"); res.Err == nil || w.record("m").Pending == nil {
				t.Fatalf("%v, %+v", res.Err, w.record("m").Pending)
			}
		}
		id := w.record("m").Pending.Run
		if err := fsErrors(os.Remove(runs), os.Rename(runs+"-away", runs)); err != nil {
			t.Fatal(err)
		}
		w.good("m")
		settled(w, id)
		w.good("m")
		if got := w.count("done"); got != 1 {
			t.Errorf("it was started %d times", got)
		}
	})
}

func TestInputProgram(t *testing.T) {
	tests := []struct {
		name, program string
		want, wrong   string
	}{
		{name: "object", program: `{files: [.added[].path, .modified[].path], n: 9007199254740993}`, want: `{"files":["in/f"],"n":9007199254740993}`},
		{name: "null", program: `null`, want: `{}`},
		{name: "number", program: `1`, wrong: "it must be a JSON object, not a number"},
		{name: "two", program: `{}, {}`, wrong: "want one result, an object or null, not 2"},
		{name: "none", program: `empty`, wrong: "want one result, an object or null, not 0"},
		{name: "fails", program: `.added[0].path | tonumber`, wrong: "cannot make the input of \"work\" for m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, launching+"    do: 'echo >> runs'\n    input: '"+tt.program+"'\n")
			w.write("in/g", "v1")
			w.good("m")
			w.write("in/f", "v1")
			res := w.poll("m")
			if tt.wrong == "" {
				if res.Err != nil {
					t.Fatal(res.Err)
				}
				until(t, "the launch", func() bool { return w.count("done") == 1 })
				if diff := cmp.Diff(tt.want, strings.TrimSpace(w.read("done"))); diff != "" {
					t.Errorf("input (-want +got):\n%s", diff)
				}
				return
			}
			if res.Err == nil || !strings.Contains(res.Err.Error(), tt.wrong) {
				t.Errorf("%v, want %s", res.Err, tt.wrong)
			}
			if w.committed("m", "in/f") != "" || w.record("m").Pending != nil {
				t.Errorf("committed: %+v", w.record("m"))
			}
			if got := w.count("runs"); got != 0 {
				t.Errorf("the handler ran %d times for a change that cannot be committed", got)
			}
			w.define(launching + "    do: 'echo >> runs'\n    input: '{}'\n")
			w.good("m")
			until(t, "the launch", func() bool { return w.count("done") == 1 })
			if got := w.count("runs"); got != 1 {
				t.Errorf("the handler ran %d times once the program is right", got)
			}
		})
	}
}

func TestHandlerFilesOfAPage(t *testing.T) {
	p := serve(t)
	p.set(200, `{"a":1,"noise":1}`)
	w := newWorld(t, fmt.Sprintf(`monitors:
  - key: m
    watch: %s
    every: 1h
    select: {jq: .a}
    do: |
      for f in CHANGE BODY SELECTION PREVIOUS PATHS; do
        eval "file=\$MARBLES_${f}_FILE"
        if [ -n "$file" ]; then printf '%%s=%%s|' $f "$(tr -d ' \n' < "$file" | head -c 60)" >> got; fi
      done
      echo >> got
`, p.URL))
	w.good("m")
	p.set(200, `{"a":1,"noise":2}`)
	w.good("m")
	p.set(200, `{"a":2,"noise":3}`)
	w.good("m")
	got := w.lines("got")
	if len(got) != 2 {
		t.Fatalf("%d runs: %q", len(got), got)
	}
	for i, want := range [][]string{
		{`CHANGE={"kind":"http"`, `BODY={"a":1,"noise":1}|`, `SELECTION=1|`},
		{`CHANGE={"kind":"http"`, `BODY={"a":2,"noise":3}|`, `SELECTION=2|`, `PREVIOUS={"a":1,"noise":1}|`},
	} {
		for _, part := range want {
			if !strings.Contains(got[i], part) {
				t.Errorf("run %d has no %s: %s", i, part, got[i])
			}
		}
		if strings.Contains(got[i], "PATHS=") || i == 0 && strings.Contains(got[i], "PREVIOUS=") {
			t.Errorf("run %d: %s", i, got[i])
		}
	}
}

// 10 MB of names at once: the list is whole, and neither arguments nor environment grow with it.
func TestManyChangesReachTheHandlerWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("makes 50,000 files")
	}
	t.Parallel()
	w := newWorld(t, `monitors:
  - key: m
    watch: in/**
    every: 1h
    baseline: silent
    do: |
      tr '\0' '\n' < "$MARBLES_PATHS_FILE" > paths
      wc -c < "$MARBLES_CHANGE_FILE" > change
      cat /proc/$$/environ /proc/$$/cmdline 2>/dev/null | wc -c > size || echo 0 > size
`)
	w.write("in/first", "")
	w.good("m")
	const n = 50_000
	pad := strings.Repeat("x", 200-6)
	for i := range n {
		if err := os.WriteFile(filepath.Join(w.dir, "in", fmt.Sprintf("%06d", i)+pad), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.good("m")
	paths := w.lines("paths")
	if len(paths) != n || paths[0] != "in/000000"+pad || paths[n-1] != fmt.Sprintf("in/%06d", n-1)+pad {
		t.Errorf("%d paths, %.20s… to %.20s…", len(paths), paths[0], paths[len(paths)-1])
	}
	if size, _ := strconv.Atoi(strings.TrimSpace(w.read("change"))); size < n*200 {
		t.Errorf("the change has %d bytes", size)
	}
	if size, err := strconv.Atoi(strings.TrimSpace(w.read("size"))); err != nil || size > 128<<10 {
		t.Errorf("environment and arguments have %d bytes, %v", size, err)
	}
	if res := w.good("m"); !res.Quiet {
		t.Errorf("a look after it: %+v", res)
	}
}

// What looks learn of files outlives the process, and losing it loses nothing else.
func TestCacheIsKept(t *testing.T) {
	w := newWorld(t, `monitors:
  - {key: m, watch: 'in/*', every: 1h, do: 'echo >> runs'}
`)
	for i := range 100 {
		w.write(fmt.Sprint("in/f", i), "v1")
	}
	w.good("m")
	cache := filepath.Join(w.ws.Dir(), "cache/m")
	w.stop(w.desk) // whether or not it was written before
	first, err := os.Stat(cache)
	if err != nil || first.Size() == 0 {
		t.Fatalf("no cache is kept: %v", err)
	}
	for _, tt := range []struct {
		name string
		harm func() error
	}{
		{"whole", func() error { return nil }},
		{"gone", func() error { return os.Remove(cache) }},
		{"torn", func() error { return os.Truncate(cache, 100) }},
		{"another's", func() error { return os.WriteFile(cache, []byte("{}"), 0o600) }},
		{"a folder", func() error { return fsErrors(os.Remove(cache), os.Mkdir(cache, 0o700)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.harm(); err != nil {
				t.Fatal(err)
			}
			w.restart()
			if res := w.good("m"); !res.Quiet {
				t.Errorf("%+v", res)
			}
			w.stop(w.desk)
		})
	}
	if got := w.count("runs"); got != 1 {
		t.Errorf("%d runs", got)
	}
}

func fsErrors(errs ...error) error {
	for _, err := range errs {
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}
