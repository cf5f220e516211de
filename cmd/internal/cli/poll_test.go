package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"marbles/monitor"
	"marbles/state"
)

// tree is every file below a directory, with its text.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		info, ierr := e.Info()
		if err == nil {
			err = ierr
		}
		if err == nil {
			files[path] = info.ModTime().String() + "\n" + string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A poll writes nothing, not even a time, and needs no lock.
func TestPollChangesNothing(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "monitors: [{watch: '*.md', key: k, do: 'true'}]\n")
	p.write(filepath.Join(p.dir, "a.md"), "a")
	if _, errs, code := p.main("roll", "k"); code != 0 {
		t.Fatal(errs)
	}
	ws := p.workspace(p.dir)
	l, err := ws.TryLock("schedule:k")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	p.write(filepath.Join(p.dir, "b.md"), "b")
	before := tree(t, p.root)
	for range 2 {
		out, errs, code := p.main("poll", "k")
		if code != 0 || errs != "" || out != "k: 1 added\n  added     b.md\n" {
			t.Errorf("exit code %d, got\n%s%s", code, out, errs)
		}
	}
	if diff := cmp.Diff(before, tree(t, p.root)); diff != "" {
		t.Errorf("the state root changed (-before +after):\n%s", diff)
	}
}

// Long changes are cut, and names are safe for a terminal; JSON has them whole.
func TestPollManyAndHostileNames(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "monitors: [{watch: 'd/*', key: k, do: 'true'}]\n")
	for i := range 60 {
		p.write(filepath.Join(p.dir, "d", fmt.Sprintf("f%02d", i)), "x")
	}
	p.write(filepath.Join(p.dir, "d", "a\x1b[31m\n"), "x")
	p.write(filepath.Join(p.dir, "d", "b\xff"), "x")
	out, _, _ := p.main("poll", "k")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 52 || lines[0] != "k: 62 added (the first look)" || lines[51] != "  … and 12 more" {
		t.Errorf("%d lines:\n%s", len(lines), out)
	}
	if strings.Contains(out, "\x1b") || strings.Contains(out, "\xff") || lines[1] != "  added     d/a [31m " || lines[2] != `  added     d/b\xff` {
		t.Errorf("got %q", lines[:3])
	}
	out, _, _ = p.main("poll", "k", "--json")
	var got struct {
		Change monitor.FilesChange `json:"change"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Change.Added) != 62 {
		t.Errorf("%v, got %d paths", err, len(got.Change.Added))
	}
}

// What cannot be seen is told, and is no removal.
func TestPollDegraded(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every directory")
	}
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "monitors: [{watch: 't/**/*.txt', key: k, do: 'true'}]\n")
	p.write(filepath.Join(p.dir, "t/ok/a.txt"), "a")
	p.write(filepath.Join(p.dir, "t/secret/b.txt"), "b")
	if _, errs, code := p.main("roll", "k"); code != 0 {
		t.Fatal(errs)
	}
	secret := filepath.Join(p.dir, "t/secret")
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(secret, 0o700) })
	out, _, code := p.main("poll", "k")
	if want := "k: no change in 2 files\ndegraded: t/secret: permission denied\n"; code != 0 || out != want {
		t.Errorf("exit code %d, got\n%swant\n%s", code, out, want)
	}
}

// A pending launch stands before every look of a tick.
func TestPollTellsPending(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "monitors: [{watch: 'a*', key: k, do: 'true'}]\n")
	ws := p.workspace(p.dir)
	rec := &state.MonitorRecord{Files: map[string]string{}, Pending: &state.PendingLaunch{Workflow: "w", Input: jsontext.Value("null")}}
	if err := ws.WriteMonitor("k", rec); err != nil {
		t.Fatal(err)
	}
	out, _, _ := p.main("poll", "k")
	if want := "k: no change in 0 files\npending: a launch of w, which a tick starts before it looks again\n"; out != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestBodyLines(t *testing.T) {
	many := strings.Repeat("x\\n", 30)
	for name, tt := range map[string]struct {
		change string
		want   []string
	}{
		"first text":   {`{"current":"a\nb\n"}`, []string{"  + a", "  + b"}},
		"text":         {`{"current":"a\nB\nc","previous":"a\nb\nc"}`, []string{"  - b", "  + B"}},
		"line added":   {`{"current":"a\na\n","previous":"a\n"}`, []string{"  + a"}},
		"JSON":         {`{"current":{"a":1,"b":2},"previous":{"a":1,"b":3}}`, []string{`  -   "b": 3`, `  +   "b": 2`}},
		"selection":    {`{"current":{"a":1},"previous":{"a":2},"selection":1,"previousSelection":2}`, []string{"  - 2", "  + 1"}},
		"no text":      {`{"current":"/w==","currentBase64":true,"previous":"a"}`, []string{"  - a", "  + 1 byte that are no text"}},
		"null":         {`{"current":null,"previous":"a"}`, []string{"  - a", "  + null"}},
		"many":         {`{"current":"` + many + `"}`, append(slices.Repeat([]string{"  + x"}, 25), "  + … and 5 more")},
		"control":      {`{"current":"\u001b[31m"}`, []string{"  +  [31m"}},
		"empty before": {`{"current":"a","previous":""}`, []string{"  - ", "  + a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := bodyLines([]byte(tt.change))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// How a monitor gets on, by `status` and `show`.
func TestHealthIsShown(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "monitors: [{watch: 't/**', key: k, do: 'true'}]\n")
	ws := p.workspace(p.dir)
	at := state.Stamp{Time: time.Date(2026, 3, 1, 10, 0, 0, 0, time.Local)}
	later := state.Stamp{Time: time.Date(2226, 3, 1, 10, 0, 0, 0, time.Local)}
	key := &state.KeyRecord{Kind: state.KindMonitor, Label: "t/**", LastStart: at, LastFinish: at, LastStatus: "failed", LastError: "HTTP 503"}
	health := &state.Health{
		Failures: 4, Since: at, LastError: "HTTP 503", Down: true, DownSince: at, Pending: state.NoticeDown, RetryAt: later,
		Degraded: []string{"t/secret: permission denied", "t/x\x1b: no such device"}, DegradedSince: at, CertExpires: later, LastLook: at,
	}
	rec := &state.MonitorRecord{Files: map[string]string{"t/a": "0", "t/b": "1"}, Mounts: []string{"t/m"},
		Pending: &state.PendingLaunch{Workflow: "w", Input: jsontext.Value("null")}}
	for _, err := range []error{ws.WriteKey("k", key), ws.WriteHealth("k", health), ws.WriteMonitor("k", rec)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	out, _, _ := p.main("status")
	if want := "pending launch of w; down since 2026-03-01 10:00:00; degraded: t/secret: permission denied (and 1 more); HTTP 503"; !strings.Contains(out, want) {
		t.Errorf("status: got\n%swant\n%s", out, want)
	}
	out, _, _ = p.main("status", "--json")
	var report statusReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Workspaces) != 1 || len(report.Workspaces[0].Keys) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	if k := report.Workspaces[0].Keys[0]; !k.Down || len(k.Degraded) != 2 || k.Since == nil || k.LastError != "HTTP 503" {
		t.Errorf("status --json: got %+v", k)
	}
	out, _, _ = p.main("show", "k")
	for _, want := range []string{
		"label ", "files ", "2 files", "mounts ", "t/m", "pending launch ", "pending notice ", "on_down, until its handler succeeds",
		"down since ", "4 in a row, since 2026-03-01 10:00:00", "look error ", "HTTP 503", "retry at ", "t/secret: permission denied",
		"degraded since ", "certificate ends ", "2226-03-01", "last look ", "committed ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("show has no %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("got %q", out)
	}
	out, _, _ = p.main("show", "k", "--json")
	var shown shownKey
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatal(err)
	}
	if o := shown.Observation; o == nil || o.Files == nil || *o.Files != 2 || o.CommittedAt == nil || shown.Watch != "" || shown.Pending != "w" {
		t.Errorf("got %s", out)
	}
	if h := shown.Health; h == nil || h.Failures != 4 || !h.Down {
		t.Errorf("got %s", out)
	}

	// Damaged health costs only itself.
	p.write(filepath.Join(ws.Dir(), "health", "k.json"), "{")
	out, errs, code := p.main("show", "k")
	if code != 0 || !strings.Contains(errs, "damaged: ") || !strings.Contains(out, "2 files") {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	out, _, _ = p.main("status")
	if !strings.Contains(out, "damaged: ") || !strings.Contains(out, "t/**") && !strings.Contains(out, "monitor") {
		t.Errorf("status:\n%s", out)
	}
}

// What a monitor of a URL committed.
func TestShowURL(t *testing.T) {
	p := newPlace(t)
	ws := p.workspace(p.dir)
	rec := &state.MonitorRecord{Current: jsontext.Value(`{"tag": "v1"}`), Hash: "abc", Status: 203, Filter: `{"jq":".tag"}`,
		Selection: jsontext.Value(`"v1"`), Validators: state.Validators{URL: "http://x/", ETag: `W/"1"`, LastModified: "yesterday"}}
	if err := ws.WriteMonitor("u", rec); err != nil {
		t.Fatal(err)
	}
	out, errs, code := p.main("show", "u") // it has no history, and is defined nowhere
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"none yet", "HTTP 203, 12 bytes", "abc", `{"jq":".tag"}`, `"v1"`, `W/"1"`, "yesterday", p.dir} {
		if !strings.Contains(out, want) {
			t.Errorf("show has no %q:\n%s", want, out)
		}
	}
	for current, want := range map[string]int{`"aé"`: 3, `{"a": 1}`: 7, `[1, 2]`: 5, `""`: 0} {
		if got := bodySize(jsontext.Value(current), false); got != want {
			t.Errorf("%s: got %d bytes, want %d", current, got, want)
		}
	}
	if got := bodySize(jsontext.Value(`"/w=="`), true); got != 1 {
		t.Errorf("base64: got %d bytes, want 1", got)
	}
}

// A monitor that has done nothing yet is shown where it is defined; a schedule without a history is not known.
func TestShowWithoutHistory(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"),
		"workflows: {w: {run: 'true'}}\nschedules: [{run: w, key: s, every: 1h}]\nmonitors: [{watch: 'a/*', key: k, do: 'true'}]\n")
	out, errs, code := p.main("show", "k")
	if code != 0 || !strings.Contains(out, "a/*") || !strings.Contains(out, "none yet") || !strings.Contains(out, p.dir) {
		t.Errorf("exit code %d:\n%s%s", code, out, errs)
	}
	if _, err := os.Stat(p.root); err == nil {
		t.Error("showing made a state root")
	}
	if _, errs, code = p.main("show", "s"); code != exitUsage {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
