package transient

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// These tests are run by a systemd of their own, as root: see the project's launcher of one.

// Each test has names of its own, and what it leaves loaded is its failure.
type bench struct {
	t   *testing.T
	m   *Manager
	dir string
}

// in is the same for a test within.
func (b *bench) in(t *testing.T) *bench { return &bench{t, b.m, t.TempDir()} }

func booted(t *testing.T) *bench {
	t.Helper()
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("this system was not started by systemd")
	}
	if os.Geteuid() != 0 {
		t.Skip("system units are started by root")
	}
	b := &bench{t: t, m: Open(), dir: t.TempDir()}
	t.Cleanup(func() {
		left, err := b.m.List(t.Context(), "marbles-step-*")
		if err == nil && len(left) > 0 {
			t.Errorf("units left behind: %q", left)
		}
		b.m.Close()
		goleak.VerifyNone(t)
	})
	// the unit's own user comes here
	for d := b.dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bench) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	b.t.Cleanup(cancel)
	return ctx
}

// spec is a unit that runs a shell command.
func (b *bench) spec(command string) Spec {
	b.t.Helper()
	list, err := os.ReadDir(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	base := filepath.Join(b.dir, fmt.Sprint(len(list)))
	s := Spec{
		Name: fmt.Sprintf("marbles-step-%x-%d.service", sha256.Sum256([]byte(b.t.Name())), len(list)),
		Path: "/bin/sh", Argv: []string{"sh", "-c", command}, Dir: "/", UMask: 0o22, Grace: 5 * time.Second,
		EnvFile: base + ".env", Stdout: base + ".out", Stderr: base + ".err",
	}
	b.env(s, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	for _, f := range []string{s.Stdout, s.Stderr} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	return s
}

func (b *bench) env(s Spec, env ...string) {
	b.t.Helper()
	text, err := EnvText(env)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(s.EnvFile, text, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) start(s Spec) State {
	b.t.Helper()
	st, err := b.m.Start(b.ctx(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _, _ = b.m.Stop(b.ctx(), s.Name) })
	return st
}

func (b *bench) wait(name string) State {
	b.t.Helper()
	st, err := b.m.Wait(b.ctx(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return st
}

func (b *bench) stop(name string) []string {
	b.t.Helper()
	left, err := b.m.Stop(b.ctx(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	st, err := b.m.Look(b.ctx(), name)
	if err != nil || st.Loaded {
		b.t.Errorf("after its stop the unit is %+v, %v", st, err)
	}
	return left
}

func (b *bench) run(s Spec) (State, string) {
	b.t.Helper()
	b.start(s)
	st := b.wait(s.Name)
	b.stop(s.Name)
	return st, b.read(s.Stdout)
}

func (b *bench) read(file string) string {
	b.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// until waits for what is written by others.
func (b *bench) until(what string, f func() bool) {
	b.t.Helper()
	for ctx := b.ctx(); !f(); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			b.t.Fatalf("there never was %s", what)
		}
	}
}

func (b *bench) tool(argv ...string) string {
	b.t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

func TestUnitEnds(t *testing.T) {
	b := booted(t)
	for _, test := range []struct {
		command, result string
		code            int
		signal          syscall.Signal
	}{
		{"exit 0", "success", 0, 0},
		{"exit 7", "exit-code", 7, 0},
		{"sleep 0.1; exit 255", "exit-code", 255, 0},
		{"kill -USR1 $$", "signal", -1, syscall.SIGUSR1},
		{"kill -TERM $$", "success", -1, syscall.SIGTERM}, // what systemd calls a clean end
	} {
		t.Run(test.command, func(t *testing.T) {
			b := b.in(t)
			s := b.spec(test.command)
			b.start(s)
			st := b.wait(s.Name)
			if !st.Loaded || !st.Ended || st.Running || st.MainPID != 0 || st.ExitCode != test.code || st.Signal != test.signal || st.Result != test.result {
				t.Errorf("got %+v, want %d, %v, %s", st, test.code, test.signal, test.result)
			}
			if st.InvocationID == "" || st.StateChanged.IsZero() || time.Since(st.StateChanged) > time.Minute {
				t.Errorf("got %+v", st)
			}
			again, err := b.m.Look(b.ctx(), s.Name)
			if err != nil || again.ExitCode != st.ExitCode || again.Signal != st.Signal || !again.Ended {
				t.Errorf("later it is %+v, %v", again, err)
			}
			b.stop(s.Name)
			if st := b.wait(s.Name); st != (State{}) {
				t.Errorf("what is gone is %+v", st)
			}
		})
	}
}

func TestLimitEnds(t *testing.T) {
	b := booted(t)
	s := b.spec("sleep 1000")
	s.Limit = 100 * time.Millisecond
	if st, _ := b.run(s); st.Result != "timeout" || st.Signal != syscall.SIGTERM {
		t.Errorf("got %+v", st)
	}
}

func TestStartFails(t *testing.T) {
	b := booted(t)
	property := func(name string, value any) []Property {
		p, err := Check(name, value)
		if err != nil {
			t.Fatal(err)
		}
		return []Property{p}
	}
	for _, test := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"no program", func(s *Spec) { s.Path = "/nowhere/program" }, "cannot execute /nowhere/program: no such file or directory"},
		{"not executable", func(s *Spec) { s.Path = "/etc/passwd" }, "cannot execute /etc/passwd: it is not executable"},
		{"no directory", func(s *Spec) { s.Dir = "/nowhere" }, "cannot change into its working directory /nowhere"},
		{"no user", func(s *Spec) { s.User = "nobody-there" }, "cannot become user nobody-there"},
		{"no group", func(s *Spec) { s.Group = "nobody-there" }, "cannot become group nobody-there"},
		{"no output", func(s *Spec) { s.Stdout = "/nowhere/out" }, "cannot open its output /nowhere/out"},
		{"no error output", func(s *Spec) { s.Stderr = "/nowhere/err" }, "cannot open its error output /nowhere/err"},
		{"no environment", func(s *Spec) { s.EnvFile = "/nowhere/env" }, "cannot read the environment file"},
		{"no path to write", func(s *Spec) { s.Properties = property("ReadWritePaths", "/nowhere") }, "cannot set up its file systems"},
		{"no credential", func(s *Spec) { s.Properties = property("LoadCredential", "a:/nowhere") }, "cannot read its credentials"},
		{"relative", func(s *Spec) { s.Path = "sh" }, `"sh" is not a clean absolute path`},
		{"pattern in a path", func(s *Spec) { s.Dir = "/nowhere/../" }, "is not a clean absolute path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := b.in(t)
			s := b.spec("exit 0")
			test.change(&s)
			st, err := b.m.Start(b.ctx(), s)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), s.Name) {
				t.Errorf("got %+v, %v, want %q", st, err, test.want)
			}
			if left, err := b.m.List(b.ctx(), s.Name); err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}

func TestStartTwice(t *testing.T) {
	b := booted(t)
	s := b.spec("sleep 1000")
	st := b.start(s)
	if _, err := b.m.Start(b.ctx(), s); err == nil || !strings.Contains(err.Error(), s.Name) {
		t.Errorf("got %v", err)
	}
	if again, err := b.m.Look(b.ctx(), s.Name); err != nil || !again.Running || again.MainPID != st.MainPID {
		t.Errorf("the first is %+v, %v", again, err)
	}
	b.stop(s.Name)
}

func TestStartIsGivenUp(t *testing.T) {
	b := booted(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.m.Start(ctx, b.spec("sleep 1000")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for i := range 30 { // whenever it is, nothing is left
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*200*time.Microsecond)
		s := b.spec("sleep 1000")
		if _, err := b.m.Start(ctx, s); err == nil {
			b.stop(s.Name)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
}

func TestStopEndsAll(t *testing.T) {
	b := booted(t)
	s := b.spec("trap '' TERM; (trap '' TERM; setsid sleep 1001) & echo ready; while :; do sleep 1002; done")
	s.Grace = time.Second
	b.start(s)
	b.until("a ready program", func() bool { return b.read(s.Stdout) != "" })
	b.until("a grandchild", func() bool { return len(findSleep("1001")) == 1 })
	left := b.stop(s.Name)
	if !strings.Contains(strings.Join(left, "\n"), "sleep") {
		t.Errorf("left were %q", left)
	}
	if pids := findSleep("1001"); len(pids) > 0 {
		t.Errorf("%q lives", pids)
	}
	if left := b.stop(s.Name); left != nil {
		t.Errorf("a second stop found %q", left)
	}
}

func TestLeftoverIsEnded(t *testing.T) {
	b := booted(t)
	s := b.spec("setsid sleep 1003 >/dev/null 2>&1 & exit 0")
	b.start(s)
	st := b.wait(s.Name)
	if !st.Ended || st.ExitCode != 0 {
		t.Errorf("got %+v", st)
	}
	b.until("a leftover", func() bool { return len(findSleep("1003")) == 1 })
	if left := b.stop(s.Name); len(left) != 1 || !strings.HasSuffix(left[0], " sleep") {
		t.Errorf("left were %q", left)
	}
	if pids := findSleep("1003"); len(pids) > 0 {
		t.Errorf("%q lives", pids)
	}
}

func findSleep(seconds string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.DeleteFunc(files, func(f string) bool {
		text, _ := os.ReadFile(f)
		return string(text) != "sleep\x00"+seconds+"\x00"
	})
}

func TestSignal(t *testing.T) {
	b := booted(t)
	s := b.spec("trap 'echo told; exit 3' HUP; echo ready; while :; do sleep 0.01; done")
	b.start(s)
	b.until("a ready program", func() bool { return b.read(s.Stdout) != "" })
	if err := b.m.Signal(b.ctx(), s.Name, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if st := b.wait(s.Name); st.ExitCode != 3 && st.Signal != syscall.SIGHUP {
		t.Errorf("got %+v", st)
	}
	b.until("an end", func() bool { st, err := b.m.Look(b.ctx(), s.Name); return err == nil && st.Cgroup == "" })
	if err := b.m.Signal(b.ctx(), s.Name, syscall.SIGHUP); err != nil {
		t.Errorf("an ended unit: %v", err)
	}
	b.stop(s.Name)
	if err := b.m.Signal(b.ctx(), s.Name, syscall.SIGHUP); err != nil {
		t.Errorf("no unit: %v", err)
	}
}

// TestAnotherProcess reads what a first manager has started, as a service does that was started anew.
func TestAnotherProcess(t *testing.T) {
	b := booted(t)
	long, short := b.spec("sleep 1000"), b.spec("exit 5")
	first := b.start(long)
	b.start(short)
	b.wait(short.Name)
	b.m.Close()
	if _, err := b.m.Look(b.ctx(), long.Name); err == nil {
		t.Error("a closed manager answers")
	}
	b.m = Open()
	list, err := b.m.List(b.ctx(), "marbles-step-*.service")
	slices.Sort(list)
	if diff := cmp.Diff([]string{long.Name, short.Name}, list); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if st := b.wait(short.Name); st.ExitCode != 5 {
		t.Errorf("got %+v", st)
	}
	if st, err := b.m.Look(b.ctx(), long.Name); err != nil || st.MainPID != first.MainPID || st.InvocationID != first.InvocationID || st.Cgroup != first.Cgroup {
		t.Errorf("got %+v, %v, want %+v", st, err, first)
	}
	b.stop(short.Name)
	b.stop(long.Name)
}

func TestManagerStartsAnew(t *testing.T) {
	b := booted(t)
	for _, again := range []string{"daemon-reload", "daemon-reexec"} {
		t.Run(again, func(t *testing.T) {
			b := b.in(t)
			go1 := filepath.Join(b.dir, again)
			loop := "echo before; until [ -e " + go1 + " ]; do sleep 0.01; done; echo after; exit "
			ended, good, running := b.spec("exit 9"), b.spec(loop+"0"), b.spec(loop+"4")
			b.start(good)
			for _, a := range hard {
				if !strings.ContainsAny(a, "$;") {
					ended.Argv = append(ended.Argv, a)
				}
			}
			command := func() string {
				s, _, _ := strings.Cut(b.tool("systemctl", "show", "-p", "ExecStart", ended.Name), " ; ignore_errors")
				return s
			}
			b.start(ended)
			b.wait(ended.Name)
			b.start(running)
			got := make(chan State, 1)
			go func() {
				st, err := b.m.Wait(b.ctx(), running.Name)
				if err != nil {
					t.Error(err)
				}
				got <- st
			}()
			before := command()
			b.tool("systemctl", again)
			if diff := cmp.Diff(before, command()); diff != "" {
				t.Error(diff)
				t.Log(b.read("/run/systemd/transient/" + ended.Name))
			}
			if st := b.wait(ended.Name); st.ExitCode != 9 || st.Result != "exit-code" {
				t.Errorf("the ended one is %+v", st)
			}
			if st, err := b.m.Look(b.ctx(), running.Name); err != nil || !st.Running {
				t.Errorf("the running one is %+v, %v", st, err)
			}
			if err := os.WriteFile(go1, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if st := <-got; st.ExitCode != 4 {
				t.Errorf("got %+v", st)
			}
			if out := b.read(running.Stdout); out != "before\nafter\n" {
				t.Errorf("got %q", out)
			}
			if st := b.wait(good.Name); st.ExitCode != 0 || st.Result != "success" {
				t.Errorf("got %+v", st)
			}
			b.stop(ended.Name)
			b.stop(good.Name)
			b.stop(running.Name)
		})
	}
}

// TestManagerStartsAnewWhileStarting has many units started and stopped while the manager executes itself.
func TestManagerStartsAnewWhileStarting(t *testing.T) {
	b := booted(t)
	var wg sync.WaitGroup
	for range 20 {
		s := b.spec("exit 6") // without $ and ;
		wg.Go(func() {
			if _, err := b.m.Start(b.ctx(), s); err != nil {
				t.Error(err)
				return
			}
			if st, err := b.m.Wait(b.ctx(), s.Name); err != nil || st.ExitCode != 6 {
				t.Errorf("got %+v, %v", st, err)
			}
			if _, err := b.m.Stop(b.ctx(), s.Name); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		b.tool("systemctl", "daemon-reexec")
		b.tool("systemctl", "daemon-reload")
	}
	wg.Wait()
}

func TestMany(t *testing.T) {
	b := booted(t)
	var wg sync.WaitGroup
	for i := range 50 {
		s := b.spec(fmt.Sprintf("echo %d; exit %d", i, i%3))
		wg.Go(func() {
			if _, err := b.m.Start(b.ctx(), s); err != nil {
				t.Error(err)
				return
			}
			if st, err := b.m.Wait(b.ctx(), s.Name); err != nil || st.ExitCode != i%3 {
				t.Errorf("got %+v, %v", st, err)
			}
			if _, err := b.m.Stop(b.ctx(), s.Name); err != nil {
				t.Error(err)
			}
			if out := b.read(s.Stdout); out != fmt.Sprintln(i) {
				t.Errorf("got %q", out)
			}
		})
	}
	wg.Wait()
}

// hard are texts that a unit file, a shell or a parser would make something else of.
var hard = []string{
	"", " ", "  both  ", "\ttab\t", "line\nline\n\n", "\n", "# no comment", "; nor this", `back\slash\\ \n \x41 \`, `"double"`, `'single'`, `a"b'c`,
	"$HOME ${HOME} $$ $", "%h %% %n %i %", "`id`", "é ü 漢字 🙂 \u00a0\u2028\ufeff", "a=b=c", "-x", "@x :x +x !x", "*?[a]{b,c}~", "end\\", "\\\nx", "&|;<>()",
}

func TestArgumentsAreExact(t *testing.T) {
	b := booted(t)
	s := b.spec("")
	s.Argv = append([]string{"sh", "-c", `printf '%s\0' "$0" "$@"`}, hard...)
	_, out := b.run(s)
	if diff := cmp.Diff(hard, strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")); diff != "" {
		t.Error(diff)
	}
	s = b.spec("")
	s.Argv[0], s.Argv[2] = "$x %n \"", "tr '\\0' '|' </proc/$$/cmdline"
	if _, out := b.run(s); !strings.HasPrefix(out, "$x %n \"|-c|") {
		t.Errorf("got %q", out)
	}
}

func TestEnvironmentIsExact(t *testing.T) {
	b := booted(t)
	b.tool("systemctl", "set-environment", "FROM_MANAGER=1")
	defer b.tool("systemctl", "unset-environment", "FROM_MANAGER")
	var want []string
	for i, v := range hard {
		want = append(want, fmt.Sprintf("V%d=%s", i, v))
	}
	want = append(want, "PATH=/bin", "HOME=/x y", "LANG=", "long="+strings.Repeat(`é"$`, 20000), "_lower=1")
	slices.Sort(want)
	environ := func(s Spec, want []string) {
		t.Helper()
		s.Path, s.Argv = "/usr/bin/env", []string{"env", "-0"}
		b.env(s, want...)
		_, out := b.run(s)
		got := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	environ(b.spec(""), want)
	s := b.spec("")
	s.User = "nobody"
	environ(s, []string{"ONLY=this"})
	s = b.spec("")
	s.EnvFile = filepath.Join(b.dir, `an [odd] *name? with\ $ %n "all"`)
	environ(s, []string{"ONLY=this"})
	s = b.spec(`cat "$CREDENTIALS_DIRECTORY/token"; echo "$STATE_DIRECTORY$CACHE_DIRECTORY"`)
	for name, v := range map[string]string{"LoadCredential": "token:/etc/hostname", "StateDirectory": "marbles-sample"} {
		p, err := Check(name, v)
		if err != nil {
			t.Fatal(err)
		}
		s.Properties = append(s.Properties, p)
	}
	if _, out := b.run(s); out != b.read("/etc/hostname")+"/var/lib/marbles-sample\n" {
		t.Errorf("got %q", out)
	}
}

func TestUserAndMode(t *testing.T) {
	b := booted(t)
	s := b.spec("id -un; id -gn; id -G; umask; pwd; grep SigIgn /proc/self/status")
	s.User, s.Group, s.Groups, s.UMask, s.Dir = "nobody", "nogroup", []string{"daemon"}, 0o27, "/usr"
	_, out := b.run(s)
	got := strings.Fields(out)
	slices.Sort(got[2:4])
	if diff := cmp.Diff([]string{"nobody", "nogroup", "1", "65534", "0027", "/usr", "SigIgn:", "0000000000000000"}, got); diff != "" {
		t.Error(diff, b.read(s.Stderr))
	}
}

func TestLimitsAreAskedFor(t *testing.T) {
	b := booted(t)
	s := b.spec("sleep 1000")
	s.Memory, s.CPU, s.Tasks, s.Limit, s.Grace = 512<<20, 1.5, 64, time.Hour, 3*time.Second
	s.LogFields, s.Description = []string{"MARBLES_RUN=01J"}, "a step"
	b.start(s)
	for name, want := range map[string]string{
		"MemoryMax": "536870912", "CPUQuotaPerSecUSec": "1.500000s", "TasksMax": "64", "RuntimeMaxUSec": "1h", "TimeoutStopUSec": "3s",
		"LogExtraFields": "MARBLES_RUN=01J", "Type": "exec", "RemainAfterExit": "yes", "KillMode": "control-group", "Restart": "no", "CollectMode": "inactive",
		"CPUAccounting": "yes", "MemoryAccounting": "yes", "TasksAccounting": "yes", "Description": "a step", "StandardInput": "null",
	} {
		if got := strings.TrimSpace(b.tool("systemctl", "show", "--value", "-p", name, s.Name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	b.stop(s.Name)
}

func TestUsageIsRead(t *testing.T) {
	b := booted(t)
	s := b.spec("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	if st, _ := b.run(s); st.CPU <= 0 {
		t.Errorf("got %+v", st)
	}
	s = b.spec("i=0; while :; do i=$((i+1)); done")
	b.start(s)
	b.until("time used", func() bool {
		st, err := b.m.Look(b.ctx(), s.Name)
		return err == nil && st.User > 0 && st.CPU >= st.User
	})
	b.stop(s.Name)
}

// TestUserManager is for a user with a manager of his own.
func TestUserManager(t *testing.T) {
	if run := os.Getenv("XDG_RUNTIME_DIR"); os.Geteuid() == 0 || run == "" {
		t.Skip("this is no user with a manager of his own")
	}
	b := &bench{t, Open(), t.TempDir()}
	defer b.m.Close()
	s := b.spec("id -u; env; exit 3")
	b.env(s, "ONLY=this", "PATH=/bin:/usr/bin")
	st, out := b.run(s)
	if want := fmt.Sprintf("%d\nONLY=this\nPATH=/bin:/usr/bin\nPWD=/\n", os.Geteuid()); st.ExitCode != 3 || !sameLines(out, want) {
		t.Errorf("got %+v, %q, want %q", st, out, want)
	}
	if list, err := b.m.List(b.ctx(), "marbles-step-*"); err != nil || len(list) > 0 {
		t.Errorf("left %q, %v", list, err)
	}
}

func sameLines(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// TestKeeps asks from within units of its own.
func TestKeeps(t *testing.T) {
	if os.Getenv("IN_UNIT") != "" {
		m := Open()
		defer m.Close()
		fmt.Printf("keeps %v\n", m.Keeps(t.Context()))
		return
	}
	b := booted(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{"yes": "keeps true", "restart": "keeps false", "no": "keeps false"} {
		s := b.spec("")
		s.Path, s.Argv = self, []string{"test", "-test.run=^TestKeeps$"}
		s.Properties = []Property{{"RuntimeDirectoryPreserve", []assignment{{"RuntimeDirectoryPreserve", value}}}}
		b.env(s, "IN_UNIT=1")
		if _, out := b.run(s); !strings.Contains(out, want) {
			t.Errorf("%s: got %q, want %q", value, out, want)
		}
	}
}

// TestOverTheBus has no socket of the manager's own.
func TestOverTheBus(t *testing.T) {
	b := booted(t)
	b.m.places = []place{systemBus()}
	s := b.spec("until [ -e " + b.dir + "/go ]; do sleep 0.01; done; exit 3")
	b.start(s)
	b.tool("systemctl", "daemon-reexec")
	if st, err := b.m.Look(b.ctx(), s.Name); err != nil || !st.Running {
		t.Errorf("got %+v, %v", st, err)
	}
	b.tool("touch", b.dir+"/go")
	if st := b.wait(s.Name); st.ExitCode != 3 {
		t.Errorf("got %+v", st)
	}
	b.stop(s.Name)
}

// TestEveryDirectiveIsTaken starts a unit with a sample of each directive: the manager takes its name and its D-Bus type.
func TestEveryDirectiveIsTaken(t *testing.T) {
	b := booted(t)
	for _, name := range Names() {
		values, ok := samples[name]
		if !ok {
			t.Errorf("there is no sample of %s", name)
		}
		for _, v := range values {
			t.Run(fmt.Sprintf("%s=%v", name, v), func(t *testing.T) {
				b := b.in(t)
				p, err := Check(name, v)
				if err != nil {
					t.Fatal(err)
				}
				s := b.spec("exit 0")
				s.Properties = []Property{p}
				_, err = b.m.Start(b.ctx(), s)
				if err != nil {
					t.Fatal(err)
				}
				b.stop(s.Name)
			})
		}
	}
}

// TestDirectivesMean compares with what systemd makes of them.
func TestDirectivesMean(t *testing.T) {
	b := booted(t)
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{"MemoryMax", "1.5GiB", "MemoryMax=1610612736"},
		{"MemoryMax", "infinity", "MemoryMax=infinity"},
		{"CPUQuota", "250%", "CPUQuotaPerSecUSec=2.500000s"},
		{"AllowedCPUs", "0-3,9", "AllowedCPUs=0-3 9"},
		{"LimitNOFILE", "1024:4096", "LimitNOFILE=4096 LimitNOFILESoft=1024"},
		{"LimitCPU", "10min", "LimitCPU=600 LimitCPUSoft=600"},
		{"IOSchedulingClass", "idle", "IOSchedulingClass=3"},
		{"CPUSchedulingPolicy", "batch", "CPUSchedulingPolicy=3"},
		{"ProtectHome", "read-only", "ProtectHome=read-only"},
		{"CapabilityBoundingSet", "CAP_NET_BIND_SERVICE CAP_BPF", "CapabilityBoundingSet=cap_net_bind_service cap_bpf"},
		{"RestrictNamespaces", "net mnt", "RestrictNamespaces=mnt net"},
		{"RestrictNamespaces", true, "RestrictNamespaces=yes"},
		{"RestrictAddressFamilies", "~AF_PACKET", "RestrictAddressFamilies=~AF_PACKET"},
		{"SystemCallFilter", "~@clock", "SystemCallFilter=~adjtimex clock_adjtime clock_adjtime64 clock_settime clock_settime64 settimeofday"},
		{"SystemCallErrorNumber", "EPERM", "SystemCallErrorNumber=1"},
		{"BindPaths", []any{"/var:/srv:norbind"}, "BindPaths=/var:/srv"},
		{"BindReadOnlyPaths", "-/var:/srv", "BindReadOnlyPaths=-/var:/srv:rbind"},
		{"TemporaryFileSystem", "/srv:size=1M,ro", "TemporaryFileSystem=/srv:size=1M,ro"},
		{"ReadWritePaths", []any{"/var", "-/nowhere"}, "ReadWritePaths=/var -/nowhere"},
		{"IPAddressAllow", "localhost 10.1.2.3", "IPAddressAllow=::1/128 127.0.0.0/8 10.1.2.3/32"},
		{"DeviceAllow", "/dev/null rw", "DeviceAllow=/dev/null rw"},
	} {
		t.Run(fmt.Sprintf("%s=%v", test.name, test.value), func(t *testing.T) {
			b := b.in(t)
			p, err := Check(test.name, test.value)
			if err != nil {
				t.Fatal(err)
			}
			s := b.spec("exit 0")
			s.Properties = []Property{p}
			b.start(s)
			argv := []string{"systemctl", "show", s.Name}
			for _, a := range p.set {
				argv = append(argv, "-p", a.name)
			}
			words := func(s string) []string {
				for _, a := range p.set {
					s = strings.Replace(s, a.name+"=", a.name+" ", 1)
				}
				return strings.Fields(s)
			}
			got, want := words(b.tool(argv...)), words(test.want)
			b.stop(s.Name)
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
