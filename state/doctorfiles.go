package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// files finds what is wrong with the files of a workspace, whatever is in them: one finding for each directory, because
// there may be very many alike.
func (x *examiner) files(w *Workspace) {
	for _, dir := range append([]string{""}, subDirs[:]...) {
		x.directory(w, w.path(dir))
	}
	dead, err := deadTemps(w.tempDirs())
	if err != nil {
		x.unreadable(w.project, w.dir, err)
	}
	for _, path := range dead {
		x.add(Finding{
			Kind: FoundTemp, Project: w.project, Where: path, What: "a temporary file that nobody finishes",
			Cause: "its writer was killed", Mend: "rm " + path,
			fix: func() error { _, err := w.removeOrphan(path, x.Now); return err },
		})
	}
	x.index(w)
	x.ledgers(w)
}

func (x *examiner) directory(w *Workspace, dir string) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var entries []fs.DirEntry
	if err == nil {
		entries, err = os.ReadDir(dir)
	}
	if err != nil {
		x.unreadable(w.project, dir, err)
		return
	}
	const others = 0o077
	var open, foreign int
	ours := []string{}
	look := func(path string, info fs.FileInfo) {
		if owner(info) != x.owner {
			foreign++
		}
		if info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&others != 0 {
			if open++; owner(info) == os.Geteuid() {
				ours = append(ours, path)
			}
		}
	}
	look(dir, info)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			look(filepath.Join(dir, e.Name()), info)
		}
	}
	if open > 0 {
		f := Finding{
			Kind: FoundMode, Project: w.project, Where: dir, What: fmt.Sprintf("others may read or write it, or what is in it (%d)", open),
			Cause: "a chmod, or a copy that did not keep modes", Mend: "chmod -R go-rwx " + dir,
		}
		if len(ours) == open {
			f.fix = func() error { return closeModes(ours, others) }
		}
		x.add(f)
	}
	if foreign > 0 {
		x.add(Finding{
			Kind: FoundOwner, Project: w.project, Where: dir, What: fmt.Sprintf("it, or what is in it (%d), does not belong to %s", foreign, userName(x.owner)),
			Cause: "marbles was run as another user", Mend: fmt.Sprintf("sudo chown -R %s %s", userName(x.owner), dir),
		})
	}
}

// closeModes takes a file's modes away from others.
func closeModes(paths []string, others fs.FileMode) error {
	var errs []error
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			err = os.Chmod(path, info.Mode().Perm()&^others)
		}
		errs = append(errs, goneIsFine(err))
	}
	return errors.Join(errs...)
}

// index finds damaged lines of the index.
func (x *examiner) index(w *Workspace) {
	i := w.readIndex()
	path := w.path(indexFile)
	f := Finding{
		Kind: FoundTorn, Project: w.project, Where: path, Mend: "rm " + path,
		Cause: "a power cut, or a full disk; the runs are read from their files meanwhile",
		fix:   func() error { return w.rebuildIndex(true) },
	}
	switch bad := i.damagedLines(); {
	case i.unusable:
		f.What = "it cannot be read"
	case bad > 0:
		f.What = fmt.Sprintf("%d of its lines are damaged", bad)
	default:
		return
	}
	x.add(f)
}

// ledgers finds ledgers whose last line a crash cut off.
func (x *examiner) ledgers(w *Workspace) {
	names, err := readNames(w.path(slotsDir), ledgerExt)
	if err != nil {
		return // said already, or there are none
	}
	for _, name := range names {
		path := w.path(slotsDir, name+ledgerExt)
		if torn(path) {
			x.add(tornFinding(w, path))
		}
	}
}

func tornFinding(w *Workspace, path string) Finding {
	return Finding{
		Kind: FoundTorn, Project: w.project, Where: path, What: "its last line was cut off; readers pass over it",
		Cause: "a kill or a power cut in the middle of a write, or a full disk", Mend: "echo >> " + path,
		fix: func() error { return endLine(path) },
	}
}

// torn reports whether a file does not end with its last line.
func torn(path string) bool {
	f, info, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	var last [1]byte
	if info.Size() == 0 {
		return false
	}
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// endLine ends a torn last line.
func endLine(path string) error {
	if !torn(path) {
		return nil
	}
	f, _, err := openShared(path)
	if err != nil {
		return err
	}
	return errors.Join(appendLine(f, nil), f.Close())
}

// journals finds output that belongs to no run, and output that ends in the middle of a line though nobody writes it.
// heads are the runs by id.
func (x *examiner) journals(w *Workspace, live func(id string) (there, written bool)) {
	names, err := readNames(w.path(outputDir), journalExt)
	if err != nil {
		return // said already, or there are none
	}
	for _, id := range names {
		path := w.path(outputDir, id+journalExt)
		there, written := live(id)
		switch {
		case !there && w.orphanJournal(id):
			x.add(Finding{
				Kind: FoundJournal, Project: w.project, Where: path, What: "the output of a run that is not there",
				Cause: "a crash while the run was deleted or begun, or its run file was removed by hand", Mend: "marbles prune",
				fix: func() error { _, err := w.removeOrphan(path, x.Now); return err },
			})
		case there && !written && torn(path):
			x.add(tornFinding(w, path))
		}
	}
}

// named is the name of a record's file.
func named(path string) string { return strings.TrimSuffix(filepath.Base(path), recordExt) }
