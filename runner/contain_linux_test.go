package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"marbles/state"
)

// cgroupWorker is a worker whose steps have cgroups; the test is skipped where it may make none.
func cgroupWorker(t *testing.T) *Worker {
	t.Helper()
	w := newWorker(t, Options{Cgroups: CgroupsOn, Grace: 200 * time.Millisecond})
	if w.cgroups.base == "" {
		t.Skipf("cgroups cannot be made here: %v", w.cgroups.why)
	}
	g, err := w.cgroups.make("rn-probe", Limits{})
	if err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	g.remove()
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(w.cgroups.base, fmt.Sprintf("%s*-%d-*", cgroupPrefix, os.Getpid())))
		if len(left) > 0 {
			t.Errorf("cgroups are left: %v", left)
		}
	})
	return w
}

func alive(pid int) bool {
	p, ok := readProc(pid)
	return ok && !p.zombie
}

// A process that leaves its group, its session and its parent, and clears its environment, is found by its cgroup.
func TestCgroupFindsWhatEscaped(t *testing.T) {
	t.Run("started in it", func(t *testing.T) { escapes(t, false) })
	t.Run("born there while marbles visits it", func(t *testing.T) { escapes(t, true) }) // as under a seccomp filter without clone3
}

func escapes(t *testing.T, visits bool) {
	w, ws := cgroupWorker(t), newWorkspace(t)
	w.cgroups.visits.Store(visits)
	res := run(t, w, ws, shell("job", `env -i setsid sh -c 'echo $$ >pid; exec sleep 300' >/dev/null 2>&1 & while [ ! -s pid ]; do sleep 0.01; done; exit 0`))
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	text, err := os.ReadFile(filepath.Join(ws.Project(), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if alive(pid) {
		t.Errorf("pid %d runs on", pid)
	}
	rec := runFile(t, ws, res.RunID).Steps[0]
	if got := strings.Join(rec.Leftover, ","); !strings.Contains(got, "sleep") {
		t.Errorf("left behind is %q", got)
	}
	if all := strings.Join(lines(t, ws, res.RunID), "\n"); !strings.Contains(all, "left processes behind, which were ended: pid ") {
		t.Errorf("the journal says:\n%s", all)
	}
}

// What a dead worker's step has left is found by the cgroup that its journal names.
func TestCgroupOfADeadOwner(t *testing.T) {
	w, ws := cgroupWorker(t), newWorkspace(t)
	group, err := w.cgroups.make("rn-dead", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.startChild("rn-dead", "/bin/sh", []string{"sh", "-c", "env -i setsid sleep 300 & env -i setsid sleep 300 & wait"}, nil, "/", 1, 2, group, nil)
	if err != nil {
		t.Fatal(err)
	}
	for len(group.members()) < 3 {
		time.Sleep(time.Millisecond)
	}
	if err := w.endRun(context.Background(), "rn-dead", trace{cgroups: []string{group.dir, "/sys/fs/cgroup", "/etc"}}); err != nil {
		t.Fatal(err)
	}
	if left := group.members(); len(left) > 0 {
		t.Errorf("left: %v", names(left))
	}
	if _, err := os.Stat(group.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup is left: %v", err)
	}
	c.wait(time.Second)
	c.collect()
	group.remove()
	_ = ws
}

func TestLimitsAreRefused(t *testing.T) {
	ws := newWorkspace(t)
	for name, mode := range map[string]string{"off": CgroupsOff, "on": CgroupsOn} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, Options{Cgroups: mode})
			if text, _ := os.ReadFile(filepath.Join(w.cgroups.base, "cgroup.controllers")); mode == CgroupsOn && strings.Contains(string(text), "memory") {
				t.Skip("this machine can limit memory")
			}
			wf := shell("job", "touch ran")
			wf.Steps[0].Limits = Limits{Memory: 64 << 20}
			res := run(t, w, ws, wf)
			if res.Error == nil || res.Error.Name != "LimitError" || !strings.Contains(res.Error.Message, "cannot limit memory: ") {
				t.Errorf("got %+v", res.Error)
			}
			if _, err := os.Stat(filepath.Join(ws.Project(), "ran")); err == nil {
				t.Error("the step was started without its limit")
			}
		})
	}
}

func TestCause(t *testing.T) {
	w, ws := newWorker(t, Options{Grace: 200 * time.Millisecond}), newWorkspace(t)
	for want, step := range map[string]Step{
		"code":    sh("a", "exit 3"),
		"signal":  sh("a", "kill -9 $$"),
		"timeout": sh("a", "sleep 60", func(s *Step) { s.Timeout = 100 * time.Millisecond }),
		"spawn":   {Name: "a", Command: Command{Argv: []string{"/nonexistent/program"}}},
	} {
		res := run(t, w, ws, &Workflow{Name: "job", Steps: []Step{step}})
		if got := runFile(t, ws, res.RunID).Steps[0].Cause; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("/tmp", "marbles-other-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ws := newWorkspace(t) // below a folder that only root may enter
	w := newWorker(t, Options{})
	wf := shell("job", `cat "$MARBLES_INPUT_FILE"; id -u; echo "$HOME $USER"; echo '"mine"' >"$MARBLES_RESULT_FILE"`)
	wf.User, wf.Workdir, wf.Input = "nobody", dir, []byte(`{"a":1}`)
	res := run(t, w, ws, wf)
	if res.Err() != nil || string(res.Output) != `"mine"` {
		t.Fatalf("got %s, %v", res.Output, res.Err())
	}
	want := fmt.Sprintf("{\"a\":1}%s\n%s nobody\n", nobody.Uid, nobody.HomeDir)
	if got := output(t, ws, res.RunID, "job", state.Stdout); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// What it leaves in the place of its result is not followed by root.
	wf = shell("job", `ln -s /etc/shadow "$MARBLES_RESULT_FILE"`)
	wf.User, wf.Workdir = "nobody", dir
	if res := run(t, w, ws, wf); res.Err() == nil || res.Output != nil {
		t.Errorf("a link as a result: got %s, %v", res.Output, res.Err())
	}
	wf.User = "no such user"
	if res := run(t, w, ws, wf); res.Error == nil || !strings.Contains(res.Error.Message, "there is no such user") {
		t.Errorf("got %+v", res.Error)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	w, ws := newWorker(t, Options{}), newWorkspace(t)
	const value = "s3cr&t/v\"lue"
	wf := shell("job", `printf %s "$TOKEN"; echo; printf 's3cr&'; sleep 0.1; printf 't/v"lue and s3cr&'; sleep 0.1; echo; echo "$TOKEN" >&2
		printf %s "$TOKEN" | base64; printf %s "$TOKEN" >"$MARBLES_RESULT_FILE"`)
	wf.Secrets = []Secret{{Name: "TOKEN", From: "a test", Read: func() (string, error) { return value, nil }}}
	res := run(t, w, ws, wf)
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	if got, want := output(t, ws, res.RunID, "job", state.Stdout), "***\n*** and s3cr&\n***\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if string(res.Output) != `"***"` {
		t.Errorf("the result is %s", res.Output)
	}
	err := filepath.WalkDir(ws.Dir(), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte("s3cr&t")) || bytes.Contains(data, []byte(`v\"lue`)) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wf.Secrets[0].Read = func() (string, error) { return "", errors.New("its file is gone") }
	if res := run(t, w, ws, wf); fmt.Sprint(res.Err()) != `step "job" could not be started: cannot read secret TOKEN: its file is gone` {
		t.Errorf("got %v", res.Err())
	}
}

// A question would stand in records and lists: one that shows a secret is refused.
func TestQuestionShowsNoSecret(t *testing.T) {
	w, ws := newWorker(t, Options{}), newWorkspace(t)
	wf := shell("job", `mkdir "$MARBLES_ASK_DIR" && printf '{"title":"Use %s?","mode":"question","choices":[]}' "$TOKEN" >"$MARBLES_ASK_DIR/question-0.json"; exit 75`)
	wf.Secrets = []Secret{{Name: "TOKEN", Read: func() (string, error) { return "s3cr3t-value", nil }}}
	res := run(t, w, ws, wf)
	if res.Status != state.Failed || !strings.Contains(res.Error.Message, "shows one of its secrets") {
		t.Fatalf("got %s, %+v", res.Status, res.Error)
	}
	for _, dir := range []string{"runs", "output"} {
		files, err := filepath.Glob(filepath.Join(ws.Dir(), dir, res.RunID+"*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		if data, err := os.ReadFile(files[0]); err != nil || bytes.Contains(data, []byte("s3cr3t")) {
			t.Errorf("%s holds the secret, or cannot be read: %v", files[0], err)
		}
	}
}

// However a stream is cut, what comes out is what masking the whole would give.
func TestMaskPieces(t *testing.T) {
	var s secrets
	s.add("abcab")
	s.add("bca")
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := make([]byte, r.IntN(40))
		for i := range text {
			text[i] = "abc"[r.IntN(3)]
		}
		whole := mask{forms: s.now()}
		want := string(whole.next(text)) + string(whole.end())
		m := mask{forms: s.now()}
		var got []byte
		for rest := text; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			got = append(got, m.next(rest[:n])...)
			rest = rest[n:]
		}
		if got = append(got, m.end()...); string(got) != want {
			t.Fatalf("%s: got %s, want %s", text, got, want)
		}
		if bytes.Contains(got, []byte("abcab")) || bytes.Contains(got, []byte("bca")) {
			t.Fatalf("%s: %s shows a secret", text, got)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	w, ws := newWorker(t, Options{OutputLimit: 100_000}), newWorkspace(t)
	res := run(t, w, ws, shell("job", "seq 1 200000"))
	if res.Err() != nil {
		t.Fatal(res.Err())
	}
	var whole bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintln(&whole, i+1)
	}
	got, dropped := "", int64(0)
	err := ws.ReadJournal(res.RunID, func(e state.Entry) error {
		switch {
		case e.Kind == "dropped":
			dropped = e.Bytes
			got += "|"
		case e.Kind == "text" && e.Stream == state.Stdout:
			got += string(e.Text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	head, tail, ok := strings.Cut(got, "|")
	if !ok || len(head) != 100_000 || len(tail) != keptTail || int64(len(head)+len(tail))+dropped != int64(whole.Len()) {
		t.Errorf("head %d, dropped %d, tail %d of %d", len(head), dropped, len(tail), whole.Len())
	}
	if !strings.HasPrefix(whole.String(), head) || !strings.HasSuffix(whole.String(), tail) {
		t.Error("head or tail is not the output's")
	}
}
