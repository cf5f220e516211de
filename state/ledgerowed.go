package state

import (
	"errors"
	"sync"
)

// owedLines are lines of slot ledgers that could not be written, oldest first, by key.
type owedLines struct {
	mu    sync.Mutex
	lines map[string][]SlotEntry
}

// manyOwed bounds what is kept for a key; the oldest go first.
const manyOwed = 1000

// KeepSlot is AppendSlot for an end that nothing else knows of and nobody would try to write again: where it cannot be
// written, as on a full disk, this process keeps it, and writes it before the key's next line, or at FlushSlots.
func (w *Workspace) KeepSlot(key string, e SlotEntry, sync bool) error {
	w.owed.mu.Lock()
	defer w.owed.mu.Unlock()
	err := w.flushSlots(key)
	if err == nil {
		if err = w.AppendSlot(key, e, sync); err == nil {
			return nil
		}
	}
	if w.owed.lines == nil {
		w.owed.lines = map[string][]SlotEntry{}
	}
	lines := append(w.owed.lines[key], e)
	w.owed.lines[key] = lines[max(0, len(lines)-manyOwed):]
	return err
}

// FlushSlots writes what KeepSlot still has.
func (w *Workspace) FlushSlots() error {
	w.owed.mu.Lock()
	defer w.owed.mu.Unlock()
	var errs []error
	for key := range w.owed.lines {
		errs = append(errs, w.flushSlots(key))
	}
	return errors.Join(errs...)
}

func (w *Workspace) flushSlots(key string) error {
	for lines := w.owed.lines[key]; len(lines) > 0; lines = w.owed.lines[key] {
		if err := w.AppendSlot(key, lines[0], true); err != nil {
			return err
		}
		w.owed.lines[key] = lines[1:]
	}
	delete(w.owed.lines, key)
	return nil
}
