package live

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A watch is one tree in the hub.
type watch struct {
	hub  *Hub
	tree Tree
	hint func()
	wake chan struct{} // holds one

	// Guarded by the hub's mu.
	dirty map[string]struct{} // absolute paths whose directories are to be gone over
	all   bool                // everything is
	round int

	// Of the watch's goroutine alone.
	root   string // without links
	began  time.Time
	hinted bool // since began
	result result
}

// result is what could not be watched in a round over all directories.
type result struct {
	fresh   bool // something is watched that was not
	limit   error
	refused string // the first path that failed for another reason
	err     error
	more    int // such paths beside the first
}

func (w *watch) reshapes(name string) bool { return w.tree.Reshapes != nil && w.tree.Reshapes(name) }

// mark says that something happened to path. The caller holds the hub's mu, as for markAll.
func (w *watch) mark(path, name string, op fsnotify.Op) {
	switch {
	case w.reshapes(name), len(w.dirty) >= w.hub.pace.dirties:
		w.all = true
		clear(w.dirty)
	case w.all:
	case op != fsnotify.Write:
		w.dirty[path] = struct{}{}
	}
	w.signal()
}

func (w *watch) markAll() {
	w.all = true
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) run(ctx context.Context) {
	w.begin()
	w.goOverAll(ctx)
	w.give(ctx)
	renew := time.NewTimer(w.rest())
	defer renew.Stop()
	verify := time.NewTimer(0)
	defer verify.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-verify.C:
			w.hub.verify(w)
		case <-w.wake:
			gather := time.NewTimer(w.hub.pace.gather)
			select {
			case <-ctx.Done():
				gather.Stop()
				return
			case <-gather.C:
			}
			if w.flush(ctx) {
				renew.Reset(w.rest())
			} else {
				verify.Reset(w.hub.pace.verify)
			}
		case <-renew.C:
			w.begin()
			w.goOverAll(ctx)
			if w.result.fresh {
				w.give(ctx)
			}
			renew.Reset(w.rest())
		}
	}
}

// rest is the time to the next round over all directories.
func (w *watch) rest() time.Duration {
	return max(w.hub.pace.renew, time.Duration(w.hub.pace.cost)*time.Since(w.began))
}

func (w *watch) begin() {
	w.began, w.hinted, w.result = time.Now(), false, result{}
}

func (w *watch) give(ctx context.Context) {
	if ctx.Err() == nil {
		w.hinted = true
		w.hint()
	}
}

// flush goes over what was marked and hints after that, so that what was put into a new directory before its watch is
// seen by the look that the hint asks for; where there is much to go over, before that too. It says whether it went over all.
func (w *watch) flush(ctx context.Context) (all bool) {
	w.begin()
	w.hub.mu.Lock()
	select {
	case <-w.wake: // for what is taken here
	default:
	}
	all, w.all = w.all, false
	paths := slices.Sorted(maps.Keys(w.dirty))
	clear(w.dirty)
	w.hub.mu.Unlock()
	if !all {
		all = !w.goOver(ctx, paths)
	}
	if all {
		w.goOverAll(ctx)
	}
	w.give(ctx)
	return all
}

// goOver watches what is at and below some paths now. It is false where one of them is the root or outside it: then
// that it is enough is not certain.
func (w *watch) goOver(ctx context.Context, paths []string) bool {
	last := ""
	for _, path := range paths {
		rel, ok := strings.CutPrefix(path, strings.TrimSuffix(w.root, "/")+"/")
		if !ok {
			return false
		}
		if last != "" && strings.HasPrefix(path, last+"/") {
			continue
		}
		last = path
		w.tree.Dirs(ctx, rel, w.take(ctx))
	}
	w.report(false)
	return true
}

// take watches one directory of the tree.
func (w *watch) take(ctx context.Context) func(Dir) bool {
	return func(d Dir) bool {
		w.add(filepath.Join(w.root, d.Path), d.Hears)
		if !w.hinted && time.Since(w.began) > w.hub.pace.early {
			w.give(ctx)
		}
		return ctx.Err() == nil
	}
}

// add is false where there is no such directory.
func (w *watch) add(path string, hears func(string) bool) bool {
	fresh, err := w.hub.add(w, path, hears)
	r := &w.result
	r.fresh = r.fresh || fresh
	if err == nil {
		return true
	}
	if _, _, ok := limitOf(err); ok {
		r.limit = err
		return true
	}
	if gone(err) {
		return false
	}
	if r.err == nil {
		r.refused, r.err = path, err
	} else {
		r.more++
	}
	return true
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, notDirectory)
}

// goOverAll watches every directory of the tree, and lets go of what is none any more. Where there is no root it
// waits for one at the nearest directory above it.
func (w *watch) goOverAll(ctx context.Context) {
	if err := w.hub.ensure(); err != nil {
		w.result.limit = err
		w.report(true)
		return
	}
	for range 3 { // a root that is made while its parent is being watched needs another turn
		if w.turn(ctx) || ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() == nil {
		w.report(true)
	}
}

// turn is false where it must be done again.
func (w *watch) turn(ctx context.Context) bool {
	w.hub.mu.Lock()
	w.round++
	round := w.round
	w.hub.mu.Unlock()
	w.root = w.tree.Root
	if real, err := filepath.EvalSymlinks(w.root); err == nil {
		w.root = real
	}
	rooted := false
	take := w.take(ctx)
	w.tree.Dirs(ctx, "", func(d Dir) bool {
		rooted = true
		return take(d)
	})
	if ctx.Err() != nil {
		return true
	}
	settled := rooted || w.anchor()
	w.hub.work.Lock()
	w.hub.drop(w, func(o owner) bool { return o.round != round })
	w.hub.work.Unlock()
	return settled
}

// anchor watches the nearest directory above the root. It is false where the next one below has come meanwhile.
func (w *watch) anchor() bool {
	for next := filepath.Clean(w.root); ; {
		up, name := filepath.Dir(next), filepath.Base(next)
		if up == next {
			return true
		}
		if w.add(up, func(n string) bool { return n == name }) {
			_, err := os.Stat(next)
			return err != nil
		}
		next = up
	}
}

// report says what cannot be watched, or can be again; a round over a part can say only the first.
func (w *watch) report(whole bool) {
	h, r := w.hub, &w.result
	aliases := ""
	if whole && r.limit == nil {
		aliases = h.aliases(w)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if limit, hint, ok := limitOf(r.limit); ok {
		h.troubles.hold(limited, w, "cannot watch everything live: a limit of the system is reached; the rest is looked at on its cadence",
			"source", w.tree.Name, "limit", limit, "hint", hint, "error", r.limit)
	} else if r.limit != nil {
		h.troubles.hold(limited, w, "cannot watch anything live: it is looked at on its cadence", "source", w.tree.Name, "error", r.limit)
	} else if whole {
		h.troubles.release(limited, w, "everything is watched live again")
	}
	switch {
	case r.err != nil:
		h.troubles.holdOwn(w, "cannot watch a directory live: it is looked at on the cadence",
			"source", w.tree.Name, "directory", r.refused, "more", r.more, "error", r.err)
	case aliases != "":
		h.troubles.holdOwn(w, "cannot watch a directory live, which is watched under another name: it is looked at on the cadence",
			"source", w.tree.Name, "directory", aliases)
	case whole && r.limit == nil:
		h.troubles.releaseOwn(w, "every directory is watched live again", "source", w.tree.Name)
	}
}

// aliases finds directories of w that the notifier took and does not list, because it has the same directory under
// another path, and returns the first; "" for none.
func (h *Hub) aliases(w *watch) string {
	n := h.notifier()
	if n == nil {
		return ""
	}
	listed := n.WatchList()
	h.mu.Lock()
	var own []string
	if len(listed) < h.on {
		for _, path := range h.missing(listed) {
			if h.dirs.find(path).indexOf(w) >= 0 {
				own = append(own, path)
			}
		}
	}
	h.mu.Unlock()
	first := ""
	for _, path := range own {
		h.work.Lock()
		err := n.Add(path)
		alias := err == nil && !slices.Contains(n.WatchList(), path)
		h.mu.Lock()
		if at := h.dirs.find(path); at != nil && alias {
			if at.on {
				at.on, at.alias = false, true
				h.on--
			}
			if first == "" {
				first = path
			}
		}
		h.mu.Unlock()
		h.work.Unlock()
	}
	return first
}
