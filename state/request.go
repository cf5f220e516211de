package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Action is what a request asks a run's owner to do.
type Action string

// The actions.
const (
	ActionLook    Action = "look"    // the run file was changed: by an answer, a retry, or by parking the run (roll)
	ActionCancel  Action = "cancel"  // stop it
	ActionPause   Action = "pause"   // stop its steps and park it
	ActionResume  Action = "resume"  // go on with it after a pause
	ActionStart   Action = "start"   // a queued run that was handed over (roll --detach, retry)
	ActionRestart Action = "restart" // launch Run in place of Of, which was interrupted
)

// Request is requests/<run>.json, version 1: what another process asks the owner of a run to do. It is a message, not a
// state: the owner removes it once it has acted on it, and one that asks for what is done already is removed too.
type Request struct {
	Version int    `json:"version"`
	Run     string `json:"run"`
	Action  Action `json:"action"`
	Reason  string `json:"reason,omitempty"`
	Of      string `json:"of,omitempty"` // see ActionRestart
	At      Stamp  `json:"at"`
	By      string `json:"by,omitempty"` // the user that asked
}

func (q *Request) format() (got, newest int) { return q.Version, 1 }

// same reports whether two requests ask for the same, whoever asked first.
func (q Request) same(other Request) bool {
	return q.Action == other.Action && q.At.UnixMilli() == other.At.UnixMilli() && q.Reason == other.Reason && q.Of == other.Of
}

const (
	// editWait is how long a process waits for another one that edits the same run, or its request.
	editWait = 10 * time.Second
	editPoll = 2 * time.Millisecond
)

// lockFor takes a lock, waiting for it until ctx ends, and at most editWait.
func (w *Workspace) lockFor(ctx context.Context, name string) (*Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, editWait)
	defer cancel()
	for {
		l, err := w.TryLock(name)
		if !errors.Is(err, ErrHeld) || ctx.Err() != nil {
			return l, err
		}
		time.Sleep(editPoll)
	}
}

// LockEdit takes locks/edit-<run>, which keeps everybody else from changing a run that is parked. ctx ends the wait.
func (w *Workspace) LockEdit(ctx context.Context, run string) (*Lock, error) {
	return w.lockFor(ctx, "edit-"+run)
}

// EditRun reads a run file under locks/edit-<run>, lets change change it, and writes it back with the owner it had.
// While it waits for the lock (at most until ctx ends) nothing is changed; an error of change is returned and nothing is
// written. Where request is not nil it is filed before the lock is given back, so that an owner that looks later sees
// both, whatever dies when.
func (w *Workspace) EditRun(ctx context.Context, run string, request *Request, change func(*RunFile) error) (err error) {
	path, err := w.recordPath("run id", runsDir, run)
	if err != nil {
		return err
	}
	lock, err := w.LockEdit(ctx, run)
	if err != nil {
		return fmt.Errorf("cannot change run %s: %w", run, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	f, err := w.Run(run)
	if err != nil {
		return err
	}
	if err := change(f); err != nil {
		return err
	}
	if err := w.putRun(w.writer(), path, f); err != nil {
		return err
	}
	if request != nil {
		return w.Ask(*request)
	}
	return nil
}

// weight orders requests: one is not replaced by a lighter one. Whoever acts on any of them looks at the file too.
func (a Action) weight() int {
	switch a {
	case ActionCancel:
		return 2
	case ActionLook:
		return 0
	}
	return 1
}

// Ask files a request to the owner of a run. A cancel is never replaced by anything less, and nothing by a look.
func (w *Workspace) Ask(q Request) (err error) {
	path, err := w.recordPath("run id", requestsDir, q.Run)
	if err != nil {
		return err
	}
	lock, err := w.lockFor(context.Background(), "request-"+q.Run)
	if err != nil {
		return fmt.Errorf("cannot ask for run %s: %w", q.Run, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	q.Version = 1
	if q.At.IsZero() {
		q.At = Stamp{Time: time.Now()}
	}
	var there Request
	if err := readRecord(path, &there); err == nil && q.Action.weight() < there.Action.weight() {
		return nil
	}
	return w.save(w.writer(), path, &q)
}

// RequestOf reads the request for a run; nil for none.
func (w *Workspace) RequestOf(run string) (*Request, error) {
	path, err := w.recordPath("run id", requestsDir, run)
	if err != nil {
		return nil, err
	}
	q := &Request{}
	err = readRecord(path, q)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	q.Run = run
	return q, nil
}

// Requests reads the requests there are, oldest run first. [Workspace.RequestStamp] tells whether there can be others than
// at the last time. A damaged one is set aside: it asks for nothing that can be understood.
func (w *Workspace) Requests() (list []Request, err error) {
	names, err := listRecords(w.path(requestsDir))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		var q Request
		err := readRecord(w.path(requestsDir, name+recordExt), &q)
		damaged := (*DamagedError)(nil)
		switch {
		case errors.Is(err, fs.ErrNotExist): // done since it was listed
		case errors.As(err, &damaged):
			_, aerr := damaged.SetAside()
			errs = append(errs, err, aerr)
		case err != nil:
			errs = append(errs, err)
		case q.Run == name:
			list = append(list, q)
		}
	}
	return list, errors.Join(errs...)
}

// RequestStamp changes with every request that is filed or removed; two within a tick of the system's clock can leave it
// as it was after the first.
func (w *Workspace) RequestStamp() (FileStamp, error) { return stampOfFile(w.path(requestsDir)) }

// Done removes a request, unless another one was filed for the run since.
func (w *Workspace) Done(q Request) (err error) {
	path, err := w.recordPath("run id", requestsDir, q.Run)
	if err != nil {
		return err
	}
	lock, err := w.lockFor(context.Background(), "request-"+q.Run)
	if err != nil {
		return fmt.Errorf("cannot end the request for run %s: %w", q.Run, err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	var there Request
	if err := readRecord(path, &there); err != nil || !there.same(q) {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", path, bare(err))
	}
	return nil
}

// ErrAnswered is wrapped where a question no longer waits.
//
//lint:ignore ST1005 the original's words
var ErrAnswered = errors.New("This question is no longer waiting for an answer.")

// maxNote is how many characters the note of an answer has at most.
const maxNote = 2000

// AnswerRun answers an open question of a suspended run, once: under locks/edit-<run>, after reading the run again. step
// names the question where several are open. The refusals of the original are its errors. It files an ActionLook.
func (w *Workspace) AnswerRun(ctx context.Context, run, step string, a Answer) (*RunFile, error) {
	now := time.Now()
	if a.At.IsZero() {
		a.At = Stamp{Time: now}
	}
	var out *RunFile
	err := w.EditRun(ctx, run, &Request{Run: run, Action: ActionLook, At: a.At, By: a.By}, func(f *RunFile) error {
		s, err := f.asked(step)
		if err != nil {
			return err
		}
		q, err := s.Question()
		if err != nil {
			return err
		}
		if !q.Until.IsZero() && !q.Until.After(now) {
			return ErrAnswered // its owner is about to say so
		}
		if err := q.takes(a); err != nil {
			return err
		}
		out = f
		return s.Resolve(now, a)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ShortID is how much of the end of a suspension's id stands for it within its run.
const ShortID = 8

// Short is a suspension's id as people type it: an answer with it is for this very question, and for no later one.
func (s *Suspension) Short() string { return s.ID[max(0, len(s.ID)-ShortID):] }

// asked is the open question of a run that is meant.
func (f *RunFile) asked(step string) (*Suspension, error) {
	var open []*Suspension
	if f.Run.Status == Suspended {
		for _, s := range f.Open() {
			if s.Kind == SuspendInput && (step == "" || s.Name == step || s.ID == step || len(step) >= ShortID && strings.HasSuffix(s.ID, step)) {
				open = append(open, s)
			}
		}
	}
	switch {
	case len(open) == 0:
		return nil, ErrAnswered
	case len(open) > 1 && step == "":
		var names []string
		for _, s := range open {
			names = append(names, s.Name)
		}
		return nil, Hint(fmt.Errorf("run %s asks %d questions, in the steps %s", f.Run.ID, len(open), strings.Join(names, ", ")), "name one with --step")
	}
	return open[0], nil // of equal ones the oldest
}

// takes checks an answer.
func (q *Question) takes(a Answer) error {
	choices := q.Choices
	if q.Mode == ModeApproval {
		choices = []string{Approve, Reject}
	}
	switch {
	case len([]rune(a.Note)) > maxNote:
		return fmt.Errorf("a note has at most %d characters; this one has %d", maxNote, len([]rune(a.Note)))
	case len(choices) > 0 && !slices.Contains(choices, a.Answer):
		//lint:ignore ST1005 the original's words
		return fmt.Errorf("Choose one of: %s", strings.Join(choices, ", "))
	case strings.TrimSpace(a.Answer) == "":
		//lint:ignore ST1005 the original's words
		return errors.New("An answer is required.")
	}
	return nil
}

// Resolve ends a suspension with what came of it.
func (s *Suspension) Resolve(now time.Time, with any) error {
	value, err := encodeLine(with)
	if err != nil {
		return fmt.Errorf("cannot resolve suspension %s: %w", s.ID, err)
	}
	s.Resolution = jsontext.Value(value[:len(value)-1])
	s.Status, s.Timestamps.ResolvedAt = Resolved, ToMillis(now)
	s.Revision++
	return nil
}

// Close ends a suspension that nobody waits for any more.
func (s *Suspension) Close(now time.Time) {
	s.Status, s.Timestamps.CancelledAt = NoLongerOpen, ToMillis(now)
	s.Revision++
}

// Open are the questions, pauses and waits that a run waits for.
func (f *RunFile) Open() []*Suspension {
	var open []*Suspension
	for i := range f.Suspensions {
		if f.Suspensions[i].Status == Pending {
			open = append(open, &f.Suspensions[i])
		}
	}
	return open
}

func (s *Suspension) read(what string, value jsontext.Value, into any) error {
	if err := decode(value, into); err != nil {
		return fmt.Errorf("cannot read the %s of suspension %s of run %s: %w", what, s.ID, s.RunID, err)
	}
	return nil
}

// Question is the request of a suspension that is a question.
func (s *Suspension) Question() (*Question, error) {
	if s.Kind != SuspendInput {
		return nil, fmt.Errorf("suspension %s of run %s is no question", s.ID, s.RunID)
	}
	q := &Question{}
	return q, s.read("question", s.Request, q)
}

// Answer is the resolution of a question; nil while it is open.
func (s *Suspension) Answer() (*Answer, error) {
	if s.Kind != SuspendInput || s.Status != Resolved {
		return nil, nil
	}
	a := &Answer{}
	return a, s.read("answer", s.Resolution, a)
}

// waited is the request of a wait, a pause or a child.
type waited struct {
	Until  Stamp  `json:"until,omitzero"`
	Reason string `json:"reason,omitempty"`
	Run    string `json:"run,omitempty"`
}

func (s *Suspension) waited() waited {
	var w waited
	_ = decode(s.Request, &w) // one that says nothing ends by a person only
	return w
}

// Child is the run that a SuspendChild waits for.
func (s *Suspension) Child() string {
	if s.Kind != SuspendChild {
		return ""
	}
	return s.waited().Run
}

// Unit is the unit that a SuspendUnit waits for; nil for other kinds, and where it cannot be read.
func (s *Suspension) Unit() *UnitRef {
	ref := &UnitRef{}
	if s.Kind != SuspendUnit || decode(s.Request, ref) != nil || ref.Unit == "" {
		return nil
	}
	return ref
}

// Due is when a suspension ends by itself: the deadline of a question, the end of a wait; zero for never.
func (s *Suspension) Due() time.Time {
	switch s.Kind {
	case SuspendInput:
		if q, err := s.Question(); err == nil {
			return q.Until.Time
		}
	case SuspendWait:
		return s.waited().Until.Time
	}
	return time.Time{}
}

// Text says what a suspension waits for, in a few words: `an answer to "Publish?"`, `2026-12-01 09:00`, `run rn-…`.
func (s *Suspension) Text() string {
	switch s.Kind {
	case SuspendInput:
		q, err := s.Question()
		if err != nil {
			return "an answer"
		}
		return fmt.Sprintf("an answer to %q", q.Title)
	case SuspendWait:
		return s.Due().Local().Format("2006-01-02 15:04")
	case SuspendChild:
		return "run " + s.Child()
	case SuspendUnit:
		if u := s.Unit(); u != nil {
			return "unit " + u.Unit
		}
		return "a unit"
	case SuspendPause:
		if reason := s.waited().Reason; reason != "" {
			return fmt.Sprintf("a resume (paused: %s)", reason)
		}
		return "a resume"
	}
	return s.Kind
}
