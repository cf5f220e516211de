package runner

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"marbles/state"
)

// benchParallel is how many runs are at work at once, as in a service with its defaults.
const benchParallel = defaultConcurrency

// inParallel does b.N pieces of work, benchParallel at once.
func inParallel(b *testing.B, work func(i int) error) {
	var next atomic.Int64
	var wait sync.WaitGroup
	b.ResetTimer()
	for range benchParallel {
		wait.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				if err := work(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wait.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkRun is the whole life of a run of `sh -c true`, durable at its start and its end.
func BenchmarkRun(b *testing.B) {
	ws, w := newWorkspace(b), newWorker(b, Options{TempDir: os.Getenv("BENCH_TEMP")})
	wf := shell("job", "true")
	inParallel(b, func(int) error {
		r, err := w.Start(Launch{Workspace: ws, Workflow: wf, Trigger: "manual"})
		if err != nil {
			return err
		}
		return r.Wait().Err()
	})
}

// BenchmarkSkeleton does the same to processes and disks, and nothing else: what BenchmarkRun could reach at best. A run
// is two durable writes, each fsync of the file and of its directory, and a journal, fsynced with its directory.
func BenchmarkSkeleton(b *testing.B) {
	dir := b.TempDir()
	for _, d := range []string{"runs", "output"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	record := make([]byte, 1200)
	save := func(i int) error {
		name := filepath.Join(dir, "runs", fmt.Sprint(i))
		f, err := os.OpenFile(name+".tmp", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if _, err = f.Write(record); err == nil {
			err = f.Sync()
		}
		f.Close()
		if err == nil {
			err = os.Rename(name+".tmp", name)
		}
		if err == nil {
			err = syncDir(filepath.Join(dir, "runs"))
		}
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	defer null.Close()
	inParallel(b, func(i int) error {
		journal, err := os.OpenFile(filepath.Join(dir, "output", fmt.Sprint(i)), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer journal.Close()
		if err := save(i); err != nil {
			return err
		}
		cmd := exec.Command("/bin/sh", "-c", "true")
		cmd.Stdin = null
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		errs, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		for range 3 {
			_, _ = journal.Write(record[:120])
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		_, _ = journal.Write(record[:120])
		_, _ = io.Copy(io.Discard, out)
		_, _ = io.Copy(io.Discard, errs)
		if err := cmd.Wait(); err != nil {
			return err
		}
		for range 2 {
			_, _ = journal.Write(record[:120])
		}
		if err := journal.Sync(); err != nil {
			return err
		}
		if err := syncDir(filepath.Join(dir, "output")); err != nil {
			return err
		}
		return save(i)
	})
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// captureText writes 200 MB of lines of 100 bytes.
const captureText = `head -c 200000000 /dev/zero | tr '\0' 'x' | fold -w 99`

// captureLines is made once: a producer that is slower than a pipe would hide what is measured.
func captureLines(b *testing.B) string {
	file := filepath.Join(b.TempDir(), "lines")
	if out, err := exec.Command("sh", "-c", captureText+" > "+file).CombinedOutput(); err != nil {
		b.Fatal(err, string(out))
	}
	return file
}

// BenchmarkCapture records 200 MB of lines in a journal.
func BenchmarkCapture(b *testing.B) {
	file := captureLines(b)
	ws, w := newWorkspace(b), newWorker(b, Options{TempDir: os.Getenv("BENCH_TEMP")})
	b.SetBytes(202_000_000)
	for b.Loop() {
		r := start(b, w, Launch{Workspace: ws, Workflow: shell("job", "cat "+file)})
		if res := r.Wait(); res.Status != state.Complete {
			b.Fatalf("got %+v", res)
		}
		b.StopTimer()
		_ = os.Remove(filepath.Join(ws.Dir(), "output", r.ID()+".jsonl"))
		b.StartTimer()
	}
}

// BenchmarkCat is the same as a shell does it: producer | cat > file, and a sync.
func BenchmarkCat(b *testing.B) {
	file := captureLines(b)
	to := filepath.Join(b.TempDir(), "to")
	b.SetBytes(202_000_000)
	for b.Loop() {
		if out, err := exec.Command("sh", "-c", "cat "+file+" | cat > "+to).CombinedOutput(); err != nil {
			b.Fatal(err, string(out))
		}
		f, err := os.OpenFile(to, os.O_RDWR, 0)
		if err != nil {
			b.Fatal(err)
		}
		_ = f.Sync()
		f.Close()
		b.StopTimer()
		_ = os.Remove(to)
		b.StartTimer()
	}
}

// BenchmarkSpawn is what it costs to start processes through one thread, and what it costs without.
func BenchmarkSpawn(b *testing.B) {
	attr := func() *syscall.ProcAttr { return &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: childAttr()} }
	argv := []string{"/bin/true"}
	b.Run("thread", func(b *testing.B) {
		w := newWorker(b, Options{})
		inParallel(b, func(int) error {
			pid, err := w.spawn.start(argv[0], argv, attr(), nil)
			if err != nil {
				return err
			}
			waitExit(pid)
			_, err = syscall.Wait4(pid, nil, 0, nil)
			w.spawn.gone()
			return err
		})
	})
	b.Run("direct", func(b *testing.B) {
		direct := attr()
		direct.Sys = &syscall.SysProcAttr{Setpgid: true}
		inParallel(b, func(int) error {
			pid, err := syscall.ForkExec(argv[0], argv, direct)
			if err != nil {
				return err
			}
			_, err = syscall.Wait4(pid, nil, 0, nil)
			return err
		})
	})
}

// BenchmarkTick is a schedule's tick with all it writes.
func BenchmarkTick(b *testing.B) {
	ws, w := newWorkspace(b), newWorker(b, Options{TempDir: os.Getenv("BENCH_TEMP")})
	ws.KeepLocks(64)
	defer ws.KeepLocks(0)
	inParallel(b, func(i int) error {
		tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Second), shell("job", "true"))
		tick.Key = fmt.Sprint("k", i)
		return w.Tick(b.Context(), tick).Err
	})
}

// BenchmarkRush is b.N keys due at once: when the last of them started, and how many a second had ended in the end.
// Run it with -benchtime 1000x.
func BenchmarkRush(b *testing.B) {
	ws, w := newWorkspace(b), newWorker(b, Options{TempDir: os.Getenv("BENCH_TEMP")})
	ws.KeepLocks(64)
	defer ws.KeepLocks(0)
	wf := shell("job", "true")
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex // guards last
		last  time.Duration
		begin = time.Now()
	)
	for i := range b.N {
		wait.Go(func() {
			tick := schedule(w, ws, slotTime.Add(time.Duration(i)*time.Second), wf)
			tick.Key = fmt.Sprint("k", i)
			res := w.Tick(b.Context(), tick)
			if res.Err != nil {
				b.Error(res.Err)
			}
			mu.Lock()
			defer mu.Unlock()
			last = max(last, res.Result.Started.Sub(begin))
		})
	}
	wait.Wait()
	b.ReportMetric(last.Seconds(), "s-to-last-start")
	b.ReportMetric(float64(b.N)/time.Since(begin).Seconds(), "runs/s")
}
