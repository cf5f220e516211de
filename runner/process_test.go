package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"marbles/state"
)

// pidsIn reads pids that a step has written to a file.
func pidsIn(t testing.TB, file string) []int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

// gone checks that processes have ended and are no zombies of ours.
func gone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if p, ok := readProc(pid); ok && (!p.zombie || p.parent == os.Getpid()) {
			t.Errorf("%v is still there, zombie %v", p, p.zombie)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Everything a step has started ends with its timeout, whatever shape it has (C57, C60).
func TestTimeoutEndsAll(t *testing.T) {
	const limit = 400 * time.Millisecond
	shapes := map[string]string{
		"one":          `sleep 20`,
		"then more":    `sleep 20; true`,
		"background":   `sleep 20 & echo $! >> $PIDS; wait`,
		"subshell":     `(sleep 20)`,
		"pipe":         `sleep 20 | cat`,
		"setsid":       `setsid sleep 20 & echo $! >> $PIDS; wait`,
		"setsid waits": `setsid -w sh -c 'echo $$ >> $PIDS; sleep 20'`,
		"double":       `setsid sh -c 'setsid sleep 20 & echo $! $$ >> $PIDS; wait' & wait`,
		"no environ":   `env -i setsid sleep 20 & echo $! >> $PIDS; wait`,
		"stopped":      `(kill -STOP $(exec sh -c 'echo $PPID'); sleep 20) & echo $! >> $PIDS; kill -STOP $$; sleep 20`,
		"ignores term": `trap '' TERM; sleep 20`,
		"ignores both": `trap '' TERM; (trap '' TERM; sleep 20) & echo $! >> $PIDS; sleep 20`,
	}
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS != "linux" && (strings.Contains(shape, "setsid")) {
				t.Skip("only Linux gives orphans that have left their group to us")
			}
			const grace = 300 * time.Millisecond
			ws, w := newWorkspace(t), newWorker(t, Options{Grace: grace})
			pids := filepath.Join(t.TempDir(), "pids")
			wf := shell("job", `echo $$ > $PIDS; `+shape)
			wf.Steps[0].Timeout, wf.Steps[0].Env = limit, []string{"PIDS=" + pids}
			res := run(t, w, ws, wf)
			if res.Error == nil || res.Error.Name != "TimeoutError" {
				t.Errorf("got %s, %+v", res.Status, res.Error)
			}
			if took := res.Finished.Sub(res.Started); took > limit+grace+time.Second {
				t.Errorf("took %v", took)
			}
			gone(t, pidsIn(t, pids)...)
		})
	}
}

// A step ends with its main process; what that has left behind is ended and named (C57).
func TestLeftovers(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // of the leftovers' names
		most       time.Duration
		orphan     bool
	}{
		{name: "none", text: `true`, most: 400 * time.Millisecond},
		{name: "holds the pipes", text: `(sleep 20 &); echo started`, want: []string{"sleep"}, most: 900 * time.Millisecond},
		{name: "holds nothing", text: `sleep 20 >/dev/null 2>&1 & echo $! > $PIDS`, want: []string{"sleep"}, most: 400 * time.Millisecond},
		{name: "setsid", text: `setsid sleep 20 >/dev/null 2>&1 & sleep 0.1`, want: []string{"sleep"}, most: 400 * time.Millisecond, orphan: true},
		{name: "setsid with children", orphan: true, most: 400 * time.Millisecond, want: []string{"sh", "sleep", "sleep"},
			text: `setsid sh -c 'sleep 20 & env -i sleep 20 & echo $$ > $PIDS.new; mv $PIDS.new $PIDS; wait' >/dev/null 2>&1 & while ! test -e $PIDS; do sleep 0.01; done; sleep 0.1`},
		{name: "ignores term", text: `(trap '' TERM; sleep 20) >/dev/null 2>&1 & echo $! > $PIDS; sleep 0.1`, want: []string{"sleep"}, most: 1200 * time.Millisecond},
		{name: "finishes by itself", text: `(sleep 0.2; echo late) & echo early`, most: 500 * time.Millisecond},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.orphan && runtime.GOOS != "linux" {
				t.Skip("only Linux gives orphans that have left their group to us")
			}
			ws, w := newWorkspace(t), newWorker(t, Options{Grace: 500 * time.Millisecond})
			wf := shell("job", test.text)
			pids := filepath.Join(t.TempDir(), "pids")
			wf.Steps[0].Env = []string{"PIDS=" + pids}
			res := run(t, w, ws, wf)
			if res.Status != state.Complete {
				t.Errorf("got %s, %+v", res.Status, res.Error)
			}
			if took := res.Finished.Sub(res.Started); took > test.most+300*time.Millisecond {
				t.Errorf("took %v", took)
			}
			var got []string
			left := runFile(t, ws, res.RunID).Steps[0].Leftover
			for _, l := range left {
				var pid int
				var name string
				if _, err := fmt.Sscanf(l, "pid %d %s", &pid, &name); err != nil {
					t.Errorf("%q: %v", l, err)
				}
				got = append(got, name)
				gone(t, pid)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if line := lines(t, ws, res.RunID)[1]; len(left) > 0 && line != "[step] job left processes behind, which were ended: "+strings.Join(left, ", ") {
				t.Errorf("line %q", line)
			}
		})
	}
}

// After many runs nothing is left of them, not even zombies (C59), and no descriptors.
func TestNothingIsLeft(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	fds := openFiles(t)
	var runs []*Run
	for i := range 100 {
		text := "true"
		switch i % 4 {
		case 1:
			text = "(sleep 0.01 &) >/dev/null 2>&1"
		case 2:
			text = "setsid true & setsid sleep 0.02 >/dev/null 2>&1 &"
		case 3:
			text = "exit 1"
		}
		runs = append(runs, start(t, w, Launch{Workspace: ws, Workflow: shell("job", text)}))
	}
	for _, r := range runs {
		r.Wait()
	}
	if got := kids(t); len(got) > 0 {
		for _, p := range got {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
			t.Errorf("a child is left: %+v, run %s, %d bytes of environment, %v", p, runIDOf(p), len(env), err)
		}
	}
	if now := openFiles(t); now > fds+4 { // the runtime's own
		t.Errorf("%d open files, %d before", now, fds)
	}
}

// kids are the children of this process, on Linux.
func kids(t testing.TB) []proc {
	if runtime.GOOS != "linux" {
		return nil
	}
	var list []proc
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for _, pid := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(pid)
			if p, ok := readProc(n); ok {
				list = append(list, p)
			}
		}
	}
	return list
}

func openFiles(t testing.TB) int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Orphans of a long step that have ended are reaped while it runs.
func TestOrphansAreReaped(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux gives orphans to us")
	}
	ws, w := newWorkspace(t), newWorker(t, Options{})
	pids := filepath.Join(t.TempDir(), "pids")
	wf := shell("job", `for i in 1 2 3; do (sh -c 'echo $$ >> $PIDS' &); done; sleep 20`)
	wf.Steps[0].Env = []string{"PIDS=" + pids}
	r := start(t, w, Launch{Workspace: ws, Workflow: wf})
	eventually(t, "the orphans are reaped", func() bool {
		b, _ := os.ReadFile(pids)
		if strings.Count(string(b), "\n") < 3 {
			return false
		}
		for _, pid := range pidsIn(t, pids) {
			if _, ok := readProc(pid); ok {
				return false
			}
		}
		return true
	})
	r.Cancel("enough")
	r.Wait()
}

// The output of a step is in the journal byte for byte, in records that end at a line's end where they can.
func TestOutputIsExact(t *testing.T) {
	random := make([]byte, 1<<20)
	_, _ = rand.Read(random)
	lines := bytes.Repeat([]byte("a line of some length, with ünïcode € in it 0123456789\n"), 30_000)
	tests := map[string][]byte{
		"nothing":         nil,
		"no newline":      []byte("no newline"),
		"only newlines":   []byte("\n\n\n"),
		"NULs":            []byte("a\x00b\x00\n\x00"),
		"not UTF-8":       []byte("caf\xe9\nsecond \xff\xfe\n\xc3"),
		"cut character":   append(bytes.Repeat([]byte("x"), captureBuffer-1), "€€€\n"...),
		"many lines":      lines,
		"10 MB line":      append(bytes.Repeat([]byte("0123456789"), 1<<20), '\n'),
		"long € line":     bytes.Repeat([]byte("€"), 300_000),
		"random":          random,
		"carriage return": []byte("10%\r20%\r30%\r\n"),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ws, w := newWorkspace(t), newWorker(t, Options{})
			whole := len(data) > 0 && data[len(data)-1] == '\n' // every line of it ends
			file := filepath.Join(t.TempDir(), "data")
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
			var echoed bytes.Buffer
			wf := &Workflow{Name: "job", Steps: []Step{{Name: "cat", Command: Command{Shell: `cat ` + file + `; cat ` + file + ` >&2`}}}}
			r := start(t, w, Launch{Workspace: ws, Workflow: wf, Echo: &echoed})
			if res := r.Wait(); res.Status != state.Complete {
				t.Fatalf("got %+v", res)
			}
			if echoed.Len() != 2*len(data) {
				t.Errorf("echoed %d bytes, want %d", echoed.Len(), 2*len(data))
			}
			got := map[string][]byte{}
			err := ws.ReadJournal(r.ID(), func(e state.Entry) error {
				if e.Kind == "text" && e.Stream != state.StepStream {
					got[e.Stream] = append(got[e.Stream], e.Text...)
					if whole && !e.Partial && e.Text[len(e.Text)-1] != '\n' {
						return fmt.Errorf("a record of %d bytes ends within a line", len(e.Text))
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			for _, stream := range []string{state.Stdout, state.Stderr} {
				if got := got[stream]; !bytes.Equal(got, data) {
					t.Errorf("%s: got %d bytes %x, want %d bytes %x", stream, len(got), sha256.Sum256(got), len(data), sha256.Sum256(data))
				}
			}
		})
	}
}

// What a process writes is in the journal at once, also the beginning of a line.
func TestOutputIsLive(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	wf := shell("job", `printf 'progress: '; sleep 0.4; echo done; sleep 20`)
	r := start(t, w, Launch{Workspace: ws, Workflow: wf})
	defer func() {
		r.Cancel("")
		r.Wait()
	}()
	var texts []string
	var at []time.Time
	partial := 0
	eventually(t, "the output", func() bool {
		texts, at, partial = nil, nil, 0
		_ = ws.ReadJournal(r.ID(), func(e state.Entry) error {
			if e.Stream == state.Stdout {
				texts, at = append(texts, string(e.Text)), append(at, e.At)
				if e.Partial {
					partial++
				}
			}
			return nil
		})
		return len(texts) == 2
	})
	if diff := cmp.Diff([]string{"progress: ", "done\n"}, texts); diff != "" || partial != 1 {
		t.Errorf("%d partial, %s", partial, diff)
	}
	if gap := at[1].Sub(at[0]); gap < 300*time.Millisecond {
		t.Errorf("the first piece came only %v before the second", gap)
	}
}

// An echo that nobody reads holds a run back only until it is made to stop.
func TestStuckEcho(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{Grace: 100 * time.Millisecond})
	wf := shell("job", `echo hello; sleep 20`)
	wf.Steps[0].Timeout = 200 * time.Millisecond
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = out.Write(make([]byte, 1))
	stuck := writerFunc(func(b []byte) (int, error) {
		_, err := in.Read(make([]byte, 2)) // the first takes the byte, later ones wait
		if err == nil {
			_, err = in.Read(make([]byte, 1))
		}
		return len(b), err
	})
	res := start(t, w, Launch{Workspace: ws, Workflow: wf, Echo: stuck}).Wait()
	if res.Error == nil || res.Error.Name != "TimeoutError" || res.Finished.Sub(res.Started) > 1500*time.Millisecond {
		t.Errorf("got %+v after %v", res.Error, res.Finished.Sub(res.Started))
	}
	out.Close()
	in.Close()
}

// Neither does one that is stuck when the process has ended already: a cancel and the grace end the wait for it.
func TestStuckEchoCancelled(t *testing.T) {
	for name, stop := range map[string]func(w *Worker, r *Run){
		"cancelled": func(_ *Worker, r *Run) { r.Cancel("enough") },
		"drained": func(w *Worker, _ *Run) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = w.Drain(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ws, w := newWorkspace(t), newWorker(t, Options{Grace: 100 * time.Millisecond})
			entered, free := make(chan struct{}), make(chan struct{})
			defer close(free)
			stuck := writerFunc(func(b []byte) (int, error) {
				close(entered)
				<-free
				return len(b), nil
			})
			r := start(t, w, Launch{Workspace: ws, Workflow: shell("job", `echo hello`), Echo: stuck})
			<-entered
			time.Sleep(2 * drainTime) // the process ends at once, and its streams have had their time
			stopped := make(chan struct{})
			go func() { // waited for below
				defer close(stopped)
				stop(w, r)
			}()
			select {
			case <-r.Done():
			case <-time.After(3 * time.Second):
				t.Fatal("the run waits for its echo")
			}
			<-stopped // a drain removes the private directories last
			res := r.Wait()
			if res.Status != state.Cancelled {
				t.Errorf("got %+v", res)
			}
			if got := output(t, ws, r.ID(), "job", state.Stdout); got != "hello\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A process that marbles started dies with it: its parent is a thread, and that thread is not the main one.
func TestSpawnThread(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("threads have children on Linux only")
	}
	ws, w := newWorkspace(t), newWorker(t, Options{})
	r := start(t, w, Launch{Workspace: ws, Workflow: shell("job", `sleep 20`)})
	eventually(t, "the process", func() bool { return len(kids(t)) == 1 })
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil || len(b) > 0 {
		t.Errorf("the main thread has children %q, %v", b, err)
	}
	r.Cancel("")
	r.Wait()
}

func TestFileName(t *testing.T) {
	seen := map[string]string{}
	for _, text := range []string{"a", "a.b", "a b", "a_b", "a/b", "", "..", strings.Repeat("x", 300), strings.Repeat("x", 301), "ä", "a~b", "A", "A.b", "a.B"} {
		got := fileName(text)
		if err := state.PlainName("name", "workflow:"+got+".0"); err != nil || len(got) > 200 {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		folded := strings.ToLower(got) // as a file system without case takes it
		if other, ok := seen[folded]; ok {
			t.Errorf("%q and %q are both %q", text, other, got)
		}
		seen[folded] = text
	}
	if got := fileName("nightly-backup_2.v1"); got != "nightly-backup_2.v1" {
		t.Errorf("got %q", got)
	}
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 90 * time.Minute: "1h30m", 2 * time.Second: "2s", 10 * time.Minute: "10m", 50 * time.Millisecond: "50ms",
		time.Hour + 10*time.Second: "1h0m10s", 20 * time.Hour: "20h",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}
