package state

import (
	"errors"
	"fmt"
	"io/fs"
)

// addRelated adds the runs that an unsettled run needs: those it belongs to, up to the first, those it has started and
// may still have to hear of, and those it stands for.
func (w *Workspace) addRelated(id string, safe map[string]bool) {
	f, err := w.Run(id)
	if err != nil {
		return // it settled, or was deleted
	}
	for _, s := range f.Steps {
		safe[s.Child] = true
	}
	for i := range f.Suspensions {
		safe[f.Suspensions[i].Child()] = true
	}
	safe[f.Run.Extensions.RetryOf], safe[f.Run.Extensions.RestartOf] = true, true
	for f.Run.Links != nil {
		parent := f.Run.Links.ParentRunID
		if parent == "" || safe[parent] {
			return
		}
		safe[parent] = true
		if f, err = w.Run(parent); err != nil {
			return
		}
	}
}

// addNamed adds the runs that records name.
func (w *Workspace) addNamed(safe map[string]bool) error {
	keys, err := w.Keys()
	if err != nil {
		return err
	}
	for _, key := range keys {
		// A damaged record names nothing: the newest run of each key stays anyway.
		if rec, err := w.Key(key); err == nil && rec != nil {
			safe[rec.Run] = true
		}
	}
	monitors, err := listRecords(w.path(monitorsDir))
	if err != nil {
		return err
	}
	for _, key := range monitors {
		var m pendingHead
		if readRecord(w.path(monitorsDir, key+recordExt), &m) == nil && m.Pending != nil {
			safe[m.Pending.Run] = true
		}
	}
	owners, err := w.ToldOwners()
	if err != nil {
		return err
	}
	for _, owner := range owners {
		if t, err := w.Told(owner); err == nil && t != nil {
			safe[t.Run] = true
			for _, o := range t.Owed {
				safe[o.Run] = true
			}
		}
	}
	return w.addRequested(safe)
}

func (w *Workspace) addRequested(safe map[string]bool) error {
	names, err := listRecords(w.path(requestsDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		var q Request
		if err := readRecord(w.path(requestsDir, name+recordExt), &q); err == nil {
			safe[q.Run], safe[q.Of] = true, true
		} else if !errors.Is(err, fs.ErrNotExist) {
			safe[name] = true
		}
	}
	return nil
}

// pendingHead is what retention needs of a monitor's record, which may hold a body of many megabytes.
type pendingHead struct {
	Version int `json:"version"`
	Pending *struct {
		Run string `json:"run"`
	} `json:"pending"`
}

func (h *pendingHead) format() (got, newest int) {
	return (&MonitorRecord{Version: h.Version}).format()
}

// stillDoomed looks at a run again, under its lock: why it stays after all, or nil.
func (w *Workspace) stillDoomed(d *Doomed) error {
	h := w.readHead(d.Run.ID)
	switch {
	case h.err != nil:
		return h.err
	case !h.summary.Status.Settled():
		return errStays
	case ToMillis(orTime(h.summary.Ended, h.summary.Created)) != ToMillis(d.Run.Ended):
		return fmt.Errorf("%w: it ended again", errStays)
	case exists(w.path(requestsDir, d.Run.ID+recordExt)):
		return errStays
	}
	return nil
}

// errStays says that a run is not to be deleted any more.
var errStays = errors.New("it is wanted again")
