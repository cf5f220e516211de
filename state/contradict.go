package state

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// contradicts says where a run file contradicts itself, or is of a parent that there is no file of, as a *DamagedError.
// Such a file costs only itself: whoever went on with it would go on with something that never was.
func (w *Workspace) contradicts(path string, f *RunFile) error {
	err := f.contradiction()
	if err == nil {
		err = w.orphan(f)
	}
	if err != nil {
		return &DamagedError{path, fmt.Errorf("it contradicts itself: %w", err)}
	}
	return nil
}

// orphan says that the run that started this one is missing. Of a settled run that means nothing: retention deletes settled
// parents.
func (w *Workspace) orphan(f *RunFile) error {
	if f.Run.Links == nil || f.Run.Links.ParentRunID == "" || f.Run.Status.Settled() {
		return nil
	}
	parent := f.Run.Links.ParentRunID
	path, err := w.recordPath("run id", runsDir, parent)
	if err == nil {
		_, err = os.Lstat(path)
	}
	if err != nil && (path == "" || errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("its parent run %q is missing", parent)
	}
	return nil
}

// contradiction is what cannot be true within one file.
func (f *RunFile) contradiction() error {
	r := &f.Run
	// A file without a queue is let pass: ours gets one when it is written.
	if r.QueueID != "" && f.Queue.ID != "" && r.QueueID != f.Queue.ID || r.QueueID != "" && f.Queue.ID == "" {
		return fmt.Errorf("its queue %q is missing", r.QueueID)
	}
	if len(f.Suspensions) == 0 && r.Status == Suspended {
		return errors.New("it is suspended, and nothing suspends it")
	}
	for _, check := range []func() error{f.checkJobs, f.checkSuspensions, f.checkFrames} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (f *RunFile) checkJobs() error {
	known := map[string]bool{}
	for i := range f.Jobs {
		j := &f.Jobs[i]
		if known[j.ID] {
			return fmt.Errorf("job %q is there twice", j.ID)
		}
		known[j.ID] = true
		if Status(j.Status).Settled() && !f.Run.Status.Settled() {
			return fmt.Errorf("job %q is %s, and its run is %s", j.ID, j.Status, f.Run.Status)
		}
		if err := f.checkLinks(j); err != nil {
			return err
		}
	}
	if l := f.Run.Links; l != nil && l.JobID != "" && !known[l.JobID] {
		return fmt.Errorf("its job %q is missing", l.JobID)
	}
	return nil
}

// checkLinks compares what a run and its job both say they belong to.
func (f *RunFile) checkLinks(j *JobRecord) error {
	if f.Run.Links == nil || j.Links == nil {
		return nil
	}
	var l RunLinks
	if err := decode(j.Links, &l); err != nil {
		return fmt.Errorf("the links of job %q cannot be read: %w", j.ID, err)
	}
	r := f.Run.Links
	for _, both := range [][3]string{
		{"invocation", r.InvocationID, l.InvocationID}, {"parent run", r.ParentRunID, l.ParentRunID},
		{"principal", r.PrincipalID, l.PrincipalID}, {"session", r.SessionID, l.SessionID}, {"subject", r.SubjectID, l.SubjectID},
	} {
		if both[1] != "" && both[2] != "" && both[1] != both[2] {
			return fmt.Errorf("it is of %s %q, and its job %q is of %q", both[0], both[1], j.ID, both[2])
		}
	}
	return nil
}

// checkSuspensions lets pass what has been answered and not gone on yet, and what went on while another question is open.
func (f *RunFile) checkSuspensions() error {
	known := make(map[string]bool, len(f.Suspensions))
	for i := range f.Suspensions {
		s := &f.Suspensions[i]
		switch {
		case known[s.ID]:
			return fmt.Errorf("suspension %q is there twice", s.ID)
		case s.RunID != f.Run.ID:
			return fmt.Errorf("suspension %q is of run %q", s.ID, s.RunID)
		case s.Status == Pending && (f.Run.Status.Settled() || f.Run.Status == Queued):
			return fmt.Errorf("suspension %q is pending, and the run is %s", s.ID, f.Run.Status)
		}
		known[s.ID] = true
	}
	return nil
}

func (f *RunFile) checkFrames() error {
	terminal := ""
	for i := range f.Frames {
		fr := &f.Frames[i]
		switch {
		case fr.RunID != f.Run.ID:
			return fmt.Errorf("frame %d is of run %q", i, fr.RunID)
		case fr.Cursor != i:
			return fmt.Errorf("frame %d has the cursor %d", i, fr.Cursor)
		}
		if k := fr.Payload.Kind; k != "lifecycle" && k != "suspension" {
			continue
		}
		var v struct {
			Event        string `json:"event"`
			SuspensionID string `json:"suspensionId"`
		}
		if decode(fr.Payload.Value, &v) != nil {
			continue // whatever it is, it is not ours to judge
		}
		missing := func(s Suspension) bool { return s.ID == v.SuspensionID }
		if v.SuspensionID != "" && !slices.ContainsFunc(f.Suspensions, missing) {
			return fmt.Errorf("frame %d names suspension %q, which is missing", i, v.SuspensionID)
		}
		if fr.Payload.Kind != "lifecycle" || !Status(v.Event).Settled() {
			continue
		}
		if terminal != "" {
			return fmt.Errorf("it ends twice: %s, and in frame %d %s", terminal, i, v.Event)
		}
		if terminal = v.Event; Status(terminal) != f.Run.Status {
			return fmt.Errorf("frame %d says %s, and the run is %s", i, terminal, f.Run.Status)
		}
	}
	return nil
}

// claims is what only one run that is not settled can have.
func (f *RunFile) claims() (list []string) {
	if f.Run.Status.Settled() {
		return nil
	}
	for i := range f.Suspensions {
		list = append(list, "suspension "+f.Suspensions[i].ID)
	}
	if l := f.Run.Links; l != nil && l.JobID != "" {
		list = append(list, "job "+l.JobID)
	}
	return list
}

// contest finds the runs that claim what an older one has: those cost only themselves.
func contest(n int, id func(int) string, claims func(int) []string, refuse func(int, error)) {
	owner := map[string]string{}
	for i := range n {
		for _, c := range claims(i) {
			if o, ok := owner[c]; !ok || cmp.Less(id(i), o) {
				owner[c] = id(i)
			}
		}
	}
	for i := range n {
		for _, c := range claims(i) {
			if o := owner[c]; o != id(i) {
				refuse(i, fmt.Errorf("it contradicts run %s: both have %s", o, c))
				break
			}
		}
	}
}
