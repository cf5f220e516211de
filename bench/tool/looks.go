package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"marbles/monitor"
	"marbles/state"
)

// mkfiles writes N files of 1 KiB below a directory, a hundred to a folder, each with its own content.
func mkfiles(args []string) error {
	if len(args) != 2 {
		return errors.New("want N DIR")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	padding := bytes.Repeat([]byte("x"), 1013)
	for i := range n {
		folder := filepath.Join(args[1], fmt.Sprintf("folder-%04d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		content := fmt.Appendf(padding[:len(padding):len(padding)], "%010d\n", i)
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file-%06d.txt", i)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// looks times first and unchanged looks of a monitor on DIR, as a service makes them, in turn with what reads or
// looks at the same files: sha256sum, and git status, for which DIR is a repository.
func looks(args []string) error {
	if len(args) != 2 {
		return errors.New("want N DIR")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	dir := args[1]
	var first, sums, unchanged, status []sample
	for range n {
		s, err := yardstick(dir, "find . -name '*.txt' -print0 | xargs -0 -P2 sha256sum")
		if err != nil {
			return err
		}
		sums = append(sums, s)
		w, err := newWatch(dir)
		if err != nil {
			return err
		}
		if s, err = w.timed(); err != nil {
			return err
		}
		first = append(first, s)
	}
	before := heapInUse()
	w, err := newWatch(dir)
	if err != nil {
		return err
	}
	for range 3 { // to see it, to compare it with what was committed, and to see it unchanged
		if _, err := w.timed(); err != nil {
			return err
		}
	}
	files := len(w.record.Files)
	w.record = nil // it is not looked at again
	perFile := float64(heapInUse()-before) / float64(files)
	for range n {
		s, err := yardstick(dir, "git status --porcelain")
		if err != nil {
			return err
		}
		status = append(status, s)
		if s, err = w.timed(); err != nil {
			return err
		}
		unchanged = append(unchanged, s)
	}
	if w.loads != 2 {
		return fmt.Errorf("the record was loaded %d times", w.loads)
	}
	against("first look", first, "find | xargs -0 -P2 sha256sum", sums)
	against("unchanged look", unchanged, "git status", status)
	fmt.Printf("memory between looks: %.0f bytes a file\n", perFile)
	return nil
}

// watch is a monitor's source and what was committed.
type watch struct {
	source *monitor.Source
	record *state.MonitorRecord
	stamp  int64
	loads  int
}

func newWatch(dir string) (*watch, error) {
	s, err := monitor.NewFiles(dir, "**/*.txt", monitor.FilesOptions{})
	return &watch{source: s}, err
}

// timed looks, and commits what was seen.
func (w *watch) timed() (sample, error) {
	cpu, begin := cpuTime(syscall.RUSAGE_SELF), time.Now()
	o, err := w.source.Look(context.Background(), monitor.Committed{
		Stamp: state.FileStamp{Size: w.stamp},
		Load:  func() (*state.MonitorRecord, error) { w.loads++; return w.record, nil },
	}, monitor.LookOptions{})
	s := sample{wall: time.Since(begin), cpu: cpuTime(syscall.RUSAGE_SELF) - cpu}
	if err == nil && o.Record != nil {
		w.record = o.Record
		w.stamp++
	}
	return s, err
}

func yardstick(dir, script string) (sample, error) {
	c := exec.Command("sh", "-c", script+" >/dev/null")
	c.Dir = dir
	cpu, begin := cpuTime(syscall.RUSAGE_CHILDREN), time.Now()
	err := c.Run()
	return sample{wall: time.Since(begin), cpu: cpuTime(syscall.RUSAGE_CHILDREN) - cpu}, err
}

func cpuTime(who int) time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func against(a string, as []sample, b string, bs []sample) {
	aw, ac := medians(as)
	bw, bc := medians(bs)
	fmt.Printf("%s: %.0f ms, %.0f ms of CPU; %s: %.0f ms, %.0f ms of CPU; %.2f in time, %.2f in CPU (medians of %d)\n",
		a, ms(aw), ms(ac), b, ms(bw), ms(bc), float64(aw)/float64(bw), float64(ac)/float64(bc), len(as))
}

func medians(of []sample) (wall, cpu time.Duration) {
	var walls, cpus []time.Duration
	for _, s := range of {
		walls, cpus = append(walls, s.wall), append(cpus, s.cpu)
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	return walls[len(walls)/2], cpus[len(cpus)/2]
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
