package state

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Pause is a stretch in which a key, or everything, was told not to run.
type Pause struct {
	Since  Stamp  `json:"since"`
	Until  Stamp  `json:"until,omitzero"` // zero while it lasts
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`

	Unknown jsontext.Value `json:",embed"`
}

// On reports whether the pause lasts.
func (p Pause) On() bool { return !p.Since.IsZero() && p.Until.IsZero() }

// Pauses is paused.json, version 1, of a workspace, or of the whole state root: the latest pause of each key, and of
// everything in it.
type Pauses struct {
	Version int              `json:"version"`
	All     *Pause           `json:"all,omitzero"`
	Keys    map[string]Pause `json:"keys,omitzero"`

	Unknown jsontext.Value `json:",embed"`

	root *Pause // that of the state root
}

func (p *Pauses) format() (got, newest int) { return p.Version, 1 }

// Of is the pause that holds a key now, its own before that of everything; nil where none does.
func (p *Pauses) Of(key string) *Pause {
	for _, c := range p.of(key) {
		if c.On() {
			return c
		}
	}
	return nil
}

// Everything is the pause that holds every key of the workspace now; nil for none.
func (p *Pauses) Everything() *Pause {
	for _, c := range []*Pause{p.All, p.root} {
		if c != nil && c.On() {
			return c
		}
	}
	return nil
}

// of are the latest pauses that held a key, its own first, whether they last or not.
func (p *Pauses) of(key string) (list []*Pause) {
	if own, ok := p.Keys[key]; ok {
		list = append(list, &own)
	}
	for _, c := range []*Pause{p.All, p.root} {
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}

// Within is the pause that held a key at an instant; nil where none did, as far as the latest ones tell.
func (p *Pauses) Within(key string, at time.Time) *Pause {
	for _, c := range p.of(key) {
		if !c.Since.IsZero() && !at.Before(c.Since.Time) && (c.On() || at.Before(c.Until.Time)) {
			return c
		}
	}
	return nil
}

// Ended is the latest of a key's pauses that are over; nil for none.
func (p *Pauses) Ended(key string) (last *Pause) {
	for _, c := range p.of(key) {
		if !c.Until.IsZero() && (last == nil || c.Until.After(last.Until.Time)) {
			last = c
		}
	}
	return last
}

const pausedFile = "paused.json"

// Pauses reads the pauses of the workspace and of the state root above it. It is never nil without an error. A damaged
// file is an error that names it: nobody knows what it said.
func (w *Workspace) Pauses() (*Pauses, error) {
	p, err := readPauses(w.path(pausedFile))
	if err != nil {
		return nil, err
	}
	root, err := readPauses(filepath.Join(filepath.Dir(w.dir), pausedFile))
	if err != nil {
		return nil, err
	}
	p.root = root.All
	return p, nil
}

func readPauses(path string) (*Pauses, error) {
	p := &Pauses{}
	if err := readRecord(path, p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return p, nil
}

// PauseStamp changes with every change of what Pauses reads. It costs two stats.
func (w *Workspace) PauseStamp() (stamps [2]FileStamp, err error) {
	for i, path := range []string{w.path(pausedFile), filepath.Join(filepath.Dir(w.dir), pausedFile)} {
		if stamps[i], err = stampOfFile(path); err != nil {
			return stamps, err
		}
	}
	return stamps, nil
}

// SetPause pauses a key, or everything in the workspace for "", or ends that; it reports whether that changed anything.
// The workspace has to be registered.
func (w *Workspace) SetPause(key string, on bool, reason, by string, now time.Time) (changed bool, err error) {
	if key != "" {
		if err := PlainName("key", key); err != nil {
			return false, err
		}
	}
	lock, err := w.LockWait("edit-paused", editWait)
	if err != nil {
		return false, fmt.Errorf("cannot change what is paused: it is being changed by %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return setPause(w.path(pausedFile), w.writer(), key, on, reason, by, now)
}

// SetPause pauses everything below the state root, or ends that.
func (r *Root) SetPause(on bool, reason, by string, now time.Time) (changed bool, err error) {
	return setPause(filepath.Join(r.dir, pausedFile), writer{fs: osFiles{}}, "", on, reason, by, now)
}

func setPause(path string, how writer, key string, on bool, reason, by string, now time.Time) (changed bool, err error) {
	p, err := readPauses(path)
	if err != nil {
		return false, err
	}
	old := Pause{}
	if key != "" {
		old = p.Keys[key]
	} else if p.All != nil {
		old = *p.All
	}
	if old.On() == on {
		return false, nil
	}
	next := Pause{Since: Stamp{now}, Reason: reason, By: by}
	if !on {
		if next = old; now.After(old.Since.Time) {
			next.Until = Stamp{now}
		} else { // the clock was set back
			next.Until = old.Since
		}
	}
	if key == "" {
		p.All = &next
	} else {
		if p.Keys == nil {
			p.Keys = map[string]Pause{}
		}
		p.Keys[key] = next
	}
	p.Version = 1
	data, err := encode(p)
	if err != nil {
		return false, fmt.Errorf("cannot write %s: %w", path, err)
	}
	return true, how.write(path, data)
}
