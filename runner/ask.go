package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// asked is a question of a step's process with its answer, as the ledger of the run has it.
type asked struct {
	Question *state.Question `json:"question"`
	Answer   *state.Answer   `json:"answer"`
}

// answers looks at what the step's process has asked before: open says that a question, or a child, is still waited for,
// and why that one got no answer in time.
func (s *step) answers() (why *stopped, open bool) {
	for i := range s.past.waits {
		w := &s.past.waits[i]
		switch {
		case w.Kind == state.SuspendInput && w.Status == state.Pending:
			return nil, true
		case w.Kind == state.SuspendInput:
			if _, why := answerOf(w); why != nil {
				return why, false
			}
		}
	}
	return nil, false
}

// ledger is what the step's process has asked, in order, and was answered.
func (s *step) ledger() (list []asked, err error) {
	for i := range s.past.waits {
		w := &s.past.waits[i]
		if w.Kind != state.SuspendInput {
			continue
		}
		q, err := w.Question()
		if err != nil {
			return nil, err
		}
		a, err := w.Answer()
		if err != nil {
			return nil, err
		}
		list = append(list, asked{q, a})
	}
	return list, nil
}

// ledgerKey is where the run file keeps the n-th question of a step's process.
func (s *step) ledgerKey(n int) string {
	return fmt.Sprintf("marbles:%s|ask|%d", strings.Join(s.path(), "."), n)
}

// keepLedger writes the questions that processes of steps were answered into the run file's ledger.
func (e *engine) keepLedger() {
	for _, n := range e.graph.nodes {
		if n.Ask != nil || n.Wait != nil || n.Start != nil {
			continue
		}
		count := map[string]int{}
		for _, w := range e.past(n).waits {
			s := &step{Step: n.Step, r: e.r}
			if len(w.StepPath) > 2 {
				i, err := strconv.Atoi(w.StepPath[2])
				if err != nil {
					continue
				}
				s.item = &i
			}
			q, qerr := w.Question()
			a, aerr := w.Answer()
			if qerr != nil || aerr != nil || a == nil {
				continue
			}
			text, err := json.Marshal(asked{q, a}, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
			if err != nil {
				continue
			}
			m := e.r.marbles()
			if m.Ledger == nil {
				m.Ledger = map[string]jsontext.Value{}
			}
			path := strings.Join(s.path(), ".")
			m.Ledger[s.ledgerKey(count[path])] = text
			count[path]++
		}
	}
}

// putLedger gives the step's process what it asked before and was answered. It makes the directory only where there is
// something; else the process does, if it asks.
func (s *step) putLedger(dir string) error {
	if len(s.past.waits) == 0 {
		return nil
	}
	list, err := s.ledger()
	if err != nil || len(list) == 0 {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := s.r.who.give(dir); err != nil {
		return err
	}
	for n, a := range list {
		for name, v := range map[string]any{"question": a.Question, "answer": a.Answer} {
			text, err := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
			if err == nil {
				path := filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, n))
				if err = os.WriteFile(path, text, 0o600); err == nil {
					err = s.r.who.give(path)
				}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// takeQuestion is the question that the step's process left to be answered; nil where it left none.
func (s *step) takeQuestion(dir string) (*state.Question, error) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	defer os.RemoveAll(dir)
	list, err := s.ledger()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("question-%d.json", len(list)))
	if err := s.r.who.mayRead(path); err != nil {
		return nil, err
	}
	text, err := readResult(path)
	if err != nil || text == nil {
		return nil, err
	}
	var q state.Question
	if err := json.Unmarshal(text, &q); err != nil {
		return nil, err
	}
	if q.Choices == nil {
		q.Choices = []string{}
	}
	return &q, nil
}

// askedInstead decides what it means that a step's process left a question: it waits where it ended as it should then.
func (s *step) askedInstead(dir string, why *stopped) *stopped {
	q, err := s.takeQuestion(dir)
	switch {
	case err != nil:
		return asStopped(fmt.Errorf("left a question that cannot be read: %w", err))
	case q == nil:
		return why
	case s.shows(q):
		return failed("Error", "asked a question that shows one of its secrets: it would stand in records and lists")
	case why == nil:
		return failed("Error", "asked %q and went on without the answer; end with the exit code %d of `marbles ask` then", q.Title, ExitAsked)
	case s.rec.ExitCode != nil && *s.rec.ExitCode == ExitAsked && why.err.Name == "ExitError":
		s.asked = q
	}
	return why
}

// parkForAnswer is the report of a step whose process has asked something.
func (s *step) parkForAnswer(ctx context.Context) event {
	if why := s.r.mayPark(); why != nil {
		return s.ended(ctx, why)
	}
	return event{parked: true, waits: []state.Suspension{s.suspend(state.SuspendInput, s.asked.Title, s.asked)}}
}

// shows reports whether a question shows a secret of the run.
func (s *step) shows(q *state.Question) bool {
	texts := append([]string{q.Title, q.Body}, q.Choices...)
	if q.Default != nil {
		texts = append(texts, *q.Default)
	}
	return slices.ContainsFunc(texts, func(text string) bool { return s.r.secrets.text(text) != text })
}
