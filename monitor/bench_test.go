package monitor

import (
	"bytes"
	"fmt"
	"testing"
)

func BenchmarkFirstLook10000FilesOf1KiB(b *testing.B) {
	dir := b.TempDir()
	content := string(bytes.Repeat([]byte("x"), 1024))
	for i := range 10_000 {
		tree(b, dir, fmt.Sprintf("d%03d/f%05d.txt", i/100, i), content)
	}
	w := watchFiles(b, dir, "**/*.txt")
	b.ReportAllocs()
	for b.Loop() {
		if o := w.mustLook(); o.Summary != "10000 added" {
			b.Fatal(o.Summary)
		}
	}
}
