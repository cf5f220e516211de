package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

// number is a number from the environment.
func number(t *testing.T, name string, fallback int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("cannot read %s: %v", name, err)
	}
	return n
}

// TestCrash kills the service and `roll`, with SIGKILL, at random instants of their lives: starting, recovering, ticking,
// draining. After every kill, and again once the next service has recovered, it looks at everything on disk.
//
// MARBLES_CRASH_ROUNDS is how many rounds; each kills a service at least twice. MARBLES_CRASH_SEED repeats the random
// choices, though not what the machine makes of them. MARBLES_CRASH_KEEP is a folder for the state of a failed round.
func TestCrash(t *testing.T) {
	// So many rounds share a state root: what is looked at grows with it.
	const life = 10
	rounds := number(t, "MARBLES_CRASH_ROUNDS", 4)
	seed := number(t, "MARBLES_CRASH_SEED", time.Now().UnixNano()%1e9)
	worlds := max(2, (rounds+life-1)/life)
	for i := range worlds {
		share := (rounds + i) / worlds
		t.Run(fmt.Sprintf("seed %d", seed+i), func(t *testing.T) {
			t.Parallel()
			t.Logf("to repeat: MARBLES_CRASH_SEED=%d MARBLES_CRASH_ROUNDS=%d", seed+i, share)
			w := newCrashWorld(t, seed+i)
			for n := range share {
				if !t.Run(fmt.Sprintf("round %d", n), func(t *testing.T) { w.round(t, int(n)) }) {
					return
				}
			}
			t.Run("end", w.end)
			t.Logf("%d kills, %d runs, %d of them interrupted; left by kills: %d .break files, %d torn lines, %d journals of runs that were not accepted",
				w.kills, len(w.files), w.interrupted, w.breaks, w.torn, len(w.stray))
		})
	}
}

// crashWorld is a project that is made to crash, and what is known of it.
type crashWorld struct {
	*project
	rng     *rand.Rand
	dir     string        // canonical
	startup time.Duration // what a start takes here
	version int           // of the watched files
	handled int           // the version that was committed by the last recovery
	crons   []string      // keys that are overdue at the next start
	rolls   []*rolled     // of this round
	pids    []int         // of every marbles there was

	// What was seen on disk and must stay.
	files    map[string]*state.RunFile
	settled  map[string][sha256.Size]byte // run files
	appended map[string]prefix            // journals and ledgers, by path

	stray map[string]bool // journals of runs that were not accepted

	kills, interrupted, breaks, torn int
}

// prefix is the beginning of a file that is only ever appended to.
type prefix struct {
	size int
	sum  [sha256.Size]byte
}

func newCrashWorld(t *testing.T, seed int64) *crashWorld {
	w := &crashWorld{
		project: newProject(t, ""), rng: rand.New(rand.NewPCG(uint64(seed), 0)), startup: 500 * time.Millisecond,
		files:   map[string]*state.RunFile{},
		settled: map[string][sha256.Size]byte{}, appended: map[string]prefix{}, stray: map[string]bool{},
	}
	var err error
	if w.dir, err = filepath.EvalSymlinks(w.project.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(w.dir, os.DirFS(filepath.Join("testdata", "crash"))); err != nil {
		t.Fatal(err)
	}
	w.change()
	return w
}

// before is a random duration below d.
func (w *crashWorld) before(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d)))
}

// round is one service that is killed, and its successor that recovers.
func (w *crashWorld) round(t *testing.T, n int) {
	w.t = t
	t.Cleanup(w.keep)
	w.prepare(n)
	w.attack()
	w.audit(true)
	for w.rng.IntN(3) == 0 { // the successor does not get far
		d := w.launch()
		time.Sleep(w.before(w.startup * 3 / 2))
		w.kill(d)
		w.audit(true)
	}
	d := w.recover()
	w.audit(false)
	if !t.Failed() && w.rng.IntN(3) == 0 {
		if code := d.stop(); code != 0 {
			t.Errorf("the service exits with %d after SIGTERM", code)
		}
		w.audit(true)
		return
	}
	w.kill(d)
	w.audit(true)
}

// everyMinute is how a first sight names the cadence of the cron keys.
const everyMinute = "cron * * * * *"

// prepare defines, while nothing runs, cron keys that were first seen an hour ago: each has one slot to catch up with,
// and further ones as minutes begin.
func (w *crashWorld) prepare(n int) {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "crash", "jobs.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	root, err := state.Open(filepath.Join(w.home, ".foundry", "marbles"))
	if err != nil {
		w.t.Fatal(err)
	}
	ws, err := root.Workspace(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	since, err := ws.Since()
	if err != nil {
		w.t.Fatal(err)
	}
	if since == nil {
		since = map[string]state.Since{}
	}
	w.crons = nil
	for i := range 6 {
		key := fmt.Sprintf("cron-%d-%d", n, i)
		w.crons = append(w.crons, key)
		since[key] = state.Since{Cadence: everyMinute, At: state.Stamp{Time: time.Now().Add(-time.Hour)}}
		text = fmt.Appendf(text, "  - {key: %s, run: %s, cron: \"* * * * *\"}\n", key, []string{"quick", "steps"}[i%2])
	}
	if err := ws.WriteSince(since); err != nil {
		w.t.Fatal(err)
	}
	w.define(string(text))
}

// change makes a new version of what the monitors watch.
func (w *crashWorld) change() {
	w.t.Helper()
	w.version++
	for _, dir := range []string{"data", "notes"} {
		w.write("new.txt", strconv.Itoa(w.version))
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(w.dir, "new.txt"), filepath.Join(w.dir, dir, "a.txt")); err != nil {
			w.t.Fatal(err)
		}
	}
}

// launch starts a service and does not wait for it.
func (w *crashWorld) launch() *daemon {
	d := w.spawn("--grace", "1s", "--drain", "2s", "--concurrency", "4")
	w.pids = append(w.pids, d.cmd.Process.Pid)
	return d
}

func (w *crashWorld) kill(d *daemon) {
	w.kills++
	d.cmd.Process.Kill()
	<-d.done
}

// serve starts a service and waits until it is ready. A kill between two system calls can leave a lock that keeps
// others out: one without a pid for 30 s, and a .break until a person removes it. That must be said.
func (w *crashWorld) serve() *daemon {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		begin, d := time.Now(), w.launch()
		for running := true; running; {
			select {
			case <-d.done:
				running = false
			case <-time.After(5 * time.Millisecond):
				if strings.Contains(d.text(), "service is ready") {
					w.startup = time.Since(begin)
					return d
				}
			}
		}
		switch text := d.text(); {
		case strings.Contains(text, "a process that is taking it now; retry"):
			time.Sleep(time.Second)
		case strings.Contains(text, ".break)"):
			w.unbreak()
		default:
			w.t.Fatalf("the service does not start:\n%s", text)
		}
	}
	w.t.Fatal("the service does not start within a minute")
	return nil
}

// attack runs a service, rolls beside it, changes what is watched, and kills all of it.
func (w *crashWorld) attack() {
	w.t.Helper()
	type event struct {
		at time.Duration
		do func()
	}
	var d *daemon
	var events []event
	span := w.startup * 3 / 2
	hunted := false
	switch w.rng.IntN(4) {
	case 0:
		d = w.launch()
	case 1:
		d, span = w.serve(), 2*time.Second
	default:
		d, span, hunted = w.serve(), 1500*time.Millisecond, true
	}
	at := func(t time.Duration, do func()) { events = append(events, event{t, do}) }
	if w.rng.IntN(3) > 0 && w.handled == w.version { // else a version would never be seen
		at(w.before(span), w.change)
	}
	for range w.rng.IntN(4) {
		begin := w.before(span)
		at(begin, func() {
			w.roll("every-quick", "every-steps", "every-family", "data", "notes", "steps", "count", "count")
		})
	}
	if w.rng.IntN(4) == 0 {
		at(span, func() { d.cmd.Process.Signal(syscall.SIGTERM) })
		span += w.before(time.Second)
	}
	at(span, func() {
		if hunted {
			w.lurk()
		}
		w.kill(d)
	})
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	begin := time.Now()
	for _, e := range events {
		time.Sleep(e.at - time.Since(begin))
		e.do()
	}
	for _, r := range w.rolls {
		<-r.done
	}
}

// lurk waits until ticks begin or end, and a moment longer: into the midst of what they write.
func (w *crashWorld) lurk() {
	w.t.Helper()
	dir := filepath.Join(w.state().Dir(), "locks")
	look := func() string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			w.t.Fatal(err)
		}
		return fmt.Sprint(entries)
	}
	end := time.Now().Add(2 * time.Second)
	for range 1 + w.rng.IntN(6) {
		for before := look(); look() == before && time.Now().Before(end); {
			time.Sleep(200 * time.Microsecond)
		}
	}
	time.Sleep(w.before(20 * time.Millisecond))
}

// rolled is a `roll` that is killed after a while.
type rolled struct {
	cmd    *exec.Cmd
	tag    string // marks its run; "" where it rolls a key
	done   chan struct{}
	output bytes.Buffer // what it has echoed, once done
}

// roll starts a roll of one of several names, that is killed after a while.
func (w *crashWorld) roll(names ...string) {
	w.t.Helper()
	life := w.before(500 * time.Millisecond)
	r := &rolled{done: make(chan struct{})}
	args := []string{"roll", names[w.rng.IntN(len(names))]}
	if args[1] == "count" {
		r.tag = fmt.Sprintf("roll-%d", w.rng.Int64())
		args = append(args, "--input", fmt.Sprintf(`{"roll":%q}`, r.tag))
	}
	r.cmd = w.command(args...)
	r.cmd.Env = append(r.cmd.Env, "MARBLES_GRACE=1s", "MARBLES_LOG_LEVEL=error")
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	// What it leaves behind must not keep us waiting.
	r.cmd.WaitDelay = time.Second
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.kills++
	w.rolls, w.pids = append(w.rolls, r), append(w.pids, r.cmd.Process.Pid)
	go func() { // ends with the process
		kill := time.AfterFunc(life, func() { r.cmd.Process.Kill() })
		r.cmd.Wait()
		kill.Stop()
		close(r.done)
	}()
}

// recover starts the successor and waits until it has made good what the dead have left.
func (w *crashWorld) recover() *daemon {
	w.t.Helper()
	w.unbreak()
	before, patience := w.processes(), time.Duration(0)
	// In company: a roll may be settling what the dead have left under its key. It rolls a key: what it leaves itself must be
	// settled by the key's next tick, not only by the next service.
	if w.rng.IntN(4) == 0 {
		patience = 5 * time.Second
		w.roll("every-quick", "every-steps", "every-family", "every-count")
		time.Sleep(w.before(w.startup))
	}
	begin := time.Now()
	d := w.serve()
	for {
		after := w.processes()
		maps.DeleteFunc(before, func(id, _ string) bool { return after[id] == "" })
		if len(before) == 0 || time.Since(begin) > patience {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for id, name := range before {
		w.t.Errorf("a process of a dead marbles runs on beside its successor: %s %s", id, name)
	}
	for _, r := range w.rolls {
		<-r.done
	}
	var missing string
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if missing = w.owed(); missing == "" {
			w.checkSince()
			w.handled = w.version
			return d
		}
		if time.Now().After(end) {
			w.t.Errorf("a service that runs for 40 s has not made good: %s", missing)
			return d
		}
	}
}

// checkSince checks that the services took our word for it that the cron keys are not new.
func (w *crashWorld) checkSince() {
	w.t.Helper()
	since, err := w.state().Since()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, key := range w.crons {
		if s := since[key]; s.Cadence != everyMinute || time.Since(s.At.Time) < time.Hour {
			w.t.Errorf("%s was first seen %+v", key, s)
		}
	}
}

// owed is what a service still has to do.
func (w *crashWorld) owed() string {
	w.t.Helper()
	ws := w.state()
	unsettled, damaged, err := ws.Unsettled()
	if err != nil || len(damaged) > 0 {
		w.t.Fatal(err, damaged)
	}
	for _, f := range unsettled {
		if !f.Owner().Alive() {
			return fmt.Sprintf("run %s of %q is still %s, its owner pid %d is dead", f.Run.ID, f.Run.Extensions.TriggerID, f.Run.Status, f.PID)
		}
	}
	for _, key := range w.crons {
		entries, err := ws.Slots(key, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		if !slices.ContainsFunc(entries, func(e state.SlotEntry) bool { return e.Outcome == state.SlotRan }) {
			return fmt.Sprintf("key %s has not caught up with its slot: %v", key, entries)
		}
	}
	return w.unhandled(ws)
}

// unhandled is what the monitors still have to do.
func (w *crashWorld) unhandled(ws *state.Workspace) string {
	w.t.Helper()
	for _, key := range []string{"data", "notes"} {
		rec, err := ws.Monitor(key)
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strconv.Itoa(w.version))))
		switch {
		case err != nil:
			w.t.Fatal(err)
		case rec == nil || rec.Files[key+"/a.txt"] != sum:
			return fmt.Sprintf("monitor %s has not committed version %d", key, w.version)
		case rec.Pending != nil:
			return fmt.Sprintf("monitor %s has not started %s", key, rec.Pending.Run)
		}
	}
	return ""
}

// end is a last service that stops by itself, and leaves nothing.
func (w *crashWorld) end(t *testing.T) {
	w.t = t
	t.Cleanup(w.keep)
	pids := w.pids
	d := w.recover()
	if code := d.stop(); code != 0 {
		t.Errorf("the service exits with %d after SIGTERM", code)
	}
	w.audit(true)
	ws := w.state()
	unsettled, _, err := ws.Unsettled()
	if err != nil {
		t.Error(err)
	}
	for _, f := range unsettled {
		if f.Run.Status != state.Queued { // those stay for the next service
			w.problem(f.Run.ID, "it is not settled")
		}
	}
	locks, err := ws.Locks()
	if err != nil {
		t.Error(err)
	}
	for _, l := range locks {
		// One of a workflow is there until its next run.
		if !strings.HasPrefix(l.Name, "workflow:") || l.Alive {
			t.Errorf("a lock is left: %+v", l)
		}
	}
	if hb, err := ws.Heartbeat(); hb != nil || err != nil {
		t.Errorf("a heartbeat is left: %v, %v", hb, err)
	}
	for id, name := range w.processes() {
		t.Errorf("a process is left: %s %s", id, name)
	}
	for _, pid := range append(slices.Clip(pids), d.cmd.Process.Pid) {
		if dirs, _ := filepath.Glob(filepath.Join("/tmp", fmt.Sprintf("marbles-%d-*", pid))); len(dirs) > 0 {
			t.Errorf("private directories of pid %d are left: %v", pid, dirs)
		}
	}
	list := w.runs()
	for _, r := range list {
		if f := w.files[r.ID]; f == nil || f.Run.Status != r.Status {
			t.Errorf("the index says %+v, the file %+v", r, f)
		}
	}
	if len(list) != len(w.files) {
		t.Errorf("%d runs are listed, want %d", len(list), len(w.files))
	}
	for _, r := range list {
		w.checkTick(ws, w.files[r.ID])
	}
	w.must("status")
}

// checkTick checks that what a tick started is where it belongs, once nothing goes on any more.
func (w *crashWorld) checkTick(ws *state.Workspace, f *state.RunFile) {
	w.t.Helper()
	run := f.Run
	if run.Extensions.Slot.IsZero() || run.Timestamps.StartedAt == 0 {
		return
	}
	entries, err := ws.Slots(run.Extensions.TriggerID, 0)
	if err != nil {
		w.t.Error(err)
	}
	n := 0
	for _, e := range entries {
		if e.Run == run.ID && e.Outcome == state.SlotRan {
			n++
		}
	}
	if n != 1 {
		w.problem(run.ID, "the ledger says %d times that the slot ran", n)
	}
}

// unbreak checks that a .break which a kill has left is named by the next tick, and removes it as a person would.
func (w *crashWorld) unbreak() {
	w.t.Helper()
	breaks, err := filepath.Glob(filepath.Join(w.state().Dir(), "locks", "*.break"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range breaks {
		w.breaks++
		lock := strings.TrimSuffix(path, ".break")
		_, err := os.Lstat(lock)
		key, ok := strings.CutPrefix(filepath.Base(lock), "schedule:")
		if ok && err == nil {
			_, stderr, code := w.run("roll", key)
			if code != 0 || !strings.Contains(stderr, "skipped: held by ") || !strings.Contains(stderr, "remove "+path) {
				w.t.Errorf("roll exits with %d and does not name %s: %s", code, path, stderr)
			}
		}
		w.t.Logf("left by a kill: %s (its lock: %v)", path, err)
		if err := os.Remove(path); err != nil {
			w.t.Fatal(err)
		}
	}
}

// processes lists what runs in the project's folder and is no marbles: pid and start instant, and the name. On Linux only.
func (w *crashWorld) processes() map[string]string {
	w.t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		if cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd")); err != nil || cwd != w.dir {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		if err != nil || end < open {
			continue
		}
		f := strings.Fields(string(stat[end+1:]))
		if name := string(stat[open+1 : end]); name != "marbles" && f[0] != "Z" && f[0] != "X" {
			found[e.Name()+" since "+f[19]] = name
		}
	}
	return found
}
