package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

func TestRun(t *testing.T) {
	type want struct {
		Status state.Status
		Error  string // name: message
		Output string
		Lines  []string
	}
	sh := func(name, text string) Step { return Step{Name: name, Command: Command{Shell: text}} }
	argv := func(name string, args ...string) Step { return Step{Name: name, Command: Command{Argv: args}} }
	tests := []struct {
		name  string
		steps []Step
		wf    Workflow
		want  want
	}{
		{
			name:  "complete",
			steps: []Step{sh("a", "true")},
			want:  want{state.Complete, "", "", []string{"[step] a started", "[step] a complete"}},
		},
		{
			name: "no steps",
			want: want{state.Complete, "", "", []string{""}},
		},
		{
			name:  "first failure ends the run",
			steps: []Step{sh("a", "true"), sh("b", "exit 3"), sh("c", "true")},
			want: want{
				state.Failed, `ExitError: step "b" exited with code 3`, "",
				[]string{"[step] a started", "[step] a complete", "[step] b started", "[step] b failed: exited with code 3"},
			},
		},
		{
			name:  "signal",
			steps: []Step{sh("a", "kill -USR1 $$")},
			want: want{
				state.Failed, `SignalError: step "a" was ended by SIGUSR1`, "",
				[]string{"[step] a started", "[step] a failed: was ended by SIGUSR1"},
			},
		},
		{
			name:  "shell says 127",
			steps: []Step{sh("a", "no-such-command-at-all 2>/dev/null")},
			want: want{
				state.Failed, `ExitError: step "a" exited with code 127`, "",
				[]string{"[step] a started", "[step] a failed: exited with code 127"},
			},
		},
		{
			name:  "command not found",
			steps: []Step{argv("a", "no-such-command")},
			wf:    Workflow{Env: []string{"PATH=/nope:/bin"}},
			want: want{
				state.Failed, `SpawnError: step "a" could not be started: command not found: no-such-command (PATH is /nope:/bin)`, "",
				[]string{"[step] a started", "[step] a failed: could not be started: command not found: no-such-command (PATH is /nope:/bin)"},
			},
		},
		{
			name:  "workdir missing",
			steps: []Step{{Name: "a", Command: Command{Shell: "true"}, Workdir: "/no/such/dir"}},
			want: want{
				state.Failed, `SpawnError: step "a" could not be started: cannot use workdir /no/such/dir: it does not exist`, "",
				[]string{"[step] a started", "[step] a failed: could not be started: cannot use workdir /no/such/dir: it does not exist"},
			},
		},
		{
			name:  "workdir is a file",
			steps: []Step{{Name: "a", Command: Command{Shell: "true"}, Workdir: "/etc/passwd"}},
			want: want{
				state.Failed, `SpawnError: step "a" could not be started: cannot use workdir /etc/passwd: it is not a directory`, "",
				[]string{"[step] a started", "[step] a failed: could not be started: cannot use workdir /etc/passwd: it is not a directory"},
			},
		},
		{
			name:  "JSON result",
			steps: []Step{sh("a", `echo '{"a": 1}' > $MARBLES_RESULT_FILE`)},
			want:  want{state.Complete, "", `{"a":1}`, []string{"[step] a started", "[step] a complete"}},
		},
		{
			name:  "text result",
			steps: []Step{sh("a", `printf 'two\nlines\n' > $MARBLES_RESULT_FILE`)},
			want:  want{state.Complete, "", `"two\nlines"`, []string{"[step] a started", "[step] a complete"}},
		},
		{
			name:  "result that is not UTF-8",
			steps: []Step{sh("a", `printf 'a\377b' > $MARBLES_RESULT_FILE`)},
			want:  want{state.Complete, "", "\"a\uFFFDb\"", []string{"[step] a started", "[step] a complete"}},
		},
		{
			name:  "result of the last step",
			steps: []Step{sh("a", `echo 1 > $MARBLES_RESULT_FILE`), sh("b", `true`)},
			want:  want{state.Complete, "", "", []string{"[step] a started", "[step] a complete", "[step] b started", "[step] b complete"}},
		},
		{
			name:  "results go to later steps",
			wf:    Workflow{Input: jsontext.Value(`{"n": 1, "list": [1, 2]}`)},
			steps: []Step{sh("a", `echo '[true]' > $MARBLES_RESULT_FILE`), sh("b", "true"), sh("c", `cp $MARBLES_INPUT_FILE $MARBLES_RESULT_FILE`)},
			want: want{state.Complete, "", `{"n":1,"list":[1,2],"a":[true],"b":null}`, []string{
				"[step] a started", "[step] a complete", "[step] b started", "[step] b complete", "[step] c started", "[step] c complete",
			}},
		},
		{
			name:  "result too large",
			steps: []Step{sh("a", `head -c 1048577 /dev/zero > $MARBLES_RESULT_FILE`)},
			want: want{
				state.Failed, `Error: step "a" left a result that cannot be read: it is larger than 1 MiB`, "",
				[]string{"[step] a started", "[step] a failed: left a result that cannot be read: it is larger than 1 MiB"},
			},
		},
		{
			name:  "result is a pipe",
			steps: []Step{sh("a", `mkfifo $MARBLES_RESULT_FILE`)},
			want: want{
				state.Failed, `Error: step "a" left a result that cannot be read: it is not a regular file`, "",
				[]string{"[step] a started", "[step] a failed: left a result that cannot be read: it is not a regular file"},
			},
		},
		{
			name:  "shell of the workflow and of a step",
			wf:    Workflow{Shell: []string{"sh", "-ec"}},
			steps: []Step{{Name: "a", Command: Command{Shell: "false; true"}, Shell: []string{"sh", "-c"}}, sh("b", "false; true")},
			want: want{
				state.Failed, `ExitError: step "b" exited with code 1`, "",
				[]string{"[step] a started", "[step] a complete", "[step] b started", "[step] b failed: exited with code 1"},
			},
		},
		{
			name:  "step timeout",
			steps: []Step{{Name: "a", Command: Command{Shell: "sleep 20"}, Timeout: 50 * time.Millisecond}},
			want: want{
				state.Failed, `TimeoutError: step "a" timed out after 50ms`, "",
				[]string{"[step] a started", "[step] a failed: timed out after 50ms"},
			},
		},
		{
			name:  "run timeout",
			wf:    Workflow{Timeout: 50 * time.Millisecond},
			steps: []Step{sh("a", "true"), sh("b", "sleep 20")},
			want: want{
				state.Failed, `TimeoutError: the run timed out after 50ms, in step "b"`, "",
				[]string{"[step] a started", "[step] a complete", "[step] b started", "[step] b failed: timed out after 50ms"},
			},
		},
		{
			name:  "an exit code of 0 after the timeout is a timeout",
			steps: []Step{{Name: "a", Command: Command{Shell: "trap 'exit 0' TERM; sleep 20 & wait"}, Timeout: 100 * time.Millisecond}},
			want: want{
				state.Failed, `TimeoutError: step "a" timed out after 100ms`, "",
				[]string{"[step] a started", "[step] a failed: timed out after 100ms"},
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ws, w := newWorkspace(t), newWorker(t, Options{})
			wf := test.wf
			wf.Name, wf.Steps = "job", test.steps
			res := run(t, w, ws, &wf)
			got := want{Status: res.Status, Output: text(res.Output), Lines: lines(t, ws, res.RunID)}
			if res.Error != nil {
				got.Error = res.Error.Name + ": " + res.Error.Message
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			f := runFile(t, ws, res.RunID)
			if f.Run.Status != res.Status || f.Run.Timestamps.Ended() == 0 || f.Run.Timestamps.StartedAt == 0 {
				t.Errorf("the file says %s, %+v", f.Run.Status, f.Run.Timestamps)
			}
			if diff := cmp.Diff(res.Error, f.Run.Error); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A run is in its file from the moment it is accepted, with all that is documented.
func TestRunFile(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	slot := time.UnixMilli(1_700_000_000_000)
	r := start(t, w, Launch{
		Workspace: ws, Workflow: shell("job", "exit 4"), Input: jsontext.Value(`{"a":1}`),
		Trigger: "schedule", Key: "job-1", Slot: slot,
	})
	f := runFile(t, ws, r.ID())
	if f.Run.Status == state.Queued {
		t.Error("a run with a place was queued first")
	}
	r.Wait()
	f = runFile(t, ws, r.ID())
	if f.Version != 2 || f.PID != os.Getpid() || f.Queue.ID != f.Run.QueueID || f.Queue.Status != "active" {
		t.Errorf("got %+v", f)
	}
	if got := f.Run.Extensions; got.TriggerID != "job-1" || got.Trigger != "schedule" || got.Kind != "workflow" || !got.Slot.Equal(slot) {
		t.Errorf("extensions %+v", got)
	}
	if len(f.Steps) != 1 {
		t.Fatalf("steps %+v", f.Steps)
	}
	s := f.Steps[0]
	if s.Name != "job" || s.Status != state.Failed || s.ExitCode == nil || *s.ExitCode != 4 || s.MaxRSS == 0 || s.StartedAt == 0 || s.FinishedAt < s.StartedAt {
		t.Errorf("step %+v", s)
	}
	var kinds []string
	err := ws.ReadJournal(r.ID(), func(e state.Entry) error {
		kinds = append(kinds, e.Kind)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"start", "text", "spawn", "process", "text", "step", "end"}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestStartRefuses(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	first := run(t, w, ws, shell("job", "true"))
	_, err := w.Start(Launch{Workspace: ws, Workflow: shell("job", "true"), RunID: first.RunID})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("an id that exists: %v", err)
	}
	if got := lines(t, ws, first.RunID); len(got) != 2 {
		t.Errorf("the journal of the first run was continued: %q", got)
	}
	for name, input := range map[string]string{
		"array":     `[1]`,
		"string":    `"x"`,
		"colliding": `{"a-b":1,"a_b":2}`,
		"broken":    `{"a":`,
		"two":       `{} {}`,
	} {
		if _, err := w.Start(Launch{Workspace: ws, Workflow: shell("job", "true"), Input: jsontext.Value(input)}); err == nil {
			t.Errorf("input %s was accepted", name)
		}
	}
	list, err := ws.Runs(state.RunQuery{})
	if err != nil || list.Total != 1 {
		t.Errorf("%d runs, %v", list.Total, err)
	}
}

func TestEnvironment(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{Env: []string{
		"PATH=/usr/bin:/bin", "HOME=/h", "USER=u", "LOGNAME=l", "SHELL=/bin/zsh", "LANG=C", "LC_ALL=C.UTF-8", "TZ=UTC",
		"TMOUT=900", "NOTIFY_SOCKET=/x", "LISTEN_FDS=1", "INVOCATION_ID=i", "MARBLES_TOKEN=t", "SECRET=s", "EMPTY",
	}, TempDir: t.TempDir()})
	wf := &Workflow{
		Name: "job", Env: []string{"A=workflow", "B=workflow", "C=workflow", "MARBLES_STEP=mine"},
		Input: jsontext.Value(`{"database": "main", "deep": {"a": 1}, "none": null, "n": 1.50, "yes": true}`),
		Steps: []Step{{Name: "print", Command: Command{Argv: []string{"env", "-0"}}, Env: []string{"B=step", "C=step"}}},
	}
	r := start(t, w, Launch{
		Workspace: ws, Workflow: wf, Key: "k", Env: []string{"C=launch"}, Kind: "handler",
		Input: jsontext.Value(`{"database":"other","sp ace-é":"x","nul":"a\u0000b"}`),
		Files: map[string][]byte{"MARBLES_CHANGE_FILE": []byte("x")},
	})
	r.Wait()
	got := map[string]string{}
	for _, e := range strings.Split(strings.TrimSuffix(output(t, ws, r.ID(), "print", state.Stdout), "\x00"), "\x00") {
		name, value, _ := strings.Cut(e, "=")
		if strings.HasSuffix(name, "_FILE") || name == AskDirVariable {
			value = filepath.Base(value)
		}
		got[name] = value
	}
	want := map[string]string{
		"PATH": "/usr/bin:/bin", "HOME": "/h", "USER": "u", "LOGNAME": "l", "SHELL": "/bin/zsh", "LANG": "C", "LC_ALL": "C.UTF-8", "TZ": "UTC",
		"A": "workflow", "B": "step", "C": "launch",
		"INPUT_DATABASE": "other", "INPUT_N": "1.50", "INPUT_YES": "true", "INPUT_SP_ACE__": "x",
		"MARBLES_RUN_ID": r.ID(), "MARBLES_STEP": "print", "MARBLES_KEY": "k", "MARBLES_WORKSPACE": ws.Project(),
		"MARBLES_STATE": filepath.Dir(ws.Dir()), "MARBLES_INPUT_FILE": "0-input.json", "MARBLES_RESULT_FILE": "0-result",
		"MARBLES_CHANGE_FILE": "file-change_file", "MARBLES_ASK_DIR": "0-ask",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentDefaults(t *testing.T) {
	env := baseEnv(nil)
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME"} {
		if v, _ := lookupEnv(env, name); v == "" {
			t.Errorf("%s is missing in %q", name, env)
		}
	}
}

func TestInputEnvTooLong(t *testing.T) {
	long := strings.Repeat("x", maxInputEnv)
	in, err := launchInput(nil, jsontext.Value(`{"fits":"`+long+`","long":"y`+long+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	env := inputEnv(in)
	if len(env) != 1 || !strings.HasPrefix(env[0], "INPUT_FITS=") {
		t.Errorf("got %d variables", len(env))
	}
}

func TestMergeInput(t *testing.T) {
	tests := []struct{ name, base, over, want string }{
		{"none", "", "", ""},
		{"null", "null", "null", ""},
		{"base", `{"a":1}`, "", `{"a":1}`},
		{"over", "", `{"a":1}`, `{"a":1}`},
		{"by key", `{"a":1,"b":{"x":1}}`, `{"b":{"y":2},"c":3}`, `{"a":1,"b":{"y":2},"c":3}`},
		{"null overrides", `{"a":1}`, `{"a":null}`, `{"a":null}`},
		{"empty", `{}`, ``, `{}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := MergeInput(jsontext.Value(test.base), jsontext.Value(test.over))
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v, want %s", got, err, test.want)
			}
		})
	}
}

// A handler's files are private, and what it wrote into the launch file comes back.
func TestHandlerFiles(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	wf := shell("h", `ls -ld "$(dirname $MARBLES_CHANGE_FILE)" $MARBLES_CHANGE_FILE | cut -c1-10
cat $MARBLES_CHANGE_FILE; printf '{"workflow":"x"}' > $MARBLES_LAUNCH_FILE`)
	res := start(t, w, Launch{
		Workspace: ws, Workflow: wf, Kind: "handler", Key: "docs-1",
		Files: map[string][]byte{"MARBLES_CHANGE_FILE": []byte("change\n"), LaunchFile: nil},
	}).Wait()
	if got, want := output(t, ws, res.RunID, "h", state.Stdout), "drwx------\n-rw-------\nchange\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := string(res.Files[LaunchFile]); got != `{"workflow":"x"}` {
		t.Errorf("launch file %q", got)
	}
	if f := runFile(t, ws, res.RunID); f.Run.Step != "docs-1" || f.Run.Extensions.Kind != "handler" {
		t.Errorf("got step %q, kind %q", f.Run.Step, f.Run.Extensions.Kind)
	}
}
