package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"marbles/state"
)

// TestRunModel lets random workflows meet random answers, cancels, pauses, retries, kills and restarts, and after each of
// these looks whether what is on disk is true. See modelWorld.look for what must hold, and end for how it must end.
//
// MARBLES_MODEL_ROUNDS is how many worlds, MARBLES_MODEL_STEPS how much is done in each, MARBLES_MODEL_SEED repeats the
// choices, though not what the machine makes of them. MARBLES_CRASH_KEEP is a folder for the state of one that failed.
func TestRunModel(t *testing.T) {
	seed := number(t, "MARBLES_MODEL_SEED", time.Now().UnixNano()%1e9)
	for i := range number(t, "MARBLES_MODEL_ROUNDS", 2) {
		t.Run(fmt.Sprintf("seed %d", seed+i), func(t *testing.T) {
			t.Parallel()
			w := newModelWorld(t, seed+i)
			for range number(t, "MARBLES_MODEL_STEPS", 30) {
				w.act()
				w.look()
				if t.Failed() {
					return
				}
			}
			w.end()
		})
	}
}

// modelWorld is a project with random workflows, and what is known of its runs.
type modelWorld struct {
	*project
	rng     *rand.Rand
	log     []string // what was done
	service *daemon  // nil while none runs
	rolls   []*modelRoll

	workflows []modelWorkflow

	files    map[string]*state.RunFile
	done     map[string]string // steps that were recorded complete, and their results
	answered map[string]string // by suspension: what a successful answer said
	traced   int               // bytes of the trace that were looked at
	begun    map[string]int
	retried  map[string]bool
}

type modelWorkflow struct {
	name  string
	steps []string
}

type modelRoll struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

// traceLine is what each step writes when it begins.
const traceLine = `echo "$MARBLES_RUN_ID/$MARBLES_STEP/${MARBLES_INDEX:--}" >>trace; date +%s%N$$ >"$MARBLES_RESULT_FILE"; `

func newModelWorld(t *testing.T, seed int64) *modelWorld {
	w := &modelWorld{
		project: newProject(t, ""), rng: rand.New(rand.NewPCG(uint64(seed), 4)),
		files: map[string]*state.RunFile{}, done: map[string]string{}, answered: map[string]string{}, begun: map[string]int{},
		retried: map[string]bool{},
	}
	// Only a cgroup finds what has left its session and cleared its environment.
	w.define("workflows: {probe: {run: 'true'}}")
	w.env = []string{"MARBLES_CGROUPS=on"}
	if _, _, code := w.run("roll", "probe", "--dry-run"); code != 0 {
		w.env = nil
	}
	var yaml strings.Builder
	yaml.WriteString("workflows:\n")
	for i := range 5 {
		w.workflow(&yaml, i)
	}
	w.define(yaml.String())
	w.must("check")
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("to repeat: MARBLES_MODEL_SEED=%d MARBLES_MODEL_ROUNDS=1\n%s\n%s", seed, yaml.String(), strings.Join(w.log, "\n"))
		(&crashWorld{project: w.project, dir: w.dir}).keep()
	})
	return w
}

// workflow writes one random workflow.
func (w *modelWorld) workflow(b *strings.Builder, i int) {
	wf := modelWorkflow{name: fmt.Sprintf("w%d", i)}
	fmt.Fprintf(b, "  %s:\n    on_interrupt: %s\n    steps:\n", wf.name, []string{"fail", "fail", "restart"}[w.rng.IntN(3)])
	n := 2 + w.rng.IntN(5)
	for s := range n {
		name := fmt.Sprintf("s%d", s)
		more := ""
		switch w.rng.IntN(3) {
		case 0:
			more += ", needs: []"
		case 1:
			if s > 1 {
				more += fmt.Sprintf(", needs: [s%d, s%d]", w.rng.IntN(s-1), s-1)
			}
		}
		switch k := w.rng.IntN(14); {
		case k < 4:
			fmt.Fprintf(b, "      - {name: %s, run: '%ssleep 0.%d'%s}\n", name, traceLine, w.rng.IntN(4), more)
		case k == 4:
			fmt.Fprintf(b, "      - {name: %s, run: '%ssleep 0.1; exit 3', continue_on_error: %v%s}\n", name, traceLine, w.rng.IntN(2) == 0, more)
		case k == 5:
			fmt.Fprintf(b, "      - {name: %s, run: '%stest -e tried-$MARBLES_RUN_ID-%s || { touch tried-$MARBLES_RUN_ID-%s; exit 4; }', retry: {attempts: 3, wait: 1s}%s}\n",
				name, traceLine, name, name, more)
		case k == 6:
			fmt.Fprintf(b, "      - {name: %s, approve: Go on?%s}\n", name, more)
		case k == 7:
			fmt.Fprintf(b, "      - {name: %s, ask: {title: Which?, choices: [a, b]}%s}\n", name, more)
		case k == 8:
			fmt.Fprintf(b, "      - {name: %s, ask: {title: Quick?, deadline: 1s, default: none}%s}\n", name, more)
		case k == 9:
			fmt.Fprintf(b, "      - {name: %s, wait: 1s%s}\n", name, more)
		case k == 10:
			fmt.Fprintf(b, "      - {name: %s, run: '%ssleep 0.1', each: [1, 2, 3], parallel: 2%s}\n", name, traceLine, more)
		case k == 11 && i > 0:
			fmt.Fprintf(b, "      - {name: %s, start: w%d%s}\n", name, w.rng.IntN(i), more)
		case k == 12:
			fmt.Fprintf(b, "      - {name: %s, run: '%smarbles ask Inside? --choice a --choice b || exit; marbles ask Again? --choice a --choice b || exit'%s}\n",
				name, traceLine, more)
		default:
			fmt.Fprintf(b, "      - {name: %s, run: '%s(%s sleep 300 &) ; sleep 0.1'%s}\n", name, traceLine, w.escape(), more)
		}
		wf.steps = append(wf.steps, name)
	}
	if w.rng.IntN(2) == 0 {
		fmt.Fprintf(b, "      - {name: last, always: true, run: 'echo \"$MARBLES_STATUS\" >\"last-$MARBLES_RUN_ID\"'}\n")
	}
	w.workflows = append(w.workflows, wf)
}

// escape is a command by which a process tries to get away.
func (w *modelWorld) escape() string {
	if w.env == nil {
		return "setsid"
	}
	return "env -i setsid"
}

// act does one random thing.
func (w *modelWorld) act() {
	w.t.Helper()
	ids := slices.Sorted(func(yield func(string) bool) {
		for id := range w.files {
			if !yield(id) {
				return
			}
		}
	})
	some := func(ok func(f *state.RunFile) bool) string {
		var list []string
		for _, id := range ids {
			if ok(w.files[id]) {
				list = append(list, id)
			}
		}
		if len(list) == 0 {
			return ""
		}
		return list[w.rng.IntN(len(list))]
	}
	open := func(f *state.RunFile) bool { return f.Run.Status == state.Suspended && question(f) != nil }
	unsettled := func(f *state.RunFile) bool { return !f.Run.Status.Settled() }
	switch w.rng.IntN(16) {
	case 0, 1:
		if w.service == nil {
			w.note("start the service")
			w.service = w.start("--grace", "1s", "--drain", "1s")
		}
	case 2:
		if w.service != nil {
			w.note("kill the service")
			w.service.kill()
			w.service = nil
		}
	case 3:
		if w.service != nil {
			w.note("stop the service")
			if code := w.service.stop(); code != 0 {
				w.t.Errorf("the service exits with %d", code)
			}
			w.service = nil
		}
	case 4, 5, 6:
		w.roll()
	case 7:
		if len(w.rolls) > 0 && w.rng.IntN(2) == 0 {
			r := w.rolls[w.rng.IntN(len(w.rolls))]
			w.note("kill a roll")
			r.cmd.Process.Kill()
			<-r.done
		}
	case 8, 9, 10, 11:
		if id := some(open); id != "" {
			w.answer(w.files[id])
		}
	case 12:
		if id := some(unsettled); id != "" {
			w.tell("cancel", id, "--reason", "model")
		}
	case 13:
		if id := some(unsettled); id != "" && w.tell("pause", id, "--reason", "model") == 0 {
			time.Sleep(time.Duration(w.rng.IntN(500)) * time.Millisecond)
			w.look()
		}
	case 14:
		if id := some(paused); id != "" {
			w.tell("resume", id)
		}
	case 15:
		failed := func(f *state.RunFile) bool {
			return f.Run.Status == state.Failed && f.Run.Extensions.Restarted == "" && (f.Run.Links == nil || f.Run.Links.ParentRunID == "")
		}
		if id := some(failed); id != "" && w.service != nil {
			w.retried[id] = true
			w.tell("retry", id, "--detach")
		}
	}
	time.Sleep(time.Duration(w.rng.IntN(400)) * time.Millisecond)
}

func (w *modelWorld) note(format string, args ...any) {
	w.log = append(w.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// tell runs a command that may be refused: what it was said for may be over meanwhile.
func (w *modelWorld) tell(args ...string) int {
	w.t.Helper()
	_, stderr, code := w.run(args...)
	w.note("%s: %d %s", strings.Join(args, " "), code, strings.TrimSpace(stderr))
	if code > 1 || code < 0 || strings.Contains(stderr, "panic") {
		w.t.Errorf("marbles %s exits with %d:\n%s", strings.Join(args, " "), code, stderr)
	}
	return code
}

// roll starts a workflow, in a process of its own or by the service.
func (w *modelWorld) roll() {
	w.t.Helper()
	name := w.workflows[w.rng.IntN(len(w.workflows))].name
	if w.service != nil && w.rng.IntN(2) == 0 {
		w.tell("roll", name, "--detach")
		return
	}
	w.note("roll %s", name)
	r := &modelRoll{cmd: w.command("roll", name), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.rolls = append(w.rolls, r)
	go func() { // ends with the process, which the cleanup kills
		r.cmd.Wait()
		close(r.done)
	}()
	w.t.Cleanup(func() {
		r.cmd.Process.Kill()
		<-r.done
	})
}

func question(f *state.RunFile) *state.Suspension {
	for _, s := range f.Open() {
		if s.Kind == state.SuspendInput {
			return s
		}
	}
	return nil
}

func paused(f *state.RunFile) bool {
	return slices.ContainsFunc(f.Open(), func(s *state.Suspension) bool { return s.Kind == state.SuspendPause })
}

// answer answers an open question, now and then by two processes at once. One at most is told that it did.
func (w *modelWorld) answer(f *state.RunFile) {
	w.t.Helper()
	s := question(f)
	q, err := s.Question()
	if err != nil {
		w.t.Fatal(err)
	}
	says := []string{"some text", "other text"}
	switch {
	case q.Mode == state.ModeApproval:
		says = []string{state.Approve, state.Approve, state.Approve, state.Reject}
	case len(q.Choices) > 0:
		says = q.Choices
	}
	codes := make([]int, 1+w.rng.IntN(3))
	said := make([]string, len(codes))
	var wait sync.WaitGroup
	for i := range codes {
		said[i] = says[w.rng.IntN(len(says))]
		args := []string{"answer", f.Run.ID, said[i], "--step", s.Name}
		if i > 0 {
			args = append(args, "--no-run")
		}
		wait.Go(func() { _, _, codes[i] = w.run(args...) })
	}
	wait.Wait()
	var won []string
	for i, code := range codes {
		now, err := w.state().Run(f.Run.ID)
		if err != nil {
			w.t.Error(err)
			return
		}
		// One that goes on with the run in the foreground exits as the run does.
		for _, n := range now.Suspensions {
			if a, err := n.Answer(); n.ID == s.ID && err == nil && a != nil && code == 0 {
				won = append(won, said[i])
				w.answered[s.ID] = a.Answer
			}
		}
	}
	w.note("answer %s %s %q: %v", f.Run.ID, s.Name, said, codes)
	if len(won) > 1 {
		w.t.Errorf("%d processes were told that they answered %s of %s", len(won), s.Name, f.Run.ID)
	}
}

// look reads every run and holds it against what was seen before:
//
//   - a run file can be read, and does not contradict itself; one that is settled has nothing open
//   - a settled run stays as it is, unless it is retried
//   - a step that was recorded complete stays so, with its result, and none of its processes begins again
//   - an answer stays what it was
func (w *modelWorld) look() {
	w.t.Helper()
	ws := w.state()
	dir, err := os.ReadDir(filepath.Join(ws.Dir(), "runs"))
	if err != nil && !os.IsNotExist(err) {
		w.t.Fatal(err)
	}
	done := map[string]string{}
	seen := map[string]bool{}
	for _, e := range dir {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(id, ".") {
			continue
		}
		f, err := ws.Run(id)
		if err != nil {
			w.t.Errorf("run %s: %v", id, err)
			continue
		}
		seen[id] = true
		w.compare(w.files[id], f)
		w.files[id] = f
		for _, s := range f.Steps {
			if s.Status == state.Complete {
				done[stepKey(id, s)] = string(s.Result)
			}
		}
	}
	for id := range w.files {
		if !seen[id] {
			w.t.Errorf("run %s is gone", id)
		}
	}
	w.trace()
	for key, result := range w.done {
		now, ok := done[key]
		if !ok || now != result {
			w.t.Errorf("step %s was recorded complete with %s, and is now recorded: %v, %s", key, result, ok, now)
		}
	}
	for key, result := range done {
		w.done[key] = result
	}
}

func stepKey(id string, s state.StepRecord) string {
	item := "-"
	if s.Item != nil {
		item = fmt.Sprint(*s.Item)
	}
	return id + "/" + s.Name + "/" + item
}

func (w *modelWorld) compare(old, now *state.RunFile) {
	w.t.Helper()
	id := now.Run.ID
	if now.Run.Status.Settled() && len(now.Open()) > 0 {
		w.t.Errorf("run %s is %s and waits for %s", id, now.Run.Status, now.Open()[0].Text())
	}
	for _, s := range now.Suspensions {
		a, err := s.Answer()
		if err != nil {
			w.t.Errorf("run %s: %v", id, err)
		} else if want, ok := w.answered[s.ID]; ok && (a == nil || a.Answer != want) {
			w.t.Errorf("run %s: %s was answered %q, and its answer is now %+v", id, s.Name, want, a)
		}
	}
	if old == nil {
		return
	}
	if old.Run.Status.Settled() && !w.retried[id] {
		a, _ := json.Marshal(old)
		b, _ := json.Marshal(now)
		if !bytes.Equal(a, b) {
			w.t.Errorf("run %s was settled and has changed:\n%s\n%s", id, a, b)
		}
	}
	for _, s := range old.Suspensions {
		i := slices.IndexFunc(now.Suspensions, func(n state.Suspension) bool { return n.ID == s.ID })
		if i < 0 {
			w.t.Errorf("run %s: the suspension of %s is lost", id, s.Name)
		} else if s.Status != state.Pending && now.Suspensions[i].Status != s.Status {
			w.t.Errorf("run %s: the suspension of %s was %s and is %s", id, s.Name, s.Status, now.Suspensions[i].Status)
		}
	}
}

// trace looks at what the steps themselves have said since the last look. w.done is what was recorded before that.
func (w *modelWorld) trace() {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "trace"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(text[w.traced:])) {
		key := strings.TrimSpace(line)
		if result, ok := w.done[key]; ok {
			w.t.Errorf("step %s began again after it was recorded complete with %s", key, result)
		}
		w.begun[key]++
	}
	w.traced = len(text)
}

// end lets everything come to its end: a service, all questions answered, all pauses over.
func (w *modelWorld) end() {
	w.t.Helper()
	// What a `roll` that was killed beside a service has left is settled by the next service.
	for _, r := range w.rolls {
		<-r.done
	}
	if w.service != nil {
		if code := w.service.stop(); code != 0 {
			w.t.Errorf("the service exits with %d", code)
		}
	}
	w.note("the last service")
	w.service = w.start("--grace", "1s", "--drain", "10s")
	quiet := 0
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end) && quiet < 3 && !w.t.Failed(); time.Sleep(300 * time.Millisecond) {
		w.look()
		quiet++
		for id, f := range w.files {
			switch {
			case f.Run.Status.Settled():
				continue
			case f.Run.Status == state.Suspended && paused(f):
				w.tell("resume", id)
			case f.Run.Status == state.Suspended && question(f) != nil:
				w.answer(f)
			}
			quiet = 0
		}
	}
	if code := w.service.stop(); code != 0 {
		w.t.Errorf("the service exits with %d", code)
	}
	w.look()
	for id, f := range w.files {
		if !f.Run.Status.Settled() {
			text, _ := json.MarshalIndent(f, "", " ")
			w.t.Errorf("run %s never ends: %s", id, text)
		}
		var last state.Entry
		if err := w.state().ReadJournal(id, func(e state.Entry) error { last = e; return nil }); err == nil &&
			(last.Kind != "end" || last.Status != f.Run.Status) {
			w.t.Errorf("run %s is %s, and its journal ends with %+v", id, f.Run.Status, last)
		}
		if f.Run.Status == state.Failed && f.Run.Error == nil {
			w.t.Errorf("run %s failed and does not say why", id)
		}
	}
	dir, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	left := (&crashWorld{project: w.project, dir: dir}).processes
	eventually(w.t, "no process of a step is left", func() bool { return len(left()) == 0 })
	noLocks(w.project)
	w.t.Logf("%d runs, %d steps complete, %d answers", len(w.files), len(w.done), len(w.answered))
}
