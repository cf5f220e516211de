package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"marbles/state"
)

// worktreeTime is how long it may take to remove a worktree, whatever ended the step.
const worktreeTime = 30 * time.Second

// worktree is the git worktree of one step at work.
type worktree struct {
	s      *step
	env    []string
	repo   string // the directory whose repository it is of
	path   string
	branch string
	mark   string // names the run and the step, in the branch's configuration
}

// enterWorktree makes the step's worktree and lets the step run there; leave removes it.
func (s *step) enterWorktree(ctx context.Context, own []string) (leave func(), why *stopped) {
	wf, r := s.r.launch.Workflow, s.r
	name := plainWords(s.Name)
	if s.item != nil {
		name += "-" + strconv.Itoa(*s.item)
	}
	t := &worktree{
		s: s, repo: wf.Workdir, branch: s.Worktree.Branch, mark: r.id + "-" + name,
		path: filepath.Join(r.ws.Worktrees(), r.id+"-"+name),
		env: mergeEnv(r.w.env, r.who.environment(), wf.Env, r.launch.Env, own,
			[]string{"MARBLES_STEP=" + s.Name, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}),
	}
	if t.repo == "" {
		t.repo = r.ws.Project()
	}
	if r.who != nil && !openToAll(r.ws.Worktrees()) { // that user could not get there
		t.path = filepath.Join(r.dir, "worktree-"+name)
	}
	switch {
	case t.branch == "":
		t.branch = "marbles/" + t.mark
	case s.item != nil:
		t.branch += "-" + strconv.Itoa(*s.item)
	}
	if why := t.make(ctx); why != nil {
		if why.status == state.Cancelled || why.err.Name == "TimeoutError" {
			t.remove(ctx) // what git had got to
		}
		return nil, why
	}
	s.dir = filepath.Join(t.path, s.Workdir)
	return func() {
		t.remove(ctx)
		s.dir = ""
	}, nil
}

// make makes the worktree. A branch that an earlier attempt of this very step has made goes on; any other that exists is
// somebody's.
//
// One is made at a time: git locks a repository's config for each change, and fails where it is locked.
func (t *worktree) make(ctx context.Context) *stopped {
	t.s.r.w.worktrees.Lock()
	defer t.s.r.w.worktrees.Unlock()
	if _, err := os.Lstat(t.path); err == nil {
		t.remove(ctx)
	}
	if _, why := t.git(ctx, t.repo, "rev-parse", "--git-dir"); why != nil {
		return t.failed(why, fmt.Sprintf("%s is in no git repository", t.repo))
	}
	base := t.s.Worktree.Base
	if base == "" {
		base = "HEAD"
	}
	args := []string{"worktree", "add", "-b", t.branch, t.path, base}
	if _, why := t.git(ctx, t.repo, "show-ref", "--verify", "--quiet", "refs/heads/"+t.branch); why == nil {
		if _, why := t.git(ctx, t.repo, "config", "--get", t.config(), "^"+t.mark+"$"); why != nil {
			return t.failed(why, fmt.Sprintf("branch %s exists already; remove it (git branch -D %s), or name another one", t.branch, t.branch))
		}
		args = []string{"worktree", "add", t.path, t.branch}
	} else if why.err.Name != "ExitError" {
		return t.failed(why, "")
	}
	if said, why := t.git(ctx, t.repo, args...); why != nil {
		return t.failed(why, lastLine(said))
	}
	if said, why := t.git(ctx, t.repo, "config", t.config(), t.mark); why != nil {
		t.remove(ctx)
		return t.failed(why, lastLine(said))
	}
	return nil
}

// config is where the branch says whose it is; it goes with the branch.
func (t *worktree) config() string { return "branch." + t.branch + ".marbles" }

// failed says what git could not do; a cancel or timeout stays what it is.
func (t *worktree) failed(why *stopped, text string) *stopped {
	if why.err.Name != "ExitError" && why.err.Name != "SignalError" {
		return why
	}
	if text == "" {
		text = "git " + why.err.Message
	}
	t.s.rec.Cause = "spawn"
	return failed("SpawnError", "could not be started: cannot make its worktree: %s", text)
}

// remove removes the worktree, whatever has ended the step. Its branch stays. What was not committed is in the journal.
func (t *worktree) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktreeTime)
	defer cancel()
	changes, why := t.git(ctx, t.path, "status", "--porcelain")
	if n := strings.Count(changes, "\n"); why == nil && n > 0 {
		t.s.r.journal.line(t.s.label(), fmt.Sprintf("left %d uncommitted changes, which go with its worktree; branch %s has the rest", n, t.branch))
	}
	if _, why := t.git(ctx, t.repo, "worktree", "remove", "--force", "--force", t.path); why == nil {
		return
	}
	if err := os.RemoveAll(t.path); err != nil {
		t.s.r.log().Warn("worktree cannot be removed", "worktree", t.path, "error", err)
		return
	}
	t.git(ctx, t.repo, "worktree", "prune")
}

// git runs git in a process of the step, like the step's own; what it says is in the journal.
func (t *worktree) git(ctx context.Context, dir string, args ...string) (said string, why *stopped) {
	var b bytes.Buffer
	heard := &echo{to: &b}
	// The step's stdout is the step's alone.
	argv := append([]string{"sh", "-c", `exec git "$@" >&2`, "git"}, args...)
	g := &step{
		Step: Step{Name: t.s.Name, Command: Command{Argv: argv}, Workdir: dir, Timeout: t.s.Timeout},
		r:    t.s.r, e: t.s.e, n: t.s.n, item: t.s.item, scratch: t.s.scratch, heard: heard,
	}
	why = g.process(ctx, t.env)
	heard.mu.Lock()
	defer heard.mu.Unlock()
	heard.to = nil
	return b.String(), why
}

// lastLine is what git said last.
func lastLine(said string) string {
	said = strings.TrimSpace(said)
	return strings.TrimPrefix(said[strings.LastIndexByte(said, '\n')+1:], "fatal: ")
}

// plainWords is a step's name as a part of a file name and a branch; different names give different ones.
func plainWords(name string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '-'
	}, name)
	const most = 60
	if plain != name || len(plain) > most {
		sum := sha256.Sum256([]byte(name))
		plain = fmt.Sprintf("%s-%x", plain[:min(len(plain), most)], sum[:4])
	}
	return plain
}

// sweepWorktrees removes the worktrees of runs that nobody has at work any more.
func (w *Worker) sweepWorktrees(ws *state.Workspace) error {
	dir := ws.Worktrees()
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", dir, bare(err))
	}
	var errs []error
	for _, e := range entries {
		run, _, ok := state.CutRunID(e.Name())
		if !ok || !w.leftBehind(ws, run) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		admin := adminDir(path)
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove worktree %s: %w", path, bare(err)))
			continue
		}
		if admin != "" {
			_ = os.RemoveAll(admin) // else git prunes it some time
		}
		w.o.Log.Warn("worktree of a dead owner's run removed", "run", run, "workspace", ws.ID(), "worktree", path)
	}
	return errors.Join(errs...)
}

// leftBehind reports whether it is certain that no process has a run at work.
func (w *Worker) leftBehind(ws *state.Workspace, run string) bool {
	if w.atWork(ws, run) != nil {
		return false
	}
	f, err := ws.Run(run)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return f.Run.Status.Settled() || f.Run.Status == state.Suspended || !f.Owner().Alive()
}

// adminDir is what a repository keeps of a worktree, "" where that cannot be told for sure.
func adminDir(path string) string {
	file := filepath.Join(path, ".git")
	info, err := os.Lstat(file)
	const most = 4096
	if err != nil || !info.Mode().IsRegular() || info.Size() > most {
		return ""
	}
	data, err := os.ReadFile(file)
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(data)), "gitdir: ")
	if err != nil || !ok || filepath.Base(filepath.Dir(dir)) != "worktrees" {
		return ""
	}
	// It is removed only where it names this worktree, and where nobody else can exchange it meanwhile.
	if info, err = os.Lstat(dir); err != nil || !info.IsDir() {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return ""
	}
	back, err := os.ReadFile(filepath.Join(dir, "gitdir"))
	if err != nil || strings.TrimSpace(string(back)) != file {
		return ""
	}
	return dir
}
