package runner

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// path is where a step stands, as a suspension names it.
func (s *step) path() []string {
	p := []string{s.r.launch.Workflow.Name, s.Name}
	if s.item != nil {
		p = append(p, strconv.Itoa(*s.item))
	}
	return p
}

// suspend is a new thing that the step waits for.
func (s *step) suspend(kind, reason string, request any) state.Suspension {
	now := time.Now()
	n := 0
	for _, w := range s.past.waits {
		if w.Kind == kind {
			n++
		}
	}
	text, err := json.Marshal(request, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
	if err != nil {
		text = jsontext.Value("{}") // what we make ourselves can be written
	}
	w := state.Suspension{
		ID: "su-" + strings.TrimPrefix(state.NewRunID(now), "rn-"), RunID: s.r.id, Kind: kind, Name: s.Name, Occurrence: n, Reason: reason,
		Request: text, Resolution: jsontext.Value("null"), Status: state.Pending, StepPath: s.path(),
		Timestamps: state.SuspensionTimes{CreatedAt: state.Millis(now.UnixMilli())},
	}
	if kind == state.SuspendUnit {
		s.r.journal.line(s.label(), "goes on in "+w.Text()+" while the service is away")
	} else {
		s.r.journal.line(s.label(), "waits for "+w.Text())
	}
	return w
}

// waited is the latest thing of a kind that the step waited for; nil for none.
func (s *step) waited(kind string) *state.Suspension {
	for i := len(s.past.waits) - 1; i >= 0; i-- {
		if w := &s.past.waits[i]; w.Kind == kind {
			return w
		}
	}
	return nil
}

// mayPark says why a run cannot wait for anybody; nil where it can.
func (r *Run) mayPark() *stopped {
	if r.launch.Kind == kindHandler || len(r.launch.Files) > 0 {
		return failed("Error", "cannot wait: a handler has to end with its tick; let it start a workflow that waits")
	}
	return nil
}

// question does an approve or ask step.
func (s *step) question(ctx context.Context) event {
	if why := s.r.mayPark(); why != nil {
		return s.ended(ctx, why)
	}
	w := s.waited(state.SuspendInput)
	if w == nil {
		q := state.Question{Title: s.Ask.Title, Body: s.Ask.Body, Choices: s.Ask.Choices, Mode: s.Ask.Mode, Default: s.Ask.Default}
		if q.Mode == state.ModeApproval {
			q.Choices = []string{state.Approve, state.Reject}
		}
		if s.Ask.Deadline > 0 {
			q.Until = state.Stamp{Time: time.Now().Add(s.Ask.Deadline)}
		}
		return event{parked: true, waits: []state.Suspension{s.suspend(state.SuspendInput, q.Title, q)}}
	}
	if w.Status == state.Pending {
		return event{parked: true}
	}
	s.rec.StartedAt = w.Timestamps.CreatedAt
	a, why := answerOf(w)
	if why != nil {
		return s.ended(ctx, why)
	}
	if s.Ask.Mode == state.ModeApproval {
		if a.Answer == state.Reject {
			return s.ended(ctx, rejected(a.Note))
		}
		s.rec.Result, _ = json.Marshal(struct {
			Answer string `json:"answer"`
			Note   string `json:"note"`
		}{a.Answer, a.Note}, jsontext.AllowInvalidUTF8(true))
	} else {
		s.rec.Result, _ = jsontext.AppendQuote(nil, a.Answer)
	}
	return s.ended(ctx, nil)
}

// rejected ends a run whose approval somebody refused.
func rejected(note string) *stopped {
	if note == "" {
		note = "rejected"
	}
	return &stopped{status: state.Cancelled, err: state.RunError{Name: "RejectedError", Message: note}, whole: true}
}

// answerOf is the answer that a question got; one whose deadline passed without a default fails.
func answerOf(w *state.Suspension) (*state.Answer, *stopped) {
	a, err := w.Answer()
	switch {
	case err != nil:
		return nil, asStopped(err)
	case a == nil || a.By == byDeadline:
		return nil, failed("TimeoutError", "got no answer until %s", w.Due().Local().Format(time.DateTime))
	}
	return a, nil
}

// byDeadline is who answers where nobody does: that is no answer.
const byDeadline = "deadline"

// wait does a wait step.
func (s *step) wait() event {
	if why := s.r.mayPark(); why != nil {
		return s.ended(context.Background(), why)
	}
	w := s.waited(state.SuspendWait)
	if w != nil && w.Status == state.Pending {
		return event{parked: true}
	}
	if w == nil {
		until := s.Wait.Until
		if until.IsZero() {
			until = time.Now().Add(s.Wait.For)
		}
		if until.After(time.Now()) {
			return event{parked: true, waits: []state.Suspension{
				s.suspend(state.SuspendWait, until.Format(time.RFC3339), struct {
					Until state.Stamp `json:"until"`
				}{state.Stamp{Time: until}}),
			}}
		}
	} else {
		s.rec.StartedAt = w.Timestamps.CreatedAt
	}
	return s.ended(context.Background(), nil)
}
