package runner

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// journal is the output journal of a run at work. What cannot be written is logged once and lost; the run goes on.
type journal struct {
	log  *slog.Logger
	once sync.Once
	// j is nil where the journal cannot be opened, or was removed. While steps are at work it changes under mu.
	j *state.Journal

	mu sync.Mutex // guards what follows, among the steps that run side by side
	// proven says that the journal has a spawn record, so that nobody takes it for that of a run that never began.
	proven bool
}

// open is the journal to write to; nil for none.
func (j *journal) open() *state.Journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.j
}

func (j *journal) warn(err error) {
	if err != nil {
		j.once.Do(func() { j.log.Warn("journal cannot be written, output is lost", "error", err) })
	}
}

func (j *journal) text(step, stream string, data []byte, partial bool) {
	j.textTo(step, stream, data, partial, 0)
}

// textTo is text with the offset that a stream which is kept elsewhere has got to; 0 for the others.
func (j *journal) textTo(step, stream string, data []byte, partial bool, offset int64) (written bool) {
	to := j.open()
	if to == nil {
		return false
	}
	err := to.TextTo(time.Now(), step, stream, data, partial, offset)
	j.warn(err)
	return err == nil
}

// line writes a line of a step's life.
func (j *journal) line(step, what string) {
	j.text(step, state.StepStream, stepText(step, what), false)
}

// spawning records that a process is about to be started. Where that fails, the journal would prove that nothing was
// started, so it is removed; where that fails too, nothing must be started.
func (j *journal) spawning(step string, unit *state.UnitRef) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.j == nil {
		return nil
	}
	err := j.j.Spawning(time.Now(), step, unit)
	if err == nil {
		j.proven = true
		return nil
	}
	j.warn(err)
	if j.proven {
		return nil
	}
	if rerr := j.j.Remove(); rerr != nil {
		return errors.Join(err, rerr)
	}
	j.j = nil
	return nil
}

// takingOver records that the unit of a step is this process's to follow from now on. What cannot be recorded is known from the run
// file all the same.
func (j *journal) takingOver(step string, unit *state.UnitRef) {
	if to := j.open(); to != nil {
		j.warn(to.Spawning(time.Now(), step, unit))
	}
}

func (j *journal) spawned(step string, p state.Process, cgroup string) {
	if to := j.open(); to != nil {
		j.warn(to.Spawned(time.Now(), step, p, cgroup))
	}
}

// dropped says how much of a stream was left out.
func (j *journal) dropped(step, stream string, n int64) {
	if to := j.open(); to != nil {
		j.warn(to.Dropped(time.Now(), step, stream, n))
	}
}

// end appends the end record.
func (j *journal) end(at time.Time, status state.Status, result jsontext.Value, failure *state.RunError) {
	if j.j != nil {
		j.warn(j.j.End(at, status, result, failure))
	}
}

// leave closes the journal of a run that will be begun again.
func (j *journal) leave() {
	if j.j != nil {
		j.warn(j.j.Close())
		j.j = nil
	}
}

// sync makes the journal durable and closes it.
func (j *journal) sync() {
	if j.j == nil {
		return
	}
	err := j.j.Sync()
	if cerr := j.j.Close(); err == nil {
		err = cerr
	}
	j.warn(err)
	j.j = nil
}

// echo copies the output of a run's steps, of both streams, to one writer.
type echo struct {
	mu sync.Mutex
	to io.Writer // nil for none, or after it failed
}

func (e *echo) write(data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.to == nil {
		return
	}
	if _, err := e.to.Write(data); err != nil {
		e.to = nil // nobody reads it any more; the journal has the output
	}
}
