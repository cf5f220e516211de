package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"marbles/runner/transient"
	"marbles/state"
)

// exists reports whether a file of a test's directory is there.
func exists(dir, name string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
}

// pair is a workflow with two units side by side, of which the first ends once the second has begun.
func pair(dir string) *Workflow {
	return &Workflow{Name: "pair", Steps: []Step{
		{Name: "a", Isolate: &Isolate{}, Command: Command{Shell: "until test -e " + dir + "/both; do sleep 0.01; done"}},
		{Name: "b", Needs: []string{}, Isolate: &Isolate{}, Command: Command{Shell: withDir(dir, "touch $DIR/both; "+waitsForGo)}},
	}}
}

// parentOfUnit is a workflow that starts one with a unit, and has a process beside it.
func parentOfUnit(dir string) *Workflow {
	return &Workflow{Name: "parent", Steps: []Step{
		{Name: "child", Start: &Start{Workflow: "job"}},
		{Name: "own", Needs: []string{}, Command: Command{Shell: "until grep -q unit " + dir + "/ran; do sleep 0.01; done; touch " + dir + "/both; sleep 30"}},
	}}
}

// A cancel reaches the unit of a run whose owner was killed.
func TestUnitCancelAfterAKill(t *testing.T) {
	for name, parks := range map[string]bool{"by a command": false, "by a service": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ws := workspaceIn(t, dir)
			killAt(t, dir, "unit:start:at work", "")
			w, _ := unitKeeper(t, dir, isolated(dir, withDir(dir, waitsForGo)))
			f := onlyRun(t, ws)
			q := state.Request{Run: f.Run.ID, Action: state.ActionCancel, Reason: "enough", At: state.Stamp{Time: time.Now()}}
			if parks {
				must(t, w.Adopt(t.Context(), ws)) // looks after requests, and does not recover
				must(t, ws.Ask(q))
			} else {
				_, err := w.ActOn(t.Context(), ws, q)
				must(t, err)
			}
			if f := becomes(t, ws, f.Run.ID, state.Cancelled); f.Run.Error.Message != "enough" {
				t.Errorf("%+v", f.Run.Error)
			}
			clean(t, ws, dir)
		})
	}
}

// The request of a cancel goes with the run that it was for.
func TestUnitCancelIsNotForTheRetry(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, waitsForGo))
	w, _ := keeper(t, wf, func(o *Options) { o.Units, o.Parks = heapIn(dir), false })
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the unit", func() bool { return strings.Contains(ran(dir), "unit") })
	must(t, ws.Ask(state.Request{Run: r.ID(), Action: state.ActionCancel, Reason: "enough", At: state.Stamp{Time: time.Now()}}))
	r.Wait()
	must(t, w.Drain(t.Context()))
	if list, err := ws.Requests(); err != nil || len(list) > 0 {
		t.Errorf("requests are left: %+v, %v", list, err)
	}
}

// A service that stops begins no unit any more: it would leave all that are still to be done, side by side.
func TestUnitsOfAListAtAStop(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := &Workflow{Name: "job", Steps: []Step{{Name: "unit", Isolate: &Isolate{}, Each: &Each{List: []byte("[1,2,3,4,5,6]"), Parallel: 1},
		Command: Command{Shell: withDir(dir, "echo $MARBLES_ITEM >> $DIR/ran; "+waitsForGo)}}}}
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the first", func() bool { return strings.Contains(ran(dir), "1") })
	must(t, w.Drain(t.Context()))
	if names := heapIn(dir).loaded(); len(names) != 1 {
		t.Errorf("units %v", names)
	}
	w, _ = unitKeeper(t, dir, wf)
	must(t, w.Adopt(t.Context(), ws))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
	if got := ran(dir); got != "1\n2\n3\n4\n5\n6\n" {
		t.Errorf("ran %q", got)
	}
	clean(t, ws, dir)
}

// Where an item fails at a stop, the units of the others, which were about to be left, are ended.
func TestUnitsOfAFailedList(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := &Workflow{Name: "job", Steps: []Step{{Name: "unit", Isolate: &Isolate{}, Each: &Each{List: []byte("[1,2]"), Parallel: 2},
		Retry: Retry{Attempts: 2, Wait: time.Minute}, Command: Command{Shell: withDir(dir, "echo $MARBLES_ITEM >> $DIR/ran; test $MARBLES_ITEM = 2 || exit 3; "+waitsForGo)}}}}
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "both", func() bool { return strings.Contains(ran(dir), "1") && strings.Contains(ran(dir), "2") })
	eventually(t, "the wait for another attempt", func() bool { return strings.Contains(strings.Join(lines(t, ws, r.ID()), " "), "follows") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = w.Drain(ctx)
	if f := runFile(t, ws, r.ID()); f.Run.Status.Settled() {
		clean(t, ws, dir)
	} else {
		t.Errorf("the run is %s", f.Run.Status)
	}
}

// What ended in its time did so, however late somebody looks.
func TestUnitEndedInTimeAlone(t *testing.T) {
	for name, limit := range map[string]func(wf *Workflow){
		"the run": func(wf *Workflow) { wf.Timeout = time.Hour },
		"a step":  func(wf *Workflow) { wf.Steps[1].Timeout = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			wf := isolated(dir, withDir(dir, waitsForGo))
			limit(wf)
			r := left(t, ws, dir, wf)
			unit := runFile(t, ws, r.ID()).Open()[0].Unit().Unit
			must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			_, err := heapIn(dir).Wait(t.Context(), unit)
			must(t, err)
			const late = 2 * time.Hour // all of it two hours ago
			then := time.Now().Add(-late)
			must(t, os.Chtimes(heapIn(dir).path(unit, "exit"), then, then))
			must(t, ws.EditRun(t.Context(), r.ID(), nil, func(f *state.RunFile) error {
				f.Marbles.LeftAt.Time = f.Marbles.LeftAt.Add(-late)
				return moveUnit(f, -late)
			}))
			w, _ := unitKeeper(t, dir, wf)
			must(t, w.Adopt(t.Context(), ws))
			becomes(t, ws, r.ID(), state.Complete)
		})
	}
}

// specs are units that keep what they were asked for.
type specs struct {
	heapOfUnits
	all *[]transient.Spec
}

func (s specs) Start(ctx context.Context, spec transient.Spec) (transient.State, error) {
	*s.all = append(*s.all, spec)
	return s.heapOfUnits.Start(ctx, spec)
}

func TestUnitHasTheStepsTime(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, "true")
	wf.Steps[1].Timeout = time.Hour
	var all []transient.Spec
	w, _ := keeper(t, wf, func(o *Options) { o.Units = specs{heapIn(dir), &all} })
	run(t, w, ws, wf)
	if limit := all[0].Limit; limit < time.Hour-time.Minute || limit > time.Hour+time.Minute {
		t.Errorf("it may run for %s", limit)
	}
}

// Secrets are not shown, and nothing is lost, where the output limit is reached and the service stops.
func TestUnitSecretAtTheOutputLimit(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, `printf 'aaaaaaaaaa\nthe token is hunter2-hunter3 yy\n'; touch $DIR/out; `+waitsForGo))
	wf.Steps[1].Secrets = []Secret{{Name: "PW", From: "here", Read: func() (string, error) { return "hunter2-hunter3", nil }}}
	limited := func() *Worker {
		w, _ := keeper(t, wf, func(o *Options) {
			o.Units, o.OutputLimit, o.TempDir = heapIn(dir), 15, filepath.Join(dir, "run")
			must(t, os.MkdirAll(o.TempDir, 0o700))
		})
		return w
	}
	w := limited()
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "output", exists(dir, "out"))
	must(t, w.Drain(t.Context()))
	becomes(t, ws, r.ID(), state.Suspended)
	w = limited()
	must(t, w.Adopt(t.Context(), ws))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
	if got := output(t, ws, r.ID(), "unit", state.Stdout); got != "aaaaaaaaaa\nthe token is *** yy\n" {
		t.Errorf("stdout %q", got)
	}
}

// A unit that was taken over and has ended is not waited for any more, whatever happens then.
func TestUnitThatEndedIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "unit:pair:", "")
	wf := pair(dir)
	wf.Steps = append(wf.Steps, Step{Name: "ok", Ask: &Ask{Mode: state.ModeApproval, Title: "ok?"}})
	w, _ := unitKeeper(t, dir, wf)
	_, err := w.Recover(t.Context(), ws)
	must(t, err)
	f := onlyRun(t, ws)
	if open := f.Open(); len(open) != 1 || open[0].Name != "b" {
		t.Errorf("it waits for %+v", open)
	}
	must(t, w.Adopt(t.Context(), ws))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, f.Run.ID, state.Complete)
	clean(t, ws, dir)
}

// A run that a service has parked for a dead roll is adopted by it.
func TestUnitOfADeadRollBesideAService(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	wf := isolated(dir, withDir(dir, waitsForGo))
	w, _ := unitKeeper(t, dir, wf)
	must(t, w.Adopt(t.Context(), ws))
	killAt(t, dir, "unit:tick:", "")
	f := onlyRun(t, ws)
	if res := w.Tick(t.Context(), schedule(w, ws, slotTime.Add(time.Hour), wf)); res.Outcome != state.SlotSkipped {
		t.Errorf("%+v", res)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, f.Run.ID, state.Complete)
	clean(t, ws, dir)
}

func TestUnitIsReplaced(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	wf := isolated(dir, withDir(dir, waitsForGo))
	killAt(t, dir, "unit:tick:", "")
	f := onlyRun(t, ws)
	w, _ := keeper(t, wf, func(o *Options) { o.Units, o.Parks = heapIn(dir), false })
	tick := schedule(w, ws, slotTime.Add(time.Hour), wf)
	tick.Overlap = OverlapReplace
	done := make(chan TickResult, 1)
	go func() { done <- w.Tick(t.Context(), tick) }()
	becomes(t, ws, f.Run.ID, state.Cancelled)
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if res := <-done; res.Outcome != state.SlotRan {
		t.Errorf("%+v", res)
	}
	clean(t, ws, dir)
}

// Final steps come when nothing else of the run is at work.
func TestUnitEndsBeforeFinalSteps(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, "echo $$ > $DIR/pid; "+waitsForGo))
	wf.Steps = append(wf.Steps, Step{Name: "clean", Final: Always, Command: Command{Shell: "if kill -0 $(cat " + dir + "/pid); then touch " + dir + "/alive; fi"}})
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the unit", exists(dir, "pid"))
	must(t, w.Drain(t.Context()))
	becomes(t, ws, r.ID(), state.Suspended)
	w, _ = unitKeeper(t, dir, wf)
	_, err := w.ActOn(t.Context(), ws, state.Request{Run: r.ID(), Action: state.ActionCancel, Reason: "enough"})
	must(t, err)
	becomes(t, ws, r.ID(), state.Cancelled)
	if exists(dir, "alive")() {
		t.Error("the final step ran beside the unit")
	}
	clean(t, ws, dir)
}

// A run that is given up leaves no unit.
func TestUnitOfAnAbandonedRun(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "unit:start:at work", "")
	killAt(t, dir, "unit:take:continued", "")
	w, _ := unitKeeper(t, dir, isolated(dir, withDir(dir, waitsForGo)))
	never, err := w.Recover(t.Context(), ws)
	must(t, err)
	if len(never) != 1 {
		t.Fatalf("%d runs never began", len(never))
	}
	must(t, w.Abandon(ws, never[0], "its schedule is gone"))
	clean(t, ws, dir)
}

// flaky are units whose manager is away for a moment.
type flaky struct {
	heapOfUnits
	asked *atomic.Int64
}

func (f flaky) Wait(ctx context.Context, name string) (transient.State, error) {
	if f.asked.Add(1) == 1 {
		return transient.State{}, errors.New("cannot reach the service manager")
	}
	return f.heapOfUnits.Wait(ctx, name)
}

func TestUnitWhoseManagerIsAway(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, waitsForGo))
	var asked atomic.Int64
	w, _ := keeper(t, wf, func(o *Options) { o.Units = flaky{heapIn(dir), &asked} })
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "a look", func() bool { return asked.Load() > 0 })
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if res := r.Wait(); res.Status != state.Complete {
		t.Errorf("%s %+v", res.Status, res.Error)
	}
}

// An interrupted run takes what it has started with it.
func TestUnitOfAnInterruptedParent(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "unit:parent:", "")
	child, parent := isolated(dir, withDir(dir, waitsForGo)), parentOfUnit(dir)
	w, _ := keeper(t, nil, func(o *Options) {
		o.Units = heapIn(dir)
		o.Workflow = func(_ *state.Workspace, name string) *Workflow {
			if name == child.Name {
				return child
			}
			return parent
		}
	})
	_, err := w.Recover(t.Context(), ws)
	must(t, err)
	must(t, w.Adopt(t.Context(), ws))
	list, err := ws.Runs(state.RunQuery{})
	must(t, err)
	for _, r := range list.Runs {
		want := state.Failed
		if r.Name == child.Name {
			want = state.Cancelled
		}
		becomes(t, ws, r.ID, want)
	}
	clean(t, ws, dir)
}

// A step that opens /dev/stderr to write there, as many scripts do, begins the file anew: what was read stays, and so does what
// follows.
func TestUnitWritesToDevStderr(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, `echo one >&2; until test -e $DIR/read; do sleep 0.01; done; echo two > /dev/stderr; echo three >&2`))
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the first line", func() bool { return output(t, ws, r.ID(), "unit", state.Stderr) == "one\n" })
	must(t, os.WriteFile(filepath.Join(dir, "read"), nil, 0o600))
	r.Wait()
	if got := output(t, ws, r.ID(), "unit", state.Stderr); got != "one\ntwo\nthree\n" && got != "one\nthree\n" {
		t.Errorf("stderr %q", got)
	}
}

// The files that root writes for a unit are out of reach of the user that its step runs as.
func TestUnitOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	ws, dir := newWorkspace(t), t.TempDir()
	for p := dir; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		must(t, os.Chmod(p, 0o755))
	}
	wf := isolated(dir, "true")
	wf.User = "nobody"
	wf.Steps = wf.Steps[1:2]
	w, _ := keeper(t, wf, func(o *Options) { o.Units, o.TempDir = heapIn(dir), dir })
	looked := false
	w.hook = func(at string) {
		if at != "unit spawning" {
			return
		}
		dirs, _ := filepath.Glob(filepath.Join(dir, unitName+"*"))
		for _, d := range dirs {
			var outer, own syscall.Stat_t
			must(t, syscall.Stat(d, &outer))
			must(t, syscall.Stat(filepath.Join(d, "own"), &own))
			looked = true
			if outer.Uid != 0 || outer.Mode&0o022 != 0 || own.Uid == 0 {
				t.Errorf("%s is %d's, %o; own is %d's", d, outer.Uid, outer.Mode, own.Uid)
			}
		}
	}
	run(t, w, ws, wf)
	if !looked {
		t.Error("there was no directory")
	}
}

// A unit's input is open for no longer than it is written.
func TestUnitKeepsNothingOpen(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, waitsForGo))
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the unit", func() bool { return strings.Contains(ran(dir), "unit") })
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, ws.Units()) && strings.HasSuffix(to, inputSuffix) {
			t.Errorf("%s is open", to)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	r.Wait()
}

// A run whose definition is removed while its unit is at work goes on to its end.
func TestUnitWithoutItsDefinition(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, waitsForGo))
	r := left(t, ws, dir, wf)
	w, _ := unitKeeper(t, dir, nil)
	must(t, w.Adopt(t.Context(), ws))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
	if got := ran(dir); !strings.Contains(got, "after") {
		t.Errorf("ran %q", got)
	}
	clean(t, ws, dir)
}

// moveUnit moves the beginning of the attempt that a run waits for.
func moveUnit(f *state.RunFile, by time.Duration) error {
	for _, s := range f.Open() {
		if u := s.Unit(); u != nil {
			u.At.Time = u.At.Add(by)
			s.Request = []byte(fmt.Sprintf(`{"unit":%q,"dir":%q,"path":["job","unit"],"attempt":%d,"since":%q,"at":%q}`, u.Unit, u.Dir, u.Attempt,
				u.Since.UTC().Format(time.RFC3339Nano), u.At.UTC().Format("2006-01-02T15:04:05.000Z")))
		}
	}
	return nil
}

// slow are units that take long to start.
type slow struct{ heapOfUnits }

func (slow) Start(ctx context.Context, _ transient.Spec) (transient.State, error) {
	<-ctx.Done()
	return transient.State{}, ctx.Err()
}

// A run that is paused or cancelled while its unit starts has not failed.
func TestUnitStoppedWhileItStarts(t *testing.T) {
	for want, action := range map[state.Status]state.Action{state.Suspended: state.ActionPause, state.Cancelled: state.ActionCancel} {
		t.Run(string(action), func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			wf := isolated(dir, "true")
			w, _ := keeper(t, wf, func(o *Options) { o.Units = slow{heapIn(dir)} })
			starts := make(chan struct{}, 1)
			w.hook = func(at string) {
				if at == "unit spawning" {
					starts <- struct{}{}
				}
			}
			r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
			<-starts
			must(t, ws.Ask(state.Request{Run: r.ID(), Action: action, Reason: "enough"}))
			becomes(t, ws, r.ID(), want)
		})
	}
}

// Runs whose units are at work have their turn among the runs of their workflow before anything else is started.
func TestUnitHasItsTurnFirst(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, waitsForGo))
	wf.Concurrency = 1
	w, _ := unitKeeper(t, dir, wf)
	first := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the unit", func() bool { return strings.Contains(ran(dir), "unit") })
	must(t, w.Drain(t.Context()))
	becomes(t, ws, first.ID(), state.Suspended)
	w, _ = unitKeeper(t, dir, wf)
	must(t, w.AdoptUnits(t.Context(), ws))
	second := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	becomes(t, ws, first.ID(), state.Running)
	if f := runFile(t, ws, second.ID()); f.Run.Status != state.Queued {
		t.Errorf("the second is %s", f.Run.Status)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, first.ID(), state.Complete)
	becomes(t, ws, second.ID(), state.Complete)
}
