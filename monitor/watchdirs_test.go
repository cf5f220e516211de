package monitor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/monitor/live"
)

func TestWatchedDirectories(t *testing.T) {
	dir := tree(t, t.TempDir(),
		".git/objects/a", "x", "node_modules/m/a", "x", ".gitignore", "/build\n*.o\n",
		"build/out/a", "x", "docs/a.md", "x", "docs/deep/er/a.md", "x", "docs/_out/a.md", "x", "docs/.gitignore", "tmp/\n", "docs/tmp/a.md", "x",
		"src/a/b/c", "x", "lib", "-> src", "file", "x")
	for _, tt := range []struct {
		glob    string
		options FilesOptions
		under   string
		want    string // directories, "." for the workspace
	}{
		{"*", FilesOptions{}, "", "."},
		{"**", FilesOptions{}, "", ". docs docs/_out docs/deep docs/deep/er src src/a src/a/b"},
		{"**", FilesOptions{NoIgnore: true, Exclude: []string{"docs/**"}}, "", ". build build/out src src/a src/a/b"},
		{"**", FilesOptions{}, "docs", "docs docs/_out docs/deep docs/deep/er"},
		{"**", FilesOptions{}, "docs/deep", "docs/deep docs/deep/er"},
		{"**", FilesOptions{}, "docs/tmp", ""},
		{"**", FilesOptions{}, "build/out", ""},
		{"**", FilesOptions{}, "file", ""},
		{"**", FilesOptions{}, "lib", ""},
		{"**", FilesOptions{}, "nothing/here", ""},
		{"docs/**/*.md", FilesOptions{Exclude: []string{"docs/_out/**"}}, "", ". docs docs/deep docs/deep/er"},
		{"docs/**/*.md", FilesOptions{}, "src", ""},
		{"docs/*.md", FilesOptions{}, "", ". docs"},
		{"docs/*/er/a.md", FilesOptions{}, "", ". docs docs/_out docs/deep docs/deep/er"},
		{"{docs/deep,src/a}/*/*", FilesOptions{}, "", ". docs docs/deep docs/deep/er src src/a src/a/b"},
		{"missing/*", FilesOptions{}, "", "."},
	} {
		t.Run(tt.glob+" under "+tt.under, func(t *testing.T) {
			s, err := NewFiles(dir, tt.glob, tt.options)
			must(t, err)
			var got []string
			s.files.watchDirs(t.Context(), tt.under, func(d live.Dir) bool {
				if d.Path == "" {
					d.Path = "."
				} else if up := filepath.Dir(d.Path); tt.under == "" && !slices.Contains(got, up) {
					t.Errorf("%s comes before %s", d.Path, up)
				}
				got = append(got, d.Path)
				return true
			})
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("directories (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatADirectoryHears(t *testing.T) {
	dir := tree(t, t.TempDir(), ".gitignore", "*.o\n/out/\n*.tmp\n!*.tmp/\n", "docs/deep/a.md", "x")
	for _, tt := range []struct {
		glob, exclude string
		want, not     string
	}{
		{"*.md", "*.log", "a.md other ..data .gitignore out", "a.log x.o .git node_modules .DS_Store"},
		{"docs/*.md", "", "docs", "a.md other"},
		{"do*/x/*.md", "", "docs done", "a.md"},
		{"**/*.md", "docs/**", "a.md other src x.tmp docs", "x.o"},
	} {
		t.Run(tt.glob, func(t *testing.T) {
			o := FilesOptions{}
			if tt.exclude != "" {
				o.Exclude = []string{tt.exclude}
			}
			s, err := NewFiles(dir, tt.glob, o)
			must(t, err)
			s.files.watchDirs(t.Context(), "", func(d live.Dir) bool {
				for _, name := range strings.Fields(tt.want) {
					if !d.Hears(name) {
						t.Errorf("%s is not heard", name)
					}
				}
				for _, name := range strings.Fields(tt.not) {
					if d.Hears(name) {
						t.Errorf("%s is heard", name)
					}
				}
				return false
			})
		})
	}
}

// liveFiles watches a source, and counts hints.
func liveFiles(t *testing.T, s *Source) (hint func(what string), stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	hints := make(chan struct{}, 10_000)
	var done sync.WaitGroup
	done.Go(func() {
		if err := s.Watch(ctx, live.New(nil), func() { hints <- struct{}{} }); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return func(what string) {
		t.Helper()
		select {
		case <-hints:
		case <-time.After(10 * time.Second):
			t.Fatalf("no hint: %s", what)
		}
		for quiet := false; !quiet; {
			select {
			case <-hints:
			case <-time.After(200 * time.Millisecond):
				quiet = true
			}
		}
	}, stop
}

// Each hint is enough: the look that follows it sees what happened.
func TestLiveLooksSeeWhatHappened(t *testing.T) {
	dir := tree(t, t.TempDir(), "cfg/..v1/app.yaml", "1", "cfg/..data", "-> ..v1", "cfg/app.yaml", "-> ..data/app.yaml", ".gitignore", "/late\n")
	w := watchFiles(t, dir, "{cfg,new,late}/**/*.yaml", "cfg/..*/**")
	w.expect("+cfg/app.yaml")
	hint, stop := liveFiles(t, w.source)
	hint("the first")
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { // as a Kubernetes volume is updated
			tree(t, dir, "cfg/..v2/app.yaml", "2", "cfg/..data_tmp", "-> ..v2")
			must(t, os.Rename(filepath.Join(dir, "cfg/..data_tmp"), filepath.Join(dir, "cfg/..data")))
			must(t, os.RemoveAll(filepath.Join(dir, "cfg/..v1")))
		}, "~cfg/app.yaml"},
		{func() { tree(t, dir, "new/a/b/c.yaml", "1") }, "+new/a/b/c.yaml"},
		{func() { tree(t, dir, "new/a/b/c.yaml", "2") }, "~new/a/b/c.yaml"},
		{func() { must(t, os.Rename(filepath.Join(dir, "new/a"), filepath.Join(dir, "new/z"))) }, "+new/z/b/c.yaml -new/a/b/c.yaml"},
		{func() { tree(t, dir, "new/z/b/c.yaml", "3") }, "~new/z/b/c.yaml"},
		{func() { tree(t, dir, "late/x/y.yaml", "1", ".gitignore", "") }, "+late/x/y.yaml"},
		{func() { tree(t, dir, "late/x/y.yaml", "2") }, "~late/x/y.yaml"},
		{func() { must(t, os.RemoveAll(filepath.Join(dir, "late"))) }, "-late/x/y.yaml"},
	} {
		step.do()
		hint(fmt.Sprintf("step %d", i))
		w.expect(step.want)
	}
	stop()
}

func TestURLsAreNotLive(t *testing.T) {
	s, err := NewHTTP("http://127.0.0.1:1/", HTTPOptions{})
	must(t, err)
	if err := s.Watch(t.Context(), live.New(nil), func() {}); err == nil {
		t.Error("want an error")
	}
}
