package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"marbles/state"
)

// place is a project and a state root of its own, in this process.
type place struct {
	t         *testing.T
	dir, root string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: filepath.Join(base, "p"), root: filepath.Join(base, "state")}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) write(path, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// workspace is a registered workspace of a project.
func (p *place) workspace(project string) *state.Workspace {
	p.t.Helper()
	root, err := state.Open(p.root)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(project, 0o700); err != nil {
		p.t.Fatal(err)
	}
	ws, err := root.Workspace(project)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := ws.Register(nil, time.Now()); err != nil {
		p.t.Fatal(err)
	}
	return ws
}

func (p *place) main(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = Main(Env{Args: append([]string{"--state", p.root}, args...), Env: []string{"PATH=" + os.Getenv("PATH")},
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Cwd: p.dir, Home: p.dir, Euid: os.Geteuid()})
	return out.String(), errs.String(), code
}

func TestStatusSortsKeysKnownByTheirLocks(t *testing.T) {
	p := newPlace(t)
	ws := p.workspace(p.dir)
	var want []string
	for i := range 20 {
		key := fmt.Sprintf("k%02d", i)
		l, err := ws.TryLock("schedule:" + key)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
		want = append(want, key)
	}
	out, _, _ := p.main("status", "--json")
	var report statusReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Workspaces) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	var got []string
	for _, k := range report.Workspaces[0].Keys {
		got = append(got, k.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want them sorted", got)
	}
}

// A workspace that cannot be told is named, and the others are told.
func TestDamagedWorkspaces(t *testing.T) {
	p := newPlace(t)
	ws := p.workspace(filepath.Join(filepath.Dir(p.dir), "other"))
	bad := filepath.Join(p.root, "0123456789ab", "workspace.json")
	p.write(bad, "{")
	torn := p.workspace(filepath.Join(filepath.Dir(p.dir), "torn"))
	for _, dir := range []string{"runs", "schedules"} { // no directories
		if err := os.RemoveAll(filepath.Join(torn.Dir(), dir)); err != nil {
			t.Fatal(err)
		}
		p.write(filepath.Join(torn.Dir(), dir), "")
	}
	runsFile := filepath.Join(torn.Dir(), "runs")
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"status"}, exitDone}, {[]string{"runs"}, exitDone}, {[]string{"show", "rn-0"}, exitRun},
		{[]string{"watch", "rn-0"}, exitUsage},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			out, errs, code := p.main(tt.args...)
			if all := out + errs; code != tt.code || !strings.Contains(all, "damaged: ") ||
				!strings.Contains(all, bad) || !strings.Contains(all, runsFile) {
				t.Errorf("exit code %d:\n%s", code, all)
			}
			if tt.args[0] == "status" && !strings.Contains(out, ws.Project()) {
				t.Errorf("the sound workspace is missing:\n%s", out)
			}
		})
	}
}

func TestInputErrors(t *testing.T) {
	p := newPlace(t)
	for _, tt := range []struct{ input, want string }{
		{"from=me", `marbles: cannot read --input: want a JSON object, as in '{"from":"me"}': `},
		{"{from: me}", `marbles: cannot read --input: want a JSON object, as in '{"from":"me"}': `},
		{"[1]", `marbles: cannot read --input: want a JSON object, as in '{"from":"me"}': `},
		{`{"a-b":1,"a_b":2}`, `marbles: cannot read --input: inputs "a-b" and "a_b" are both `},
	} {
		_, errs, code := p.main("roll", "x", "--input", tt.input)
		if code != exitUsage || !strings.HasPrefix(errs, tt.want) || strings.Count(errs, "cannot read") != 1 {
			t.Errorf("%s: exit code %d, %s", tt.input, code, errs)
		}
	}
}

func TestShowAndWatchOfARun(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "workflows: {w: {run: 'true'}}\nschedules: [{run: w, key: kilo, every: 1h, input: {a: {b: 1}}}]\n")
	if _, errs, code := p.main("roll", "kilo"); code != 0 {
		t.Fatal(errs)
	}
	out, _, _ := p.main("runs", "--json")
	var page runPage
	if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Runs) != 1 {
		t.Fatalf("%v in %s", err, out)
	}
	if out, _, _ := p.main("show", page.Runs[0].ID); !strings.Contains(out, `  {"a":{"b":1}}`+"\n") {
		t.Errorf("the input is not compact:\n%s", out)
	}
	_, errs, code := p.main("watch", "kilo") // no run id ends so: they have neither i nor l nor o
	if want := "marbles: no run \"kilo\": it is a key\nhint: its runs: marbles runs --key kilo\n"; code != exitUsage || errs != want {
		t.Errorf("exit code %d, %q; want %q", code, errs, want)
	}
}

// What was not measured is no zero.
func TestStepsOfARun(t *testing.T) {
	var b bytes.Buffer
	a := &app{Env: Env{Stdout: &b}}
	f := &state.RunFile{Steps: []state.StepRecord{{Name: "a", Status: state.Complete}, {Name: "b", Status: state.Complete, UserMS: 5, MaxRSS: 1 << 20}}}
	if err := a.paint(a.Stdout).table(a.Stdout, newGraph(f, nil).rows()); err != nil {
		t.Fatal(err)
	}
	if want := "STEP  STATUS    TOOK  CPU  MEMORY\na     complete  -     -    -\nb     complete  -     5ms  1.0 MiB\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestCompletion(t *testing.T) {
	p := newPlace(t)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "workflows: {w: {run: 'true'}, v: {run: 'true'}}\nschedules: [{run: v, key: w, every: 1h}]\n")
	for _, tt := range []struct{ args, want []string }{
		{[]string{"roll", ""}, []string{"w", "v"}},
		{[]string{"runs", "--status", ""}, []string{"queued", "running", "suspended", "complete", "failed", "cancelled"}},
		{[]string{"runs", "--key", ""}, []string{"w"}},
		{[]string{"list", "--log-level", ""}, []string{"debug", "info", "warn", "error"}},
		{[]string{"list", "--log-format", ""}, []string{"auto", "journal", "text", "json"}},
	} {
		var got []string
		out, _, _ := p.main(append([]string{"__completeNoDesc"}, tt.args...)...)
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" && line[0] != ':' {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: got %q, want %q", tt.args, got, tt.want)
		}
	}
}
