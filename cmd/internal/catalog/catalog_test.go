package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"marbles/monitor"
	"marbles/runner"
	"marbles/scheduler"
)

func load(t *testing.T, files map[string]string) *Catalog {
	t.Helper()
	c, err := Load([]Source{write(t, files)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const everything = `# the reference example
workflows:
  backup:
    describe: Dump the database
    input: {database: main, big: 12345678901234567890, exact: 1.0}
    timeout: 1h
    env: {PGHOST: /run/postgresql, MODE: "0644", N: 1.50}
    workdir: db
    shell: bash
    concurrency: 1
    steps:
      - name: dump
        run: pg_dump "$INPUT_DATABASE" -Fc -f out.dump
        timeout: 30m
        env: {A: b}
      - name: verify
        run: [pg_restore, --list, 5]
        workdir: /srv
        shell: [bash, -euo, pipefail, -c]
  sweep.all: {run: ./sweep.sh}
schedules:
  - {run: backup, at: {hour: 2, minute: 30, weekday: [thu, mon]}, timezone: UTC}
  - {run: sweep.all, every: 30m, jitter: 2m, overlap: queue, catch_up: false}
  - {run: sweep.all, cron: "0 9 1 * *", input: {kind: monthly}, catch_up: 6h, enabled: false, key: month}
monitors:
  - watch: docs/**/*.md
    exclude: [docs/_build/**]
    every: 30s
    jitter: 1s
    timeout: 20s
    do: {run: ./reindex.sh, env: {X: y}, timeout: 10s}
    start: backup
    input: {a: [1]}
  - {watch: "https://example.test/releases", do: [echo, hi], baseline: silent, key: rel, enabled: false}
`

func TestLoadEverything(t *testing.T) {
	c := load(t, map[string]string{"all.yaml": everything})
	dir := c.Sources[0].Workspace
	at := func(line, column int) Position { return Position{File: "all.yaml", Line: line, Column: column} }

	workflows := []*Workflow{
		{Position: at(3, 3), Workflow: runner.Workflow{
			Name: "backup", Describe: "Dump the database",
			Input:   jsontext.Value(`{"database":"main","big":12345678901234567890,"exact":1.0}`),
			Timeout: time.Hour, Env: []string{"PGHOST=/run/postgresql", "MODE=0644", "N=1.50"},
			Workdir: filepath.Join(dir, "db"), Shell: []string{"bash", "-c"}, Concurrency: 1,
			Steps: []runner.Step{
				{Name: "dump", Command: runner.Command{Shell: `pg_dump "$INPUT_DATABASE" -Fc -f out.dump`}, Timeout: 30 * time.Minute, Env: []string{"A=b"}},
				{Name: "verify", Command: runner.Command{Argv: []string{"pg_restore", "--list", "5"}}, Workdir: "/srv",
					Shell: []string{"bash", "-euo", "pipefail", "-c"}},
			},
		}},
		{Position: at(20, 3), Workflow: runner.Workflow{Name: "sweep.all",
			Steps: []runner.Step{{Name: "sweep.all", Command: runner.Command{Shell: "./sweep.sh"}}}}},
	}
	if diff := cmp.Diff(workflows, c.Workflows); diff != "" {
		t.Errorf("workflows (-want +got):\n%s", diff)
	}

	cadence := cmp.Comparer(func(a, b scheduler.Cadence) bool { return a.String() == b.String() })
	slot, err := scheduler.NewAt(scheduler.At{Hour: 2, Minute: 30, Weekdays: []time.Weekday{time.Thursday, time.Monday}})
	if err != nil {
		t.Fatal(err)
	}
	schedules := []*Schedule{
		{Key: "backup", Label: "backup", Workflow: "backup", Cadence: slot.In(time.UTC), Overlap: runner.OverlapSkip, Enabled: true, Position: at(22, 5)},
		{Key: "sweep-all", Label: "sweep.all", Workflow: "sweep.all", Cadence: every(t, "30m"), Jitter: 2 * time.Minute, Overlap: runner.OverlapQueue,
			CatchUp: scheduler.CatchUp{Never: true}, Enabled: true, Position: at(23, 5)},
		{Key: "month", Label: `sweep.all {"kind":"monthly"}`, Workflow: "sweep.all", Cadence: cron(t, "0 9 1 * *"), Input: jsontext.Value(`{"kind":"monthly"}`),
			Overlap: runner.OverlapSkip, CatchUp: scheduler.CatchUp{Within: 6 * time.Hour}, Position: at(24, 5)},
	}
	if diff := cmp.Diff(schedules, c.Schedules, cadence); diff != "" {
		t.Errorf("schedules (-want +got):\n%s", diff)
	}

	source := cmp.Comparer(func(a, b *monitor.Source) bool {
		return (a == nil) == (b == nil) && (a == nil || a.String() == b.String() && a.Kind() == b.Kind())
	})
	files, err := monitor.NewFiles(dir, "docs/**/*.md", monitor.FilesOptions{})
	if err != nil {
		t.Fatal(err)
	}
	http, err := monitor.NewHTTP("https://example.test/releases", monitor.HTTPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	monitors := []*Monitor{
		{Key: "docs-md-64d1e2", Label: "docs/**/*.md", Source: files, Cadence: every(t, "30s"), Jitter: time.Second, Enabled: true, Timeout: 20 * time.Second,
			Handler: &runner.Workflow{Name: "docs-md-64d1e2", Steps: []runner.Step{
				{Name: "docs-md-64d1e2", Command: runner.Command{Shell: "./reindex.sh"}, Env: []string{"X=y"}, Timeout: 10 * time.Second}}},
			Start: "backup", Input: jsontext.Value(`{"a":[1]}`), FailAfter: 1, RecoverAfter: 1, Position: at(26, 5)},
		{Key: "rel", Label: "https://example.test/releases", Source: http, Cadence: every(t, "1m"), Silent: true, CertDays: 14, FailAfter: 1, RecoverAfter: 1,
			Handler:  &runner.Workflow{Name: "rel", Steps: []runner.Step{{Name: "rel", Command: runner.Command{Argv: []string{"echo", "hi"}}}}},
			Position: at(34, 5)},
	}
	if diff := cmp.Diff(monitors, c.Monitors, cadence, source); diff != "" {
		t.Errorf("monitors (-want +got):\n%s", diff)
	}

	if got := c.Workflow("backup"); got != c.Workflows[0] {
		t.Errorf("Workflow: got %v", got)
	}
	if got := c.Schedule("month"); got != c.Schedules[2] {
		t.Errorf("Schedule: got %v", got)
	}
	if got := c.Monitor("rel"); got != c.Monitors[1] {
		t.Errorf("Monitor: got %v", got)
	}
	if c.Workflow("x") != nil || c.Schedule("rel") != nil || c.Schedule("x") != nil || c.Monitor("month") != nil || c.Monitor("x") != nil {
		t.Error("something was found that is not there")
	}
	for text, want := range map[string]string{"bakcup": "backup", "mnth": "month", "zzzzz": ""} {
		if got := c.Nearest(text); got != want {
			t.Errorf("Nearest(%q): got %q, want %q", text, got, want)
		}
	}
}

func every(t *testing.T, text string) scheduler.Cadence {
	t.Helper()
	c, err := scheduler.ParseEvery(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func cron(t *testing.T, text string) scheduler.Cadence {
	t.Helper()
	c, _, err := scheduler.ParseCron(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The vectors of the first format: a key keeps its history over releases.
func TestDerivedKeys(t *testing.T) {
	schedules := []struct{ workflow, input, want string }{
		{"review", `{"target":"packages"}`, "review-1becafa2"},
		{"shout", `{"text":"a"}`, "shout-6193c975"},
		{"shout", `{"text":"b"}`, "shout-7b8de1c2"},
		{"wave", "", "wave"},
		{"a b", `{"b":1,"a":[true,null]}`, "a-b-51705a2c"},
		{"a b", `{"a":[true,null],"b":1.0}`, "a-b-51705a2c"}, // neither order nor the writing of a number counts
		{"Ünï__Code 7", "", "n-code-7"},
		{"---", "", "x"},
		{strings.Repeat("a", 39) + "-b", "", strings.Repeat("a", 39)},
		{strings.Repeat("a", 41), "", strings.Repeat("a", 40)},
		{"\u212aelvin \u0130x", "", "kelvin-i-x"},
	}
	for _, tt := range schedules {
		if got := scheduleKey(tt.workflow, jsontext.Value(tt.input)[:len(tt.input):len(tt.input)]); tt.input != "" && got != tt.want {
			t.Errorf("%q %s: got %q, want %q", tt.workflow, tt.input, got, tt.want)
		}
		if got := scheduleKey(tt.workflow, nil); tt.input == "" && got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.workflow, got, tt.want)
		}
	}
	monitors := map[string]string{
		"docs/**/*.md":                  "docs-md-64d1e2",
		"**/CLAUDE.md":                  "claude-md-0767e9",
		"*.md":                          "md-ba405b",
		"**/*":                          "x-ad948e",
		"https://example.test/releases": "https-example-test-releases-446587",
		"https://tracker.example.com/issues/latest?project=alpha&limit=10": "https-tracker-example-com-issues-latest-9d67c9",
	}
	for source, want := range monitors {
		if got := monitorKey(source); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

// Who gets which suffix must not depend on anything but the files: by path, bytewise; in a file schedules first, in
// document order. A given key is never moved.
func TestKeysThatAreTaken(t *testing.T) {
	const file = "monitors:\n- {watch: a, do: x}\nschedules:\n- {run: w, every: 1m}\n- {run: w, every: 2m, input: {}}\n"
	c := load(t, map[string]string{
		"b.yaml":   file,
		"a/z.yaml": file,
		"a.yaml":   "workflows: {w: {run: x}, w-2: {run: x}}\nschedules:\n- {run: w-2, every: 1m}\n" + "monitors:\n- {watch: q, do: x, key: w-4}\n",
		"c.yaml":   "schedules:\n- {run: w, every: 1m, key: w}\n- {run: w, every: 1m, input: {a: 1}}\n",
	})
	var got []string
	for _, s := range c.Schedules {
		got = append(got, s.Position.String()+" "+s.Key)
	}
	for _, m := range c.Monitors {
		got = append(got, m.Position.String()+" "+m.Key)
		if m.Handler.Name != m.Key {
			t.Errorf("handler of %s is named %s", m.Key, m.Handler.Name)
		}
	}
	want := []string{
		"a.yaml:3:3 w-2",
		"a/z.yaml:4:3 w-3", "a/z.yaml:5:3 w-5",
		"b.yaml:4:3 w-6", "b.yaml:5:3 w-7",
		"c.yaml:2:3 w", "c.yaml:3:3 w-" + scheduleKey("w", jsontext.Value(`{"a":1}`))[2:],
		"a.yaml:5:3 w-4",
		"a/z.yaml:2:3 a-ca9781", "b.yaml:2:3 a-ca9781-2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	warned := 0
	for _, w := range c.Warnings {
		if strings.Contains(w.Message, "is taken") {
			warned++
		}
	}
	if warned != 5 {
		t.Errorf("got %d warnings of moved keys, want 5: %v", warned, c.Warnings)
	}
}

func TestFilesThatAreRead(t *testing.T) {
	one := func(n int) string { return fmt.Sprintf("workflows: {w%d: {run: x}}", n) }
	s := write(t, map[string]string{
		"b.yaml": one(1), "b/a.yml": one(2), "B.yaml": one(3), "b-c.yaml": one(4), "sub/deep/er.yaml": one(5),
		"_x.yaml": "][", ".x.yaml": "][", "_d/x.yaml": "][", ".d/x.yaml": "][", "x.yaml.bak": "][", "x.json": "][",
		"0123456789ab/workspace.json": "{}", "0123456789ab/x.yaml": "][", "0123456789ac/x.yaml": one(6),
	})
	for link, target := range map[string]string{"link.yaml": "_x.yaml", "linked": "_d", "gone.yaml": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(s.Path, link)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load([]Source{s, s, {Workspace: s.Workspace, Path: filepath.Join(s.Path, "b.yaml")}, {Workspace: s.Workspace}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Workflows {
		got = append(got, w.Position.File)
	}
	want := []string{"0123456789ac/x.yaml", "B.yaml", "b-c.yaml", "b.yaml", "b/a.yml", "sub/deep/er.yaml"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.Files) != len(want) || c.Files[0] != filepath.Join(s.Path, want[0]) {
		t.Errorf("got files %q", c.Files)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	s := write(t, map[string]string{"big.yaml": "", "a.yaml": "workflows: {a: {run: x, x: y}}\nschedules: [{run: b, every: 1m}]", "locked.yaml": "", "dir.yaml/x.yaml": ""})
	if err := os.Truncate(filepath.Join(s.Path, "big.yaml"), maxFile+1); err != nil {
		t.Fatal(err)
	}
	want := "a.yaml:1:25: workflows.a.x: unknown key \"x\"\nbig.yaml: file is larger than 32 MiB"
	if os.Geteuid() != 0 {
		if err := os.Chmod(filepath.Join(s.Path, "locked.yaml"), 0); err != nil {
			t.Fatal(err)
		}
		want += "\nlocked.yaml: cannot read: permission denied"
	}
	gone := Source{Workspace: s.Workspace, Path: filepath.Join(s.Workspace, "zzz")}
	want += "\nzzz: cannot read: no such file or directory"
	_, err := Load([]Source{s, gone}, Options{})
	if got := fmt.Sprint(err); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// As root, what others may write must not be run, though it may be looked at.
func TestRunningAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root refuses such files")
	}
	s := write(t, map[string]string{"a.yaml": "workflows: {a: {run: x}}", "b.yaml": "", "sub/c.yaml": ""})
	if _, err := Load([]Source{s}, Options{Running: true}); err != nil {
		t.Errorf("root's own files: %v", err)
	}
	for path, change := range map[string]func(string) error{
		"a.yaml": func(p string) error { return os.Chmod(p, 0o620) },
		"b.yaml": func(p string) error { return os.Chown(p, 1, 0) },
		"sub":    func(p string) error { return os.Chmod(p, 0o1777) },
	} {
		if err := change(filepath.Join(s.Path, path)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load([]Source{s}, Options{}); err != nil {
		t.Errorf("looking: %v", err)
	}
	_, err := Load([]Source{s}, Options{Running: true})
	want := fmt.Sprintf("a.yaml: has mode 0620, and root acts only on what nobody else may write (chmod go-w %[1]s/a.yaml)\n"+
		"b.yaml: belongs to uid 1, and root acts only on what root owns (chown root %[1]s/b.yaml)\n"+
		"sub: has mode 0777, and root acts only on what nobody else may write (chmod go-w %[1]s/sub)", s.Path)
	if got := fmt.Sprint(err); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Whoever may write the folder of a single file can put another in its place.
func TestRunningAFileAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root refuses such folders")
	}
	s := write(t, map[string]string{"a.yaml": "workflows: {a: {run: x}}"})
	dir := s.Path
	s.Path = filepath.Join(dir, "a.yaml")
	if _, err := Load([]Source{s}, Options{Running: true}); err != nil {
		t.Errorf("a folder of root's own: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Load([]Source{s}, Options{}); err != nil {
		t.Errorf("looking: %v", err)
	}
	_, err := Load([]Source{s}, Options{Running: true})
	if want := "has mode 0777, and root acts only on what nobody else may write (chmod go-w " + dir + ")"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want …%s", err, want)
	}
}

func TestLocate(t *testing.T) {
	s := write(t, map[string]string{
		"p/.foundry/marbles/a.yaml": "", "p/.foundry/marbles/sub/b.yaml": "", "p/in/side/x": "", "q/jobs/c.yaml": "",
		"home/.foundry/marbles/0123456789ab/workspace.json": "{}", "home/proj/x": "", "r/.foundry/marbles": "no folder",
		"both/.foundry/marbles/0123456789ab/workspace.json": "{}", "both/.foundry/marbles/a.yaml": "",
		"p/.foundry/marbles/n/.foundry/marbles/d.yaml": "", "defs/e.yaml": "",
	})
	root := s.Workspace
	for link, target := range map[string]string{"link": "p", "jobs": "q/jobs/c.yaml"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "linked/.foundry"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../defs", filepath.Join(root, "linked/.foundry/marbles")); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, path, cwd, workspace, want string }{
		{"here", "", "p", "p", "p/.foundry/marbles"},
		{"above", "", "p/in/side", "p", "p/.foundry/marbles"},
		{"inside of the folder itself", "", "p/.foundry/marbles/sub", "p", "p/.foundry/marbles"},
		{"through a link", "", "link/in", "p", "p/.foundry/marbles"},
		{"a linked folder", "", "linked", "linked", "linked/.foundry/marbles"},
		{"none", "", "q/jobs", "q/jobs", ""},
		{"a state root is none", "", "home/proj", "home/proj", ""},
		{"a state root with definitions is one", "", "both", "both", "both/.foundry/marbles"},
		{"a file of that name is none", "", "r", "r", ""},
		{"a folder", "q/jobs", "", "q/jobs", "q/jobs"},
		{"a folder, here", ".", "q/jobs", "q/jobs", "q/jobs"},
		{"a file", "q/jobs/c.yaml", "", "q/jobs", "q/jobs/c.yaml"},
		{"a link to a file", "jobs", "", "q/jobs", "q/jobs/c.yaml"},
		{"the project's folder", "p/.foundry/marbles", "", "p", "p/.foundry/marbles"},
		{"the project's folder, with a slash", "p/.foundry/marbles/", "", "p", "p/.foundry/marbles"},
		{"the project's folder, from inside", ".", "p/.foundry/marbles", "p", "p/.foundry/marbles"},
		{"the project's folder, through a link", "link/.foundry/marbles", "", "p", "p/.foundry/marbles"},
		{"a part of it", "p/.foundry/marbles/sub", "", "p", "p/.foundry/marbles/sub"},
		{"a file of it", "../marbles/a.yaml", "p/.foundry/marbles", "p", "p/.foundry/marbles/a.yaml"},
		{"a linked project's folder", "linked/.foundry/marbles/e.yaml", "", "linked", "linked/.foundry/marbles/e.yaml"},
		{"the innermost counts", "p/.foundry/marbles/n/.foundry/marbles", "", "p/.foundry/marbles/n", "p/.foundry/marbles/n/.foundry/marbles"},
		{"the state root, named", "home/.foundry/marbles", "", "home", "home/.foundry/marbles"},
		{"a project named by its folder", "p", "", "p", "p/.foundry/marbles"},
		{"a folder that holds only a state root", "home", "", "home", "home"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Locate(tt.path, filepath.Join(root, tt.cwd))
			if err != nil {
				t.Fatal(err)
			}
			want := Source{Workspace: filepath.Join(root, tt.workspace)}
			if tt.want != "" {
				want.Path = filepath.Join(root, tt.want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := Load([]Source{got}, Options{}); err != nil {
				t.Errorf("loading it: %v", err)
			}
		})
	}

	_, err := Locate("nowhere", root)
	var hint interface{ Hint() string }
	if !errors.Is(err, fs.ErrNotExist) || !errors.As(err, &hint) || !strings.Contains(err.Error(), root+"/nowhere") {
		t.Errorf("a missing source: got %v", err)
	}
	if _, err := Locate("/dev/null", root); err == nil {
		t.Error("a device was taken as a source")
	}
}

// Paths in messages are relative to the workspace, whatever the working directory is.
func TestPositionsAreRelative(t *testing.T) {
	s := write(t, map[string]string{".foundry/marbles/x/a.yaml": "workflows: {w: {run: x}}"})
	s, err := Locate(filepath.Join(s.Path, ".foundry/marbles"), "/")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load([]Source{s}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Workflows[0].Position.String(); got != ".foundry/marbles/x/a.yaml:1:13" {
		t.Errorf("got %s", got)
	}
}

// A catalog does not depend on which file was read first.
func TestLoadIsDeterministic(t *testing.T) {
	files := make(map[string]string)
	for i := range 40 {
		files[fmt.Sprintf("f%02d.yaml", i)] = fmt.Sprintf("workflows: {w%d: {run: x}}\nschedules:\n- {run: w%d, every: 1d}\n- {run: w0, cron: \"*/7 * * * *\"}\n", i, 39-i)
	}
	s := write(t, files)
	var first string
	for range 4 {
		c, err := Load([]Source{s}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, s := range c.Schedules {
			fmt.Fprintln(&b, s.Key, s.Position, s.Workflow)
		}
		for _, w := range c.Warnings {
			fmt.Fprintln(&b, w)
		}
		if first == "" {
			first = b.String()
		}
		if diff := cmp.Diff(first, b.String()); diff != "" {
			t.Fatalf("(-first +later):\n%s", diff)
		}
		runtime.GC()
	}
}

// FuzzLoad: whatever a file holds, there is no panic, and every error has a place in it; what loads is complete.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(everything))
	for _, seed := range []string{
		"workflows: {a: {run: 'echo \"'}}", "schedules:\n- &a {run: x, at: {hour: 1, weekday: mon}}\n- *a",
		"monitors:\n- {watch: '[', do: x, exclude: ['{a']}\n- {watch: 'http://[', start: x}", "workflows: {a: {run: x, input: {a: {b: *c}}}}",
		"workflows:\n  a:\n    run: |\n      if\n    shell: bash\nschedules: [{run: a, cron: '@daily', timezone: UTC, jitter: 1h, catch_up: 1m, overlap: queue}]",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "a.yaml")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load([]Source{{Workspace: dir, Path: path}}, Options{Now: time.Unix(1.8e9, 0), Local: time.UTC})
		var all Diagnostics
		if err != nil && !errors.As(err, &all) {
			t.Fatalf("got a %T: %v", err, err)
		}
		for _, d := range all {
			if d.File != "a.yaml" || d.Line < 1 || d.Column < 1 || d.Message == "" {
				t.Errorf("bad place: %+v", d)
			}
		}
		if err != nil {
			return
		}
		for _, s := range c.Schedules {
			if s.Key == "" || s.Label == "" || s.Cadence.String() == "" || c.Workflow(s.Workflow) == nil || c.Schedule(s.Key) != s ||
				s.Input != nil && s.Input.Kind() != '{' {
				t.Errorf("incomplete: %+v", s)
			}
		}
		for _, m := range c.Monitors {
			if m.Key == "" || m.Source == nil || m.Handler == nil && m.Start == "" || c.Monitor(m.Key) != m {
				t.Errorf("incomplete: %+v", m)
			}
		}
		for _, w := range c.Workflows {
			if len(w.Steps) == 0 || c.Workflow(w.Name) != w {
				t.Errorf("incomplete: %+v", w)
			}
		}
	})
}
