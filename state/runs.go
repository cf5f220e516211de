package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Run reads one run file. A missing file is [fs.ErrNotExist]; a damaged one, or a
// version we do not know, is an error that names the file.
func (w *Workspace) Run(id string) (*RunFile, error) {
	path, err := w.recordPath("run id", runsDir, id)
	if err != nil {
		return nil, err
	}
	var f RunFile
	if err := readRecord(path, &f); err != nil {
		return nil, err
	}
	if err := checkRun(path, id, f.Run.ID, f.Run.Status); err != nil {
		return nil, err
	}
	if err := w.contradicts(path, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

// checkRun is what a run file must say of itself.
func checkRun(path, want, got string, status Status) error {
	var err error
	switch {
	case got == "":
		err = errors.New("run is missing")
	case got != want:
		err = fmt.Errorf("it holds run %q", got)
	case !status.known():
		err = fmt.Errorf("run has the unknown status %q", string(status))
	default:
		return nil
	}
	return &DamagedError{path, err}
}

func (s Status) known() bool {
	return s.Settled() || s == Queued || s == Running || s == Suspended
}

// CreateRun writes a run file that must not exist yet ([fs.ErrExist] otherwise).
// Like WriteRun it stamps the owner.
func (w *Workspace) CreateRun(f *RunFile) error {
	how := w.writer()
	how.fresh = true
	return w.writeRun(how, f)
}

// WriteRun replaces a run file durably; of a settled run it then also appends to
// the index. It stamps PID, BootID and StartTicks with this process, and fills in
// the members that the first format requires.
func (w *Workspace) WriteRun(f *RunFile) error {
	return w.writeRun(w.writer(), f)
}

func (w *Workspace) writeRun(how writer, f *RunFile) error {
	path, err := w.recordPath("run id", runsDir, f.Run.ID)
	if err != nil {
		return err
	}
	if err := checkRun(path, f.Run.ID, f.Run.ID, f.Run.Status); err != nil {
		return fmt.Errorf("cannot write %s: run has the unknown status %q", path, string(f.Run.Status))
	}
	self := Self()
	f.PID, f.BootID, f.StartTicks = self.PID, self.BootID, self.StartTicks
	return w.putRun(how, path, f)
}

// putRun writes a run file with the owner that it names.
func (w *Workspace) putRun(how writer, path string, f *RunFile) error {
	f.complete()
	if err := w.save(how, path, f); err != nil {
		return err
	}
	if f.Run.Status.Settled() {
		// The run is safe; a line that cannot be written costs one read of its file.
		s := f.Summary()
		_ = w.appendIndex(appendIndexLine(nil, &s))
	}
	return nil
}

// ReopenRun lets a settled run, or what f makes of it, go on: lists do not know it as settled any more, durably, before its
// file says so. A crash in between costs one read of that file.
func (w *Workspace) ReopenRun(f *RunFile) error {
	s := f.Summary()
	if err := w.appendIndex(appendIndexLine(nil, &s)); err != nil {
		return err
	}
	if err := syncFile(w.path(indexFile)); err != nil {
		return err
	}
	return w.WriteRun(f)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// complete fills in what a reader of the first format requires: it refuses a run
// without its queue, and reads objects and arrays where we have nothing to say.
func (f *RunFile) complete() {
	const queue = "marbles"
	f.Version = 2
	r, q := &f.Run, &f.Queue
	q.ID = cmp.Or(q.ID, r.QueueID, queue)
	r.QueueID = cmp.Or(r.QueueID, q.ID)
	q.Name = cmp.Or(q.Name, q.ID)
	q.Status = cmp.Or(q.Status, "active")
	q.CreatedAt = cmp.Or(q.CreatedAt, r.Timestamps.CreatedAt)
	for _, object := range []*jsontext.Value{&r.Metadata, &r.Snapshot, &q.Extensions} {
		if *object == nil {
			*object = jsontext.Value("{}")
		}
	}
	// Nil slices and maps are written as [] and {}, other nil values as null.
}

// Unsettled reads every run file that the index does not know to be settled and
// that is not settled, oldest first. Damaged files are returned as errors beside the rest.
func (w *Workspace) Unsettled() (files []*RunFile, damaged []error, err error) {
	ids, x, err := w.runIDs()
	if err != nil {
		return nil, nil, err
	}
	ids = x.without(ids)
	slices.Sort(ids)
	read := make([]*RunFile, len(ids))
	errs := make([]error, len(ids))
	each(len(ids), func(i int) {
		f, err := w.Run(ids[i])
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted since it was listed
		case err != nil:
			errs[i] = err
		case !f.Run.Status.Settled():
			read[i] = f
		}
	})
	contest(len(read), func(i int) string { return ids[i] },
		func(i int) []string {
			if read[i] == nil {
				return nil
			}
			return read[i].claims()
		},
		func(i int, err error) { read[i], errs[i] = nil, &DamagedError{w.path(runsDir, ids[i]+recordExt), err} })
	for i, f := range read {
		if f != nil {
			files = append(files, f)
		}
		if errs[i] != nil {
			damaged = append(damaged, errs[i])
		}
	}
	return files, damaged, nil
}
