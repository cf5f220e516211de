package service

import (
	"time"

	"marbles/cmd/internal/catalog"
	"marbles/monitor"
	"marbles/state"
)

// keptEvery is how often what may be lost is written down, at most.
const keptEvery = time.Minute

// memo is what a dispatcher remembers of a monitor from one look to the next, so that one that sees nothing new reads
// and writes nothing. Everything in it can be lost. Whoever holds the key's lock owns it.
type memo struct {
	source *monitor.Source // whose cache was restored; nil for a URL
	cached time.Time       // when its cache was written
	ws     *state.Workspace
	key    string

	// The committed observation as this process last loaded or wrote it.
	stamp   state.FileStamp
	known   bool
	pending bool      // it has a launch that was not started
	better  time.Time // when an observation that only knew something better was committed

	health      *state.Health // nil before the first look; never changed once it is here
	healthStamp state.FileStamp
	healthKept  time.Time // when it was written
	healthOwed  bool      // something of it is not on record yet
	healthError string    // why it is kept in memory only; "" where it is not
}

// view is a monitor during one tick.
type view struct {
	t      Target
	m      *catalog.Monitor
	f      Firing
	memo   *memo
	health *state.Health
	before state.FileStamp // of the committed observation
}

// view is what a tick of a monitor begins with. The key's lock must be held.
func (d *Dispatcher) view(t Target, m *catalog.Monitor, f Firing) *view {
	v := &view{t: t, m: m, f: f, memo: d.memo(triggerID(t.Workspace, m.Key))}
	d.loadHealth(v)
	return v
}

func (d *Dispatcher) memo(id string) *memo {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.memos == nil {
		d.memos = map[string]*memo{}
	}
	if d.memos[id] == nil {
		d.memos[id] = &memo{}
	}
	return d.memos[id]
}

// forget lets go of what is remembered of monitors that are no longer in force.
func (d *Dispatcher) forget(live func(id string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.memos {
		if !live(id) {
			delete(d.memos, id)
		}
	}
}

// retry is when an interval's monitor is to look again because of its last failure; zero where that is not set. One that
// was set by a clock that was ahead counts no more.
func (v *view) retry(now time.Time) time.Time {
	h := v.health
	if v.m.Cadence.Interval() <= 0 || h.RetryAt.After(now.Add(maxRetryAfter)) || h.LastLook.After(now.Add(time.Minute)) {
		return time.Time{}
	}
	return h.RetryAt.Time
}

// committed is the monitor's observation on disk, and whether a launch is pending. It is read only where it is not the
// one that this process saw last.
func (v *view) committed() (c monitor.Committed, pending bool, err error) {
	stamp, err := v.t.Workspace.MonitorStamp(v.m.Key)
	if err != nil {
		return c, false, err
	}
	v.before = stamp
	c = monitor.Committed{Stamp: stamp, Load: v.load}
	if v.memo.known && v.memo.stamp == stamp {
		return c, v.memo.pending, nil
	}
	rec, err := v.load()
	if err != nil {
		return c, false, err
	}
	v.memo.stamp, v.memo.known, v.memo.pending = stamp, true, rec != nil && rec.Pending != nil
	read := false // the record in hand is as good as the file, the first time
	c.Load = func() (*state.MonitorRecord, error) {
		if read {
			return v.load()
		}
		read = true
		return rec, nil
	}
	return c, v.memo.pending, nil
}

func (v *view) load() (*state.MonitorRecord, error) {
	rec, err := v.t.Workspace.Monitor(v.m.Key)
	return rec, state.Hint(err, "move the file aside to begin with a new baseline")
}

// commit writes the observation.
func (v *view) commit(rec *state.MonitorRecord) error {
	v.memo.known = false
	if err := v.t.Workspace.WriteMonitor(v.m.Key, rec); err != nil {
		return err
	}
	stamp, err := v.t.Workspace.MonitorStamp(v.m.Key)
	if err == nil {
		v.memo.stamp, v.memo.known, v.memo.pending = stamp, true, rec.Pending != nil
	}
	return nil
}

// source is the monitor's source with the cache that was kept for it. What an older source of the same key, before a
// reload, has learnt since goes to the new one.
func (d *Dispatcher) source(v *view) *monitor.Source {
	src, memo := v.m.Source, v.memo
	if memo.source == src || src.Kind() != monitor.KindFiles {
		return src
	}
	var data []byte
	if memo.source != nil {
		data = memo.source.Cache()
		d.keepCache(v.t.Workspace, v.m.Key, memo, data)
	}
	if data == nil {
		var err error
		if data, err = v.t.Workspace.ReadCache(v.m.Key); err != nil {
			d.Log.Warn("cache of a monitor cannot be read, it reads every file anew", "key", v.m.Key, "error", err)
		}
	}
	if data != nil {
		src.RestoreCache(data)
	}
	memo.source, memo.ws, memo.key = src, v.t.Workspace, v.m.Key
	return src
}

// saveCache keeps what a look learnt.
func (d *Dispatcher) saveCache(v *view) {
	if v.memo.source != nil && time.Since(v.memo.cached) >= keptEvery {
		d.keepCache(v.t.Workspace, v.m.Key, v.memo, v.memo.source.Cache())
	}
}

func (d *Dispatcher) keepCache(ws *state.Workspace, key string, memo *memo, data []byte) {
	if data == nil {
		return
	}
	memo.cached = time.Now()
	if err := ws.WriteCache(key, data); err != nil {
		d.Log.Warn("cache of a monitor cannot be written", "key", key, "error", err)
	}
}

// saveCaches keeps what all looks learnt. No tick may be at work.
func (d *Dispatcher) saveCaches() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, memo := range d.memos {
		if memo.source != nil {
			d.keepCache(memo.ws, memo.key, memo, memo.source.Cache())
		}
	}
}
