package state

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// benchWorkspace has n runs of which the newest few are not settled.
func benchWorkspace(b *testing.B, n, unsettled int) *Workspace {
	b.Helper()
	w := newWorkspace(b)
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var index []byte
	for i := range n {
		at := start.Add(time.Duration(i) * 17 * time.Second)
		f := testRun(NewRunID(at), Complete, at)
		if i >= n-unsettled {
			f.Run.Status = Running
		}
		f.complete()
		data, err := encode(f)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(w.path(runsDir, f.Run.ID+recordExt), data, 0o600); err != nil {
			b.Fatal(err)
		}
		s := f.Summary()
		if s.Status.Settled() {
			index = appendIndexLine(index, &s)
		}
	}
	if err := os.WriteFile(w.path(indexFile), index, 0o600); err != nil {
		b.Fatal(err)
	}
	return w
}

func BenchmarkRuns100k(b *testing.B) {
	w := benchWorkspace(b, 100_000, 8)
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			list, err := w.Runs(RunQuery{Limit: 50})
			if err != nil || len(list.Runs) != 50 || list.Total != 100_000 {
				b.Fatal(err, len(list.Runs), list.Total)
			}
		}
	})
	b.Run("overview", func(b *testing.B) {
		for b.Loop() {
			newest, unsettled, err := w.Overview(5)
			if err != nil || len(newest.Runs) != 5 || len(unsettled.Runs) != 8 {
				b.Fatal(err)
			}
		}
	})
	b.Run("unsettled", func(b *testing.B) {
		for b.Loop() {
			files, _, err := w.Unsettled()
			if err != nil || len(files) != 8 {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			list, err := w.Runs(RunQuery{})
			if err != nil || len(list.Runs) != 100_000 {
				b.Fatal(err)
			}
		}
	})
	b.Run("names", func(b *testing.B) {
		for b.Loop() {
			if _, err := readNames(w.path(runsDir), recordExt); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			_ = w.readIndex()
		}
	})
	b.Run("rebuild", func(b *testing.B) {
		for b.Loop() {
			if err := os.Remove(w.path(indexFile)); err != nil {
				b.Fatal(err)
			}
			if err := w.RebuildIndex(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWriteRun is one durable write, by as many writers into one directory.
func BenchmarkWriteRun(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			w := newWorkspace(b)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					f := testRun("", Running, time.Now())
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						f.Run.ID = fmt.Sprintf("rn-%d", i%1000)
						if err := w.WriteRun(f); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkSince100k(b *testing.B) {
	w := newWorkspace(b)
	m := make(map[string]Since)
	for i := range 100_000 {
		m[fmt.Sprintf("backup-of-something-%08x", i)] = Since{Cadence: "daily at 09:05", At: Stamp{time.Now()}}
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if err := w.WriteSince(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			got, err := w.Since()
			if err != nil || len(got) != len(m) {
				b.Fatal(err, len(got))
			}
		}
	})
}

func BenchmarkNewRunID(b *testing.B) {
	now := time.Now()
	for b.Loop() {
		_ = NewRunID(now)
	}
}

func BenchmarkCanonicalExact(b *testing.B) {
	data, err := encode(testRun("rn-x", Complete, time.Now()))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := CanonicalExact(data); err != nil {
			b.Fatal(err)
		}
	}
}

func newWorkspace(t testing.TB) *Workspace {
	t.Helper()
	dir := t.TempDir()
	root, err := Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	project := filepath.Join(dir, "project")
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := root.Workspace(project)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Register(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	return w
}

func testRun(id string, status Status, at time.Time) *RunFile {
	ms := ToMillis(at)
	f := &RunFile{
		Run: Run{
			ID: id, Step: "backup", Status: status,
			Input:      jsontext.Value(`{"database":"main"}`),
			Extensions: RunExtensions{TriggerID: "backup-1becafa2", Trigger: "schedule", Kind: "workflow"},
			Timestamps: RunTimes{CreatedAt: ms, StartedAt: ms + 5},
		},
		Steps: []StepRecord{{Name: "dump", Status: status, StartedAt: ms + 6}},
	}
	switch status {
	case Complete:
		f.Run.Timestamps.CompletedAt = ms + 1000
	case Failed:
		f.Run.Timestamps.FailedAt = ms + 1000
		f.Run.Error = &RunError{Name: "ExitError", Message: "step dump: exit status 1"}
	}
	return f
}
