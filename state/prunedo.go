package state

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// pruneBatch is how many runs are deleted between two syncs of their directory.
const pruneBatch = 64

// Prune does what a plan says, looking at each run again before it goes. What cannot be deleted costs only itself.
//
// Of each run the index forgets it first, then its file goes, and once that is durable its journal: a crash leaves a
// journal without a run at most, which the next plan has among its orphans.
func (w *Workspace) Prune(ctx context.Context, p *PrunePlan) (freed int64, err error) {
	var errs []error
	// Oldest first: whoever is reading pages of runs is at the newer ones.
	oldest := slices.Clone(p.Runs)
	slices.Reverse(oldest)
	for batch := range slices.Chunk(oldest, pruneBatch) {
		if ctx.Err() != nil {
			return freed, errors.Join(append(errs, ctx.Err())...)
		}
		n, err := w.pruneRuns(batch)
		freed += n
		errs = append(errs, err)
	}
	for _, path := range p.Orphans {
		if ctx.Err() != nil {
			return freed, errors.Join(append(errs, ctx.Err())...)
		}
		n, err := w.removeOrphan(path, time.Now())
		freed += n
		errs = append(errs, err)
	}
	for _, path := range p.Ledgers {
		if ctx.Err() != nil {
			return freed, errors.Join(append(errs, ctx.Err())...)
		}
		n, err := w.cutLedger(path)
		freed += n
		errs = append(errs, err)
	}
	if len(p.Runs) > 0 && !p.more {
		errs = append(errs, w.RebuildIndex())
	}
	return freed, errors.Join(errs...)
}

// pruneRuns deletes a few runs. Those that somebody is changing right now stay for the next time.
func (w *Workspace) pruneRuns(doomed []Doomed) (freed int64, err error) {
	var (
		locks []*Lock
		gone  []*Doomed
		errs  []error
		lines []byte
	)
	defer func() {
		for _, l := range locks {
			err = errors.Join(err, l.Release())
		}
	}()
	for i := range doomed {
		d := &doomed[i]
		lock, err := w.TryLock("edit-" + d.Run.ID)
		if errors.Is(err, ErrHeld) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot delete run %s: %w", d.Run.ID, err))
			continue
		}
		locks = append(locks, lock)
		if err := w.stillDoomed(d); err != nil {
			if !errors.Is(err, errStays) && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("cannot delete run %s: %w", d.Run.ID, err))
			}
			continue
		}
		s := d.Run
		s.Status = Queued
		lines = appendIndexLine(lines, &s)
		gone = append(gone, d)
	}
	if len(gone) == 0 {
		return 0, errors.Join(errs...)
	}
	// Without the line the index would name runs that are not there, which nobody minds.
	_ = w.appendIndex(lines)
	removed := gone[:0]
	for _, d := range gone {
		path := w.path(runsDir, d.Run.ID+recordExt)
		size := fileSize(path)
		if err := w.files().remove(path); err != nil {
			errs = append(errs, unlessGone(path, err))
			continue
		}
		freed += size
		removed = append(removed, d)
	}
	if err := syncDir(w.files(), w.path(runsDir)); err != nil {
		// Their journals are orphans now.
		return freed, errors.Join(append(errs, fmt.Errorf("cannot sync %s: %w", w.path(runsDir), bare(err)))...)
	}
	for _, d := range removed {
		path := w.path(outputDir, d.Run.ID+journalExt)
		size := fileSize(path)
		if err := w.files().remove(path); err != nil {
			errs = append(errs, unlessGone(path, err))
			continue
		}
		freed += size
	}
	return freed, errors.Join(errs...)
}

// unlessGone is nil for a file that somebody else has removed.
func unlessGone(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("cannot remove %s: %w", path, bare(err))
}

const (
	ledgerLines = 10_000 // that are kept of a ledger
	// ledgerSlack is how many more there have to be, so that a busy ledger is not cut at each look.
	ledgerSlack = 1000
	// leastLine is shorter than any line of a ledger, so that most are known to be short by their size.
	leastLine = 40
)

// longLedgers are the ledgers that have too many lines.
func (w *Workspace) longLedgers() (paths []string, err error) {
	names, err := readNames(w.path(slotsDir), ledgerExt)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot list %s: %w", w.path(slotsDir), bare(err))
	}
	slices.Sort(names)
	for _, name := range names {
		path := w.path(slotsDir, name+ledgerExt)
		if fileSize(path) > ledgerLines*leastLine && countLines(path) > ledgerLines+ledgerSlack {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func countLines(path string) (n int) {
	f, _, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, 256<<10)
	for {
		read, err := f.Read(buf)
		n += bytes.Count(buf[:read], []byte{'\n'})
		if err != nil {
			return n
		}
	}
}

// cutLedger leaves the newest lines of a ledger. It does not take the key's lock, for which a tick would skip its slot:
// whoever appends waits a moment, see [holdFile].
func (w *Workspace) cutLedger(path string) (freed int64, err error) {
	if !exists(path) {
		return 0, nil
	}
	f, release, err := holdFile(path)
	if err != nil {
		return 0, fmt.Errorf("cannot cut %s: %w", path, bare(err))
	}
	defer release()
	before := fileSize(path)
	skip := countLines(path) - ledgerLines
	if skip <= 0 {
		return 0, nil
	}
	r := bufio.NewReader(f)
	for range skip {
		_, err := r.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			return 0, fmt.Errorf("cannot cut %s: %w", path, bare(err))
		}
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return 0, fmt.Errorf("cannot cut %s: %w", path, bare(err))
	}
	if err := w.writer().write(path, rest); err != nil {
		return 0, err
	}
	return before - int64(len(rest)), nil
}
