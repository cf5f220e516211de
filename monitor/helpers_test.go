package monitor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// watcher polls a source and commits what it saw, through JSON as the disk would.
type watcher struct {
	t      testing.TB
	source *Source
	record *state.MonitorRecord
	stamp  state.FileStamp // of the record
	loads  int             // how often it was loaded
}

func watchFiles(t testing.TB, dir, glob string, exclude ...string) *watcher {
	t.Helper()
	s, err := NewFiles(dir, glob, FilesOptions{Exclude: exclude})
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{t: t, source: s}
}

// look polls without committing.
func (w *watcher) look() (*Observation, error) {
	return w.source.Look(w.t.Context(), w.committed(), LookOptions{})
}

// committed gives what was committed as the disk would.
func (w *watcher) committed() Committed {
	return Committed{Stamp: w.stamp, Load: func() (*state.MonitorRecord, error) {
		w.loads++
		return w.record, nil
	}}
}

func (w *watcher) mustLook() *Observation {
	w.t.Helper()
	o, err := w.look()
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// poll looks and commits.
func (w *watcher) poll() *Observation {
	w.t.Helper()
	o := w.mustLook()
	w.commit(o)
	return o
}

func (w *watcher) commit(o *Observation) {
	w.t.Helper()
	if o.Record == nil {
		return
	}
	text, err := json.Marshal(o.Record)
	if err != nil {
		w.t.Fatal(err)
	}
	w.record = new(state.MonitorRecord)
	w.stamp.Size++
	if err := json.Unmarshal(text, w.record); err != nil {
		w.t.Fatalf("record does not survive JSON: %v\n%s", err, text)
	}
}

// eventsOf is a change as "+added ~modified -removed" of paths.
func eventsOf(t testing.TB, o *Observation) string {
	t.Helper()
	if !o.Changed {
		if o.Change != nil || o.Paths != nil {
			t.Fatalf("unchanged, but change %s, paths %q", o.Change, o.Paths)
		}
		return ""
	}
	c := changeOf(t, o)
	var parts []string
	for _, kind := range []struct {
		sign  string
		files []File
	}{{"+", c.Added}, {"~", c.Modified}, {"-", c.Removed}} {
		for _, f := range kind.files {
			parts = append(parts, kind.sign+f.Path)
		}
	}
	return strings.Join(parts, " ")
}

func changeOf(t testing.TB, o *Observation) FilesChange {
	t.Helper()
	var c FilesChange
	if err := json.Unmarshal(o.Change, &c, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("change does not parse: %v\n%s", err, o.Change)
	}
	if c.Kind != KindFiles || c.Added == nil || c.Modified == nil || c.Removed == nil {
		t.Fatalf("change is not whole: %s", o.Change)
	}
	return c
}

func (w *watcher) expect(want string) *Observation {
	w.t.Helper()
	o := w.poll()
	if got := eventsOf(w.t, o); got != want {
		w.t.Fatalf("events: got %q, want %q", got, want)
	}
	return o
}

func expectDegraded(t *testing.T, o *Observation, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, o.Degraded); diff != "" {
		t.Fatalf("degraded (-want +got):\n%s", diff)
	}
}

// tree makes files: a path and its content in turn; a path that ends in / is a
// directory, a content that begins with "-> " a link.
func tree(t testing.TB, dir string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		path, content := filepath.Join(dir, pairs[i]), pairs[i+1]
		if strings.HasSuffix(pairs[i], "/") {
			must(t, os.MkdirAll(path, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			must(t, os.Symlink(target, path))
			continue
		}
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func skipAsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
}
