package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

func TestHealth(t *testing.T) {
	w := newWorkspace(t)
	if h, err := w.Health("m"); h != nil || err != nil {
		t.Fatalf("missing: %v, %v", h, err)
	}
	since := Stamp{time.Date(2026, 11, 30, 17, 0, 0, 0, time.UTC)}
	h := &Health{
		Failures: 3, Since: since, LastError: "connection refused", Down: true, DownSince: since, Pending: NoticeDown, RetryAt: since,
		Degraded: []string{"t/secret: permission denied"}, DegradedSince: since,
		Handler: &HandlerLoop{Start: since, End: since, Count: 2}, Unknown: jsontext.Value(`{"later":1e0}`),
	}
	noError(t, w.WriteHealth("m", h))
	text, err := os.ReadFile(w.path("health/m.json"))
	noError(t, err)
	want := `{
  "version": 1,
  "failures": 3,
  "since": "2026-11-30T17:00:00.000Z",
  "lastError": "connection refused",
  "down": true,
  "downSince": "2026-11-30T17:00:00.000Z",
  "pending": "down",
  "retryAt": "2026-11-30T17:00:00.000Z",
  "degraded": [
    "t/secret: permission denied"
  ],
  "degradedSince": "2026-11-30T17:00:00.000Z",
  "handler": {
    "start": "2026-11-30T17:00:00.000Z",
    "end": "2026-11-30T17:00:00.000Z",
    "count": 2
  },
  "later": 1e0
}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	back, err := w.Health("m")
	noError(t, err)
	h.Version = 1
	if diff := cmp.Diff(h, back); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
	noError(t, w.WriteHealthLazily("n", &Health{}))
	keys, err := w.HealthKeys()
	noError(t, err)
	slices.Sort(keys)
	if diff := cmp.Diff([]string{"m", "n"}, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// What is only a help must cost no fsync, and what a handler is owed must be there after power loss.
func TestHealthAndCacheDurability(t *testing.T) {
	w := newWorkspace(t)
	tests := []struct {
		name  string
		write func() error
		syncs bool
	}{
		{"health", func() error { return w.WriteHealth("m", &Health{}) }, true},
		{"health, lazily", func() error { return w.WriteHealthLazily("m", &Health{}) }, false},
		{"cache", func() error { return w.WriteCache("m", []byte("x")) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := &faultyFiles{}
			w.fs = files
			noError(t, tt.write())
			if got := slices.ContainsFunc(files.calls, func(c string) bool { return strings.HasPrefix(c, "sync") }); got != tt.syncs {
				t.Errorf("syncs: %v, want %v: %v", got, tt.syncs, files.calls)
			}
			if !slices.ContainsFunc(files.calls, func(c string) bool { return strings.HasPrefix(c, "rename") }) {
				t.Errorf("it is not replaced atomically: %v", files.calls)
			}
		})
	}
}

func TestDamagedHealth(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		version    bool
	}{
		{"torn", `{"version":1,"fail`, false},
		{"empty", ``, false},
		{"another type", `{"version":1,"failures":"three"}`, false},
		{"a later version", `{"version":2,"failures":"three"}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			path := w.path("health/m.json")
			noError(t, os.WriteFile(path, []byte(tt.text), 0o600))
			_, err := w.Health("m")
			if errors.Is(err, ErrVersion) != tt.version || err == nil || !strings.Contains(err.Error(), path) {
				t.Fatal(err)
			}
			damaged := (*DamagedError)(nil)
			if errors.As(err, &damaged) == tt.version {
				t.Errorf("damaged: %v", err)
			}
		})
	}
}

func TestCache(t *testing.T) {
	w := newWorkspace(t)
	if data, err := w.ReadCache("m"); data != nil || err != nil {
		t.Fatalf("missing: %q, %v", data, err)
	}
	want := "\x00\xff any bytes\n"
	noError(t, w.WriteCache("m", []byte("old")), w.WriteCache("m", []byte(want)))
	got, err := w.ReadCache("m")
	noError(t, err)
	if string(got) != want {
		t.Errorf("cache %q, want %q", got, want)
	}
	noError(t, os.Mkdir(w.path("cache/d"), 0o700))
	if _, err := w.ReadCache("d"); err == nil || !strings.Contains(err.Error(), w.path("cache/d")) {
		t.Errorf("a directory: %v", err)
	}
}

// The stamp of a record is another one after each write, whatever the clock and the size say.
func TestMonitorStamp(t *testing.T) {
	w := newWorkspace(t)
	none, err := w.MonitorStamp("m")
	noError(t, err)
	if !none.IsZero() || none != (FileStamp{}) {
		t.Errorf("no record has the stamp %+v", none)
	}
	last := none
	for range 200 {
		noError(t, w.WriteMonitor("m", &MonitorRecord{Hash: "x"}))
		stamp, err := w.MonitorStamp("m")
		noError(t, err)
		if stamp.IsZero() || stamp == last {
			t.Fatalf("stamp %+v after %+v", stamp, last)
		}
		again, err := w.MonitorStamp("m")
		noError(t, err)
		if again != stamp {
			t.Fatalf("stamp %+v, and then %+v", stamp, again)
		}
		last = stamp
	}
	noError(t, os.Remove(w.path("monitors/m.json")))
	if gone, err := w.MonitorStamp("m"); err != nil || !gone.IsZero() {
		t.Errorf("removed: %+v, %v", gone, err)
	}
	noError(t, os.Remove(filepath.Join(w.Dir(), monitorsDir)), os.WriteFile(filepath.Join(w.Dir(), monitorsDir), nil, 0o600))
	if _, err := w.MonitorStamp("m"); err == nil {
		t.Error("a file in place of the folder is no error")
	}
}
