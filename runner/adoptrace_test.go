package runner

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"marbles/state"
)

// adopter is a process that may adopt: it does so once it is told to, says what it has, and stays until its input ends.
func adopter(dir string) {
	ws := opened(dir)
	wf := asking(dir)
	w := New(Options{TempDir: dir, Parks: true, Workflow: func(*state.Workspace, string) *Workflow { return wf }})
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		panic(err)
	}
	if err := w.Adopt(context.Background(), ws); err != nil {
		panic(err)
	}
	w.mu.Lock()
	var mine []string
	for ref := range w.parked {
		mine = append(mine, ref.id)
	}
	w.mu.Unlock()
	fmt.Println(strings.Join(mine, " "))
	_, _ = in.ReadString('\n')
	if err := w.Drain(context.Background()); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// Two processes that may adopt start together, as if nobody refused a second service: each of 200 parked runs is adopted by
// exactly one of them, whose pid is in its file.
func TestAdoptersRace(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	const runs = 200
	dir := t.TempDir()
	ws := workspaceIn(t, dir)
	killAt(t, dir, "park:parked", "")
	ids, err := filepath.Glob(filepath.Join(ws.Dir(), "runs", "rn-*.json"))
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	text, err := os.ReadFile(ids[0])
	must(t, err)
	model := strings.TrimSuffix(filepath.Base(ids[0]), ".json")
	asks := runFile(t, ws, model).Suspensions[0].ID
	for i := range runs - 1 {
		id := fmt.Sprintf("%s%03d", model[:len(model)-3], i)
		copied := strings.ReplaceAll(string(text), model, id)
		copied = strings.ReplaceAll(copied, asks, fmt.Sprintf("%s-%d", asks, i))
		must(t, os.WriteFile(filepath.Join(ws.Dir(), "runs", id+".json"), []byte(copied), 0o600))
	}
	type process struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	var both [2]process
	for i := range both {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), crashEnv+"="+dir, crashPoint+"=adopter")
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		cmd.Stderr = os.Stderr
		must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		both[i] = process{cmd, in, bufio.NewReader(out)}
		_, err = both[i].out.ReadString('\n')
		must(t, err)
	}
	for _, p := range both {
		_, err := io.WriteString(p.in, "go\n")
		must(t, err)
	}
	owner := map[string]int{}
	for _, p := range both {
		line, err := p.out.ReadString('\n')
		must(t, err)
		for _, id := range strings.Fields(line) {
			if other := owner[id]; other != 0 {
				t.Errorf("run %s was adopted by pid %d and by pid %d", id, other, p.cmd.Process.Pid)
			}
			owner[id] = p.cmd.Process.Pid
		}
	}
	if len(owner) != runs {
		t.Errorf("%d of %d runs were adopted", len(owner), runs)
	}
	for id, pid := range owner {
		f := runFile(t, ws, id)
		if f.PID != pid || f.Run.Status != state.Suspended {
			t.Errorf("run %s was adopted by pid %d, and its file says pid %d, %s", id, pid, f.PID, f.Run.Status)
		}
	}
	locks, err := ws.Locks()
	must(t, err)
	for id, pid := range owner {
		i := slices.IndexFunc(locks, func(l state.LockInfo) bool { return l.Name == "run-"+id })
		if i < 0 || locks[i].PID != pid {
			t.Errorf("the claim of run %s is not pid %d's", id, pid)
		}
	}
	for _, p := range both {
		_ = p.in.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	soonNoLocks(t, ws)
}
