package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ownTempAge is after how long a temporary file with our own pid cannot be a write
// of ours. In a container every service has the same pid, and that pid is alive.
const ownTempAge = time.Hour

// Sweep removes temporary files whose writer is dead, and returns their paths.
func (w *Workspace) Sweep() ([]string, error) { return sweepTemps(w.tempDirs()) }

// tempDirs are the directories in which files are written under temporary names.
func (w *Workspace) tempDirs() []string {
	return []string{w.dir, w.path(runsDir), w.path(schedulesDir), w.path(monitorsDir), w.path(healthDir), w.path(cacheDir), w.path(locksDir), w.path(requestsDir), w.path(toldDir), w.path(slotsDir), w.path(handedDir)}
}

// sweepTemps removes the temporary files of dead writers in some directories.
func sweepTemps(dirs []string) ([]string, error) {
	var swept []string
	dead, err := deadTemps(dirs)
	errs := []error{err}
	for _, path := range dead {
		if err := os.Remove(path); err == nil {
			swept = append(swept, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot remove %s: %w", path, bare(err)))
		}
	}
	return swept, errors.Join(errs...)
}

// deadTemps are the temporary files of dead writers in some directories.
func deadTemps(dirs []string) (paths []string, err error) {
	var errs []error
	alive := make(map[int]bool)
	for _, dir := range dirs {
		names, err := readNames(dir, tempExt)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot list %s: %w", dir, bare(err)))
		}
		for _, name := range names {
			if path := filepath.Join(dir, name+tempExt); abandoned(path, name, alive) {
				paths = append(paths, path)
			}
		}
	}
	return paths, errors.Join(errs...)
}

// abandoned reports whether the temporary file of this name (without its ending) is
// one of ours and its writer is dead. alive remembers the answers by pid.
func abandoned(path, name string, alive map[int]bool) bool {
	pid, ok := tempWriter(name)
	if !ok {
		return false
	}
	if pid == os.Getpid() {
		info, err := os.Lstat(path)
		return err == nil && time.Since(info.ModTime()) > ownTempAge
	}
	live, known := alive[pid]
	if !known {
		live = Process{PID: pid}.Alive()
		alive[pid] = live
	}
	return !live
}

// isTemp reports whether a file name is one of a temporary file, see [tempName].
func isTemp(name string) bool {
	stem, ok := strings.CutSuffix(name, tempExt)
	if ok {
		_, ok = tempWriter(stem)
	}
	return ok
}

// tempWriter is the pid in the name of a temporary file, see [tempName].
func tempWriter(name string) (pid int, ok bool) {
	stem, mark := name, strings.LastIndexByte(name, '.')
	if mark <= 0 || stem[0] != '.' {
		return 0, false
	}
	text, _, ok := strings.Cut(stem[mark+1:], "-")
	if !ok {
		return 0, false
	}
	pid, err := strconv.Atoi(text)
	return pid, err == nil && pid > 0
}
