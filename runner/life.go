package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"marbles/state"
)

// main takes a run from its place in the queue to its end, or until it is parked.
func (r *Run) main(placed bool) {
	w := r.w
	defer func() {
		r.cancel(nil)
		r.end()
		close(r.done)
		w.leave(func() { delete(w.live, r) })
		w.release(r.claim, r.id)
	}()
	defer r.freeTurn()
	if !placed && !r.enterQueue() {
		return
	}
	if ok, err := w.awaitRoom(r); !ok {
		w.freePlace(r)
		if err == nil {
			r.journal.leave()
			r.result.Status = state.Queued
		} else {
			r.settle(asStopped(err))
		}
		return
	}
	r.result.Started = time.Now()
	if !r.resumed {
		r.file.Run.Timestamps.StartedAt = state.Millis(r.result.Started.UnixMilli())
	}
	r.placed = true
	if w.o.Started != nil {
		w.o.Started(r.ws, r.file)
	}
	why, parked := r.work()
	for parked && r.stoppedByHand() { // it came when nothing was at work any more
		why, parked = r.work()
	}
	// The processes have ended. What is left is to write so, which needs no place.
	w.ended(r.result.Started)
	r.givePlace()
	if parked {
		r.park()
		return
	}
	r.settle(why)
}

// stoppedByHand reports whether somebody cancelled the run. The end of this process is no reason to end what is parked.
func (r *Run) stoppedByHand() bool {
	cause := context.Cause(r.ctx)
	return cause != nil && cause.Error() != stopReason
}

// enterQueue waits for the run's turn and a place, and begins it; without them the run has ended here.
func (r *Run) enterQueue() (ok bool) {
	await := r.await
	if r.resumed {
		await = r.awaitAgain
	}
	ok, err := await()
	if ok {
		switch {
		case r.resumed:
			err = r.begin(func(*state.RunFile) error { return r.continued() })
		case r.written:
			err = r.begin(r.ws.WriteRun)
		default:
			err = r.begin(r.ws.CreateRun)
		}
		if err == nil {
			r.written = true
			return true
		}
		r.w.freePlace(r)
		if r.resumed {
			r.staysParked(err)
			return false
		}
	}
	switch {
	case err == nil && r.resumed:
		r.result.Status, r.result.File = state.Suspended, r.file
	case err == nil:
		r.result.Status = state.Queued
	case r.written:
		r.settle(asStopped(err))
	default:
		r.refuse(asStopped(err))
	}
	return false
}

// awaitAgain waits for the turn and the place of a run that was parked. One that is cancelled meanwhile needs them only
// where it has final steps to do.
func (r *Run) awaitAgain() (ok bool, err error) {
	stop := r.ctx.Done()
	for _, s := range r.launch.Workflow.Steps {
		if s.Final != NotFinal {
			stop = nil
		}
	}
	if placed, ok, err := r.awaitTurn(stop); placed || !ok {
		return ok, err
	}
	select {
	case <-r.granted:
		return true, nil
	case <-stop:
	case <-r.w.stop:
	}
	if r.w.leaveQueue(r) {
		return true, nil
	}
	if stop == nil {
		return false, nil
	}
	return false, context.Cause(r.ctx)
}

// staysParked puts a run that cannot go on back among the parked ones.
func (r *Run) staysParked(err error) {
	r.log().Error("parked run cannot go on", "error", err)
	r.result.Status, r.result.Finished = state.Suspended, time.Now()
	f, rerr := r.ws.Run(r.id)
	if rerr != nil || f.Run.Status != state.Suspended {
		return
	}
	r.result.File = f
	if r.w.o.Parks {
		r.w.keep(r.ws, f, r.claim)
		r.claim = nil
	}
}

func asStopped(err error) *stopped {
	if s := (*stopped)(nil); errors.As(err, &s) {
		return s
	}
	return failed("Error", "%v", err)
}

// awaitTurn waits for the run's turn in its workflow's line, where it has one, and takes a place with it where there is one.
// It is not ok where stop comes first, or the turn failed, which is the error, or where Drain leaves it in the line.
func (r *Run) awaitTurn(stop <-chan struct{}) (placed, ok bool, err error) {
	if r.wait == nil {
		return false, true, nil
	}
	select {
	case r.turn = <-r.wait.given:
	case <-stop:
		return false, false, context.Cause(r.ctx)
	case <-r.w.stop:
		return false, false, nil
	}
	if r.turn.err != nil {
		return false, false, r.turn.err
	}
	return r.w.takePlace(r), true, nil
}

// await waits for the run's turn and for a place. It is not ok where the run was cancelled first, or failed, which is
// the error, or where Drain leaves it in the queue.
func (r *Run) await() (ok bool, err error) {
	if placed, ok, err := r.awaitTurn(r.ctx.Done()); placed || !ok {
		return ok, err
	}
	if r.brief && !r.written {
		if err := r.waitBriefly(); err != nil {
			return false, err
		}
	}
	if r.w.awaitPlace(r) {
		return true, nil
	}
	return false, context.Cause(r.ctx)
}

// queuedAfter is how long a tick's run waits for a place before it is recorded as queued. Until then the slot, which no
// record names as started, is what a successor finds.
const queuedAfter = time.Second

// waitBriefly waits for a place for a moment, and then records the run as queued and the key's slot as its own.
func (r *Run) waitBriefly() error {
	t := time.NewTimer(queuedAfter)
	defer t.Stop()
	select {
	case <-r.granted:
		return nil
	case <-r.ctx.Done():
		return nil
	case <-r.w.stop:
		return nil
	case <-t.C:
	}
	if err := r.ws.CreateRun(r.file); err != nil {
		if r.w.leaveQueue(r) {
			r.w.freePlace(r)
		}
		return err
	}
	r.written = true
	r.claimed = r.started(time.Now()) == nil // where this fails it is tried again at the start
	return nil
}

// end closes ended, once. Only main calls it.
func (r *Run) end() {
	select {
	case <-r.ended:
	default:
		close(r.ended)
	}
}

// refuse ends a run that is on no record.
func (r *Run) refuse(why *stopped) {
	r.result.RunID, r.result.Status, r.result.Error, r.result.Finished = "", state.Failed, &why.err, time.Now()
	if why.status != "" {
		r.result.Status = why.status
	}
}

// started tells the caller that the run is about to start, or waits for a place.
func (r *Run) started(at time.Time) (err error) {
	if r.launch.Started == nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			r.log().Error("panic at the start of a run", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.launch.Started(r.id, at)
}

// putFiles writes the handler's files.
func (r *Run) putFiles() error {
	for name, data := range r.launch.Files {
		err := os.WriteFile(r.filePath(name), data, 0o600)
		if err == nil {
			err = r.who.give(r.filePath(name))
		}
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
	}
	return nil
}

// filePath is where a handler's file lies: change for MARBLES_CHANGE_FILE.
func (r *Run) filePath(name string) string {
	return filepath.Join(r.dir, "file-"+fileName(strings.ToLower(strings.TrimPrefix(name, "MARBLES_"))))
}

// collectFiles reads the launch file and removes the handler's files.
func (r *Run) collectFiles() error {
	for name := range r.launch.Files {
		defer os.Remove(r.filePath(name))
	}
	if _, ok := r.launch.Files[LaunchFile]; !ok {
		return nil
	}
	if err := r.who.mayRead(r.filePath(LaunchFile)); err != nil {
		return fmt.Errorf("cannot read what was put into %s: %w", LaunchFile, err)
	}
	data, err := readResult(r.filePath(LaunchFile))
	if err != nil {
		return fmt.Errorf("cannot read what was put into %s: %w", LaunchFile, err)
	}
	r.result.Files = map[string][]byte{LaunchFile: data}
	return nil
}

// savePause is how long a settled run waits before it tries again to write its file: each time twice as long, up to
// maxSavePause.
const (
	savePause    = 50 * time.Millisecond
	maxSavePause = 5 * time.Second
)

// settle records how the run ended: the end of the journal, durably, then the run file. A tick goes on as soon as the
// journal knows.
func (r *Run) settle(why *stopped) {
	now, t := time.Now(), &r.file.Run.Timestamps
	at := state.Millis(now.UnixMilli())
	run := &r.file.Run
	switch {
	case why == nil:
		run.Status, run.Output, t.CompletedAt = state.Complete, r.outcome, at
	case why.status == state.Cancelled:
		run.Status, run.Error, t.CancelledAt = state.Cancelled, &why.err, at
	default:
		run.Status, run.Error, t.FailedAt = state.Failed, &why.err, at
	}
	if r.resumed && r.journal.j == nil { // cancelled while it was parked
		j, err := r.ws.OpenJournal(r.id, runName(r.launch), now)
		r.journal.warn(err)
		r.journal.j = j
	}
	r.dropUnits()
	r.journal.end(now, run.Status, run.Output, run.Error)
	turn := r.w.afterStarts()
	r.journal.sync()
	r.w.at("ended")
	r.result.Status, r.result.Output, r.result.Error, r.result.Finished = run.Status, run.Output, run.Error, now
	r.end()
	err := r.write()
	turn()
	saved := err == nil || r.save(err)
	r.w.at("settled")
	if !saved {
		return
	}
	if r.late && r.launch.Key != "" {
		r.w.lateHistory(r.ws, r.file)
	}
	r.w.mu.Lock()
	asked := r.asked
	r.w.mu.Unlock()
	if asked.Run != "" { // else a retry of the run would be cancelled by it
		if err := r.ws.Done(asked); err != nil {
			r.log().Warn("request cannot be removed", "error", err)
		}
	}
	r.w.settled(r.ws, r.file)
}

// save tries to write a settled run's file until it can be written: on a full disk an end must not be lost for want of
// patience. It gives up when the worker drains, or the run is cancelled from now on: a cancel that came before is what may
// have ended the run. A later marbles then settles it from the journal.
func (r *Run) save(err error) (saved bool) {
	r.log().Error("run has ended and cannot be saved, trying until it can be", "status", r.file.Run.Status, "error", err)
	pause := time.NewTimer(0)
	defer pause.Stop()
	select {
	case <-r.insist:
	default:
	}
	for wait := savePause; ; wait = min(2*wait, maxSavePause) {
		pause.Reset(wait)
		giveUp := false
		select {
		case <-pause.C:
		case <-r.w.stop:
			giveUp = true
		case <-r.insist:
			giveUp = true
		}
		if err = r.write(); err == nil {
			r.log().Info("run is saved")
			return true
		}
		if giveUp {
			r.log().Error("run is not saved", "status", r.file.Run.Status, "error", err)
			return false
		}
	}
}
