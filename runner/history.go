package runner

import (
	"errors"
	"time"

	"marbles/state"
)

// quietInterval is how often the history of polls that see nothing is written (design §8).
const quietInterval = time.Minute

// quiet is the history of a key whose last polls saw nothing, ahead of the one on disk.
type quiet struct {
	ws      *state.Workspace
	rec     state.KeyRecord
	written time.Time // when the one on disk was
}

// readRecord reads the key's history. A damaged one is set aside, and counts as none; one of a later marbles is an error.
func (t *Ticking) readRecord() (*state.KeyRecord, error) {
	rec, err := t.Workspace.Key(t.Key)
	if damaged := (*state.DamagedError)(nil); errors.As(err, &damaged) {
		to, aerr := damaged.SetAside()
		t.log().Warn("history is damaged, starting a new one", "error", err, "set_aside", to, "set_aside_error", aerr)
		return nil, aerr
	}
	if err != nil {
		return nil, err
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	if q := t.w.quiet[keyID{t.Workspace.Dir(), t.Key}]; q != nil {
		return q.over(rec), nil
	}
	return rec, nil
}

// over is the later of two histories: another process may have ticked the key meanwhile.
func (q *quiet) over(rec *state.KeyRecord) *state.KeyRecord {
	if rec != nil && !rec.LastFinish.Before(q.rec.LastFinish.Time) {
		return rec
	}
	now := q.rec
	if rec != nil {
		now.Unknown = rec.Unknown
	}
	return &now
}

// history writes the end of the tick into the key's record.
func (t *Ticking) history(now time.Time, err error, nothing bool) error {
	rec := *t.rec
	t.label(&rec)
	if !t.begun {
		rec.LastStart, rec.Run = state.Stamp{Time: t.started}, t.launched
	}
	if (t.looked || t.launched != "") && !t.begun && !t.Forced && !t.Slot.IsZero() { // else claim knows
		rec.Slot, rec.SlotLocal = state.Stamp{Time: t.Slot}, t.SlotLocal
	}
	ended(&rec, now, t.result.Status, err, t.NextDue)
	w, id := t.w, keyID{t.Workspace.Dir(), t.Key}
	w.mu.Lock()
	last := w.quiet[id]
	delete(w.quiet, id)
	if nothing {
		q := &quiet{ws: t.Workspace, rec: rec, written: now}
		w.quiet[id] = q
		// A poll that succeeds after one that failed is news.
		if last != nil && t.Record.LastStatus == rec.LastStatus && now.Sub(last.written) < quietInterval {
			q.written = last.written
			w.mu.Unlock()
			return nil
		}
	}
	w.mu.Unlock()
	if nothing {
		return t.Workspace.WriteKeyLazily(t.Key, &rec)
	}
	return t.Workspace.WriteKey(t.Key, &rec)
}

// flushQuiet writes what history has kept back. A key that another process holds is that one's to write.
func (w *Worker) flushQuiet() {
	w.mu.Lock()
	all := w.quiet
	w.quiet = map[keyID]*quiet{}
	w.mu.Unlock()
	for id, q := range all {
		if q.written.Equal(q.rec.LastFinish.Time) {
			continue // it is on disk
		}
		lock, err := q.ws.TryLock("schedule:" + id.key)
		if err != nil {
			continue
		}
		rec, err := q.ws.Key(id.key)
		if now := q.over(rec); err == nil && now != rec {
			err = q.ws.WriteKeyLazily(id.key, now)
		}
		if rerr := lock.Release(); err == nil {
			err = rerr
		}
		if err != nil {
			w.o.Log.Warn("history of a poll cannot be written", "key", id.key, "error", err)
		}
	}
}

func (t *Ticking) label(rec *state.KeyRecord) {
	rec.Version, rec.Kind, rec.Label = 1, t.Kind, t.Label
}

// ended writes the end of a tick into a key's history. A run that was cancelled did not complete, but it is not counted
// among the failures: somebody stopped it.
func ended(rec *state.KeyRecord, at time.Time, run state.Status, err error, nextDue func(time.Time) time.Time) {
	rec.Version = 1
	rec.LastFinish = state.Stamp{Time: at}
	if nextDue != nil {
		rec.NextDue = state.Stamp{Time: nextDue(at)}
	}
	if err == nil {
		rec.LastStatus, rec.Failures, rec.LastError = string(state.Complete), 0, ""
		return
	}
	rec.LastStatus, rec.LastError = string(state.Failed), err.Error()
	if run != state.Cancelled {
		rec.Failures++
	}
}

// lateHistory brings the history of a key up to date with a run that settled after its tick, because it had parked, or was
// done again. It waits for the key's lock in a goroutine that Drain waits for; what a stop cuts short, the next tick of
// the key or the next service does.
func (w *Worker) lateHistory(ws *state.Workspace, f *state.RunFile) {
	key := f.Run.Extensions.TriggerID
	if launched(f) || f.Run.Extensions.Trigger == triggerStart {
		return
	}
	w.polls.Go(func() {
		if err := w.takeHistory(ws, key, f); err != nil {
			w.logOf(ws, f).Error("history cannot be written", "error", err)
			return
		}
		if w.o.Late != nil {
			w.o.Late(ws, key, f)
		}
	})
}

const triggerStart = "start"

func (w *Worker) takeHistory(ws *state.Workspace, key string, f *state.RunFile) error {
	look := time.NewTicker(takingPoll)
	defer look.Stop()
	for {
		lock, err := ws.TryLock("schedule:" + key)
		if errors.Is(err, state.ErrHeld) {
			select {
			case <-look.C:
				continue
			case <-w.empty:
				return err
			}
		}
		if err != nil {
			return err
		}
		var next func(time.Time) time.Time
		if w.o.NextDue != nil {
			next = func(at time.Time) time.Time { return w.o.NextDue(ws, key, at) }
		}
		err = w.settleHistory(ws, key, f, next)
		return errors.Join(err, lock.Release())
	}
}
