package live

import "github.com/fsnotify/fsnotify"

// notifier is what the hub needs of fsnotify. Tests put a double in its place.
//
// Its own lock may be held while it waits for a reader of its errors, so whoever reads those does nothing else, and no
// lock that a reader needs is held around a call.
type notifier interface {
	Add(dir string) error // of a directory that is watched already, it renews the watch
	Remove(dir string) error
	WatchList() []string
	Close() error // the two channels are closed soon after
	events() <-chan fsnotify.Event
	errors() <-chan error
}

type system struct{ *fsnotify.Watcher }

func (s system) events() <-chan fsnotify.Event { return s.Events }
func (s system) errors() <-chan error          { return s.Errors }

func openSystem() (notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return budgeted(system{w})
}
