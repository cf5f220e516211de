package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"marbles/runner/transient"
	"marbles/state"
)

// heapOfUnits is a manager of units for tests: real processes that nobody's death ends, and whose end is kept in files, so that
// any process may look after them. What the real manager does is tested in runner/transient and packaging/booted.
type heapOfUnits struct{ dir string }

func (h heapOfUnits) path(name, file string) string { return filepath.Join(h.dir, name, file) }

func (h heapOfUnits) Start(_ context.Context, spec transient.Spec) (transient.State, error) {
	if err := os.MkdirAll(h.path(spec.Name, ""), 0o700); err != nil {
		return transient.State{}, err
	}
	args := []string{"-c", `d=$1 e=$2 o=$3 r=$4 u=$5; shift 5
(cd "$d" && exec env -i sh -c 'set -a; . "$0"; : > "$1/read"; shift; exec "$@"' "$e" "$u" "$@") >> "$o" 2>> "$r" & echo $! > "$u/pid"; wait $!; echo $? > "$u/exit.tmp"; mv "$u/exit.tmp" "$u/exit"`,
		"unit", spec.Dir, spec.EnvFile, spec.Stdout, spec.Stderr, h.path(spec.Name, ""), spec.Path}
	cmd := exec.Command("/bin/sh", append(args, spec.Argv[1:]...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return transient.State{}, err
	}
	go func() { _ = cmd.Wait() }()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(h.path(spec.Name, "read")); err == nil && h.pid(spec.Name) > 0 {
			return h.Look(context.Background(), spec.Name)
		}
	}
	return transient.State{}, errors.New("it did not start")
}

func (h heapOfUnits) pid(name string) int {
	text, _ := os.ReadFile(h.path(name, "pid"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func (h heapOfUnits) Look(_ context.Context, name string) (transient.State, error) {
	if _, err := os.Stat(h.path(name, "")); err != nil {
		return transient.State{}, nil
	}
	st := transient.State{Loaded: true, Running: true, MainPID: h.pid(name)}
	text, err := os.ReadFile(h.path(name, "exit"))
	if err != nil {
		return st, nil
	}
	if info, err := os.Stat(h.path(name, "exit")); err == nil {
		st.StateChanged = info.ModTime()
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	st.Running, st.Ended, st.MainPID, st.ExitCode, st.Result = false, true, 0, code, "success"
	if code > 128 {
		st.Signal, st.ExitCode = syscall.Signal(code-128), -1
	}
	return st, err
}

func (h heapOfUnits) Wait(ctx context.Context, name string) (transient.State, error) {
	for {
		st, err := h.Look(ctx, name)
		if err != nil || st.Ended || !st.Loaded {
			return st, err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return st, ctx.Err()
		}
	}
}

func (h heapOfUnits) Signal(_ context.Context, name string, sig syscall.Signal) error {
	if pid := h.pid(name); pid > 0 {
		_ = syscall.Kill(pid, sig)
	}
	return nil
}

func (h heapOfUnits) Stop(ctx context.Context, name string) ([]string, error) {
	if st, _ := h.Look(ctx, name); st.Running && st.MainPID > 0 {
		_ = syscall.Kill(st.MainPID, syscall.SIGKILL)
		_, _ = h.Wait(ctx, name)
	}
	return nil, os.RemoveAll(h.path(name, ""))
}

func (h heapOfUnits) Keeps(context.Context) bool { return true }

func (h heapOfUnits) loaded() (names []string) {
	entries, _ := os.ReadDir(h.dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func heapIn(dir string) heapOfUnits { return heapOfUnits{filepath.Join(dir, "units")} }

// isolated is a workflow with a step before, one in a unit, and one after it. The unit goes on once there is a file go.
func isolated(dir, text string) *Workflow {
	wf := shell("job", "echo before >> "+dir+"/ran")
	wf.Steps = append(wf.Steps,
		Step{Name: "unit", Command: Command{Shell: "echo unit >> " + dir + "/ran; " + text}, Isolate: &Isolate{}},
		Step{Name: "after", Command: Command{Shell: "echo after $(cat $MARBLES_INPUT_FILE) >> " + dir + "/ran"}})
	return wf
}

const waitsForGo = `until test -e $DIR/go; do sleep 0.01; done; echo '{"n":1}' > $MARBLES_RESULT_FILE`

func withDir(dir, text string) string { return "DIR=" + dir + "; " + text }

// unitKeeper is a worker of a service that has units.
func unitKeeper(t testing.TB, dir string, wf *Workflow) (*Worker, *safeBuffer) {
	t.Cleanup(func() { // of a test that failed
		for _, name := range heapIn(dir).loaded() {
			_, _ = heapIn(dir).Stop(context.Background(), name)
		}
	})
	return keeper(t, wf, func(o *Options) {
		o.Units, o.TempDir = heapIn(dir), filepath.Join(dir, "run")
		must(t, os.MkdirAll(o.TempDir, 0o700))
	})
}

// left is a run of a workflow whose service has stopped while its unit was at work.
func left(t *testing.T, ws *state.Workspace, dir string, wf *Workflow) *Run {
	t.Helper()
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the unit", func() bool { return strings.Contains(ran(dir), "unit") })
	must(t, w.Drain(t.Context()))
	becomes(t, ws, r.ID(), state.Suspended)
	return r
}

// clean fails where a unit or a directory of one is left.
func clean(t *testing.T, ws *state.Workspace, dir string) {
	t.Helper()
	if names := heapIn(dir).loaded(); len(names) > 0 {
		t.Errorf("units are left: %v", names)
	}
	if left, _ := os.ReadDir(ws.Units()); len(left) > 0 {
		t.Errorf("directories of units are left: %v", left)
	}
}

func TestUnitRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		status state.Status
		err    string
		result string
	}{
		"result": {`printf 'a\nb'; echo warn >&2; echo '{"n":1}' > $MARBLES_RESULT_FILE`, state.Complete, "", `{"n":1}`},
		"fails":  {"printf 'a\\nb'; echo warn >&2; exit 3", state.Failed, `step "unit" exited with code 3`, ""},
		"signal": {"printf 'a\\nb'; echo warn >&2; kill -9 $$", state.Failed, `step "unit" was ended by SIGKILL`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			wf := isolated(dir, tt.text)
			w, _ := unitKeeper(t, dir, wf)
			res := run(t, w, ws, wf)
			if res.Status != tt.status || tt.err != "" && res.Error.Message != tt.err {
				t.Fatalf("%s %+v", res.Status, res.Error)
			}
			if got := output(t, ws, res.RunID, "unit", state.Stdout); got != "a\nb" {
				t.Errorf("stdout %q", got)
			}
			if got := output(t, ws, res.RunID, "unit", state.Stderr); got != "warn\n" {
				t.Errorf("stderr %q", got)
			}
			f := runFile(t, ws, res.RunID)
			if rec := f.Steps[1]; strings.Join(strings.Fields(string(rec.Result)), "") != tt.result || !strings.HasPrefix(rec.Unit, "marbles-step-") {
				t.Errorf("record %+v", rec)
			}
			clean(t, ws, dir)
		})
	}
}

// A service that stops leaves the unit alone at once; the next one takes it over, without a byte of its output lost or twice, and
// goes on. It does so however often, and when the unit ended meanwhile.
func TestUnitSurvivesAStop(t *testing.T) {
	const lines = 4000
	for name, ended := range map[string]bool{"at work": false, "ended meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			count := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i é"; i=$((i+1)); [ $((i %% 100)) -ne 0 ] || sleep 0.01; done; `, lines)
			wf := isolated(dir, withDir(dir, count+waitsForGo))
			w, _ := unitKeeper(t, dir, wf)
			r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
			for range 3 {
				had := len(output(t, ws, r.ID(), "unit", state.Stdout))
				eventually(t, "more output", func() bool {
					return len(output(t, ws, r.ID(), "unit", state.Stdout)) > had || strings.Contains(output(t, ws, r.ID(), "unit", state.Stdout), fmt.Sprintf("line %d", lines-1))
				})
				must(t, w.Drain(t.Context()))
				f := becomes(t, ws, r.ID(), state.Suspended)
				if open := f.Open(); len(open) != 1 || open[0].Unit() == nil {
					t.Fatalf("it waits for %+v", f.Open())
				}
				if ended {
					must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
					eventually(t, "the end", func() bool {
						st, _ := heapIn(dir).Look(t.Context(), f.Open()[0].Unit().Unit)
						return st.Ended
					})
				}
				w, _ = unitKeeper(t, dir, wf)
				_, err := w.Recover(t.Context(), ws)
				must(t, err)
				must(t, w.Adopt(t.Context(), ws))
				if ended {
					break
				}
				becomes(t, ws, r.ID(), state.Running)
			}
			must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			becomes(t, ws, r.ID(), state.Complete)
			var want strings.Builder
			for i := range lines {
				fmt.Fprintf(&want, "line %d é\n", i)
			}
			if got := output(t, ws, r.ID(), "unit", state.Stdout); got != want.String() {
				t.Errorf("%d bytes of output, want %d", len(got), want.Len())
			}
			if got := ran(dir); got != "before\nunit\nafter {\"job\":null,\"unit\":{\"n\":1}}\n" {
				t.Errorf("ran %q", got)
			}
			clean(t, ws, dir)
		})
	}
}

// unitCrash is the process that starts a run with a unit, or takes one over, and is killed at a point.
func unitCrash(dir, point string) {
	ws := opened(dir)
	wf := isolated(dir, withDir(dir, waitsForGo))
	w := New(Options{TempDir: dir, Parks: true, Units: heapIn(dir), Workflow: func(*state.Workspace, string) *Workflow { return wf }})
	how, point, _ := strings.Cut(point, ":")
	w.hook = func(at string) {
		if at == point {
			die()
		}
	}
	if how == "pair" || how == "parent" {
		wf = map[string]*Workflow{"pair": pair(dir), "parent": parentOfUnit(dir)}[how]
		child := isolated(dir, withDir(dir, waitsForGo))
		w = New(Options{TempDir: dir, Parks: true, Units: heapIn(dir), Workflow: func(_ *state.Workspace, name string) *Workflow {
			if name == child.Name {
				return child
			}
			return wf
		}})
		if _, err := w.Start(Launch{Workspace: ws, Workflow: wf, Trigger: "manual"}); err != nil {
			panic(err)
		}
		for _, err := os.Stat(filepath.Join(dir, "both")); err != nil; _, err = os.Stat(filepath.Join(dir, "both")) {
			time.Sleep(time.Millisecond)
		}
		if how == "pair" { // the first has ended, and its end is on record
			id, _ := filepath.Glob(filepath.Join(ws.Dir(), "output", "*.jsonl"))
			for text := ""; !strings.Contains(text, `"name":"a","status":"complete"`); time.Sleep(time.Millisecond) {
				b, _ := os.ReadFile(id[0])
				text = string(b)
			}
		}
		die()
	}
	if how == "tick" {
		go w.Tick(context.Background(), schedule(w, ws, slotTime, wf))
		point = "at work"
	} else if how == "take" {
		if _, err := w.Recover(context.Background(), ws); err != nil {
			panic(err)
		}
		if err := w.Adopt(context.Background(), ws); err != nil {
			panic(err)
		}
	} else if _, err := w.Start(Launch{Workspace: ws, Workflow: wf, Trigger: "manual"}); err != nil {
		panic(err)
	}
	if point == "at work" {
		for !strings.Contains(ran(dir), "unit") {
			time.Sleep(time.Millisecond)
		}
		die()
	}
	select {}
}

// Whatever a kill leaves of a run with a unit, the unit's work is done once, and the run ends as that did.
func TestUnitCrash(t *testing.T) {
	for _, points := range []string{
		"start:unit spawned", "start:at work", "start:at work,take:outliving", "start:at work,take:outlived",
		"start:at work,take:claimed", "start:at work,take:adopted", "start:at work,take:continuing", "start:at work,take:continued",
		"start:at work,take:unit spawning", "start:at work,take:unit spawning,take:unit spawning", "start:at work,take:at work",
	} {
		t.Run(points, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ws := workspaceIn(t, dir)
			for point := range strings.SplitSeq(points, ",") {
				killAt(t, dir, "unit:"+point, "")
			}
			wf := isolated(dir, withDir(dir, waitsForGo))
			w, log := unitKeeper(t, dir, wf)
			never, err := w.Recover(t.Context(), ws)
			must(t, err)
			for _, f := range never {
				_, err := w.Start(Launch{Workspace: ws, Workflow: wf, Queued: f, Trigger: "manual"})
				must(t, err)
			}
			must(t, w.Adopt(t.Context(), ws))
			must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
			f := onlyRun(t, ws)
			becomes(t, ws, f.Run.ID, state.Complete)
			if got := ran(dir); got != "before\nunit\nafter {\"job\":null,\"unit\":{\"n\":1}}\n" {
				t.Errorf("ran %q\n%s", got, log)
			}
			clean(t, ws, dir)
		})
	}
}

// A unit that was to be started and is not there has not outlived anybody.
func TestUnitCrashBeforeItsStart(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "unit:start:unit spawning", "")
	w, _ := unitKeeper(t, dir, isolated(dir, "true"))
	never, err := w.Recover(t.Context(), ws)
	must(t, err)
	f := onlyRun(t, ws)
	if len(never) != 0 || f.Run.Status != state.Failed || f.Run.Error.Name != "InterruptedError" {
		t.Errorf("%d never began; the run is %s, %+v", len(never), f.Run.Status, f.Run.Error)
	}
	if got := ran(dir); got != "before\n" {
		t.Errorf("ran %q", got)
	}
	clean(t, ws, dir)
}

// Where a process of the run died with its owner, the run is interrupted, and its unit is ended.
func TestUnitBesideAProcess(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "unit:start:at work", "")
	f := onlyRun(t, ws)
	j, err := ws.OpenJournal(f.Run.ID, "job", time.Now())
	must(t, err)
	must(t, j.Spawning(time.Now(), "other", nil))
	must(t, j.Close())
	// As the owner would have written it: without a start of ours.
	path := filepath.Join(ws.Dir(), "output", f.Run.ID+".jsonl")
	text, err := os.ReadFile(path)
	must(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	must(t, os.WriteFile(path, []byte(strings.Join(append(lines[:len(lines)-3], lines[len(lines)-2:]...), "")), 0o600))
	w, _ := unitKeeper(t, dir, isolated(dir, "true"))
	_, err = w.Recover(t.Context(), ws)
	must(t, err)
	if f := onlyRun(t, ws); f.Run.Status != state.Failed || f.Run.Error.Name != "InterruptedError" {
		t.Errorf("the run is %s, %+v", f.Run.Status, f.Run.Error)
	}
	clean(t, ws, dir)
}

// After a restart of the machine, or when somebody removed the unit, a run that waits for it is interrupted.
func TestUnitGone(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	wf := isolated(dir, withDir(dir, waitsForGo))
	r := left(t, ws, dir, wf)
	f := runFile(t, ws, r.ID())
	_, err := heapIn(dir).Stop(t.Context(), f.Open()[0].Unit().Unit)
	must(t, err)
	path := filepath.Join(ws.Dir(), "runs", r.ID()+".json")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), fmt.Sprintf(`"pid": %d`, os.Getpid()), `"pid": 1073741824`, 1)), 0o600))
	w, _ := unitKeeper(t, dir, wf)
	_, err = w.Recover(t.Context(), ws)
	must(t, err)
	if f := onlyRun(t, ws); f.Run.Status != state.Failed || f.Run.Error.Name != "InterruptedError" {
		t.Errorf("the run is %s, %+v", f.Run.Status, f.Run.Error)
	}
	clean(t, ws, dir)
}

// A cancel reaches a unit that runs without a service, and one that is being followed.
func TestUnitCancel(t *testing.T) {
	for name, left := range map[string]bool{"followed": false, "left": true} {
		t.Run(name, func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			wf := isolated(dir, withDir(dir, waitsForGo))
			w, _ := unitKeeper(t, dir, wf)
			r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
			eventually(t, "the unit", func() bool { return strings.Contains(ran(dir), "unit") })
			if left {
				must(t, w.Drain(t.Context()))
				becomes(t, ws, r.ID(), state.Suspended)
				w, _ = unitKeeper(t, dir, wf)
				_, err := w.ActOn(t.Context(), ws, state.Request{Run: r.ID(), Action: state.ActionCancel, Reason: "enough"})
				must(t, err)
			} else {
				r.Cancel("enough")
			}
			f := becomes(t, ws, r.ID(), state.Cancelled)
			if f.Run.Error.Message != "enough" {
				t.Errorf("%+v", f.Run.Error)
			}
			clean(t, ws, dir)
		})
	}
}

// What has been put into the journal is taken out of the unit's file, so that the disk holds it once.
func TestUnitOutputIsPunchedOut(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there are no units elsewhere, and no holes are punched")
	}
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, `yes 0123456789 | head -c 8000000; `+waitsForGo))
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the output", func() bool { return len(output(t, ws, r.ID(), "unit", state.Stdout)) == 8000000 })
	files, _ := filepath.Glob(filepath.Join(ws.Units(), "*", "stdout"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	var st syscall.Stat_t
	must(t, syscall.Stat(files[0], &st))
	if st.Size != 8000000 || st.Blocks*512 > 3<<20 {
		t.Errorf("the file has %d bytes in %d", st.Size, st.Blocks*512)
	}
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if res := r.Wait(); res.Status != state.Complete {
		t.Errorf("%+v", res)
	}
}

// A secret that lies across the byte at which a service stopped is masked all the same.
func TestUnitSecretAcrossAStop(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, `printf 'it is hunter2-hu'; until test -e $DIR/more; do sleep 0.01; done; printf 'nter3\n'; `+waitsForGo))
	wf.Steps[1].Secrets = []Secret{{Name: "PW", From: "here", Read: func() (string, error) { return "hunter2-hunter3", nil }}}
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "output", func() bool { return strings.Contains(output(t, ws, r.ID(), "unit", state.Stdout), "it is ") })
	must(t, w.Drain(t.Context()))
	becomes(t, ws, r.ID(), state.Suspended)
	wf.Steps[1].Secrets[0].Read = func() (string, error) { return "another by now", nil }
	w, _ = unitKeeper(t, dir, wf)
	must(t, w.Adopt(t.Context(), ws))
	becomes(t, ws, r.ID(), state.Running)
	must(t, os.WriteFile(filepath.Join(dir, "more"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
	if got := output(t, ws, r.ID(), "unit", state.Stdout); got != "it is ***\n" {
		t.Errorf("stdout %q", got)
	}
}

// A run of a key whose roll was killed is gone on with by the key's next tick, where there is no service.
func TestUnitOfADeadRoll(t *testing.T) {
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	wf := isolated(dir, withDir(dir, waitsForGo))
	killAt(t, dir, "unit:tick:", "")
	f := onlyRun(t, ws)
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	w, log := keeper(t, wf, func(o *Options) { o.Units, o.Parks = heapIn(dir), false })
	res := w.Tick(t.Context(), schedule(w, ws, slotTime.Add(time.Hour), wf))
	if res.Outcome != state.SlotRan || res.Result.RunID == f.Run.ID {
		t.Errorf("%+v\n%s", res, log)
	}
	if f := runFile(t, ws, f.Run.ID); f.Run.Status != state.Complete {
		t.Errorf("the older run is %s, %+v", f.Run.Status, f.Run.Error)
	}
	clean(t, ws, dir)
}

// The time of a run, and of an attempt, goes on while its unit is alone.
func TestUnitTimesOutWithoutAService(t *testing.T) {
	for name, tt := range map[string]struct {
		limit func(wf *Workflow)
		past  func(f *state.RunFile, by time.Duration) // lets it have been alone for so long
	}{
		"the run": {
			func(wf *Workflow) { wf.Timeout = time.Hour },
			func(f *state.RunFile, by time.Duration) { f.Marbles.LeftAt.Time = f.Marbles.LeftAt.Add(-by) },
		},
		"a step": {
			func(wf *Workflow) { wf.Steps[1].Timeout = time.Hour },
			func(f *state.RunFile, by time.Duration) {
				must(t, moveUnit(f, -by))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			wf := isolated(dir, withDir(dir, waitsForGo))
			tt.limit(wf)
			r := left(t, ws, dir, wf)
			must(t, ws.EditRun(t.Context(), r.ID(), nil, func(f *state.RunFile) error {
				tt.past(f, 2*time.Hour)
				return nil
			}))
			w, _ := unitKeeper(t, dir, wf)
			must(t, w.Adopt(t.Context(), ws))
			if f := becomes(t, ws, r.ID(), state.Failed); f.Run.Error.Name != "TimeoutError" {
				t.Errorf("%+v", f.Run.Error)
			}
			clean(t, ws, dir)
		})
	}
}

// Where nobody knows any more what has to be masked, nothing is shown.
func TestUnitWhoseSecretsAreGone(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, waitsForGo+`; echo it is $PW`))
	wf.Steps[1].Secrets = []Secret{{Name: "PW", From: "here", Read: func() (string, error) { return "hunter2", nil }}}
	r := left(t, ws, dir, wf)
	files, err := filepath.Glob(filepath.Join(dir, "run", "*.secrets"))
	must(t, err)
	if len(files) != 1 {
		t.Fatalf("secrets in %v", files)
	}
	must(t, os.Remove(files[0]))
	w, _ := unitKeeper(t, dir, wf)
	must(t, w.Adopt(t.Context(), ws))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
	if got := output(t, ws, r.ID(), "unit", state.Stdout); got != "" {
		t.Errorf("stdout %q", got)
	}
}

// Each attempt's output is its own: what an attempt before it has put out says nothing of where it begins.
func TestUnitOutputOfAnotherAttempt(t *testing.T) {
	ws, dir := newWorkspace(t), t.TempDir()
	wf := isolated(dir, withDir(dir, `echo first line; echo first error >&2; test -e $DIR/again || { touch $DIR/again; exit 3; }; `+waitsForGo+`; echo second`))
	wf.Steps[1].Retry = Retry{Attempts: 2}
	w, _ := unitKeeper(t, dir, wf)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
	eventually(t, "the second attempt", func() bool { return strings.Count(ran(dir), "unit") == 2 })
	must(t, w.Drain(t.Context()))
	becomes(t, ws, r.ID(), state.Suspended)
	// As if the service had ended before it saw anything of the second attempt.
	path := filepath.Join(ws.Dir(), "output", r.ID()+".jsonl")
	text, err := os.ReadFile(path)
	must(t, err)
	var kept strings.Builder
	spawns := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"kind":"spawn"`) && strings.Contains(line, `"unit":{`) {
			spawns++
		}
		if spawns < 2 || !strings.Contains(line, `"offset"`) {
			kept.WriteString(line)
		}
	}
	must(t, os.WriteFile(path, []byte(kept.String()), 0o600))
	w, _ = unitKeeper(t, dir, wf)
	must(t, w.Adopt(t.Context(), ws))
	must(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	becomes(t, ws, r.ID(), state.Complete)
	if got := output(t, ws, r.ID(), "unit", state.Stdout); got != "first line\nfirst line\nsecond\n" {
		t.Errorf("stdout %q", got)
	}
	if got := output(t, ws, r.ID(), "unit", state.Stderr); got != "first error\nfirst error\n" {
		t.Errorf("stderr %q", got)
	}
}

// What a unit has put out while nobody looked is kept, however its run ends.
func TestUnitOutputIsSalvaged(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *Worker, ws *state.Workspace, dir, run string){
		"cancelled": func(t *testing.T, w *Worker, ws *state.Workspace, _, run string) {
			_, err := w.ActOn(t.Context(), ws, state.Request{Run: run, Action: state.ActionCancel})
			must(t, err)
		},
		"its unit was stopped": func(t *testing.T, w *Worker, ws *state.Workspace, dir, run string) {
			path := filepath.Join(ws.Dir(), "runs", run+".json")
			text, err := os.ReadFile(path)
			must(t, err)
			_, err = heapIn(dir).Stop(t.Context(), runFile(t, ws, run).Open()[0].Unit().Unit)
			must(t, err)
			must(t, os.WriteFile(path, []byte(strings.Replace(string(text), fmt.Sprintf(`"pid": %d`, os.Getpid()), `"pid": 1073741824`, 1)), 0o600))
			_, err = w.Recover(t.Context(), ws)
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws, dir := newWorkspace(t), t.TempDir()
			wf := isolated(dir, withDir(dir, `echo one; until test -e $DIR/more; do sleep 0.01; done; echo two $PW; touch $DIR/written; `+waitsForGo))
			wf.Steps[1].Secrets = []Secret{{Name: "PW", From: "here", Read: func() (string, error) { return "hunter2", nil }}}
			w, _ := unitKeeper(t, dir, wf)
			r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
			eventually(t, "output", func() bool { return output(t, ws, r.ID(), "unit", state.Stdout) == "one\n" })
			must(t, w.Drain(t.Context()))
			becomes(t, ws, r.ID(), state.Suspended)
			must(t, os.WriteFile(filepath.Join(dir, "more"), nil, 0o600))
			eventually(t, "more output", func() bool { _, err := os.Stat(filepath.Join(dir, "written")); return err == nil })
			w, _ = unitKeeper(t, dir, wf)
			end(t, w, ws, dir, r.ID())
			if f := runFile(t, ws, r.ID()); !f.Run.Status.Settled() {
				t.Errorf("the run is %s", f.Run.Status)
			}
			if got := output(t, ws, r.ID(), "unit", state.Stdout); got != "one\ntwo ***\n" {
				t.Errorf("stdout %q", got)
			}
			clean(t, ws, dir)
		})
	}
}
