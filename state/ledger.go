package state

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// ledgerPath is where the ledger of a key lies.
func (w *Workspace) ledgerPath(key string) (string, error) {
	if err := PlainName("key", key); err != nil {
		return "", err
	}
	return w.path(slotsDir, key+ledgerExt), nil
}

// AppendSlot appends one line to a key's slot ledger, after ending a torn last
// line. sync makes it durable before it returns.
func (w *Workspace) AppendSlot(key string, e SlotEntry, sync bool) error {
	path, err := w.ledgerPath(key)
	if err != nil {
		return err
	}
	line, err := encodeLine(&e)
	if err != nil {
		return fmt.Errorf("cannot append to %s: %w", path, err)
	}
	if err := w.appendSlot(path, line, sync); err != nil {
		return fmt.Errorf("cannot append to %s: %w", path, bare(err))
	}
	return nil
}

func (w *Workspace) appendSlot(path string, line []byte, sync bool) error {
	f, created, err := openShared(path)
	if errors.Is(err, fs.ErrNotExist) {
		// The directories were deleted under a running service.
		if err := w.makeDirs(); err != nil {
			return err
		}
		f, created, err = openShared(path)
	}
	if err != nil {
		return err
	}
	if created {
		w.ledgersMade.Add(1)
	}
	err = appendLine(f, line)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil || !sync {
		return err
	}
	return w.keepLedgers()
}

// keepLedgers makes the names of all ledgers durable where this process created one
// since it last did so. That one may have been created by a line that was not synced.
func (w *Workspace) keepLedgers() error {
	made := w.ledgersMade.Load()
	if w.ledgersKept.Load() >= made {
		return nil
	}
	if err := syncDir(w.files(), w.path(slotsDir)); err != nil {
		return err
	}
	for kept := w.ledgersKept.Load(); kept < made; kept = w.ledgersKept.Load() {
		if w.ledgersKept.CompareAndSwap(kept, made) {
			break
		}
	}
	return nil
}

// appendLine appends a whole line in one write. A crash may have left the last line
// without its end; then that is ended first, in the same write, so that it costs
// only itself. Two appenders may both end it: readers pass over empty lines.
func appendLine(f *os.File, line []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	_, err = f.Write(line)
	return err
}

// Slots reads the newest n entries of a key's ledger, oldest first; n <= 0 is all.
// It reads from the end: its cost does not grow with the ledger. Damaged lines are
// passed over.
func (w *Workspace) Slots(key string, n int) ([]SlotEntry, error) {
	var entries []SlotEntry
	err := w.ledgerBackward(key, func(line []byte) bool {
		var e SlotEntry
		// A torn last line is either no JSON or lacks nothing but its newline.
		if decode(line, &e) == nil && !e.Slot.IsZero() && e.Outcome != "" {
			entries = append(entries, e)
		}
		return n <= 0 || len(entries) < n
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(entries)
	return entries, nil
}

// ledgerBackward calls fn for each line of a key's ledger that is not empty, last first, until it returns false. A ledger
// that is not there has none.
func (w *Workspace) ledgerBackward(key string, fn func(line []byte) bool) error {
	path, err := w.ledgerPath(key)
	if err != nil {
		return err
	}
	f, _, err := openRegular(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	defer func() { _ = f.Close() }()
	if err := linesBackward(f, fn); err != nil {
		return fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	return nil
}

// SlotEnds reads what a key's ledger says of one slot, oldest first: lines of its own, and stretches that it lies in. It
// reads from the end, and no further back than where every line is older than the slot.
func (w *Workspace) SlotEnds(key string, slot time.Time) ([]SlotEntry, error) {
	slot = slot.Truncate(time.Millisecond)
	// A line is written when its slot has ended, so that what was written before the slot cannot be about it; the clock may
	// have been set back a little since.
	const slack = time.Hour
	oldest, err := Stamp{slot.Add(-slack)}.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("cannot look for slot %s of %s: %w", slot, key, err)
	}
	own, _ := Stamp{slot}.MarshalJSON()
	var found []SlotEntry
	err = w.ledgerBackward(key, func(line []byte) bool {
		if bytes.Contains(line, own) || bytes.Contains(line, []byte(`"from":`)) {
			var e SlotEntry
			if decode(line, &e) == nil && e.Outcome != "" &&
				(e.Slot.Equal(slot) || e.Count > 1 && !slot.Before(e.From.Time) && !slot.After(e.Slot.Time)) {
				found = append(found, e)
			}
		}
		_, at, ok := bytes.Cut(line, []byte(`"at":`)) // stamps of one form sort as texts
		return !ok || len(at) < len(oldest) || bytes.Compare(at[:len(oldest)], oldest) >= 0
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(found)
	return found, nil
}

// maxLine is the longest line that is read; a longer one is damage.
const maxLine = 1 << 20

// linesBackward calls fn for each line that is not empty, last first, until it
// returns false.
func linesBackward(f *os.File, fn func(line []byte) bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var (
		tail    []byte // the beginning of what was read so far, up to its first newline
		tooLong bool
		chunk   = int64(8 << 10)
	)
	for end := info.Size(); end > 0; {
		start := max(0, end-chunk)
		buf := make([]byte, end-start, int(end-start)+len(tail))
		if _, err := f.ReadAt(buf, start); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		end, chunk = start, min(2*chunk, maxLine)
		buf = append(buf, tail...)
		for {
			i := bytes.LastIndexByte(buf, '\n')
			if i < 0 {
				break
			}
			line := buf[i+1:]
			buf = buf[:i]
			if !tooLong && len(line) > 0 && !fn(line) {
				return nil
			}
			tooLong = false
		}
		tail = buf
		if len(tail) > maxLine {
			tail, tooLong = nil, true
		}
	}
	if !tooLong && len(tail) > 0 {
		fn(tail)
	}
	return nil
}
