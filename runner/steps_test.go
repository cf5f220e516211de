package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// fakeProgram stands for a jq program: what is compiled is the catalog's.
type fakeProgram struct {
	text string
	run  func(input string) ([]jsontext.Value, error)
}

func (p fakeProgram) String() string { return p.text }

func (p fakeProgram) Run(_ context.Context, input []byte) ([]jsontext.Value, error) {
	return p.run(string(input))
}

func gives(values ...string) Program {
	return fakeProgram{strings.Join(values, ","), func(string) (out []jsontext.Value, err error) {
		for _, v := range values {
			out = append(out, jsontext.Value(v))
		}
		return out, nil
	}}
}

func sh(name, text string, more ...func(*Step)) Step {
	s := Step{Name: name, Command: Command{Shell: text}}
	for _, f := range more {
		f(&s)
	}
	return s
}

func needs(names ...string) func(*Step) {
	return func(s *Step) { s.Needs = append([]string{}, names...) }
}

// statuses are how the steps of a run went, as "a complete".
func statuses(t testing.TB, ws *state.Workspace, id string) (list []string) {
	t.Helper()
	for _, s := range runFile(t, ws, id).Steps {
		name := s.Name
		if s.Item != nil {
			name += fmt.Sprintf("[%d]", *s.Item)
		}
		list = append(list, name+" "+string(s.Status))
	}
	slices.Sort(list)
	return list
}

func TestGraph(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	meet := "touch $MARBLES_STEP; i=0; while [ ! -e b ] || [ ! -e c ]; do sleep 0.01; i=$((i+1)); [ $i -lt 500 ] || exit 1; done"
	wf := &Workflow{Name: "job", Steps: []Step{
		sh("a", "echo a >>order; echo 1 >$MARBLES_RESULT_FILE"),
		sh("b", meet, needs("a")), // side by side with c: each waits for the other
		sh("c", meet, needs("a")),
		sh("d", `cat "$MARBLES_INPUT_FILE" >d; echo d >>order; echo '"end"' >"$MARBLES_RESULT_FILE"`, needs("b", "c")),
		sh("e", `cat "$MARBLES_INPUT_FILE" >e`, needs()),
	}}
	res := run(t, w, ws, wf)
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(ws.Project(), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := read("order"); got != "a\nd\n" {
		t.Errorf("order: %q", got)
	}
	if got, want := read("d"), `{"a":1,"b":null,"c":null}`; got != want {
		t.Errorf("d got %s, want %s", got, want)
	}
	if got := read("e"); got != "{}" {
		t.Errorf("e needs nothing and got %s", got)
	}
	if res.Output != nil {
		t.Errorf("the last step in the definition gave no result, and the run gives %s", res.Output)
	}
}

// The first failure stops what has not begun, ends what runs, and names the step.
func TestFirstFailure(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	wf := &Workflow{Name: "job", Steps: []Step{
		sh("long", "touch long; sleep 60", needs()),
		sh("bad", "while [ ! -e long ]; do sleep 0.01; done; exit 3", needs()),
		sh("after", "touch after", needs("bad")),
		sh("other", "touch other", needs("long")),
	}}
	begin := time.Now()
	res := run(t, w, ws, wf)
	if got, want := fmt.Sprint(res.Err()), `step "bad" exited with code 3`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %s: what ran was not ended", d)
	}
	if diff := cmp.Diff([]string{"bad failed", "long cancelled"}, statuses(t, ws, res.RunID)); diff != "" {
		t.Error(diff)
	}
}

func TestCondition(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	saw := ""
	looks := fakeProgram{".a", func(input string) ([]jsontext.Value, error) {
		saw = input
		return []jsontext.Value{jsontext.Value("true")}, nil
	}}
	cond := func(p Program) func(*Step) { return func(s *Step) { s.If = p } }
	wf := &Workflow{Name: "job", Input: jsontext.Value(`{"in":"put"}`), Steps: []Step{
		sh("a", "echo 7 >$MARBLES_RESULT_FILE"),
		sh("b", "true", cond(looks)),
		sh("c", "touch c", cond(gives("false"))),
		sh("d", "touch d", cond(gives("null"))),
		sh("e", "true", cond(gives("0"))), // jq: only false and null are not true
	}}
	res := run(t, w, ws, wf)
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	if saw != `{"in":"put","a":7}` {
		t.Errorf("the condition saw %s", saw)
	}
	want := []string{"a complete", "b complete", "c skipped", "d skipped", "e complete"}
	if diff := cmp.Diff(want, statuses(t, ws, res.RunID)); diff != "" {
		t.Error(diff)
	}
	for text, p := range map[string]Program{
		"that gave 2 values, not one": gives("1", "2"),
		"that gave 0 values, not one": gives(),
		"that cannot be told: broken": fakeProgram{"x", func(string) ([]jsontext.Value, error) { return nil, errors.New("broken") }},
	} {
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{sh("a", "true", cond(p))}})
		if err := fmt.Sprint(res.Err()); !strings.Contains(err, text) || res.Error.Name != "ConditionError" {
			t.Errorf("got %s (%s), want %s", err, res.Error.Name, text)
		}
	}
}

func TestContinueOnError(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	wf := &Workflow{Name: "job", Steps: []Step{
		sh("a", "echo 1 >$MARBLES_RESULT_FILE; exit 2", func(s *Step) { s.ContinueOnError = true }),
		sh("b", `cat "$MARBLES_INPUT_FILE" >b`),
	}}
	res := run(t, w, ws, wf)
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	if diff := cmp.Diff([]string{"a failed", "b complete"}, statuses(t, ws, res.RunID)); diff != "" {
		t.Error(diff)
	}
	if b, _ := os.ReadFile(filepath.Join(ws.Project(), "b")); string(b) != `{"a":null}` {
		t.Errorf("b got %s", b)
	}
}

func TestRetryOfStep(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	retry := func(r Retry) func(*Step) { return func(s *Step) { s.Retry = r } }
	count := `echo x >>$MARBLES_RUN_ID; [ $(wc -l <$MARBLES_RUN_ID) -ge 3 ] || exit 75`
	tests := []struct {
		name  string
		step  Step
		tries int
		err   string
	}{
		{"in the end", sh("a", count, retry(Retry{Attempts: 3})), 3, ""},
		{"not often enough", sh("a", count, retry(Retry{Attempts: 2, Wait: time.Millisecond})), 2, `step "a" exited with code 75`},
		{"the right code", sh("a", count, retry(Retry{Attempts: 5, ExitCodes: []int{75}})), 3, ""},
		{"another code", sh("a", count, retry(Retry{Attempts: 5, ExitCodes: []int{1}})), 1, `step "a" exited with code 75`},
		{"after a timeout", sh("a", `echo x >>$MARBLES_RUN_ID; [ $(wc -l <$MARBLES_RUN_ID) -ge 2 ] || sleep 60`,
			retry(Retry{Attempts: 2}), func(s *Step) { s.Timeout = 300 * time.Millisecond }), 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{tt.step}})
			if err := res.Err(); (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			b, _ := os.ReadFile(filepath.Join(ws.Project(), res.RunID))
			rec := runFile(t, ws, res.RunID).Steps[0]
			if n := strings.Count(string(b), "x"); n != tt.tries || max(rec.Attempts, 1) != tt.tries {
				t.Errorf("tried %d times, on record %d, want %d", n, rec.Attempts, tt.tries)
			}
		})
	}
}

func TestRetryPause(t *testing.T) {
	r := Retry{Wait: 10 * time.Second, MaxWait: time.Minute}
	for n, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute} {
		for range 50 {
			if got := r.pause(n + 1); got < want*3/4 || got > want*5/4+time.Nanosecond {
				t.Fatalf("after attempt %d: %s, want about %s", n+1, got, want)
			}
		}
	}
	if got := (Retry{Wait: time.Hour}).pause(1000); got > maxRetryWait*5/4 {
		t.Errorf("without a cap: %s", got)
	}
}

// A cancel ends the wait between two attempts, and a run that only waits gives its place to another.
func TestRetryWaits(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{Concurrency: 1})
	wf := &Workflow{Name: "job", Steps: []Step{sh("a", "exit 1", func(s *Step) { s.Retry = Retry{Attempts: 2, Wait: time.Hour} })}}
	r := start(t, w, Launch{Workspace: ws, Workflow: wf})
	if res := run(t, w, ws, shell("other", "true")); res.Err() != nil {
		t.Error(res.Err())
	}
	r.Cancel("enough")
	if res := r.Wait(); res.Status != state.Cancelled || res.Error.Message != "enough" {
		t.Errorf("got %+v", res)
	}
}

func TestEach(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	each := func(list string, parallel int) func(*Step) {
		return func(s *Step) { s.Each = &Each{List: jsontext.Value(list), Parallel: parallel} }
	}
	res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{
		sh("a", `echo "\"$MARBLES_ITEM $MARBLES_INDEX\"" >"$MARBLES_RESULT_FILE"; cat "$MARBLES_INPUT_FILE" >>inputs; echo >>inputs`,
			each(`["x y", 2, {"k":1}]`, 1)),
		sh("b", `cat "$MARBLES_INPUT_FILE" >"$MARBLES_RESULT_FILE"`),
	}})
	if res.Err() == nil {
		t.Log(string(res.Output))
	}
	// {"k":1} within quotes is no JSON, and so a text.
	want := `{"a":["x y 0","2 1","\"{\"k\":1} 2\""]}`
	if res.Err() != nil || string(res.Output) != want {
		t.Errorf("got %s, %v, want %s", res.Output, res.Err(), want)
	}
	inputs, _ := os.ReadFile(filepath.Join(ws.Project(), "inputs"))
	if got, want := string(inputs), `{"item":"x y","index":0}`+"\n"+`{"item":2,"index":1}`+"\n"+`{"item":{"k":1},"index":2}`+"\n"; got != want {
		t.Errorf("the items got %s, want %s", got, want)
	}
	t.Run("empty", func(t *testing.T) {
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{sh("a", "exit 1", each("[]", 3))}})
		if res.Err() != nil || string(res.Output) != "[]" {
			t.Errorf("got %s, %v", res.Output, res.Err())
		}
	})
	t.Run("no list", func(t *testing.T) {
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{sh("a", "true", func(s *Step) { s.Each = &Each{Program: gives(`"text"`)} })}})
		if got := fmt.Sprint(res.Err()); got != `step "a" has no list: want an array, not a string` {
			t.Errorf("got %s", got)
		}
	})
	t.Run("at most two at once", func(t *testing.T) {
		// Each counts those that run with it; three at once would be seen.
		text := `mkdir in.$MARBLES_INDEX; sleep 0.05; n=$(ls -d in.* | wc -l); rmdir in.$MARBLES_INDEX; echo $n >"$MARBLES_RESULT_FILE"`
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{sh("a", text, each("[1,2,3,4,5,6]", 2))}})
		if res.Err() != nil || strings.ContainsAny(string(res.Output), "3456") || !strings.Contains(string(res.Output), "2") {
			t.Errorf("got %s, %v", res.Output, res.Err())
		}
	})
	t.Run("one fails", func(t *testing.T) {
		text := `[ "$MARBLES_ITEM" != bad ] || exit 9; touch "ran-$MARBLES_ITEM"`
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{sh("a", text, each(`["one","bad","never"]`, 1))}})
		if got := fmt.Sprint(res.Err()); got != `step "a" item 1 exited with code 9` {
			t.Errorf("got %s", got)
		}
		if _, err := os.Stat(filepath.Join(ws.Project(), "ran-never")); err == nil {
			t.Error("an item began after one had failed")
		}
		if diff := cmp.Diff([]string{"a failed", "a[0] complete", "a[1] failed"}, statuses(t, ws, res.RunID)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFinalSteps(t *testing.T) {
	ws := newWorkspace(t)
	w := newWorker(t, Options{})
	final := func(f Final) func(*Step) { return func(s *Step) { s.Final = f } }
	report := func(name string) string {
		return `echo "$MARBLES_STEP $MARBLES_STATUS $MARBLES_FAILED_STEP $MARBLES_ERROR" >>` + name
	}
	tests := []struct {
		name, text string
		limit      time.Duration
		cancel     bool
		want       string
		status     state.Status
	}{
		{"success", "true", 0, false, "clean complete  \n", state.Complete},
		{"failure", "exit 3", 0, false, `clean failed work step "work" exited with code 3` + "\n" + `tell failed work step "work" exited with code 3` + "\n", state.Failed},
		{"cancel", "touch begun; sleep 60", 0, true, "clean cancelled work enough\ntell cancelled work enough\n", state.Cancelled},
		{"timeout", "sleep 60", 200 * time.Millisecond, false, `clean failed work the run timed out after 200ms, in step "work"` + "\n" + `tell failed work the run timed out after 200ms, in step "work"` + "\n", state.Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wf := &Workflow{Name: "job", Timeout: tt.limit, Steps: []Step{
				sh("clean", report(tt.name), final(Always)), // where it stands does not matter
				sh("work", "echo 1 >$MARBLES_RESULT_FILE; "+tt.text),
				sh("tell", report(tt.name), final(OnFailure)),
			}}
			r := start(t, w, Launch{Workspace: ws, Workflow: wf})
			if tt.cancel {
				for {
					if _, err := os.Stat(filepath.Join(ws.Project(), "begun")); err == nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				r.Cancel("enough")
			}
			res := r.Wait()
			if res.Status != tt.status {
				t.Errorf("got %s, %v", res.Status, res.Err())
			}
			if tt.status == state.Complete && string(res.Output) != "1" {
				t.Errorf("the result is that of the last normal step, not %s", res.Output)
			}
			b, _ := os.ReadFile(filepath.Join(ws.Project(), tt.name))
			if string(b) != tt.want {
				t.Errorf("got %q, want %q", b, tt.want)
			}
		})
	}
	t.Run("one that fails", func(t *testing.T) {
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{sh("work", "true"), sh("clean", "exit 4", final(Always))}})
		if got := fmt.Sprint(res.Err()); got != `step "clean" exited with code 4` {
			t.Errorf("got %s", got)
		}
	})
	t.Run("told twice", func(t *testing.T) {
		wf := &Workflow{Name: "job", Steps: []Step{sh("work", "sleep 60"), sh("clean", "touch cleaning; sleep 60", final(Always))}}
		r := start(t, w, Launch{Workspace: ws, Workflow: wf})
		r.Cancel("once")
		for {
			if _, err := os.Stat(filepath.Join(ws.Project(), "cleaning")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		r.Cancel("twice")
		if res := r.Wait(); res.Status != state.Cancelled || res.Error.Message != "once" {
			t.Errorf("got %+v", res)
		}
	})
}

func TestChildRun(t *testing.T) {
	ws := newWorkspace(t)
	defined := map[string]*Workflow{
		"good": {Name: "good", Steps: []Step{sh("x", `echo "$INPUT_WHO" >"$MARBLES_RESULT_FILE"`)}},
		"bad":  {Name: "bad", Steps: []Step{sh("x", "exit 5")}},
		"long": {Name: "long", Steps: []Step{sh("x", "touch child; sleep 60")}},
	}
	w := newWorker(t, Options{Concurrency: 1, Workflow: func(_ *state.Workspace, name string) *Workflow { return defined[name] }})
	parent := func(name string) *Workflow {
		return &Workflow{Name: "parent", Steps: []Step{
			sh("first", "echo 1 >$MARBLES_RESULT_FILE"),
			{Name: "child", Start: &Start{Workflow: name, Input: jsontext.Value(`{"who":"me"}`)}},
		}}
	}
	// With one place only, the parent must give its own to the child.
	res := run(t, w, ws, parent("good"))
	if res.Err() != nil || string(res.Output) != `"me"` {
		t.Fatalf("got %s, %v", res.Output, res.Err())
	}
	rec := runFile(t, ws, res.RunID).Steps[1]
	child := runFile(t, ws, rec.Child)
	if child.Run.Links == nil || child.Run.Links.ParentRunID != res.RunID || child.Run.Extensions.Trigger != "start" {
		t.Errorf("the child is %+v", child.Run)
	}
	// Nor may one that never had a process keep its place.
	only := &Workflow{Name: "only", Steps: []Step{{Name: "child", Start: &Start{Workflow: "good"}}}}
	if res := run(t, w, ws, only); res.Err() != nil {
		t.Errorf("a run of nothing but a child: %v", res.Err())
	}
	res = run(t, w, ws, parent("bad"))
	if got := fmt.Sprint(res.Err()); !strings.HasPrefix(got, `step "child" started run rn-`) || !strings.HasSuffix(got, `, which failed: step "x" exited with code 5`) {
		t.Errorf("got %s", got)
	}
	res = run(t, w, ws, parent("none"))
	if got := fmt.Sprint(res.Err()); got != `step "child" cannot start "none": no such workflow is defined` {
		t.Errorf("got %s", got)
	}
	r := start(t, w, Launch{Workspace: ws, Workflow: parent("long")})
	for {
		if _, err := os.Stat(filepath.Join(ws.Project(), "child")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	r.Cancel("enough")
	if res = r.Wait(); res.Status != state.Cancelled {
		t.Errorf("got %+v", res)
	}
	list, err := ws.Runs(state.RunQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Runs {
		if s.Name == "long" && s.Status != state.Cancelled {
			t.Errorf("the child of a cancelled run is %s", s.Status)
		}
	}
}

// What is read back of a workflow is the workflow, whatever has been made of its definition since.
func TestLiterals(t *testing.T) {
	text, until := "none", time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	wf := &Workflow{
		Name: "re.lease", Env: []string{"A=1"}, Timeout: time.Hour, Workdir: "/w", Shell: []string{"bash", "-c"}, Concurrency: 2,
		User: "u", Group: "g", OnInterrupt: InterruptRestart, Secrets: []Secret{{Name: "TOKEN"}},
		Steps: []Step{
			{Name: "a", Command: Command{Argv: []string{"x", ""}}, Needs: []string{}, Retry: Retry{3, time.Second, time.Minute, []int{1, 2}}},
			{Name: "b.c", Ask: &Ask{state.ModeQuestion, "T", "B", []string{"x", "none"}, time.Hour, &text}, Needs: []string{"a"}},
			{Name: "re.lease", Wait: &Wait{Until: until}, ContinueOnError: true},
			{Name: "d", Start: &Start{Workflow: "w", Program: gives("{}")}, If: gives("true"), Timeout: time.Minute},
			{Name: "e", Command: Command{Shell: "y"}, Each: &Each{List: jsontext.Value("[1,2]"), Parallel: 2}, Final: Always,
				Limits: Limits{1 << 20, 1.5, 10}, Worktree: &Worktree{"main", "x"}, Artifacts: []Artifact{{"n", "t", "p"}},
				Env: []string{"B=2"}, Workdir: "/v", Shell: []string{"zsh", "-c"}},
		},
	}
	all, err := literals(wf)
	if err != nil {
		t.Fatal(err)
	}
	f := &state.RunFile{Run: state.Run{ID: "rn-1", Step: wf.Name}, Marbles: &state.RunMarbles{Literals: all}}
	read := 0
	now := &Workflow{Name: wf.Name, Secrets: []Secret{{Name: "TOKEN", Read: func() (string, error) { read++; return "x", nil }}}}
	got, err := workflowOf(f, now, func(text string) (Program, error) { return gives(strings.Split(text, ",")...), nil })
	if err != nil {
		t.Fatal(err)
	}
	again, err := literals(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, again); diff != "" {
		t.Error(diff)
	}
	if len(got.Steps) != 5 || got.Steps[1].Needs == nil || got.Steps[2].Needs != nil || got.Steps[0].Needs == nil {
		t.Errorf("got %+v", got.Steps)
	}
	if _, err := got.Secrets[0].Read(); err != nil || read != 1 {
		t.Error("a secret is not read from where it is defined now")
	}
}
