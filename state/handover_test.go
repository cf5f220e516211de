package state

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"
)

func TestHandOver(t *testing.T) {
	root, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, err := root.Workspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Register(nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	id := NewRunID(time.Now())
	f := &RunFile{Run: Run{ID: id, Step: "w", Status: Running}}
	owner := Process{PID: os.Getppid(), BootID: "b", StartTicks: 7}
	if err := w.HandOver(f, owner, Request{Run: id, Action: ActionStart}); err != nil {
		t.Fatal(err)
	}
	got, err := w.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	if got.Run.Status != Queued || got.Owner() != owner {
		t.Errorf("it is %s and %+v's, want queued and %+v's", got.Run.Status, got.Owner(), owner)
	}
	if list, err := w.Requests(); err != nil || len(list) != 1 || list[0].Action != ActionStart || list[0].Run != id {
		t.Errorf("requests %+v, %v", list, err)
	}
	if err := w.HandOver(f, owner, Request{Run: id, Action: ActionStart}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v, want fs.ErrExist", err)
	}
}
