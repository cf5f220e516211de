package live

import (
	"log/slog"
	"time"
)

// troubles says each thing that keeps hints from coming once, until it is over, and then that it is. What the system
// limits is said once for all watches; what lies at one tree, for that one.
type troubles struct {
	log  *slog.Logger
	held map[string]map[*watch]bool // kinds of trouble, and whom they keep
	own  map[*watch]bool
	last map[string]time.Time // kinds that end by not coming again, and when they last came
}

// Kinds of trouble.
const (
	limited  = "limited"
	overflow = "overflow"
	failing  = "failing"
	lost     = "lost"
)

func (t *troubles) hold(kind string, w *watch, msg string, args ...any) {
	if t.held == nil {
		t.held = map[string]map[*watch]bool{}
	}
	if t.held[kind] == nil {
		t.held[kind] = map[*watch]bool{}
		t.log.Warn(msg, args...)
	}
	t.held[kind][w] = true
}

func (t *troubles) release(kind string, w *watch, msg string) {
	if !t.held[kind][w] {
		return
	}
	delete(t.held[kind], w)
	if len(t.held[kind]) == 0 {
		delete(t.held, kind)
		t.log.Info(msg)
	}
}

func (t *troubles) holdOwn(w *watch, msg string, args ...any) {
	if t.own == nil {
		t.own = map[*watch]bool{}
	}
	if !t.own[w] {
		t.own[w] = true
		t.log.Warn(msg, args...)
	}
}

func (t *troubles) releaseOwn(w *watch, msg string, args ...any) {
	if t.own[w] {
		delete(t.own, w)
		t.log.Info(msg, args...)
	}
}

// forget is for a watch that ends: it says nothing.
func (t *troubles) forget(w *watch) {
	delete(t.own, w)
	for kind, who := range t.held {
		if delete(who, w); len(who) == 0 {
			delete(t.held, kind)
		}
	}
}

func (t *troubles) raise(kind, msg string, args ...any) {
	if t.last == nil {
		t.last = map[string]time.Time{}
	}
	if _, ok := t.last[kind]; !ok {
		t.log.Warn(msg, args...)
	}
	t.last[kind] = time.Now()
}

// calm says of each raised trouble that did not come again for a while that it is over.
func (t *troubles) calm(after time.Duration) {
	for kind, last := range t.last {
		if time.Since(last) >= after {
			delete(t.last, kind)
			t.log.Info("file notifications come as they should again", "after", kind)
		}
	}
}
