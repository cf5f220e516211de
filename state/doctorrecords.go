package state

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
)

// futureSlack is how far clocks may be apart.
const futureSlack = time.Minute

// future adds an instant that has not come yet.
func (x *examiner) future(w *Workspace, path, what string, at time.Time) {
	if at.Sub(x.Now) <= futureSlack {
		return
	}
	x.add(Finding{
		Kind: FoundFuture, Project: w.project, Where: path,
		What:  fmt.Sprintf("%s is %s, in the future", what, at.UTC().Format(time.RFC3339)),
		Cause: "the clock was ahead then, or is behind now", Mend: "date; timedatectl",
	})
}

// records finds records that cannot be read, or tell of the future.
func (x *examiner) records(w *Workspace) {
	x.heartbeat(w)
	var pauses Pauses
	x.record(w.project, &pauses, w.path(pausedFile))
	if since, err := w.Since(); err != nil {
		x.unreadable(w.project, w.path("since.json"), err)
	} else {
		for _, key := range slices.Sorted(maps.Keys(since)) {
			x.future(w, w.path("since.json"), "the first sight of "+key, since[key].At.Time)
		}
	}
	x.each(w, schedulesDir, func(path string) {
		var rec KeyRecord
		if !x.record(w.project, &rec, path) {
			return
		}
		x.future(w, path, "the latest start", rec.LastStart.Time)
		x.future(w, path, "the latest finish", rec.LastFinish.Time)
	})
	x.each(w, monitorsDir, func(path string) { x.record(w.project, &MonitorRecord{}, path) })
	x.each(w, healthDir, func(path string) {
		var h Health
		if x.record(w.project, &h, path) {
			x.future(w, path, "the latest look", h.LastLook.Time)
		}
	})
	x.each(w, toldDir, func(path string) { x.record(w.project, &Told{}, path) })
	x.each(w, handedDir, func(path string) { x.record(w.project, &Handed{}, path) })
}

// each calls fn for the records in a directory.
func (x *examiner) each(w *Workspace, dir string, fn func(path string)) {
	names, err := listRecords(w.path(dir))
	if err != nil {
		return // the directory was found to be unreadable
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(name, ".") {
			fn(w.path(dir, name+recordExt))
		}
	}
}

func (x *examiner) heartbeat(w *Workspace) {
	path := w.path(heartbeatFile)
	var h Heartbeat
	if !x.record(w.project, &h, path) {
		return
	}
	x.future(w, path, "the start of the service", h.StartedAt.Time)
	if !h.Owner().Alive() {
		x.add(Finding{
			Kind: FoundHeartbeat, Project: w.project, Where: path, What: fmt.Sprintf("the service with pid %d has died; nothing is served", h.PID),
			Cause: "it was killed, or the machine stopped", Mend: "marbles run",
		})
	}
}

// requestAge is how long a request waits for its owner, who looks every second.
const requestAge = time.Minute

func (x *examiner) requests(w *Workspace) {
	lost := w.lostRequests(x.Now)
	served := false
	if h, err := w.Heartbeat(); err == nil && h != nil {
		served = h.Owner().Alive()
	}
	x.each(w, requestsDir, func(path string) {
		var q Request
		if !x.record(w.project, &q, path) {
			return
		}
		x.future(w, path, "the request", q.At.Time)
		f := Finding{Kind: FoundRequest, Project: w.project, Where: path}
		switch {
		case q.Run != named(path):
			f.Kind, f.What, f.Cause, f.Mend = FoundContrary, fmt.Sprintf("it is for run %s", q.Run), "it was renamed", "rm "+path
		case slices.Contains(lost, path):
			f.What, f.Cause, f.Mend = fmt.Sprintf("to %s a run that is not there", q.Action), "the run file was removed", "marbles prune"
			f.fix = func() error { _, err := w.removeRequest(path, x.Now); return err }
		case x.Now.Sub(q.At.Time) <= requestAge:
			return
		case served:
			f.What, f.Cause, f.Mend = fmt.Sprintf("nobody took the request to %s run %s", q.Action, q.Run), "the service does not get on with it", "marbles show "+q.Run
		default:
			f.What, f.Cause, f.Mend = fmt.Sprintf("nobody took the request to %s run %s", q.Action, q.Run), "no service is up", "marbles run"
		}
		x.add(f)
	})
}

// runs finds runs that are damaged, contradict the index, have lost their process or their definition.
func (x *examiner) runs(w *Workspace) error {
	ids, index, err := w.runIDs()
	if err != nil {
		return err
	}
	slices.Sort(ids)
	written := make(map[string]bool) // runs whose process lives
	unread := make(map[string]bool)
	var ahead int
	var latest time.Time
	const some = 1000 // heads in memory at once
	for batch := range slices.Chunk(ids, some) {
		if x.ctx.Err() != nil {
			return x.ctx.Err()
		}
		for i, h := range w.readHeads(batch) {
			id, path := batch[i], w.path(runsDir, batch[i]+recordExt)
			switch {
			case errors.Is(h.err, fs.ErrNotExist):
			case h.err != nil:
				unread[path] = true
				x.unreadable(w.project, path, h.err)
			default:
				s := &h.summary
				if s.Created.Sub(x.Now) > futureSlack || s.Ended.Sub(x.Now) > futureSlack {
					ahead++
					latest = later(latest, later(s.Created, s.Ended))
				}
				if !s.Status.Settled() {
					written[id] = s.Owner.Alive()
					x.unsettled(w, path, s, index)
				}
			}
		}
	}
	_, contrary, err := w.Unsettled()
	if err != nil {
		return err
	}
	for _, err := range contrary {
		if damaged := (*DamagedError)(nil); errors.As(err, &damaged) && !unread[damaged.Path] {
			x.unreadable(w.project, damaged.Path, err)
		}
	}
	if ahead > 0 {
		x.future(w, w.path(runsDir), fmt.Sprintf("the latest instant of %d runs", ahead), latest)
	}
	x.journals(w, func(id string) (bool, bool) {
		_, there := slices.BinarySearch(ids, id)
		return there, written[id]
	})
	return nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// unsettled looks at a run that goes on, or should.
func (x *examiner) unsettled(w *Workspace, path string, s *RunSummary, index *index) {
	if index.has(s.ID) && w.contrary(s.ID) {
		x.add(Finding{
			Kind: FoundContrary, Project: w.project, Where: path, What: fmt.Sprintf("it is %s, and %s has it as settled", s.Status, indexFile),
			Cause: "a copy of one of them was put back", Mend: "rm " + w.path(indexFile),
			fix: func() error { return w.takeOut(s) },
		})
	}
	switch {
	case s.Status == Suspended:
		if x.Defined == nil {
			return
		}
		if defined, known := x.Defined(w, s.Name); known && !defined {
			x.add(Finding{
				Kind: FoundGone, Project: w.project, Where: path, What: fmt.Sprintf("it waits, and the workflow %q is not defined any more", s.Name),
				Cause: "the definition was removed or renamed", Mend: "marbles cancel " + s.ID,
			})
		}
	case !s.Owner.Alive():
		x.add(Finding{
			Kind: FoundOrphan, Project: w.project, Where: path, What: fmt.Sprintf("it is %s, and its process (pid %d) is gone", s.Status, s.Owner.PID),
			Cause: "the process was killed, or the machine stopped; the next service settles it", Mend: "marbles cancel " + s.ID,
		})
	}
}

// contrary reports whether the index still has a run as settled that is not: it may have settled since it was read.
func (w *Workspace) contrary(id string) bool {
	h := w.readHead(id)
	return h.err == nil && !h.summary.Status.Settled() && w.readIndex().has(id)
}

// takeOut lets the index forget a run that goes on.
func (w *Workspace) takeOut(s *RunSummary) error {
	if !w.contrary(s.ID) {
		return nil
	}
	return w.appendIndex(appendIndexLine(nil, s))
}
