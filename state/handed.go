package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Handed is handed/<key>.json, version 1: the init system keeps a key's clock, by files that marbles wrote.
type Handed struct {
	Version int          `json:"version"`
	Key     string       `json:"key"`
	Manager string       `json:"manager"` // systemd | launchd
	Scope   string       `json:"scope"`   // user | system
	Unit    string       `json:"unit"`    // what keeps the clock, as its manager names it
	Files   []HandedFile `json:"files"`   // the one that keeps the clock first
	// Link is a path that is there as long as the unit is enabled; "" where no file tells that.
	Link string `json:"link,omitempty"`
	// Idle says that the clock is not the manager's yet, or no more: the record is there so that an uninstall finds the files
	// that an install was cut short with.
	Idle bool  `json:"idle,omitempty"`
	At   Stamp `json:"at"`
	// Cadence is what the files were made from, as [scheduler.Cadence] says it.
	Cadence string `json:"cadence,omitempty"`

	Unknown jsontext.Value `json:",embed"`
}

// HandedFile is a file that was written for a key, or was to be: one that an install was replacing is named twice.
type HandedFile struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"` // of what was written, in hex

	Unknown jsontext.Value `json:",embed"`
}

func (h *Handed) format() (got, newest int) { return h.Version, 1 }

// Off says why the clock is not kept: its file is "gone", or systemd takes it as "masked", or it is "disabled"; "" where it
// is kept. Only what is known counts: a directory that this process may not look into says nothing.
func (h *Handed) Off() string {
	if len(h.Files) == 0 {
		return "gone"
	}
	info, err := os.Stat(h.Files[0].Path) // through a link, since one to /dev/null is how a unit is masked
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "gone"
	case err == nil && info.Size() == 0:
		return "masked"
	}
	if h.Link != "" {
		if _, err := os.Lstat(h.Link); errors.Is(err, fs.ErrNotExist) {
			return "disabled"
		}
	}
	return ""
}

// Left reports whether any of the files may still be there.
func (h *Handed) Left() bool {
	return slices.ContainsFunc(h.Files, func(f HandedFile) bool {
		_, err := os.Lstat(f.Path)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// String names who keeps the clock: "systemd's marbles-backup.timer".
func (h *Handed) String() string { return h.Manager + "'s " + h.Unit }

// Handed reads to whom a key's clock was handed; nil for nobody.
func (w *Workspace) Handed(key string) (*Handed, error) {
	return readNamed(w, handedDir, key, &Handed{})
}

// HandedKeys lists the keys that were handed over, unsorted.
func (w *Workspace) HandedKeys() ([]string, error) { return listRecords(w.path(handedDir)) }

// HandedStamp changes whenever a record of a key that was handed over is written or removed. It costs one stat.
func (w *Workspace) HandedStamp() (FileStamp, error) { return stampOfFile(w.path(handedDir)) }

// WriteHanded writes the record of a key that was handed over, durably.
func (w *Workspace) WriteHanded(h *Handed) error {
	path, err := w.recordPath("key", handedDir, h.Key)
	if err != nil {
		return err
	}
	out := *h
	out.Version = 1
	return w.save(w.writer(), path, &out)
}

// RemoveHanded takes the record of a key away, durably; none is no error.
func (w *Workspace) RemoveHanded(key string) error {
	path, err := w.recordPath("key", handedDir, key)
	if err != nil {
		return err
	}
	switch err := w.files().remove(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot remove %s: %w", path, bare(err))
	}
	if err := syncDir(w.files(), w.path(handedDir)); err != nil {
		return fmt.Errorf("cannot remove %s: sync directory: %w", path, bare(err))
	}
	return nil
}

// AsOwner registers a workspace and calls f with it, as Open and Register would allow; but where this process is root
// and the state root belongs to another user, it does so with that user's access to files and no more: what root wrote
// there that user could not change, and what lies there may be a trap for root. f must not start goroutines.
func AsOwner(dir, project string, config *string, now time.Time, f func(*Workspace) error) error {
	abs, err := absolute(dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(abs)
	if err != nil || os.Geteuid() != 0 || owner(info) == 0 {
		root, err := Open(abs)
		if err != nil {
			return err
		}
		ws, err := root.Workspace(project)
		if err != nil {
			return err
		}
		if err := ws.Register(config, now); err != nil {
			return err
		}
		return f(ws)
	}
	// Through a descriptor: the way to it may be closed to its owner, as systemd's /var/lib/private is.
	d, err := os.Open(abs)
	if err != nil {
		return &rootError{abs, bare(err)}
	}
	defer func() { _ = d.Close() }()
	ws, err := (&Root{dir: fmt.Sprintf("/proc/self/fd/%d", d.Fd())}).Workspace(project)
	if err != nil {
		return err
	}
	err = asUser(owner(info), group(info), func() error {
		if err := ws.register(config, now); err != nil {
			return err
		}
		return f(ws)
	})
	if errors.Is(err, errors.ErrUnsupported) {
		return asOwner(&rootError{abs, err}, info, 0)
	}
	return err
}
