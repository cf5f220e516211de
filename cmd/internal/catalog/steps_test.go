package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"marbles/runner"
	"marbles/state"
)

// release is a workflow with every key of a step.
const release = `workflows:
  release:
    user: 33
    group: www-data
    on_interrupt: restart
    keep: {runs: 50, age: 90d}
    steps:
      - {name: a.b, run: make, needs: [], retry: {attempts: 3, wait: 1s, max_wait: 5m, exit_codes: [75, 1]}, limits: {memory: 512MiB, cpu: 1.5, tasks: 64}}
      - {name: lint, run: make lint, needs: [], continue_on_error: true}
      - {name: ok, approve: {title: Release?, body: All of it, deadline: 2h, default: reject}, needs: [a.b, lint]}
      - {name: how, ask: {title: How?, choices: [fast, 2], deadline: 1d, default: 2}}
      - {name: words, ask: In your words?, needs: []}
      - {name: pause, wait: 2h}
      - {name: till, wait: {until: "2026-12-24T18:00"}}
      - {name: zone, wait: {until: "2026-12-24T18:00:30+01:00"}}
      - {name: all, run: "true", each: [a, {b: 1.0}], parallel: 2, if: .how == "fast", worktree: {base: main, branch: try/x}, workdir: sub/../x,
         artifacts: [{name: report, path: ./out/r.html, type: text/html}, {name: raw, path: /tmp/raw}]}
      - {name: release, start: {workflow: child, input: '{v: .version}'}, each: .list}
      - {name: once, start: {workflow: child, input: {v: 1}}}
      - {name: clean, run: [rm, x], always: true}
      - {name: tell, start: child, on_failure: true, needs: [clean]}
      - {name: apart, run: ./long.sh, isolate: unit, unit: {MemoryMax: 2G, CPUWeight: 50, PrivateTmp: true, ReadWritePaths: [/srv/a, /srv/b]}}
  child: {run: echo hi, retry: {attempts: 2}, limits: {tasks: 5}, worktree: true, workdir: a, artifacts: [{name: r, path: r}]}
`

func TestEveryKeyOfAStep(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Load([]Source{write(t, map[string]string{"a.yaml": release})}, Options{Local: berlin})
	if err != nil {
		t.Fatal(err)
	}
	text := func(s string) *string { return &s }
	shell := func(s string) runner.Command { return runner.Command{Shell: s} }
	want := []runner.Step{
		{Name: "a.b", Command: shell("make"), Needs: []string{},
			Retry:  runner.Retry{Attempts: 3, Wait: time.Second, MaxWait: 5 * time.Minute, ExitCodes: []int{75, 1}},
			Limits: runner.Limits{Memory: 512 << 20, CPU: 1.5, Tasks: 64}},
		{Name: "lint", Command: shell("make lint"), Needs: []string{}, ContinueOnError: true},
		{Name: "ok", Needs: []string{"a.b", "lint"}, Ask: &runner.Ask{Mode: state.ModeApproval, Title: "Release?", Body: "All of it",
			Deadline: 2 * time.Hour, Default: text("reject")}},
		{Name: "how", Ask: &runner.Ask{Mode: state.ModeQuestion, Title: "How?", Choices: []string{"fast", "2"}, Deadline: 24 * time.Hour,
			Default: text("2")}},
		{Name: "words", Needs: []string{}, Ask: &runner.Ask{Mode: state.ModeQuestion, Title: "In your words?"}},
		{Name: "pause", Wait: &runner.Wait{For: 2 * time.Hour}},
		{Name: "till", Wait: &runner.Wait{Until: time.Date(2026, 12, 24, 17, 0, 0, 0, time.UTC)}},
		{Name: "zone", Wait: &runner.Wait{Until: time.Date(2026, 12, 24, 17, 0, 30, 0, time.UTC)}},
		{Name: "all", Command: shell("true"), Each: &runner.Each{List: []byte(`["a",{"b":1.0}]`), Parallel: 2}, Worktree: &runner.Worktree{Base: "main", Branch: "try/x"},
			Workdir: "x", Artifacts: []runner.Artifact{{Name: "report", Type: "text/html", Path: "out/r.html"}, {Name: "raw", Type: plainBytes, Path: "/tmp/raw"}}},
		{Name: "release", Start: &runner.Start{Workflow: "child"}, Each: &runner.Each{}},
		{Name: "once", Start: &runner.Start{Workflow: "child", Input: []byte(`{"v":1}`)}},
		{Name: "clean", Command: runner.Command{Argv: []string{"rm", "x"}}, Final: runner.Always},
		{Name: "tell", Start: &runner.Start{Workflow: "child"}, Final: runner.OnFailure, Needs: []string{"clean"}},
		{Name: "apart", Command: shell("./long.sh"), Isolate: &runner.Isolate{Directives: []runner.Directive{
			{Name: "MemoryMax", Value: "2G"}, {Name: "CPUWeight", Value: 50.0}, {Name: "PrivateTmp", Value: true},
			{Name: "ReadWritePaths", Value: []any{"/srv/a", "/srv/b"}}}}},
	}
	w := c.Workflow("release")
	programs := cmpopts.IgnoreFields(runner.Step{}, "If")
	if diff := cmp.Diff(want, w.Steps, programs, cmpopts.IgnoreInterfaces(struct{ runner.Program }{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := w.Steps[8].If.String() + w.Steps[9].Start.Program.String() + w.Steps[9].Each.Program.String(); got != `.how == "fast"{v: .version}.list` {
		t.Errorf("programs: got %s", got)
	}
	if w.User != "33" || w.Group != "www-data" || w.OnInterrupt != runner.InterruptRestart {
		t.Errorf("got %s:%s, %s", w.User, w.Group, w.OnInterrupt)
	}
	if diff := cmp.Diff(state.Keep{Runs: 50, Age: 90 * 24 * time.Hour}, w.Keep); diff != "" {
		t.Errorf("keep (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]runner.Step{{Name: "child", Command: shell("echo hi"), Retry: runner.Retry{Attempts: 2}, Limits: runner.Limits{Tasks: 5},
		Worktree: &runner.Worktree{}, Workdir: "a", Artifacts: []runner.Artifact{{Name: "r", Type: plainBytes, Path: "r"}}}},
		c.Workflow("child").Steps); diff != "" || c.Workflow("child").Workdir != "" {
		t.Errorf("one command (-want +got):\n%s", diff)
	}
}

// stepProblems is what is wrong with steps, without the places before the path.
func stepProblems(t *testing.T, steps string) []string {
	t.Helper()
	got := problems(t, map[string]string{"a.yaml": "workflows:\n  idle: {run: x}\n  w: {steps: [\n" + steps + "]}\n"})
	for i, line := range got {
		var at, column int
		if n, _ := fmt.Sscanf(line, "a.yaml:%d:%d: ", &at, &column); n != 2 || at < 3 {
			t.Errorf("no place: %s", line)
			continue
		}
		line = strings.TrimPrefix(line, fmt.Sprintf("a.yaml:%d:%d: workflows.w.", at, column))
		got[i] = line
	}
	return got
}

func TestStepErrors(t *testing.T) {
	tests := []struct {
		name, steps string
		want        []string
	}{
		{"what does not go with what a step does", `
{name: a, approve: x, retry: {attempts: 2}, timeout: 5s, env: {A: b}, each: [1], parallel: 2, limits: {tasks: 1}, worktree: true},
{name: b, wait: 5s, timeout: 5s, shell: bash, workdir: x, artifacts: [{name: a, path: b}], secrets: [A]},
{name: c, start: idle, retry: {attempts: 2, exit_codes: [1]}, env: {}},
{name: d, run: x, ask: y, wait: 5s},
{name: e, run: x, parallel: 2},
{name: f, run: x, always: true, on_failure: true},
{name: g, ask: x, always: true},
{name: h, run: x, always: false},
{name: i, run: x, env: {TOKEN: a}, secrets: [TOKEN]}`, []string{
			"steps[0].retry: retry is for run and start, and this step has approve",
			"steps[0].timeout: timeout is for run and start, and this step has approve; a question has a deadline",
			"steps[0].env: env is for run, and this step has approve",
			"steps[0].each: each is for run and start, and this step has approve",
			"steps[0].parallel: parallel is for run and start, and this step has approve",
			"steps[0].limits: limits is for run, and this step has approve",
			"steps[0].worktree: worktree is for run, and this step has approve",
			"steps[1].timeout: timeout is for run and start, and this step has wait",
			"steps[1].shell: shell is for run, and this step has wait",
			"steps[1].workdir: workdir is for run, and this step has wait",
			"steps[1].artifacts: artifacts is for run, and this step has wait",
			"steps[1].secrets: secrets is for run, and this step has wait",
			"steps[2].retry: exit_codes are a command's, and this step has start",
			"steps[2].env: env is for run, and this step has start",
			"steps[3].ask: a step does one thing; run stands beside it",
			"steps[3].wait: a step does one thing; run stands beside it",
			"steps[4].parallel: parallel goes with each",
			"steps[5].on_failure: give one of always and on_failure",
			"steps[6].ask: a step that runs after all others does not wait: ask is for the others",
			"steps[7].always: want true; leave always out for a step that is one of the others",
			"steps[8].secrets: TOKEN is given by env, too"}},
		{"units", `
{name: a, run: x, isolate: yes},
{name: b, run: x, isolate: unit, unit: {MemoryMx: 2G, PrivateTmp: maybe, Restart: always}},
{name: c, run: x, unit: {PrivateTmp: true}},
{name: d, run: x, isolate: unit, worktree: true},
{name: e, run: x, isolate: unit, always: true},
{name: f, ask: x, isolate: unit},
{name: g, run: x, isolate: unit, unit: [PrivateTmp]}`, []string{
			`steps[0].isolate: want one of unit, got "yes"`,
			`steps[1].unit.MemoryMx: unknown directive "MemoryMx" (did you mean "MemoryMax"?)`,
			`steps[1].unit.PrivateTmp: "maybe" is not true or false`,
			`steps[1].unit.Restart: directive "Restart" cannot be set for a step: its retry says whether it is tried again`,
			"steps[2].unit: unit goes with isolate: unit",
			"steps[3].worktree: a worktree goes when the service stops, and a step with isolate: unit does not",
			"steps[4].isolate: a step that runs after all others ends with its run: isolate is for the others",
			"steps[5].isolate: isolate is for run, and this step has ask",
			"steps[6].unit: want a mapping of systemd's directives, such as {MemoryMax: 2G, ProtectSystem: strict}, got a list",
		}},
		{"values", `
{name: a, run: x, needs: x, if: true, continue_on_error: 1, each: 5, parallel: 0},
{name: b, run: x, needs: [5], if: ".[", each: " ", retry: {attempts: 1, wait: 10s, max_wait: 5s, exit_codes: [0, 256, 3, 3]}},
{name: c, run: x, retry: {wait: 5, exit_codes: [], factor: 2}},
{name: d, run: x, limits: {memory: 5, cpu: 0, tasks: 0, memroy: 1GiB}},
{name: e, run: x, limits: {memory: 5MB, cpu: 1e9, tasks: 1.5}},
{name: f, run: x, limits: {}},
{name: g, run: x, limits: 5}`, []string{
			`steps[0].needs: want a list of steps' names, [] for none, got the text "x"`,
			"steps[0].if: want a jq program over input and results as a text, got the boolean true; quote it",
			"steps[0].continue_on_error: want true or false, got the number 1",
			"steps[0].each: want a list, or a jq program that makes one as a text, got the number 5; quote it",
			"steps[0].parallel: want a whole number from 1 to 10000, got the number 0",
			"steps[1].needs[0]: want a step's name as a text, got the number 5; quote it",
			"steps[1].if: column 3: the jq program ends too early",
			"steps[1].each: jq program is empty; . is all of it, as it is",
			"steps[1].retry.attempts: want a whole number from 2 to 1000, got the number 1",
			"steps[1].retry.max_wait: max_wait 5s is shorter than wait, 10s",
			"steps[1].retry.exit_codes[0]: want a whole number from 1 to 255, got the number 0",
			"steps[1].retry.exit_codes[1]: want a whole number from 1 to 255, got the number 256",
			"steps[1].retry.exit_codes[3]: exit code 3 is given twice",
			"steps[2].retry: give attempts, how often the step is tried in all",
			"steps[2].retry.wait: want a duration such as 30s, 10m, 6h or 1d, got the number 5",
			"steps[2].retry.exit_codes: list is empty; leave exit_codes out for every failure",
			`steps[2].retry.factor: unknown key "factor"`,
			"steps[3].limits.memory: want a size such as 512MiB as a text, got the number 5; quote it",
			"steps[3].limits.cpu: want a number of processors from 0.01 to 1024, got the number 0",
			"steps[3].limits.tasks: want a whole number from 1 to 4194304, got the number 0",
			`steps[3].limits.memroy: unknown key "memroy" (did you mean "memory"?)`,
			`steps[4].limits.memory: cannot read size "5MB": want a whole number and one of B, KiB, MiB, GiB, as 10MiB`,
			"steps[4].limits.cpu: want a number of processors from 0.01 to 1024, got the number 1e9",
			"steps[4].limits.tasks: want a whole number from 1 to 4194304, got the number 1.5",
			"steps[5].limits: give one of memory, cpu and tasks",
			"steps[6].limits: want a mapping such as {memory: 512MiB, cpu: 1.5, tasks: 64}, got the number 5"}},
		{"questions", `
{name: a, approve: {title: x, default: aprove, choices: [a]}},
{name: b, ask: {title: "a\nb", choices: [a, a, " ", 5, [], "x\ny"], deadline: 1h, default: c}},
{name: c, ask: {body: " ", choices: []}},
{name: d, ask: {title: x, choices: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}},
{name: e, ask: " "},
{name: f, ask: {title: x, deadline: 1h, default: anything}},
{name: g, wait: 5},
{name: h, wait: {}},
{name: i, wait: {until: tomorrow, till: x}},
{name: j, wait: {until: "2026-02-30T10:00"}}`, []string{
			"steps[0].approve.default: default is the answer at the deadline, and there is no deadline",
			`steps[0].approve.default: want one of approve, reject, got "aprove" (did you mean "approve"?)`,
			`steps[0].approve.choices: unknown key "choices"`,
			"steps[1].ask.title: a title is one line; more goes into body",
			`steps[1].ask.choices[1]: choice "a" is given twice`,
			"steps[1].ask.choices[2]: choice is empty",
			"steps[1].ask.choices[4]: want an answer as a text, got a list",
			"steps[1].ask.choices[5]: a choice is one line",
			`steps[1].ask.default: want one of a, 5, got "c" (did you mean "a"?)`,
			"steps[2].ask: give title, what is asked",
			"steps[2].ask.body: want a text, got nothing but spaces",
			"steps[2].ask.choices: list is empty; leave choices out for an answer in free words",
			"steps[3].ask.choices: there are 10 choices, at most 9 are allowed",
			"steps[4].ask: want a title as a text, got nothing but spaces",
			`steps[6].wait: want a duration such as 2h as a text, or a mapping such as {until: "2026-12-24T18:00"}, got the number 5; quote it`,
			"steps[7].wait: give until, an instant",
			`steps[8].wait.until: want an instant such as 2026-12-24T18:00 or 2026-12-24T18:00:00+01:00, got "tomorrow"`,
			`steps[8].wait.till: unknown key "till"`,
			`steps[9].wait.until: want an instant such as 2026-12-24T18:00 or 2026-12-24T18:00:00+01:00, got "2026-02-30T10:00"`}},
		{"worktrees and artifacts", `
{name: a, run: x, worktree: {base: "-x", branch: "a..b", brnch: x}, workdir: ../x},
{name: b, run: x, worktree: {base: " ", branch: a.lock}, workdir: /x},
{name: c, run: x, worktree: 5},
{name: d, run: x, worktree: false, workdir: ""},
{name: e, run: x, artifacts: x},
{name: f, run: x, artifacts: [x, {}, {name: a/b, path: " ", type: html}, {name: -x, path: ~/x}, {name: a, path: a/}, {name: a, path: a}, {name: "a@b", path: .}]}`, []string{
			`steps[0].worktree.base: "-x" is no name that git takes`,
			`steps[0].worktree.branch: "a..b" is no branch's name that git takes`,
			`steps[0].worktree.brnch: unknown key "brnch" (did you mean "branch"?)`,
			`steps[0].workdir: workdir "../x" does not lie in the worktree; it is relative to it`,
			"steps[1].worktree.base: want a branch, tag or commit as a text, got nothing but spaces",
			`steps[1].worktree.branch: "a.lock" is no branch's name that git takes`,
			`steps[1].workdir: workdir "/x" does not lie in the worktree; it is relative to it`,
			"steps[2].worktree: want true, or a mapping such as {base: main, branch: try}, got the number 5",
			"steps[3].workdir: workdir is empty; . is the worktree",
			`steps[4].artifacts: want a list of artifacts such as {name: report, type: text/html, path: report.html}, got the text "x"`,
			`steps[5].artifacts[0]: want an artifact: a mapping with name and path, got the text "x"`,
			"steps[5].artifacts[1]: give name, what the artifact is called",
			"steps[5].artifacts[1]: give path, the file that is kept",
			`steps[5].artifacts[2].name: an artifact must be named by a plain file name, not "a/b"`,
			"steps[5].artifacts[2].path: path is empty",
			`steps[5].artifacts[2].type: "html" is no media type such as text/html`,
			`steps[5].artifacts[3].name: artifact name "-x" begins with a dash`,
			"steps[5].artifacts[3].path: path is no shell text: ~ is not expanded; write the whole path",
			`steps[5].artifacts[4].path: path "a/" is a directory, and a file is kept`,
			`steps[5].artifacts[5].name: artifact "a" is there already, in line 10`,
			`steps[5].artifacts[6].name: artifact name "a@b" contains an @, behind which a version is named`,
			`steps[5].artifacts[6].path: path "." is a directory, and a file is kept`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, stepProblems(t, tt.steps)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestGraphErrors(t *testing.T) {
	tests := []struct {
		name, steps string
		want        []string
	}{
		{"as it should be", `{name: a, run: x}, {name: b, run: x, needs: [c]}, {name: c, run: x, needs: []}`, nil},
		{"names", `
{name: build, run: x, needs: [tset]},
{name: test, run: x, needs: [test]},
{name: ship, run: x, needs: [build, build, clean]},
{name: clean, run: x, always: true, needs: [ship, tell]},
{name: tell, run: x, on_failure: true}`, []string{
			`steps[0].needs[0]: no step "tset" (did you mean "test"?)`,
			`steps[1].needs[0]: step "test" needs itself`,
			`steps[2].needs[1]: step "build" is given twice`,
			`steps[2].needs[2]: step "clean" runs after all others, so that none of them can need it`,
			`steps[3].needs[0]: this step runs after all others as it is; it needs no step such as "ship"`,
			`steps[3].needs[1]: steps that run after all others run in the order they stand in, and "tell" stands below`}},
		{"a cycle through the step above", `{name: a, run: x, needs: [c]}, {name: b, run: x}, {name: c, run: x}`, []string{
			`steps[0]: steps wait for one another: "a" needs "c", which needs "b" (the one above), which needs "a" (the one above)`}},
		{"two cycles, and what is behind one", `
{name: a, run: x, needs: [b]}, {name: b, run: x, needs: [a]},
{name: c, run: x, needs: [d]}, {name: d, run: x, needs: [c]}, {name: e, run: x}`, []string{
			`steps[0]: steps wait for one another: "a" needs "b", which needs "a"`,
			`steps[2]: steps wait for one another: "c" needs "d", which needs "c"`}},
		{"nothing but what is last", `{name: a, run: x, always: true}`, []string{
			"steps: every step runs after the others, and there are no others"}},
		{"a step without a name may be any", `{run: x}, {name: b, run: x, needs: [a]}`, []string{"steps[0]: give the step a name"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, stepProblems(t, tt.steps)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHugeGraphs: what is wrong in a graph of many steps is found in the time that reading it takes.
func TestHugeGraphs(t *testing.T) {
	const n = 10_000
	graph := func(step func(i int) string) string {
		var b strings.Builder
		b.WriteString("workflows:\n  w:\n    steps:\n")
		for i := range n {
			fmt.Fprintf(&b, "    - {name: s%d, run: x%s}\n", i, step(i))
		}
		return b.String()
	}
	tests := []struct {
		name string
		step func(i int) string
		want func(lines []string) bool
	}{
		{"a chain", func(int) string { return "" }, func(l []string) bool { return len(l) == 0 }},
		{"all at once", func(int) string { return ", needs: []" }, func(l []string) bool { return len(l) == 0 }},
		{"one cycle", func(i int) string { return fmt.Sprintf(", needs: [s%d]", (i+1)%n) }, func(l []string) bool {
			return len(l) == 1 && len(l[0]) < 1000 && strings.Contains(l[0], "and so on through 9989 more")
		}},
		{"each needs the ten before", func(i int) string {
			var names []string
			for j := max(0, i-10); j < i; j++ {
				names = append(names, fmt.Sprintf("s%d", j))
			}
			return ", needs: [" + strings.Join(names, ", ") + "]"
		}, func(l []string) bool { return len(l) == 0 }},
		{"none is known", func(i int) string { return fmt.Sprintf(", needs: [t%d]", i) }, func(l []string) bool { return len(l) == n }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			if lines := problems(t, map[string]string{"a.yaml": graph(tt.step)}); !tt.want(lines) {
				t.Errorf("%d errors: %.300q", len(lines), lines[:min(3, len(lines))])
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	got := problems(t, map[string]string{
		"a.yaml": `workflows:
  one: {steps: [{name: s, start: two}, {name: t, start: {workflow: twoo, input: 5}}, {name: u, start: {input: {a: b}}}, {name: v, start: 5}]}
  self: {steps: [{name: self, start: self}]}
  caller: {steps: [{name: s, start: {workflow: callee, input: {n-n: 1}}}]}
  callee: {run: x, input: {n_n: 1}}
  hooked: {run: x, on_failure: {start: hookedd}, on_recovery: {run: "(", name: x}, on_missed: {start: idle, run: x}}
`,
		"b.yaml": `workflows:
  two: {steps: [{name: s, start: three}]}
  idle: {run: x, on_failure: {start: idle}}
schedules:
- {run: idle, every: 1h, on_missed: {start: no}, on_failure: [], on_recovery: {command: x}, ping: x}
`,
		"c.yaml": `workflows: {three: {steps: [{name: a, start: {workflow: one, input: .}}]}}`,
	})
	want := []string{
		`a.yaml:2:68: workflows.one.steps[1].start: no workflow "twoo" (did you mean "two"?)`,
		"a.yaml:2:81: workflows.one.steps[1].start.input: want a mapping, or a jq program over input and results as a text, got the number 5; quote it",
		"a.yaml:2:103: workflows.one.steps[2].start: give workflow, the name of the workflow to launch",
		"a.yaml:2:138: workflows.one.steps[3].start: want a workflow's name as a text, or a mapping such as {workflow: …, input: {…}}, got the number 5; quote it",
		`a.yaml:3:38: workflows.self.steps[0].start: workflow "self" would start itself`,
		`a.yaml:4:48: workflows.caller.steps[0].start.input: input "n-n" and input "n_n" of workflow "callee" would both be INPUT_N_N`,
		`a.yaml:6:40: workflows.hooked.on_failure.start: no workflow "hookedd" (did you mean "hooked"?)`,
		"a.yaml:6:70: workflows.hooked.on_recovery.run: bad shell syntax: `(` must be followed by a statement list",
		`a.yaml:6:109: workflows.hooked.on_missed.run: a hook that starts a workflow has no key "run"`,
		`b.yaml:5:45: schedules[0].on_missed.start: no workflow "no"`,
		"b.yaml:5:62: schedules[0].on_failure: list is empty",
		"b.yaml:5:79: schedules[0].on_recovery: give run, the command of the step",
		`b.yaml:5:80: schedules[0].on_recovery.command: unknown key "command"`,
		"b.yaml:5:99: schedules[0].ping: want an http or https URL to ping",
		`c.yaml:1:57: workflows.three.steps[0].start: workflow "one" would start itself: it starts "two", which starts "three", which starts "one"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDeepStarts: workflows that start one another through very many are found as any other.
func TestDeepStarts(t *testing.T) {
	const n = 20_000
	var b strings.Builder
	b.WriteString("workflows:\n")
	for i := range n {
		fmt.Fprintf(&b, "  w%d: {steps: [{name: s, start: w%d}]}\n", i, (i+1)%n)
	}
	got := problems(t, map[string]string{"a.yaml": b.String()})
	if len(got) != 1 || len(got[0]) > 1000 || !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "and so on through 19990 more") }) {
		t.Errorf("got %.600q", got)
	}
}
