package state

import (
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Summary is what lists show of a run.
func (f *RunFile) Summary() RunSummary {
	r := &f.Run
	s := RunSummary{
		ID: r.ID, Name: r.Step, Key: r.Extensions.TriggerID, Trigger: r.Extensions.Trigger,
		Status:  r.Status,
		Created: r.Timestamps.CreatedAt.Time(),
		Started: r.Timestamps.StartedAt.Time(),
		Ended:   r.Timestamps.Ended().Time(),
	}
	if r.Error != nil {
		s.Error = shorten(r.Error.Message, maxIndexError)
	}
	if !s.Status.Settled() {
		s.Owner = f.Owner()
	}
	return s
}

// RunList is the history of a workspace, newest first.
type RunList struct {
	Runs  []RunSummary
	Total int // all run files there are, before filters
	// Damaged names the run files that cannot be read, with why.
	Damaged []error
}

// RunQuery selects runs. Zero values select everything.
type RunQuery struct {
	Limit    int    // at most this many; 0 is all
	Before   string // only runs with a smaller id (paging)
	Name     string // workflow
	Key      string
	Statuses []Status
	Since    time.Time // created at or after
}

// onlyUnsettled reports whether the query asks for no settled run.
func (q *RunQuery) onlyUnsettled() bool {
	return len(q.Statuses) > 0 && !slices.ContainsFunc(q.Statuses, Status.Settled)
}

func (q *RunQuery) matches(s *RunSummary) bool {
	return (q.Name == "" || s.Name == q.Name) &&
		(q.Key == "" || s.Key == q.Key) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, s.Status)) &&
		(q.Since.IsZero() || !s.Created.Before(q.Since))
}

// Runs lists runs, newest first: by id, which begins with the instant of creation.
// Settled runs come from the index where it has them, the others from their files.
// A page of 50 of 100,000 is read well under 100 ms.
func (w *Workspace) Runs(q RunQuery) (*RunList, error) {
	ids, x, err := w.runIDs()
	if err != nil {
		return nil, err
	}
	return w.selectRuns(ids, x, q), nil
}

// Overview is what a status page shows of the runs, in one reading: the newest n,
// and every run that is not settled, however old, newest first.
func (w *Workspace) Overview(n int) (newest, unsettled *RunList, err error) {
	ids, x, err := w.runIDs()
	if err != nil {
		return nil, nil, err
	}
	unsettled = w.selectRuns(ids, x, RunQuery{Statuses: []Status{Queued, Running, Suspended}})
	newest = &RunList{Total: len(ids)}
	if n > 0 {
		newest = w.selectRuns(ids, x, RunQuery{Limit: n})
	}
	return newest, unsettled, nil
}

// selectRuns answers a query. Where the newest few suffice, it does not sort the others.
func (w *Workspace) selectRuns(ids []string, x *index, q RunQuery) *RunList {
	list := &RunList{Total: len(ids)}
	var left []string
	if q.onlyUnsettled() {
		left = x.without(ids)
	} else {
		left = slices.Clone(ids)
	}
	if q.Before != "" {
		left = slices.DeleteFunc(left, func(id string) bool { return id >= q.Before })
	}
	if !q.Since.IsZero() { // an id of ours begins with the instant of its creation
		first := NewRunID(q.Since)[:idTime]
		left = slices.DeleteFunc(left, func(id string) bool { return len(id) == idLength && id[:idTime] < first })
	}
	if q.Limit > 0 && q.Limit < len(left)/8 {
		if w.addRuns(list, newest(left, q.Limit), x, q); len(list.Runs) == q.Limit {
			return list
		}
		*list = RunList{Total: len(ids)} // the filters want older ones
	}
	slices.SortFunc(left, func(a, b string) int { return strings.Compare(b, a) })
	for batch := range slices.Chunk(left, 1000) {
		if w.addRuns(list, batch, x, q); len(list.Runs) == q.Limit && q.Limit > 0 {
			break
		}
	}
	return list
}

// addRuns adds those of the runs that match, up to the limit.
func (w *Workspace) addRuns(list *RunList, ids []string, x *index, q RunQuery) {
	heads := w.summaries(ids, x)
	contest(len(heads), func(i int) string { return ids[i] },
		func(i int) []string { return heads[i].claims },
		func(i int, err error) { heads[i].err = &DamagedError{w.path(runsDir, ids[i]+recordExt), err} })
	for _, h := range heads {
		switch {
		case q.Limit > 0 && len(list.Runs) == q.Limit:
			return
		case errors.Is(h.err, fs.ErrNotExist): // deleted since it was listed
		case h.err != nil:
			list.Damaged = append(list.Damaged, h.err)
		case q.matches(&h.summary):
			list.Runs = append(list.Runs, h.summary)
		}
	}
}

// newest is the n greatest ids, greatest first.
func newest(ids []string, n int) []string {
	top := make([]string, 0, n+1)
	for _, id := range ids {
		if len(top) == n && id <= top[n-1] {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, id, func(have, want string) int { return strings.Compare(want, have) })
		top = slices.Insert(top, at, id)
		top = top[:min(n, len(top))]
	}
	return top
}

// runIDs lists the run files there are and reads the index, side by side: for
// 100,000 runs each takes tens of milliseconds.
func (w *Workspace) runIDs() (ids []string, x *index, err error) {
	indexed := make(chan *index, 1)
	go func() { indexed <- w.readIndex() }() // awaited below
	ids, err = listRecords(w.path(runsDir))
	return ids, <-indexed, err
}

// head is the summary of one run, or why there is none.
type head struct {
	summary RunSummary
	claims  []string // see contest
	err     error
}

// summaries are those of the ids, in their order.
func (w *Workspace) summaries(ids []string, x *index) []head {
	heads := make([]head, len(ids))
	var unknown []string
	var at []int
	for i, id := range ids {
		if s, ok := x.summary(id); ok {
			heads[i].summary = s
			continue
		}
		unknown = append(unknown, id)
		at = append(at, i)
	}
	for i, h := range w.readHeads(unknown) {
		heads[at[i]] = h
	}
	return heads
}

// runHead is what a summary needs of a run file; the rest is passed over unread.
type runHead struct {
	Version    int    `json:"version"`
	PID        int    `json:"pid"`
	BootID     string `json:"bootId"`
	StartTicks uint64 `json:"startTicks"`
	Run        struct {
		ID         string        `json:"id"`
		Step       string        `json:"step"`
		Status     Status        `json:"status"`
		Error      *RunError     `json:"error"`
		Extensions RunExtensions `json:"extensions"`
		Timestamps RunTimes      `json:"timestamps"`
		QueueID    string        `json:"queueId"`
		Links      *RunLinks     `json:"links"`
	} `json:"run"`
	// These are there to be compared.
	Queue struct {
		ID string `json:"id"`
	} `json:"queue"`
	Frames      []RunFrame   `json:"frames"`
	Jobs        []JobRecord  `json:"jobs"`
	Suspensions []Suspension `json:"suspensions"`
}

func (h *runHead) format() (got, newest int) { return (&RunFile{Version: h.Version}).format() }

func (w *Workspace) readHead(id string) head {
	path := w.path(runsDir, id+recordExt)
	var h runHead
	if err := readRecord(path, &h); err != nil {
		return head{err: err}
	}
	if err := checkRun(path, id, h.Run.ID, h.Run.Status); err != nil {
		return head{err: err}
	}
	f := RunFile{
		PID: h.PID, BootID: h.BootID, StartTicks: h.StartTicks,
		Run: Run{
			ID: h.Run.ID, Step: h.Run.Step, Status: h.Run.Status, Error: h.Run.Error,
			Extensions: h.Run.Extensions, Timestamps: h.Run.Timestamps, QueueID: h.Run.QueueID, Links: h.Run.Links,
		},
		Queue: RunQueue{ID: h.Queue.ID}, Frames: h.Frames, Jobs: h.Jobs, Suspensions: h.Suspensions,
	}
	if err := w.contradicts(path, &f); err != nil {
		return head{err: err}
	}
	return head{summary: f.Summary(), claims: f.claims()}
}

// readHeads reads the summaries from the run files, in the order of the ids.
func (w *Workspace) readHeads(ids []string) []head {
	heads := make([]head, len(ids))
	each(len(ids), func(i int) { heads[i] = w.readHead(ids[i]) })
	return heads
}

// each calls fn for 0 to n-1 on all processors and waits for them.
func each(n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	wg.Wait()
}
