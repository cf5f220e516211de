package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// skeleton makes the process and sync calls of one scheduled run and nothing else, N times, P at once, and prints how
// many a second: a lock file taken and removed, the run file and the key's record written twice each, a journal appended
// and synced with its directory, a ledger line appended, and `sh -c true` in a process group with two pipes.
func skeleton(args []string) error {
	fs := flag.NewFlagSet("skeleton", flag.ContinueOnError)
	n := fs.Int("n", 2000, "runs")
	p := fs.Int("p", 16, "at once")
	starts := fs.Bool("starts", false, "only what a start takes: up to the process, and no end")
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir := fs.Arg(0)
	for _, d := range []string{"runs", "schedules", "output", "slots", "locks"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	next := make(chan int)
	var wg sync.WaitGroup
	errs := make(chan error, *p)
	start := time.Now()
	for range *p {
		wg.Go(func() {
			for i := range next {
				if err := bare(dir, strconv.Itoa(i), *starts); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	for i := range *n {
		select {
		case next <- i:
		case err := <-errs:
			return err
		}
	}
	close(next)
	wg.Wait()
	select {
	case err := <-errs: // of a run that was handed out last
		return err
	default:
	}
	fmt.Printf("%.0f\n", float64(*n)/time.Since(start).Seconds())
	return nil
}

// bare is one run's calls, or those of its start.
func bare(dir, name string, start bool) error {
	lock := filepath.Join(dir, "locks", name)
	l, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(lock)
	defer l.Close()
	if _, err := l.WriteString("12345"); err != nil {
		return err
	}
	if err := syscall.Flock(int(l.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	record := make([]byte, 900)
	for _, d := range []string{"runs", "schedules"} {
		if err := durable(filepath.Join(dir, d), name, record); err != nil {
			return err
		}
	}
	j, err := os.OpenFile(filepath.Join(dir, "output", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer j.Close()
	line := make([]byte, 150)
	for range 2 {
		if _, err := j.Write(line); err != nil {
			return err
		}
	}
	if err := spawn(); err != nil {
		return err
	}
	if start {
		return nil
	}
	for range 4 {
		if _, err := j.Write(line); err != nil {
			return err
		}
	}
	if err := j.Sync(); err != nil {
		return err
	}
	if err := syncDir(filepath.Join(dir, "output")); err != nil {
		return err
	}
	s, err := os.OpenFile(filepath.Join(dir, "slots", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = s.Write(line)
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	for _, d := range []string{"runs", "schedules"} {
		if err := durable(filepath.Join(dir, d), name, record); err != nil {
			return err
		}
	}
	return nil
}

func spawn() error {
	c := exec.Command("sh", "-c", "true")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	errp, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, out)
	_, errs := io.Copy(io.Discard, errp)
	return errors.Join(err, errs, c.Wait())
}

func durable(dir, name string, data []byte) error {
	tmp := filepath.Join(dir, "."+name+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
