package state

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// takerGone reports whether every process that can have made a file of the lock protocol at an instant is gone: none
// that is as old runs this program, or one of its name.
func takerGone(at time.Time) bool {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(dirs) == 0 {
		return false
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == Self().PID {
			continue
		}
		started, alive := processStarted(pid)
		if !alive || !started.IsZero() && started.After(at.Add(coarseSlack)) {
			continue
		}
		comm, _ := os.ReadFile(dir + "/comm")
		if exe, err := os.Stat(dir + "/exe"); err == nil && os.SameFile(exe, own) || bytes.HasPrefix(comm, []byte("marbles")) {
			return false
		}
	}
	return true
}
