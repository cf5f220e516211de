package state

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Told is told/<owner>.json, version 1: what somebody was told last of how the runs of a key, or of a workflow that no key
// runs, go, and what is still owed to be told.
type Told struct {
	Version int    `json:"version"`
	State   string `json:"state,omitempty"` // ok | failed, of the latest run; "" before the first
	Since   Stamp  `json:"since,omitzero"`  // when the run ended that made it so
	Run     string `json:"run,omitempty"`   // that run
	Owed    []Owed `json:"owed,omitempty"`  // in the order in which it is to be told

	Unknown jsontext.Value `json:",embed"`
}

// Owed is something to be told.
type Owed struct {
	Event string         `json:"event"`          // failure | recovery | missed
	Input jsontext.Value `json:"input"`          // of the run that tells it
	Run   string         `json:"run"`            // that run's id
	Tries int            `json:"tries,omitzero"` // that have failed

	Unknown jsontext.Value `json:",embed"`
}

func (t *Told) format() (got, newest int) { return t.Version, 1 }

// Told reads what an owner's hooks were told; nil for nothing.
func (w *Workspace) Told(owner string) (*Told, error) {
	return readNamed(w, toldDir, owner, &Told{})
}

// ToldOwners lists whose hooks were told something.
func (w *Workspace) ToldOwners() ([]string, error) { return listRecords(w.path(toldDir)) }

// EditTold lets change change what an owner's hooks were told, under a lock, and writes it durably where change says so.
func (w *Workspace) EditTold(ctx context.Context, owner string, change func(*Told) (write bool, err error)) error {
	path, err := w.recordPath("owner of a hook", toldDir, owner)
	if err != nil {
		return err
	}
	lock, err := w.lockFor(ctx, "edit-told:"+owner)
	if err != nil {
		return fmt.Errorf("cannot change what the hooks of %s were told: %w", owner, err)
	}
	defer lock.Release()
	t, err := w.Told(owner)
	if err != nil {
		return err
	}
	if t == nil {
		t = &Told{}
	}
	write, err := change(t)
	if err != nil || !write {
		return err
	}
	t.Version = 1
	return w.save(w.writer(), path, t)
}
