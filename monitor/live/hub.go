package live

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Tree is what a monitor wants to hear of: directories at and below a root.
type Tree struct {
	Name string // for the log
	Root string // absolute; need not exist yet
	// Dirs calls yield for the directory under (relative to Root, "" for Root itself) and for each below it that is to
	// be watched, a directory before those in it, until yield returns false. What is not there, cannot be listed or is of
	// no interest is no error: it yields nothing.
	Dirs func(ctx context.Context, under string, yield func(Dir) bool)
	// Reshapes says that an entry of this name decides which directories are of interest, like .gitignore; nil: none does.
	Reshapes func(name string) bool
}

// Dir is one directory to watch.
type Dir struct {
	Path  string                 // relative to the tree's root, "" for the root
	Hears func(name string) bool // whether what happens to the entry of this name matters; nil: all does
}

// pace is how the hub spends its time.
type pace struct {
	gather  time.Duration // from the first event to its hint
	early   time.Duration // a hint does not wait longer than this for new directories to be watched
	check   time.Duration // between two looks for watches that the system dropped without a word
	verify  time.Duration // from the last event to a look whether what was watched because of it still is
	renew   time.Duration // between two rounds over all directories, which also find what could not be watched before
	cost    int           // a tree rests this many times as long as its last round took
	dirties int           // more paths than this are not told apart: all is gone over
}

// Hub shares one notifier among any number of trees.
type Hub struct {
	log  *slog.Logger
	open func() (notifier, error)
	pace pace

	// work is held while watches are set or taken away, so that each path's come one after the other. Readers of the
	// notifier never take it.
	work    sync.Mutex
	users   int
	readers sync.WaitGroup

	mu       sync.Mutex // guards what follows, and every watch's marks; held for moments, never around a call of the notifier
	n        notifier   // nil: none could be opened, or nobody watches
	dirs     dirs
	on       int      // directories that the notifier took and should list
	suspects []string // those that it did not list at the last check
	troubles troubles
}

// New makes a hub. It opens nothing before the first Watch, and holds nothing after the last one returned.
func New(log *slog.Logger) *Hub {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Hub{log: log, open: openSystem, troubles: troubles{log: log}, pace: pace{
		gather: 50 * time.Millisecond, early: 50 * time.Millisecond, verify: 300 * time.Millisecond, check: 10 * time.Second,
		renew: time.Minute, cost: 100, dirties: 10_000,
	}}
}

// Watch calls hint when something happens in the tree, as the package says, until ctx ends.
func (h *Hub) Watch(ctx context.Context, t Tree, hint func()) {
	w := &watch{hub: h, tree: t, hint: hint, wake: make(chan struct{}, 1), dirty: map[string]struct{}{}}
	h.work.Lock()
	h.users++
	h.work.Unlock()
	defer h.leave(w)
	w.run(ctx)
}

// ensure opens the notifier if there is none.
func (h *Hub) ensure() error {
	h.work.Lock()
	defer h.work.Unlock()
	if h.notifier() != nil {
		return nil
	}
	n, err := h.open()
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.n = n
	h.mu.Unlock()
	h.readers.Go(func() { h.readErrors(n) })
	h.readers.Go(func() { h.readEvents(n) })
	return nil
}

func (h *Hub) notifier() notifier {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// leave takes away what a watch alone wanted; the last one closes the notifier.
func (h *Hub) leave(w *watch) {
	h.work.Lock()
	defer h.work.Unlock()
	if h.users--; h.users > 0 {
		h.drop(w, func(owner) bool { return true })
		h.mu.Lock()
		h.troubles.forget(w)
		h.mu.Unlock()
		return
	}
	h.mu.Lock()
	n := h.n
	h.n, h.dirs, h.on, h.suspects, h.troubles = nil, dirs{}, 0, nil, troubles{log: h.log}
	h.mu.Unlock()
	if n != nil {
		if err := n.Close(); err != nil {
			h.log.Warn("cannot close the file notifications", "error", err)
		}
		h.readers.Wait()
	}
}

// add watches a directory for w. It is told to the notifier even if it is watched already: the directory of that
// name may be another by now. fresh says that it was not watched before. The caller holds no lock.
func (h *Hub) add(w *watch, path string, hears func(string) bool) (fresh bool, err error) {
	h.work.Lock()
	defer h.work.Unlock()
	h.mu.Lock()
	n := h.n
	if n == nil {
		h.mu.Unlock()
		return false, nil // said when it could not be opened
	}
	h.dirs.make(path).own(owner{w: w, hears: hears, round: w.round})
	h.mu.Unlock()
	err = n.Add(path)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch at := h.dirs.find(path); {
	case at == nil: // it has gone meanwhile, and w is told so
	case err != nil:
		h.setOn(at, false)
	case !at.on:
		fresh = !at.alias
		h.setOn(at, true)
	}
	return fresh, err
}

func (h *Hub) setOn(n *node, on bool) {
	if n.on != on {
		n.on = on
		if on {
			h.on++
		} else {
			h.on--
		}
	}
	n.alias = false
}

// drop takes the directories from w for which unwanted is true. The caller holds work.
func (h *Hub) drop(w *watch, unwanted func(owner) bool) {
	h.mu.Lock()
	var paths, off []string
	h.dirs.top.each("", func(path string, n *node) {
		if i := n.indexOf(w); i >= 0 && unwanted(n.owners[i]) {
			paths = append(paths, path)
		}
	})
	for _, path := range paths {
		n := h.dirs.find(path)
		n.disown(w)
		if len(n.owners) > 0 {
			continue
		}
		if n.on {
			off = append(off, path)
			h.setOn(n, false)
		}
		if n.empty() {
			h.dirs.cut(path)
		}
	}
	n := h.n
	h.mu.Unlock()
	if n != nil {
		remove(n, off)
	}
}

// remove ends watches. What the notifier says of it helps nobody: a watch that is gone already is as good.
func remove(n notifier, paths []string) {
	for _, path := range paths {
		_ = n.Remove(path)
	}
}

// readErrors does nothing that waits (see notifier). It ends when the notifier is closed.
func (h *Hub) readErrors(n notifier) {
	for err := range n.errors() {
		h.mu.Lock()
		if errors.Is(err, fsnotify.ErrEventOverflow) {
			h.troubles.raise(overflow, "file notifications came faster than they could be read, and some are lost",
				"limit", queueLimit, "hint", queueHint)
		} else {
			h.troubles.raise(failing, "file notifications fail, and some may be lost", "error", err)
		}
		h.markAll()
		h.mu.Unlock()
	}
}

// readEvents ends when the notifier is closed.
func (h *Hub) readEvents(n notifier) {
	check := time.NewTicker(h.pace.check)
	defer check.Stop()
	for {
		select {
		case e, ok := <-n.events():
			if !ok {
				return
			}
			h.event(n, e)
		case <-check.C:
			h.check(n)
		}
	}
}

// event marks every watch that wants to hear of it. A directory that has gone, or has another name now, loses its
// watch and those below it here, before its owners look for what is in its place: the notifier would go on under the old names.
func (h *Hub) event(n notifier, e fsnotify.Event) {
	path := filepath.Clean(e.Name)
	concerned := map[*watch]bool{} // whether beyond a doubt
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		remove(n, h.cut(path, concerned))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	dir, name := filepath.Split(path)
	if at := h.dirs.find(dir); at != nil {
		for _, o := range at.owners {
			if o.hears == nil || o.hears(name) || o.w.reshapes(name) {
				concerned[o.w] = true
			}
		}
	}
	if at := h.dirs.find(path); at != nil {
		for _, o := range at.owners {
			concerned[o.w] = true
		}
	}
	for w := range concerned {
		w.mark(path, name, e.Op)
	}
}

// cut takes a directory and all below it out of the tree, adds their owners to those concerned, and returns the paths to end.
func (h *Hub) cut(path string, concerned map[*watch]bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.dirs.cut(path)
	if at == nil {
		return nil
	}
	var paths []string
	at.each(path, func(path string, n *node) {
		for _, o := range n.owners {
			concerned[o.w] = true
		}
		if n.on {
			paths = append(paths, path)
			h.setOn(n, false)
		}
	})
	return paths
}

// check finds watches that ended without an event: the notifier keeps the end of a mount to itself. A path is
// believed lost when two checks in a row miss it, as one may fall between an event and its reading.
func (h *Hub) check(n notifier) {
	listed := n.WatchList()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.troubles.calm(h.pace.renew)
	if len(listed) >= h.on {
		h.suspects = nil
		return
	}
	missing := h.missing(listed)
	for _, path := range missing {
		if slices.Contains(h.suspects, path) {
			h.suspects = nil
			h.troubles.raise(lost, "a watched directory was taken away with its file system; what is in its place is watched now", "directory", path)
			h.markAll()
			return
		}
	}
	h.suspects = missing
}

// verify has w go over everything where the notifier dropped a watch that was set after a directory got another name: it
// ends the watch of the old name by the directory, which may have the new one by then.
func (h *Hub) verify(w *watch) {
	n := h.notifier()
	if n == nil {
		return
	}
	listed := n.WatchList()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(listed) < h.on && len(h.missing(listed)) > 0 {
		w.markAll()
	}
}

// missing are the first directories that the notifier should list and does not.
func (h *Hub) missing(listed []string) []string {
	known := make(map[string]struct{}, len(listed))
	for _, path := range listed {
		known[path] = struct{}{}
	}
	var paths []string
	h.dirs.top.each("", func(path string, n *node) {
		if _, ok := known[path]; !ok && n.on && !n.alias && len(paths) < 100 {
			paths = append(paths, path)
		}
	})
	return paths
}

// markAll has every watch go over all its directories, and hint.
func (h *Hub) markAll() {
	seen := map[*watch]bool{}
	h.dirs.top.each("", func(_ string, n *node) {
		for _, o := range n.owners {
			if !seen[o.w] {
				seen[o.w] = true
				o.w.markAll()
			}
		}
	})
}
