package monitor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"marbles/state"
)

// benchTree makes a tree of files of 1 KiB, 10,000 or as many as MARBLES_BENCH_FILES says, each of its own content.
func benchTree(b *testing.B) (dir string, files int) {
	b.Helper()
	files = 10_000
	if text := os.Getenv("MARBLES_BENCH_FILES"); text != "" {
		n, err := strconv.Atoi(text)
		must(b, err)
		files = n
	}
	dir = b.TempDir()
	old := time.Now().Add(-time.Hour)
	for i := range files {
		folder := filepath.Join(dir, fmt.Sprintf("d%03d", i/100))
		if i%100 == 0 {
			must(b, os.Mkdir(folder, 0o755))
		}
		content := append(bytes.Repeat([]byte("x"), 1014), fmt.Sprintf("%010d", i)...)
		path := filepath.Join(folder, fmt.Sprintf("file-%05d.txt", i))
		must(b, os.WriteFile(path, content, 0o644))
		must(b, os.Chtimes(path, old, old))
	}
	return dir, files
}

func BenchmarkFirstLook(b *testing.B) {
	dir, files := benchTree(b)
	b.ReportAllocs()
	for b.Loop() {
		if o := watchFiles(b, dir, "**/*.txt").mustLook(); o.Summary != fmt.Sprintf("%d added", files) {
			b.Fatal(o.Summary)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(files), "ns/file")
}

// As a service looks: the committed observation has been compared before and is not loaded.
func BenchmarkUnchangedLook(b *testing.B) {
	dir, files := benchTree(b)
	w := watchFiles(b, dir, "**/*.txt")
	w.source.files.disk.now = func() time.Time { return time.Now().Add(time.Hour) } // nothing is racy
	before := heap()
	w.poll()
	w.stamp = state.FileStamp{Size: 1}
	w.mustLook()
	w.record = nil // it is not looked at again
	perFile := float64(heap()-before) / float64(files)
	loads := w.loads
	b.ReportAllocs()
	for b.Loop() {
		if o := w.mustLook(); o.Changed || len(o.Degraded) > 0 {
			b.Fatal(o.Summary)
		}
	}
	if w.loads != loads {
		b.Errorf("the record was loaded %d times", w.loads-loads)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(files), "ns/file")
	b.ReportMetric(perFile, "B/file")
}

// heap is how much memory is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
