package state

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which the kernel fixes at 100 for what it shows to
// programs on every architecture Go runs on.
const ticksPerSecond = 100

func readBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// probeProcess reads /proc/<pid>/stat. A file that is not there decides nothing:
// /proc may be missing, or hide other users' processes (hidepid).
func probeProcess(pid int) (ticks uint64, state processState) {
	var room [1024]byte
	n, err := readSmall("/proc/"+strconv.Itoa(pid)+"/stat", room[:])
	if err != nil {
		if errors.Is(err, unix.ESRCH) { // it ended between open and read
			return 0, processGone
		}
		return 0, processUnknown
	}
	return parseStat(room[:n])
}

// parseStat reads the state (field 3), the number of threads (20) and the start
// (22, in ticks after boot) of proc_pid_stat(5). The name in field 2 may hold
// spaces and parentheses, so fields are counted after the last ')'.
//
// A dead main thread shows as a zombie while other threads run on; only a process
// without such threads has exited.
func parseStat(stat []byte) (ticks uint64, state processState) {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, processUnknown
	}
	fields := bytes.Fields(stat[end+1:])
	const stateField, threadsField, startField = 0, 17, 19 // proc(5) counts from 1, and two go before
	if len(fields) <= startField {
		return 0, processUnknown
	}
	threads, _ := strconv.Atoi(string(fields[threadsField]))
	switch fields[stateField][0] {
	case 'X', 'x':
		return 0, processGone
	case 'Z':
		if threads <= 1 {
			return 0, processGone
		}
	}
	ticks, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return 0, processUnknown
	}
	return ticks, processAlive
}

// startInstant is when a process that started at these ticks did so by the present
// wall clock, 10 ms exact. It moves when the wall clock is stepped.
func startInstant(ticks uint64) time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	boot := wallClock().Add(-time.Duration(up.Nano()))
	return boot.Add(time.Duration(ticks) * (time.Second / ticksPerSecond))
}

// readSmall reads a file of /proc with one read, which is a consistent picture.
func readSmall(path string, room []byte) (int, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return uninterrupted(func() (int, error) { return unix.Read(fd, room) })
}
