package runner

import (
	"context"
	"strconv"
	"time"

	"marbles/state"
)

// finalTime is how long a final step may take where the run was told to stop and the step says nothing of it.
const finalTime = time.Minute

// finals does the final steps of a run that ends for a reason, nil for success, one after the other. What ended the run
// does not end them; being told to stop once more does. The first that fails fails a run that had not failed.
func (e *engine) finals(why *stopped) (failure *stopped) {
	if len(e.graph.finals) == 0 {
		return nil
	}
	told := e.ctx.Err() != nil
	select {
	case <-e.r.insist: // that was the first time
	default:
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(e.ctx))
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	go func() { // ends with the steps: over is closed
		select {
		case <-e.r.insist:
			cancel(cancelled("told to stop twice"))
		case <-over:
		}
	}()
	more := finalEnv(why, e.culprit)
	for _, n := range e.graph.finals {
		if n.Final == OnFailure && why == nil && failure == nil {
			continue
		}
		s := e.newStep(n)
		s.more, s.scratch = more, "final"+strconv.Itoa(n.i)
		if told && s.Timeout == 0 {
			s.Timeout = finalTime
			if cause := context.Cause(e.r.ctx); cause != nil && cause.Error() == stopReason {
				s.Timeout = min(finalTime, max(e.r.w.o.Grace, time.Second))
			}
		}
		ev := s.all(ctx, e.graph.inputOf(e.r.input, n))
		if ev.parked {
			ev = s.ended(ctx, failed("Error", "cannot wait for anybody at the end of a run"))
		}
		e.keep(ev.recs)
		if ev.why != nil && !n.ContinueOnError && failure == nil {
			failure = s.ofRun(ev.why)
			if failure.status == state.Cancelled {
				failure = failed("CancelledError", "step %q was stopped: %s", n.Name, ev.why.err.Message)
			}
		}
	}
	return failure
}

// finalEnv tells a final step how the run went.
func finalEnv(why *stopped, step string) []string {
	if why == nil {
		return []string{"MARBLES_STATUS=" + string(state.Complete), "MARBLES_ERROR=", "MARBLES_FAILED_STEP="}
	}
	status := why.status
	if status != state.Cancelled {
		status = state.Failed
	}
	return []string{"MARBLES_STATUS=" + string(status), "MARBLES_ERROR=" + oneLine(why.err.Message), "MARBLES_FAILED_STEP=" + step}
}

// oneLine is a message as a variable can hold it.
func oneLine(text string) string {
	const most = 4 << 10
	if len(text) > most {
		text = text[:most]
	}
	b := []byte(text)
	for i, c := range b {
		if c == 0 {
			b[i] = ' '
		}
	}
	return string(b)
}
