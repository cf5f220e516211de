package state

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// youngFile is how old a file without an owner must at least be, where nothing but its age tells that nobody is about to
	// use it.
	youngFile = time.Hour
	// longGone is how long a key was neither ticked nor looked at when what is only a cache or a notice of it goes.
	longGone = 90 * 24 * time.Hour
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// orphanJournals are the journals without a run file that nobody writes. ids are the runs, newest first, listed later
// than the journals were.
func (w *Workspace) orphanJournals(journals, ids []string) (paths []string) {
	slices.SortFunc(journals, func(a, b string) int { return strings.Compare(b, a) })
	for _, id := range journals {
		for len(ids) > 0 && ids[0] > id {
			ids = ids[1:]
		}
		if (len(ids) == 0 || ids[0] != id) && w.orphanJournal(id) {
			paths = append(paths, w.path(outputDir, id+journalExt))
		}
	}
	return paths
}

// orphanJournal reports whether a journal belongs to no run. A run's two files are made side by side: a journal may be
// there first. It is left alone while its writer lives and has not ended it.
func (w *Workspace) orphanJournal(id string) bool {
	path := w.path(outputDir, id+journalExt)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || exists(w.path(runsDir, id+recordExt)) {
		return false
	}
	writer, ended := journalWriter(path)
	switch {
	case ended:
		return true
	case writer.PID == 0:
		return time.Since(info.ModTime()).Abs() > youngFile
	}
	return !writer.Alive()
}

// journalWriter is who began a journal first, and whether its last line ends it.
func journalWriter(path string) (who Process, ended bool) {
	f, _, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return Process{}, false
	}
	defer func() { _ = f.Close() }()
	if line, err := bufio.NewReader(f).ReadBytes('\n'); err == nil {
		if e, ok, err := parseEntry(line, &Entry{}); err == nil && ok {
			who = e.Process
		}
	}
	_ = linesBackward(f, func(line []byte) bool {
		e, ok, err := parseEntry(line, &Entry{})
		if ok && err == nil && e.Kind == "start" {
			who = e.Process // of the latest owner
		}
		ended = err == nil && ok && e.Kind == "end"
		return false
	})
	return who, ended
}

// leftovers are requests that nobody can act on, temporary files of dead writers, and what is remembered of keys that
// nobody has ticked for long.
func (w *Workspace) leftovers(now time.Time) (paths []string) {
	paths = append(paths, w.lostRequests(now)...)
	temps, _ := deadTemps(w.tempDirs())
	paths = append(paths, temps...)
	for _, dir := range []string{cacheDir, healthDir, toldDir} {
		entries, err := os.ReadDir(w.path(dir))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				continue
			}
			if path := w.path(dir, e.Name()); w.forgotten(dir, path, now) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// forgotten reports whether a file of a key is of one that nothing has happened to for long.
func (w *Workspace) forgotten(dir, path string, now time.Time) bool {
	key := strings.TrimSuffix(filepath.Base(path), recordExt)
	old := func(path string) bool {
		info, err := os.Lstat(path)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		return info.Mode().IsRegular() && now.Sub(info.ModTime()) > longGone
	}
	if !old(path) || !old(w.path(schedulesDir, key+recordExt)) {
		return false
	}
	switch dir {
	case healthDir: // an outage lasts, and what is owed is owed
		h, err := w.Health(key)
		return err == nil && h != nil && !h.Down && h.Pending == ""
	case toldDir: // one that failed has yet to recover
		t, err := w.Told(key)
		return err == nil && t != nil && t.State != "failed" && len(t.Owed) == 0
	}
	return true
}

// lostRequests are those for runs that are not there. A run file is always there before what is asked of it, but for one
// that is to be launched.
func (w *Workspace) lostRequests(now time.Time) (paths []string) {
	names, err := listRecords(w.path(requestsDir))
	if err != nil {
		return nil
	}
	for _, name := range names {
		path := w.path(requestsDir, name+recordExt)
		var q Request
		if strings.HasPrefix(name, ".") || readRecord(path, &q) != nil || q.Run != name {
			continue
		}
		there := exists(w.path(runsDir, q.Run+recordExt))
		if q.Action == ActionRestart && q.Of != "" {
			there = there || exists(w.path(runsDir, q.Of+recordExt))
		}
		if !there && now.Sub(q.At.Time).Abs() > time.Minute {
			paths = append(paths, path)
		}
	}
	return paths
}

// removeOrphan removes what a plan named, unless it is wanted by now.
func (w *Workspace) removeOrphan(path string, now time.Time) (freed int64, err error) {
	name := filepath.Base(path)
	switch dir := filepath.Base(filepath.Dir(path)); {
	case isTemp(name):
		stem := strings.TrimSuffix(name, tempExt)
		if !abandoned(path, stem, make(map[int]bool)) {
			return 0, nil
		}
	case dir == outputDir:
		if !w.orphanJournal(strings.TrimSuffix(name, journalExt)) {
			return 0, nil
		}
	case dir == requestsDir:
		return w.removeRequest(path, now)
	case dir == cacheDir, dir == healthDir, dir == toldDir:
		if !w.forgotten(dir, path, now) {
			return 0, nil
		}
	default:
		return 0, nil
	}
	freed = fileSize(path)
	if err := os.Remove(path); err != nil {
		return 0, unlessGone(path, err)
	}
	return freed, nil
}

// removeRequest removes a request that is still for a run that is not there.
func (w *Workspace) removeRequest(path string, now time.Time) (freed int64, err error) {
	if !slices.Contains(w.lostRequests(now), path) {
		return 0, nil
	}
	var q Request
	if readRecord(path, &q) != nil {
		return 0, nil
	}
	freed = fileSize(path)
	return freed, w.Done(q)
}
