package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sample is one finished process, by the operating system's own accounting.
type sample struct {
	wall time.Duration
	rss  int64         // bytes
	cpu  time.Duration // where it was asked for
}

// pair runs two commands in turn, A B A B …, and prints medians: on a noisy machine only a comparison in one run holds.
func pair(args []string) error {
	n := 20
	if len(args) > 2 && args[0] == "-n" {
		v, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		n, args = v, args[2:]
	}
	i := slices.Index(args, ":::")
	if i < 1 || i == len(args)-1 {
		return errors.New("want the two commands as A ::: B")
	}
	a, b := args[:i], args[i+1:]
	var as, bs []sample
	for range n {
		x, err := once(a)
		if err != nil {
			return err
		}
		y, err := once(b)
		if err != nil {
			return err
		}
		as, bs = append(as, x), append(bs, y)
	}
	aw, ar := median(as)
	bw, br := median(bs)
	fmt.Printf("A %s: %.1f ms, %.1f MiB\n", strings.Join(a, " "), ms(aw), mib(ar))
	fmt.Printf("B %s: %.1f ms, %.1f MiB\n", strings.Join(b, " "), ms(bw), mib(br))
	fmt.Printf("A-B: %.1f ms, %.1f MiB; A/B: %.2f in time (medians of %d)\n", ms(aw-bw), mib(ar-br), float64(aw)/float64(bw), n)
	return nil
}

func once(argv []string) (sample, error) {
	c := exec.Command(argv[0], argv[1:]...)
	start := time.Now()
	if err := c.Run(); err != nil {
		return sample{}, fmt.Errorf("%s: %w", argv[0], err)
	}
	wall := time.Since(start)
	ru, ok := c.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return sample{wall: wall}, nil
	}
	rss := ru.Maxrss
	if runtime.GOOS == "linux" { // KiB there, bytes on macOS
		rss *= 1024
	}
	return sample{wall: wall, rss: rss}, nil
}

func median(s []sample) (time.Duration, int64) {
	var w []time.Duration
	var r []int64
	for _, x := range s {
		w, r = append(w, x.wall), append(r, x.rss)
	}
	slices.Sort(w)
	slices.Sort(r)
	return w[len(w)/2], r[len(r)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func mib(n int64) float64        { return float64(n) / (1 << 20) }

// serial times N times `sh -c true`, one after the other: a bare loop of a shell.
func serial(args []string) error {
	c := exec.Command("sh", "-c", `i=0; while [ $i -lt "$1" ]; do sh -c true; i=$((i+1)); done`, "sh", args[0])
	start := time.Now()
	if err := c.Run(); err != nil {
		return err
	}
	fmt.Printf("%.3f\n", time.Since(start).Seconds())
	return nil
}

// proc prints resident memory (MiB) and CPU seconds of a process, from /proc.
func proc(args []string) error {
	data, err := os.ReadFile("/proc/" + args[0] + "/stat")
	if err != nil {
		return err
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+2:]))
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	fmt.Printf("rss_mib %.1f cpu_s %.2f\n", mib(pages*int64(os.Getpagesize())), (user+system)/100)
	return nil
}
