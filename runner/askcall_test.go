package runner

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"marbles/state"
)

func putAsked(t *testing.T, dir, name string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAskFromStep(t *testing.T) {
	q := state.Question{Title: "Which?", Mode: state.ModeQuestion, Choices: []string{"a", "b"}}
	t.Run("asked", func(t *testing.T) {
		dir := t.TempDir()
		if _, err := AskFromStep(dir, q); !errors.Is(err, ErrAsked) {
			t.Fatalf("got %v, want ErrAsked", err)
		}
		var left state.Question
		if err := readAsked(filepath.Join(dir, "question-0.json"), &left); err != nil || left.Title != "Which?" || len(left.Choices) != 2 {
			t.Errorf("the runner finds %+v, %v", left, err)
		}
	})
	t.Run("answered, then asked", func(t *testing.T) {
		dir := t.TempDir()
		putAsked(t, dir, "question-0.json", q)
		putAsked(t, dir, "answer-0.json", state.Answer{Answer: "b"})
		a, err := AskFromStep(dir, q)
		if err != nil || a.Answer != "b" {
			t.Fatalf("got %+v, %v", a, err)
		}
		if _, err := AskFromStep(dir, state.Question{Title: "Next?"}); !errors.Is(err, ErrAsked) {
			t.Fatalf("got %v, want ErrAsked", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "question-1.json")); err != nil {
			t.Error(err)
		}
	})
	for name, other := range map[string]state.Question{
		"another title": {Title: "Who?", Mode: q.Mode, Choices: q.Choices},
		"another mode":  {Title: q.Title, Mode: state.ModeApproval, Choices: q.Choices},
		"other choices": {Title: q.Title, Mode: q.Mode, Choices: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			putAsked(t, dir, "question-0.json", other)
			putAsked(t, dir, "answer-0.json", state.Answer{Answer: "b"})
			a, err := AskFromStep(dir, q)
			if err == nil || errors.Is(err, ErrAsked) || !strings.Contains(err.Error(), `cannot ask "Which?"`) {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
	t.Run("no directory", func(t *testing.T) {
		// It is made for the first question.
		if _, err := AskFromStep(filepath.Join(t.TempDir(), "new"), q); !errors.Is(err, ErrAsked) {
			t.Errorf("got %v", err)
		}
		if _, err := AskFromStep(filepath.Join(t.TempDir(), "gone", "dir"), q); err == nil || errors.Is(err, ErrAsked) {
			t.Errorf("got %v", err)
		}
	})
}

// Two processes of a step that ask side by side have a question each.
func TestAskFromStepSideBySide(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	const calls = 20
	for range calls {
		all.Go(func() {
			if _, err := AskFromStep(dir, state.Question{Title: "?"}); !errors.Is(err, ErrAsked) {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
	if left, _ := filepath.Glob(filepath.Join(dir, "question-*.json")); len(left) != calls {
		t.Errorf("%d questions, want %d", len(left), calls)
	}
}
