package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write writes files below a new folder and returns it as a source.
func write(tb testing.TB, files map[string]string) Source {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return Source{Workspace: dir, Path: dir}
}

// problems loads files and returns the lines of the error, or nil.
func problems(tb testing.TB, files map[string]string) []string {
	tb.Helper()
	return problemsOf(tb, write(tb, files))
}

func problemsOf(tb testing.TB, s Source) []string {
	tb.Helper()
	_, err := Load([]Source{s}, Options{})
	if err == nil {
		return nil
	}
	var all Diagnostics
	if !errors.As(err, &all) {
		tb.Fatalf("got a %T: %v", err, err)
	}
	return strings.Split(err.Error(), "\n")
}

func TestLoadErrors(t *testing.T) {
	const idle = "workflows: {idle: {run: \"true\"}}\n"
	tests := []struct {
		name, text string
		want       []string
	}{
		{name: "nothing at all", text: ""},
		{name: "empty sections", text: "workflows:\nschedules:\nmonitors:\n"},
		{name: "no mapping", text: "- 1", want: []string{"a.yaml:1:1: want a mapping with workflows, schedules or monitors, got a list"}},
		{name: "unknown section", text: "workflow: {}", want: []string{`a.yaml:1:1: workflow: unknown key "workflow" (did you mean "workflows"?)`}},
		{name: "sections of the wrong type", text: "workflows: []\nschedules: {}\nmonitors: 5", want: []string{
			"a.yaml:1:12: workflows: want a mapping of workflows by name, got a list",
			"a.yaml:2:12: schedules: want a list of schedules, got a mapping",
			"a.yaml:3:11: monitors: want a list of monitors, got the number 5"}},

		{name: "keys that are not there", text: "workflows:\n  a: {run: x, on_interupt: restart, steps_: 1}\n  b: {steps: [{name: s, run: x, retrys: 1, need: [a]}]}\n", want: []string{
			`a.yaml:2:15: workflows.a.on_interupt: unknown key "on_interupt" (did you mean "on_interrupt"?)`,
			`a.yaml:2:37: workflows.a.steps_: unknown key "steps_" (did you mean "steps"?)`,
			`a.yaml:3:33: workflows.b.steps[0].retrys: unknown key "retrys" (did you mean "retry"?)`,
			`a.yaml:3:44: workflows.b.steps[0].need: unknown key "need" (did you mean "needs"?)`}},
		{name: "case matters", text: "workflows: {a: {Run: x}}", want: []string{
			"a.yaml:1:16: workflows.a: give run or steps",
			`a.yaml:1:17: workflows.a.Run: unknown key "Run" (did you mean "run"?)`}},

		{name: "workflow names", text: "workflows: {\"\": {run: x}, \"a\\nb\": {run: x}, \"a.b c/d\": {run: x}}", want: []string{
			`a.yaml:1:13: workflows."": workflow name is empty`,
			`a.yaml:1:27: workflows."a\nb": workflow name "a\nb" contains a control character`}},
		{name: "workflow values", text: "workflows:\n  w:\n    describe: 5\n    input: [a]\n    env: x\n    timeout: 90\n    workdir: \"\"\n    shell: bash -c\n    concurrency: 0\n    run: x\n", want: []string{
			"a.yaml:3:15: workflows.w.describe: want a text, got the number 5; quote it",
			"a.yaml:4:12: workflows.w.input: want a mapping, got a list",
			`a.yaml:5:10: workflows.w.env: want a mapping of variables, got the text "x"`,
			"a.yaml:6:14: workflows.w.timeout: want a duration such as 30s, 10m, 6h or 1d, got the number 90",
			"a.yaml:7:14: workflows.w.workdir: workdir is empty; . is the workspace",
			`a.yaml:8:12: workflows.w.shell: want one word such as bash, or a list such as [bash, -euo, pipefail, -c], got "bash -c"`,
			"a.yaml:9:18: workflows.w.concurrency: want a whole number from 1 to 10000, got the number 0"}},
		{name: "environment", text: "workflows: {w: {run: x, env: {1A: x, MARBLES_KEY: x, A: [], B: ~, C: \"\\0\", D: 0644, E: 1.50, F: true}}}", want: []string{
			`a.yaml:1:31: workflows.w.env.1A: "1A" is no variable's name: letters, digits and _, not beginning with a digit`,
			"a.yaml:1:38: workflows.w.env.MARBLES_KEY: variables that begin with MARBLES_ are set by marbles itself",
			"a.yaml:1:57: workflows.w.env.A: want a text, got a list",
			"a.yaml:1:64: workflows.w.env.B: want a text, got nothing",
			"a.yaml:1:70: workflows.w.env.C: value contains a NUL",
			"a.yaml:1:79: workflows.w.env.D: number 0644 has a leading zero, which some read as octal; leave it out, or quote it"}},
		{name: "run and steps", text: "workflows:\n  a: {run: x, steps: [{name: s, run: x}]}\n  b: {}\n  c: {steps: []}\n  d: {steps: [x, {run: x}, {name: s}, {name: t, run: x}, {name: t, run: x}]}\n  e:\n", want: []string{
			"a.yaml:2:22: workflows.a.steps: give one of run and steps",
			"a.yaml:3:6: workflows.b: give run or steps",
			"a.yaml:4:14: workflows.c.steps: a workflow has at least one step",
			`a.yaml:5:15: workflows.d.steps[0]: want a step: a mapping with name and run, got the text "x"`,
			"a.yaml:5:18: workflows.d.steps[1]: give the step a name",
			"a.yaml:5:28: workflows.d.steps[2]: give run, the command of the step, or one of approve, ask, wait and start",
			`a.yaml:5:65: workflows.d.steps[4].name: step "t" is there already, in line 5`,
			"a.yaml:6:5: workflows.e: want a workflow: a mapping with run or steps, got nothing"}},
		{name: "commands", text: "workflows:\n  a: {run: true}\n  b: {run: \" \"}\n  c: {run: []}\n  d: {run: [\"\", x]}\n  e: {run: [sleep, 5, ~]}\n  f: {run: \"a\\0b\"}\n  g: {run: [a, \"\\0\"]}\n", want: []string{
			"a.yaml:2:12: workflows.a.run: want a command: a text for the shell, or a list of texts, got the boolean true; quote it",
			"a.yaml:3:12: workflows.b.run: command is empty",
			"a.yaml:4:12: workflows.c.run: list is empty",
			"a.yaml:5:12: workflows.d.run: command is empty",
			"a.yaml:6:23: workflows.e.run[2]: want a text, got nothing",
			"a.yaml:7:12: workflows.f.run: command contains a NUL",
			"a.yaml:8:16: workflows.g.run[1]: text contains a NUL"}},
		{name: "shell syntax", text: "workflows:\n  a:\n    run: |\n      if true; then\n        echo )\n      fi\n  b: {run: \"a=(1 2)\"}\n  c: {run: \"a=(1 2)\", shell: bash}\n  d: {run: \"( (\", shell: [fish, -c]}\n  e: {run: echo 'x}\n  f: {run: [echo, \"'\"]}\n  g: {shell: /bin/bash, steps: [{name: s, run: \"a=(1\"}, {name: t, run: \"a=(1)\", shell: sh}]}\n  h: {run: \"a=1\\nif\", shell: [/usr/bin/env, bash, -c]}\nmonitors: [{watch: x, do: \"while\"}]\n", want: []string{
			"a.yaml:5:14: workflows.a.run: bad shell syntax: a command can only contain words and redirects; encountered `)`",
			"a.yaml:7:15: workflows.b.run: bad shell syntax: arrays are a bash/mksh/zsh feature; tried parsing as posix; shell: bash would take it",
			"a.yaml:10:17: workflows.e.run: bad shell syntax: reached EOF without closing quote `'`",
			"a.yaml:12:51: workflows.g.steps[0].run: bad shell syntax: reached EOF without matching `(` with `)`",
			"a.yaml:12:75: workflows.g.steps[1].run: bad shell syntax: arrays are a bash/mksh/zsh feature; tried parsing as posix; shell: bash would take it",
			"a.yaml:13:12: workflows.h.run: bad shell syntax in line 2 of the text: `if` must be followed by a statement list",
			"a.yaml:14:28: monitors[0].do: bad shell syntax: `while` must be followed by a statement list"}},

		{name: "cadences", text: idle + `schedules:
- {run: idle}
- {run: idle, every: 30m, at: {hour: 2}, cron: "* * * * *"}
- {run: idle, every: 1h30m}
- {run: idle, every: 0s}
- {run: idle, every: 60}
- {run: idle, at: "02:30"}
- {run: idle, at: {minute: 60, weekday: [mon, mon, fry, 5], second: 1}}
- {run: idle, at: {hour: 24}}
- {run: idle, cron: "0 0 30 2 *"}
- {run: idle, cron: "TZ="}
- {run: idle, cron: "@every 1h"}
- {run: idle, every: 1h, timezone: UTC}
- {run: idle, at: {hour: 1}, timezone: Europe/Berlim}
- {run: idle, at: {hour: 1}, timezone: Local}
- {run: idle, at: {hour: 1}, timezone: ""}
- {run: idle, at: {hour: 1}, timezone: ../../etc/passwd}
`, want: []string{
			"a.yaml:3:3: schedules[0]: give one of every, at and cron",
			"a.yaml:4:27: schedules[1].at: give one of every, at and cron; every stands beside it",
			"a.yaml:4:42: schedules[1].cron: give one of every, at and cron; every stands beside it",
			`a.yaml:5:22: schedules[2].every: cannot read cadence "1h30m" (want e.g. 30m, 6h, 1d)`,
			`a.yaml:6:22: schedules[3].every: cadence "0s" must be a positive interval that fits in a safe integer`,
			"a.yaml:7:22: schedules[4].every: want an interval such as 30m, 6h or 1d as a text, got the number 60; quote it",
			`a.yaml:8:19: schedules[5].at: want a mapping such as {hour: 2, minute: 30, weekday: [mon, thu]}, got the text "02:30"`,
			"a.yaml:9:19: schedules[6].at: give an hour",
			"a.yaml:9:28: schedules[6].at.minute: want a whole number from 0 to 59, got the number 60",
			"a.yaml:9:47: schedules[6].at.weekday[1]: weekday mon is given twice",
			`a.yaml:9:52: schedules[6].at.weekday[2]: no weekday "fry", want one of sun, mon, tue, wed, thu, fri, sat (did you mean "fri"?)`,
			"a.yaml:9:57: schedules[6].at.weekday[3]: want a weekday's name (sun, mon, tue, wed, thu, fri, sat) as a text, or a list of them, got the number 5; quote it",
			`a.yaml:9:61: schedules[6].at.second: unknown key "second"`,
			"a.yaml:10:26: schedules[7].at.hour: want a whole number from 0 to 23, got the number 24",
			`a.yaml:11:21: schedules[8].cron: cannot read cron "0 0 30 2 *": it never fires: no such date exists`,
			`a.yaml:12:21: schedules[9].cron: cannot read cron "TZ=": a cron takes no TZ=; use timezone: beside it`,
			`a.yaml:13:21: schedules[10].cron: cannot read cron "@every 1h": @every is no cron; use every: 1h`,
			"a.yaml:14:36: schedules[11].timezone: a timezone is for at and cron; an interval has none",
			`a.yaml:15:40: schedules[12].timezone: no time zone "Europe/Berlim" (did you mean "Europe/Berlin"?)`,
			`a.yaml:16:40: schedules[13].timezone: no time zone "Local"`,
			`a.yaml:17:40: schedules[14].timezone: no time zone ""`,
			`a.yaml:18:40: schedules[15].timezone: no time zone "../../etc/passwd"`}},
		{name: "jitter", text: idle + "schedules:\n- {run: idle, every: 30m, jitter: 30m, key: a}\n- {run: idle, every: 30m, jitter: 29m, key: b}\n- {run: idle, at: {hour: 6, weekday: [mon, tue]}, jitter: 1d, key: c}\n- {run: idle, every: 1m, jitter: 0s, key: d}\n", want: []string{
			"a.yaml:3:35: schedules[0].jitter: jitter 30m is not below the shortest gap between two slots, 30m",
			"a.yaml:5:59: schedules[2].jitter: jitter 1d is not below the shortest gap between two slots, 24h",
			`a.yaml:6:34: schedules[3].jitter: duration "0s" is zero: want a positive duration such as 30s, 10m, 6h or 1d`}},
		{name: "schedule values", text: idle + "schedules:\n- {run: idle, every: 1m, overlap: skp, catch_up: yes, enabled: 1, input: x, key: 5}\n- {every: 1m}\n- {run: [idle], every: 1m}\n- idle\n", want: []string{
			`a.yaml:3:35: schedules[0].overlap: want one of skip, queue, replace, got "skp" (did you mean "skip"?)`,
			`a.yaml:3:50: schedules[0].catch_up: want true, false or a duration such as 6h, got the text "yes"`,
			"a.yaml:3:64: schedules[0].enabled: want true or false, got the number 1",
			`a.yaml:3:74: schedules[0].input: want a mapping, got the text "x"`,
			"a.yaml:3:82: schedules[0].key: want a text, got the number 5; quote it",
			"a.yaml:4:3: schedules[1]: give run, the name of the workflow to launch",
			"a.yaml:5:9: schedules[2].run: want a workflow's name as a text, got a list",
			`a.yaml:6:3: schedules[3]: want a schedule: a mapping with run and one of every, at and cron, got the text "idle"`}},
		{name: "keys", text: idle + "schedules:\n- {run: idle, every: 1m, key: a/b}\n- {run: idle, every: 1m, key: ..}\n- {run: idle, every: 1m, key: -x}\n- {run: idle, every: 1m, key: \"a\\tb\"}\n- {run: idle, every: 1m, key: " + strings.Repeat("k", 201) + "}\n- {run: idle, every: 1m, key: ok}\n- {run: idle, every: 1m, key: ok}\nmonitors:\n- {watch: x, do: y, key: ok}\n", want: []string{
			`a.yaml:3:31: schedules[0].key: state key "a/b" must be a plain name: not empty, "." or "..", and without "/", "\" or NUL`,
			`a.yaml:4:31: schedules[1].key: state key ".." must be a plain name: not empty, "." or "..", and without "/", "\" or NUL`,
			`a.yaml:5:31: schedules[2].key: key "-x" begins with a dash`,
			`a.yaml:6:31: schedules[3].key: key "a\tb" contains a control character`,
			"a.yaml:7:31: schedules[4].key: key has 201 bytes, at most 200 are allowed",
			`a.yaml:9:31: schedules[6].key: key "ok" is there already, at a.yaml:8:31`,
			`a.yaml:11:26: monitors[0].key: key "ok" is there already, at a.yaml:8:31`}},
		{name: "unknown workflows", text: "workflows: {publish: {run: x}}\nschedules:\n- {run: publsh, every: 1m}\n- {run: zzz, every: 1m}\nmonitors:\n- {watch: x, start: Publish}\n", want: []string{
			`a.yaml:3:9: schedules[0].run: no workflow "publsh" (did you mean "publish"?)`,
			`a.yaml:4:9: schedules[1].run: no workflow "zzz"`,
			`a.yaml:6:21: monitors[0].start: no workflow "Publish" (did you mean "publish"?)`}},
		{name: "a workflow with errors is known", text: "workflows: {w: {run: x, tmeout: 1s}}\nschedules: [{run: w, every: 1m}]", want: []string{
			`a.yaml:1:25: workflows.w.tmeout: unknown key "tmeout" (did you mean "timeout"?)`}},
		{name: "colliding inputs", text: "workflows: {w: {run: x, input: {a-b: 1, é: 2}}, v: {run: x, input: {a b: 1, A.b: 1}}}\nschedules:\n- {run: w, every: 1m, input: {A_B: 1, é: 3, _: 4}}\n- {run: w, every: 1m, input: {x: 1, X: 1}}\n", want: []string{
			`a.yaml:1:77: workflows.v.input."A.b": inputs "a b" and "A.b" would both be INPUT_A_B`,
			`a.yaml:3:9: schedules[0].input: input "A_B" and input "a-b" of workflow "w" would both be INPUT_A_B`,
			`a.yaml:3:9: schedules[0].input: input "_" and input "é" of workflow "w" would both be INPUT__`,
			`a.yaml:3:45: schedules[0].input._: inputs "é" and "_" would both be INPUT__`,
			`a.yaml:4:37: schedules[1].input.X: inputs "x" and "X" would both be INPUT_X`}},
		{name: "input is plain JSON", text: "workflows: {w: {run: x, input: {a: .inf, b: !!binary aGk=, c: 0o7, d: !x y}}}", want: []string{
			"a.yaml:1:36: workflows.w.input.a: number .inf cannot be said in JSON",
			"a.yaml:1:45: workflows.w.input.b: tag !!binary is not supported",
			"a.yaml:1:63: workflows.w.input.c: number 0o7 is octal or binary; write it as a decimal, or quote it",
			"a.yaml:1:71: workflows.w.input.d: tag !x is not supported"}},
		{name: "monitors", text: idle + `monitors:
- {every: 1m, do: x}
- {watch: a}
- {watch: " ", do: x}
- {watch: "**x", do: x}
- {watch: a, do: x, exclude: [b, "!c", 5]}
- {watch: "http://u:p@x/", do: x, exclude: [a]}
- {watch: a, do: x, input: {a: 1}}
- {watch: a, start: idle, input: "{a: .b"}
- {watch: a, do: {run: x, nme: y}, baseline: loud, timeout: 5}
- {watch: a, do: 5, run: idle}
- x
- {watch: "ftp://u:p@x/y", do: x}
`, want: []string{
			"a.yaml:3:3: monitors[0]: give watch, a glob or an http or https URL",
			"a.yaml:4:3: monitors[1]: give at least one of do and start",
			"a.yaml:5:11: monitors[2].watch: a source is required",
			`a.yaml:6:11: monitors[3].watch: bad pattern "**x": "**" must be a whole segment, not part of "**x"`,
			`a.yaml:7:34: monitors[4].exclude[1]: exclude: bad pattern "!c": a leading "!" does not negate; use exclude, or write \! for a name that begins so`,
			"a.yaml:7:40: monitors[4].exclude[2]: want a glob as a text, got the number 5; quote it",
			"a.yaml:8:11: monitors[5].watch: cannot watch http://x/: user information in a URL is refused",
			"a.yaml:8:35: monitors[5].exclude: exclude is for files, and this monitor watches a URL",
			"a.yaml:9:28: monitors[6].input: input is for the workflow that start names, and there is no start",
			"a.yaml:10:34: monitors[7].input: column 7: the jq program ends too early",
			`a.yaml:11:27: monitors[8].do.nme: unknown key "nme" (did you mean "name"?)`,
			`a.yaml:11:46: monitors[8].baseline: want one of silent, got "loud"`,
			"a.yaml:11:61: monitors[8].timeout: want a duration such as 30s, 10m, 6h or 1d, got the number 5",
			"a.yaml:12:18: monitors[9].do: want a command: a text for the shell, or a list of texts, got the number 5; quote it",
			`a.yaml:12:21: monitors[9].run: unknown key "run"`,
			`a.yaml:13:3: monitors[10]: want a monitor: a mapping with watch and at least one of do and start, got the text "x"`,
			"a.yaml:14:11: monitors[11].watch: only http and https URLs are watched"}},
		{name: "aliases are followed", text: "workflows: {a: &w {run: x}, b: *w}\nschedules:\n- &s {run: &n a, every: &e 1m}\n- {run: *n, every: *e, key: b}\n- *s\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := problems(t, map[string]string{"a.yaml": tt.text})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// All files' errors are given at once; a file that cannot be read hides no error of another, and what it may declare is
// not called unknown.
func TestLoadReportsAllFiles(t *testing.T) {
	got := problems(t, map[string]string{
		"b/z.yml":  "workflows: {same: {run: x}}\nschedules: [{run: elsewhere, every: 1m, jitter: 5m}]",
		"a.yaml":   "workflows: {same: {run: x, tiemout: 1s}}",
		"bad.yaml": "workflows: {elsewhere: {run: x}\n",
	})
	want := []string{
		`a.yaml:1:28: workflows.same.tiemout: unknown key "tiemout" (did you mean "timeout"?)`,
		`b/z.yml:1:13: workflows.same: workflow "same" is there already, at a.yaml:1:13`,
		`b/z.yml:2:49: schedules[0].jitter: jitter 5m is not below the shortest gap between two slots, 1m`,
		`bad.yaml:2:1: cannot parse: did not find expected ',' or '}' while parsing a flow mapping that begins in line 1`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadWarnings(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zone database: ", err)
	}
	const text = `workflows:
  w: {run: x, timeout: 1h}
  v: {run: x}
schedules:
- {run: v, cron: "0 0 */2 * 3", key: c24}
- {run: v, cron: "0 0 13 * 5", key: both}
- {run: v, cron: "*/40 * * * *", key: c29}
- {run: w, cron: "*/30 * * * *", key: timeout}
- {run: v, every: 1d, key: day}
- {run: v, at: {hour: 2, minute: 30}, timezone: Europe/Berlin, key: moved}
- {run: v, at: {hour: 2, minute: 30}, key: local}
- {run: v, every: 1h}
- {run: v, every: 2h}
- {run: v, every: 2h, key: V}
monitors:
- {watch: a, do: {run: x, timeout: 3m}, timeout: 2m, start: w, cron: "* * * * *"}
- {watch: a, do: x}
`
	c, err := Load([]Source{write(t, map[string]string{"a.yaml": text})},
		Options{Now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Local: berlin})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Warnings {
		got = append(got, w.String())
	}
	want, err := os.ReadFile("testdata/warnings.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c, err = Load(c.Sources, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Warnings {
		if strings.Contains(w.Message, "2026") {
			t.Errorf("a warning about a clock change without a time: %s", w)
		}
	}
}
