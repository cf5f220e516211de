package runner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"marbles/state"
)

// repository makes the workspace's project a git repository with one commit.
func repository(t testing.TB, ws *state.Workspace) (git func(args ...string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	git = func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", ws.Project(), "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q", "-b", "main")
	must(t, os.WriteFile(filepath.Join(ws.Project(), "kept"), []byte("one\n"), 0o600))
	git("add", "kept")
	git("commit", "-q", "-m", "one")
	return git
}

func inWorktree(text string, wt Worktree) *Workflow {
	wf := shell("try", text)
	wf.Steps[0].Worktree = &wt
	return wf
}

const commit = `git -c user.name=t -c user.email=t@example.com commit -q -m two`

// noWorktrees checks that nothing of a worktree is left.
func noWorktrees(t testing.TB, ws *state.Workspace, git func(...string) string) {
	t.Helper()
	left, err := os.ReadDir(ws.Worktrees())
	must(t, err)
	if n := strings.Count(git("worktree", "list", "--porcelain"), "worktree "); n != 1 || len(left) != 0 {
		t.Errorf("%d worktrees, left %v", n, left)
	}
}

func TestWorktree(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	git := repository(t, ws)
	wf := inWorktree(`pwd; cat ../kept; echo made > made; git add made; `+commit+`; echo left > left; printf done > "$MARBLES_RESULT_FILE"`, Worktree{Base: "main", Branch: "try/x"})
	wf.Steps[0].Workdir = "."
	must(t, os.Mkdir(filepath.Join(ws.Project(), "sub"), 0o700))
	must(t, os.WriteFile(filepath.Join(ws.Project(), "sub", "f"), nil, 0o600))
	git("add", "sub/f")
	git("commit", "-q", "-m", "sub")
	wf.Steps[0].Workdir = "sub"
	res := run(t, w, ws, wf)
	if res.Status != state.Complete || text(res.Output) != `"done"` {
		t.Fatalf("%s %v %s", res.Status, res.Error, res.Output)
	}
	want := filepath.Join(ws.Worktrees(), res.RunID+"-try", "sub") + "\none\n"
	if got := output(t, ws, res.RunID, "try", state.Stdout); got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if got := output(t, ws, res.RunID, "try", state.Stderr); !strings.Contains(got, "?? sub/left") || !strings.Contains(got, "Preparing worktree") {
		t.Errorf("what git said is not in the journal: %q", got)
	}
	if got := strings.Join(lines(t, ws, res.RunID), "\n"); !strings.Contains(got, "left 1 uncommitted changes, which go with its worktree; branch try/x has the rest") {
		t.Errorf("journal: %s", got)
	}
	if got := git("show", "--stat", "--format=%s", "try/x"); !strings.Contains(got, "sub/made") {
		t.Errorf("branch: %s", got)
	}
	if _, err := os.Stat(filepath.Join(ws.Project(), "sub", "made")); err == nil {
		t.Error("it was made in the checkout")
	}
	noWorktrees(t, ws, git)

	res = run(t, w, ws, wf)
	if want := `step "try" could not be started: cannot make its worktree: branch try/x exists already; remove it (git branch -D try/x), or name another one`; res.Error == nil || res.Error.Message != want {
		t.Errorf("got %v, want %s", res.Error, want)
	}
	noWorktrees(t, ws, git)
}

// Items run in worktrees of their own, each on its branch, and a step that is tried again goes on with its branch.
func TestWorktreeAgain(t *testing.T) {
	ws, w := newWorkspace(t), newWorker(t, Options{})
	git := repository(t, ws)
	wf := inWorktree(`echo "$MARBLES_ITEM" > item; git add item; `+commit, Worktree{Branch: "b"})
	wf.Steps[0].Each = &Each{List: []byte(`["x","y"]`), Parallel: 2}
	if res := run(t, w, ws, wf); res.Status != state.Complete {
		t.Fatal(res.Error)
	}
	if got := git("show", "b-0:item") + git("show", "b-1:item"); got != "x\ny\n" {
		t.Errorf("got %q", got)
	}
	wf = inWorktree(`test -e first && exit; echo > first; git add first; `+commit+`; exit 1`, Worktree{})
	wf.Steps[0].Retry = Retry{Attempts: 2}
	if res := run(t, w, ws, wf); res.Status != state.Complete {
		t.Fatal(res.Error)
	}
	noWorktrees(t, ws, git)
}

// It goes away however the step ends.
func TestWorktreeRemoved(t *testing.T) {
	for name, end := range map[string]struct {
		text   string
		change func(wf *Workflow)
		cancel bool
		want   string
	}{
		"failure": {text: "echo > made; exit 3", want: "exited with code 3"},
		"timeout": {text: "echo > made; sleep 60", change: func(wf *Workflow) { wf.Steps[0].Timeout = time.Second }, want: "timed out"},
		"cancel":  {text: "echo > made; sleep 60", cancel: true, want: "enough"},
		"no base": {text: "true", change: func(wf *Workflow) { wf.Steps[0].Worktree.Base = "nowhere" }, want: "cannot make its worktree: "},
		"its own": {text: `rm -rf "$PWD"`, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			ws, w := newWorkspace(t), newWorker(t, Options{})
			git := repository(t, ws)
			wf := inWorktree(end.text, Worktree{Branch: "b"})
			if end.change != nil {
				end.change(wf)
			}
			r := start(t, w, Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
			if end.cancel {
				made := filepath.Join(ws.Worktrees(), r.ID()+"-try", "made")
				eventually(t, "the step runs", func() bool { _, err := os.Stat(made); return err == nil })
				r.Cancel("enough")
			}
			res := r.Wait()
			if end.want == "" != (res.Error == nil) || res.Error != nil && !strings.Contains(res.Error.Message, end.want) {
				t.Errorf("got %s %v, want %q", res.Status, res.Error, end.want)
			}
			noWorktrees(t, ws, git)
			if name != "no base" {
				git("rev-parse", "--verify", "b")
			}
		})
	}
	ws, w := newWorkspace(t), newWorker(t, Options{})
	res := run(t, w, ws, inWorktree("true", Worktree{}))
	if res.Error == nil || !strings.Contains(res.Error.Message, "is in no git repository") {
		t.Errorf("without a repository: %v", res.Error)
	}
}

// What a dead owner left is swept, what a live one has is not, and neither is what is no worktree of a run.
func TestWorktreesSwept(t *testing.T) {
	ws := newWorkspace(t)
	git := repository(t, ws)
	dead := deadRun(t, ws, state.Failed, func(*state.RunFile) {})
	live := deadRun(t, ws, state.Running, func(f *state.RunFile) { f.PID, f.StartTicks, f.BootID = os.Getppid(), 0, "" })
	paths := map[string]bool{ // and whether it stays
		dead.Run.ID + "-try": false, state.NewRunID(time.Now()) + "-try": false, live.Run.ID + "-try": true, "mine": true,
	}
	for name := range paths {
		git("worktree", "add", "-b", "b-"+name, filepath.Join(ws.Worktrees(), name))
	}
	if _, err := newWorker(t, Options{}).Recover(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	list := git("worktree", "list", "--porcelain")
	for name, stays := range paths {
		_, err := os.Stat(filepath.Join(ws.Worktrees(), name))
		if (err == nil) != stays || strings.Contains(list, name+"\n") && !stays {
			t.Errorf("%s: %v, stays %v\n%s", name, err, stays, list)
		}
	}
}

func TestPlainWords(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", "a b", "a-b", "a.b", "a/b", "ä", "..", strings.Repeat("x", 300), strings.Repeat("x", 301)} {
		got := plainWords(name)
		if strings.ContainsAny(got, "./ ") || len(got) > 80 || seen[got] != "" {
			t.Errorf("%q is %q, as is %q", name, got, seen[got])
		}
		seen[got] = name
	}
}

// A step of another user has its worktree where that user can get to it, and git is that user's too.
func TestWorktreeOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const nobody = 65534
	if id, err := identityOf(&Workflow{User: strconv.Itoa(nobody)}); err != nil || id == nil {
		t.Skip("no such user")
	}
	dir, err := os.MkdirTemp("/tmp", "marbles-test-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	ws, w := workspaceIn(t, dir), newWorker(t, Options{Env: []string{"PATH=" + os.Getenv("PATH")}, Artifacts: state.OpenArtifacts(filepath.Join(dir, "artifacts"))})
	git := repository(t, ws)
	must(t, filepath.WalkDir(ws.Project(), func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	}))
	wf := inWorktree("id -u; pwd; echo made > made; git add made; "+commit, Worktree{Branch: "b"})
	wf.User = strconv.Itoa(nobody)
	wf.Steps[0].Artifacts = []Artifact{{Name: "a", Path: "made"}}
	res := run(t, w, ws, wf)
	got := output(t, ws, res.RunID, "try", state.Stdout)
	if res.Status != state.Complete || !strings.HasPrefix(got, "65534\n/tmp/marbles-") {
		t.Fatalf("%s %v: %s%s", res.Status, res.Error, got, output(t, ws, res.RunID, "try", state.Stderr))
	}
	_ = os.Chown(ws.Project(), 0, 0)
	must(t, os.Chown(filepath.Join(ws.Project(), ".git"), 0, 0))
	noWorktrees(t, ws, git)
	if got := git("show", "--format=%s", "b:made"); got != "made\n" {
		t.Errorf("branch has %q", got)
	}
}
