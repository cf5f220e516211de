package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// As PID 1 of a container the service reaps what others leave to it, whether a step runs or not, passes a stop on, and
// ends by itself.
func TestServiceIsTheInitOfAContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	for _, tool := range []string{"nsenter", "mount", "setsid"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v, and CI=true", err)
			}
			t.Skip(err)
		}
	}
	p := newProject(t, `
workflows: {orphan: {run: '(setsid sh -c : &); (sh -c : &); echo $PPID >ppid; trap "echo told >told; exit 0" TERM; : >ready; while :; do sleep 0.05; done'}}
schedules: [{run: orphan, cron: "0 0 1 1 *", key: orphan}]
`)
	d := &daemon{t: t, done: make(chan struct{})}
	marbles := p.command("run", "--log-format", "json")
	d.cmd = exec.Command("sh", append([]string{"-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$@"`, "sh"}, marbles.Args...)...)
	d.cmd.Dir, d.cmd.Env, d.cmd.Stderr = marbles.Dir, marbles.Env, d
	// As a container's first process is: the leader of a session.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true}
	if err := d.cmd.Start(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("no PID namespace here: %v", err)
	}
	go func() { // ends with the process
		d.cmd.Wait()
		close(d.done)
	}()
	t.Cleanup(func() {
		d.cmd.Process.Kill()
		<-d.done
		if t.Failed() {
			t.Logf("the service's log:\n%s", d.text())
		}
	})
	eventually(t, "the service is ready", func() bool { return strings.Contains(d.text(), `"pid":1,`) })

	// orphan leaves the service a process by way of "docker exec", waits until it has it, and ends that.
	orphan := func(what string) {
		t.Helper()
		before := len(children(t, d.cmd.Process.Pid))
		exe := exec.Command("nsenter", "--target", fmt.Sprint(d.cmd.Process.Pid), "--pid", "--mount", "sh", "-c", "(setsid cat <&0 >/dev/null &)")
		stdin, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		exe.Stdin = stdin
		err = exe.Run()
		stdin.Close()
		if err != nil {
			writer.Close()
			t.Fatal(err)
		}
		eventually(t, what+": the service has the orphan", func() bool { return len(children(t, d.cmd.Process.Pid)) > before })
		writer.Close() // it ends
		eventually(t, what+": the orphan is reaped", func() bool { return len(children(t, d.cmd.Process.Pid)) <= before })
	}
	orphan("before any step")
	roll := exec.Command("nsenter", append([]string{"--target", fmt.Sprint(d.cmd.Process.Pid), "--pid", "--mount"}, p.command("roll", "--source", p.dir, "--detach", "orphan").Args...)...)
	roll.Dir, roll.Env = p.dir, marbles.Env
	if out, err := roll.CombinedOutput(); err != nil {
		t.Fatalf("roll: %v\n%s", err, out)
	}
	eventually(t, "a step runs", func() bool { _, err := os.Stat(p.dir + "/ready"); return err == nil })
	orphan("while a step runs")
	ppid, err := os.ReadFile(p.dir + "/ppid")
	if err != nil || string(bytes.TrimSpace(ppid)) != "1" {
		t.Errorf("the step's parent is %q: %v", ppid, err)
	}

	d.signal(syscall.SIGTERM)
	eventually(t, "the service is stopping", func() bool { return strings.Contains(d.text(), "service is stopping") })
	d.signal(syscall.SIGTERM) // cuts the drain short
	if code := d.wait(); code != 0 {
		t.Errorf("the service exits with %d", code)
	}
	if _, err := os.Stat(p.dir + "/told"); err != nil {
		t.Errorf("the step was not told to end: %v", err)
	}
}

// children are the processes that the kernel lists as those of a process's main thread, where it leaves orphans.
func children(t *testing.T, pid int) []string {
	t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(list))
}
