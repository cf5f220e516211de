package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// AskDirVariable is the variable with the directory in which a step's process and the runner exchange questions and
// answers: the runner puts answer-<n>.json and question-<n>.json there for what was answered at an earlier attempt; a
// process takes its number by creating call-<n>, and leaves question-<n>.json where there is no answer.
const AskDirVariable = "MARBLES_ASK_DIR"

// ExitAsked is the exit code (EX_TEMPFAIL) of a process that asked something and has no answer yet.
const ExitAsked = 75

// ErrAsked says that a question has no answer yet: it was left for the runner.
var ErrAsked = errors.New("the question waits for its answer")

// AskFromStep asks a question in a step's process. Without an answer it is ErrAsked, and the process has to end
// with ExitAsked; the step runs again when there is one.
func AskFromStep(dir string, q state.Question) (*state.Answer, error) {
	n, err := takeCall(dir)
	if err != nil {
		return nil, err
	}
	question := filepath.Join(dir, fmt.Sprintf("question-%d.json", n))
	var a state.Answer
	switch err := readAsked(filepath.Join(dir, fmt.Sprintf("answer-%d.json", n)), &a); {
	case errors.Is(err, fs.ErrNotExist):
		data, err := json.Marshal(q, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return nil, fmt.Errorf("cannot ask %q: %w", q.Title, err)
		}
		if err := os.WriteFile(question, data, 0o600); err != nil {
			return nil, fmt.Errorf("cannot ask %q: %w", q.Title, err)
		}
		return nil, ErrAsked
	case err != nil:
		return nil, err
	}
	var was state.Question
	if err := readAsked(question, &was); err != nil {
		return nil, err
	}
	if was.Title != q.Title || was.Mode != q.Mode || !slices.Equal(was.Choices, q.Choices) {
		return nil, fmt.Errorf("cannot ask %q: at the last attempt call %d of this step asked %q", q.Title, n, was.Title)
	}
	return &a, nil
}

// takeCall takes the next number of this attempt. Calls side by side get different ones.
func takeCall(dir string) (int, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, fmt.Errorf("cannot ask: %w", err)
	}
	for n := 0; ; n++ {
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("call-%d", n)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("cannot ask: %w", err)
		}
		return n, f.Close()
	}
}

func readAsked(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot ask: %w", err)
	}
	if err := json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("cannot ask: cannot read %s: %w", path, err)
	}
	return nil
}
