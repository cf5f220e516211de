package monitor

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Random operations on a tree, and looks that may or may not be committed, against a
// model that reads everything: no event is missing and none is invented.
func TestLooksAgreeWithAModel(t *testing.T) {
	names := []string{"a", "b.md", ".c", "d", "e.md", "node_modules"}
	globs := []string{"**", "**/*.md", "*", "a/**", "{a,d}/**/*.md", "a/b.md", "?/**", "**/d/*"}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		g := rapid.SampledFrom(globs).Draw(rt, "glob")
		var exclude []string
		if rapid.Bool().Draw(rt, "excluding") {
			exclude = []string{"a/d/**"}
		}
		w := watchFiles(t, dir, g, exclude...)
		path := func(label string) string {
			parts := rapid.SliceOfN(rapid.SampledFrom(names), 1, 3).Draw(rt, label)
			return filepath.Join(dir, filepath.Join(parts...))
		}
		committed := map[string]string{}
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				p := path("path")
				if os.MkdirAll(filepath.Dir(p), 0o755) == nil {
					os.WriteFile(p, []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, "content")), 0o644)
				}
			},
			"remove": func(rt *rapid.T) { os.RemoveAll(path("path")) },
			"rename": func(rt *rapid.T) { os.Rename(path("from"), path("to")) },
			"link":   func(rt *rapid.T) { os.Symlink(path("target"), path("name")) },
			"look": func(rt *rapid.T) {
				o, err := w.look()
				if err != nil {
					rt.Fatal(err)
				}
				for _, d := range o.Degraded {
					if !strings.HasSuffix(d, "behind links") {
						rt.Fatalf("degraded: %q", d)
					}
				}
				now := naive(t, dir, g, exclude)
				if diff := cmp.Diff(eventsBetween(committed, now), eventsOf(t, o)); diff != "" {
					rt.Fatalf("glob %s (-model +look):\n%s", g, diff)
				}
				if rapid.Bool().Draw(rt, "commit") {
					w.commit(o)
					committed = now
				}
			},
		})
	})
}

// naive reads every file there is and keeps what the glob, matched in one piece, selects.
func naive(t *testing.T, dir, text string, exclude []string) map[string]string {
	g, err := compileGlob(text)
	must(t, err)
	real, err := filepath.EvalSymlinks(dir)
	must(t, err)
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil || e.IsDir() || !matchPath(g, rel) || slices.Contains(strings.Split(filepath.Dir(rel), "/"), "node_modules") {
			return err
		}
		for _, x := range exclude {
			if strings.HasPrefix(rel, strings.TrimSuffix(x, "**")) {
				return nil
			}
		}
		target, err := filepath.EvalSymlinks(path)
		if err != nil || !strings.HasPrefix(target, real+"/") {
			return nil
		}
		if info, err := os.Stat(target); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(target)
		sum := sha256.Sum256(content)
		files[rel] = hex.EncodeToString(sum[:])
		return err
	}))
	return files
}

func eventsBetween(before, after map[string]string) string {
	var added, modified, removed []string
	for path, sum := range after {
		if old, known := before[path]; !known {
			added = append(added, "+"+path)
		} else if old != sum {
			modified = append(modified, "~"+path)
		}
	}
	for path := range before {
		if _, still := after[path]; !still {
			removed = append(removed, "-"+path)
		}
	}
	for _, list := range [][]string{added, modified, removed} {
		slices.Sort(list)
	}
	return strings.Join(slices.Concat(added, modified, removed), " ")
}
