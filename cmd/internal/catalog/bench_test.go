package catalog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// writeMany writes a source of n schedules, spread over some files.
func writeMany(tb testing.TB, dir string, files, n int) Source {
	tb.Helper()
	for f := range files {
		var b bytes.Buffer
		if f == 0 {
			b.WriteString("workflows:\n  idle: {run: \"true\"}\n")
		}
		b.WriteString("schedules:\n")
		for i := range n / files {
			fmt.Fprintf(&b, "- {run: idle, key: k%05d, cron: \"0 0 1 1 *\"}\n", f*(n/files)+i)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d.yaml", f)), b.Bytes(), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return Source{Workspace: dir, Path: dir}
}

// BenchmarkLoad is the size the service must be able to start with: 100,000 schedules, about 1 s on two cores.
func BenchmarkLoad(b *testing.B) {
	for _, files := range []int{100, 1} {
		b.Run(fmt.Sprintf("files=%d", files), func(b *testing.B) {
			source := writeMany(b, b.TempDir(), files, 100_000)
			b.ReportAllocs()
			for b.Loop() {
				c, err := Load([]Source{source}, Options{Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
				if err != nil {
					b.Fatal(err)
				}
				if len(c.Schedules) != 100_000 {
					b.Fatalf("got %d schedules", len(c.Schedules))
				}
			}
		})
	}
}

// TestLoadKeepsLittle bounds what a big catalog holds on to once the YAML is gone.
func TestLoadKeepsLittle(t *testing.T) {
	source := writeMany(t, t.TempDir(), 4, 20_000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	c, err := Load([]Source{source}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	const most = 512 // bytes a schedule: the struct, its key, and its place in the index
	if got := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(len(c.Schedules)); got > most {
		t.Errorf("a schedule holds %d bytes, want at most %d", got, most)
	} else {
		t.Logf("a schedule holds %d bytes", got)
	}
	runtime.KeepAlive(c)
}
