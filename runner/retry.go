package runner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// all does a step whole: its condition, its items, its attempts.
func (s *step) all(ctx context.Context, input []member) (ev event) {
	defer func() {
		if p := recover(); p != nil {
			s.r.log().Error("panic in a step", "step", s.Name, "panic", p, "stack", string(debug.Stack()))
			why := failed("Error", "panic: %v", p)
			s.finish(why)
			ev = event{recs: []state.StepRecord{s.rec}, why: why}
		}
	}()
	if s.If != nil {
		yes, why := s.holds(ctx, input)
		if why == nil && !yes {
			s.rec.FinishedAt = s.rec.StartedAt
			s.rec.Status = state.Skipped
			s.r.journal.line(s.Name, "skipped: "+s.If.String())
			s.r.journal.step(&s.rec)
			return event{recs: []state.StepRecord{s.rec}}
		}
		if why != nil {
			return s.ended(ctx, why)
		}
	}
	if s.Each != nil {
		return s.each(ctx, input)
	}
	return s.once(ctx, input)
}

// holds asks the step's condition.
func (s *step) holds(ctx context.Context, input []member) (bool, *stopped) {
	values, err := s.program(ctx, s.If, input)
	switch {
	case err != nil:
		return false, failed("ConditionError", "has a condition that cannot be told: %v", err)
	case len(values) != 1:
		return false, failed("ConditionError", "has a condition that gave %d values, not one", len(values))
	}
	kind := values[0].Kind()
	return kind != 'n' && kind != 'f', nil
}

// programTime bounds a program of a definition.
const programTime = 10 * time.Second

func (s *step) program(ctx context.Context, p Program, input []member) ([]jsontext.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	return p.Run(ctx, object(input))
}

// once does a step for its one item, as often as it is to be tried.
func (s *step) once(ctx context.Context, input []member) event {
	ev := s.tries(ctx, input)
	ev.closes = s.closes
	if s.unit != nil && !(ev.parked && s.asked == nil) {
		s.freeUnit(s.unit) // its end is in the journal
	}
	return ev
}

func (s *step) tries(ctx context.Context, input []member) event {
	switch {
	case s.Ask != nil:
		return s.question(ctx)
	case s.Wait != nil:
		return s.wait()
	}
	if why, open := s.answers(); why != nil {
		return s.ended(ctx, why)
	} else if open {
		return event{parked: true}
	}
	if s.Isolate != nil && s.outlived() == nil && s.r.leaves() {
		return event{parked: true} // the next process begins it: here each would be left as soon as it began
	}
	began := s.rec.StartedAt
	first := 1
	if w := s.outlived(); w != nil {
		first = max(w.Unit().Attempt, 1)
	}
	for n := first; ; n++ {
		s.rec = state.StepRecord{Name: s.Name, Item: s.item, Status: state.Running, StartedAt: began}
		if n > 1 {
			s.rec.Attempts = n
		}
		if n > first || s.outlived() == nil {
			s.r.journal.line(s.label(), "started")
		}
		why := s.attempt(ctx, input)
		switch {
		case s.asked != nil:
			return s.parkForAnswer(ctx)
		case why == errUnitLeft:
			return s.parkForUnit()
		case s.rec.Child != "" && why == errChildParked:
			return s.parkForChild()
		case why == nil || !s.again(ctx, why, n):
			return s.ended(ctx, why)
		}
		pause := s.Retry.pause(n)
		s.r.journal.line(s.label(), fmt.Sprintf("failed: %s; attempt %d of %d follows in %s", why.err.Message, n+1, s.Retry.Attempts, Brief(pause)))
		if within(ctx.Done(), pause) {
			return s.ended(ctx, asStopped(context.Cause(ctx)))
		}
	}
}

// ended is the report of a step that has ended, or was stopped by a pause.
func (s *step) ended(ctx context.Context, why *stopped) event {
	if why != nil && why.status == state.Cancelled && context.Cause(ctx) == error(errPaused) {
		s.r.journal.line(s.label(), "stopped: the run is paused")
		return event{dropped: true}
	}
	s.finish(why)
	return event{recs: []state.StepRecord{s.rec}, why: why}
}

// attempt does the step's work once.
func (s *step) attempt(ctx context.Context, input []member) *stopped {
	switch {
	case s.Start != nil:
		return s.child(ctx, input)
	case s.Call != nil:
		return s.call(ctx, input)
	}
	if err := s.r.hold(ctx); err != nil {
		return asStopped(err)
	}
	defer s.r.letGo()
	return s.do(ctx, append(s.e.own[:len(s.e.own):len(s.e.own)], s.more...), input)
}

// limited is a context that ends with the step's time for one attempt.
func (s *step) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.Timeout, timedOut(s.Timeout))
}

// call does a step within this process.
func (s *step) call(ctx context.Context, input []member) *stopped {
	ctx, cancel := s.limited(ctx)
	defer cancel()
	result, err := s.Call(ctx, Call{Run: s.r.id, Key: s.r.launch.Key, Input: object(input), Output: streamWriter{s}})
	switch {
	case err != nil && ctx.Err() != nil:
		return asStopped(context.Cause(ctx))
	case err != nil:
		return asStopped(err)
	}
	s.rec.Result = result
	return nil
}

// streamWriter is the output of an in-process step.
type streamWriter struct{ s *step }

func (w streamWriter) Write(b []byte) (int, error) {
	w.s.r.journal.text(w.s.label(), "stream", b, false)
	w.s.r.echo.write(b)
	return len(b), nil
}

// again reports whether a step is tried again after an attempt that failed.
func (s *step) again(ctx context.Context, why *stopped, n int) bool {
	if n >= s.Retry.Attempts || why.whole || ctx.Err() != nil {
		return false
	}
	return s.Retry.ExitCodes == nil || s.rec.ExitCode != nil && slices.Contains(s.Retry.ExitCodes, *s.rec.ExitCode)
}

// pause is how long to wait after the attempt n: twice as long each time up to the cap, and a quarter more or less by chance, so
// that what failed together does not come back together.
func (r Retry) pause(n int) time.Duration {
	d := r.Wait
	for range n - 1 {
		if d *= 2; r.MaxWait > 0 && d > r.MaxWait || d > maxRetryWait {
			break
		}
	}
	if r.MaxWait > 0 {
		d = min(d, r.MaxWait)
	}
	d = min(d, maxRetryWait)
	if d <= 0 {
		return 0
	}
	return d*3/4 + rand.N(d/2+1)
}

// maxRetryWait is the longest wait between two attempts where the definition gives no cap.
const maxRetryWait = 24 * time.Hour
