package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/state"
)

type askFlags struct {
	choices                  []string
	approve                  bool
	body, fallback, deadline string
}

// maxChoices is how many a question may have.
const maxChoices = 9

func newAsk(a *app) *cobra.Command {
	var f askFlags
	c := &cobra.Command{
		Use:   "ask <title>",
		Short: "Ask a person something, from a step's process",
		Long: `Ask a person something, from a step's process, and print the answer.

Where there is no answer yet it exits with 75, and a step that ends with 75 is parked, with no process behind it. Once
"marbles answer" was used the step runs again from its beginning, and the same call returns the answer:

  colour=$(marbles ask "Which colour?" --choice red --choice blue) || exit
  marbles ask "Paint it $colour?" --approve || exit

An approval prints nothing: it exits with 0 for approve, and with 1 for reject, with the note on stderr. Every attempt of
the step must ask the same questions in the same order.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usage("ask takes one title (quote it)")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(_ *cobra.Command, args []string) error { return a.askPerson(args[0], f) },
	}
	c.Flags().StringArrayVar(&f.choices, "choice", nil, "an answer to choose from, several times; none: any text")
	c.Flags().BoolVar(&f.approve, "approve", false, "the answer is approve or reject")
	c.Flags().StringVar(&f.body, "body", "", "what there is to know, as `text`")
	c.Flags().StringVar(&f.fallback, "default", "", "the `answer` at the deadline; without one the step fails then")
	c.Flags().StringVar(&f.deadline, "deadline", "", "how `long` the answer may take, as 30m or 2h")
	return c
}

func (a *app) askPerson(title string, f askFlags) error {
	q, err := f.question(title, time.Now())
	if err != nil {
		return err
	}
	dir := a.getenv(runner.AskDirVariable)
	if dir == "" {
		return state.Hint(usage("ask works only in a step of a run: %s is not set", runner.AskDirVariable), "a step can be a question too: ask: "+title)
	}
	answer, err := runner.AskFromStep(dir, q)
	switch {
	case errors.Is(err, runner.ErrAsked):
		return &codedError{code: exitAsked, err: errSilent}
	case err != nil:
		return &codedError{code: exitUsage, err: err}
	case q.Mode != state.ModeApproval:
		_, err := fmt.Fprintln(a.Stdout, answer.Answer)
		return err
	case answer.Answer == state.Approve:
		return nil
	}
	if answer.Note != "" {
		fmt.Fprintln(a.Stderr, safe(answer.Note))
	}
	return &codedError{code: exitRun, err: errSilent}
}

func (f askFlags) question(title string, now time.Time) (state.Question, error) {
	q := state.Question{Title: title, Body: f.body, Choices: f.choices, Mode: state.ModeQuestion}
	if f.approve {
		if len(f.choices) > 0 {
			return q, usage("ask takes --approve or --choice, not both")
		}
		q.Mode, q.Choices = state.ModeApproval, []string{state.Approve, state.Reject}
	}
	if len(q.Choices) > maxChoices {
		return q, usage("ask takes at most %d choices", maxChoices)
	}
	for i, choice := range q.Choices {
		if choice == "" || slices.Contains(q.Choices[:i], choice) {
			return q, usage("cannot offer the choice %q: choices are different and not empty", choice)
		}
	}
	if f.deadline != "" {
		after, err := strict.Duration(f.deadline)
		if err != nil {
			return q, usage("cannot read --deadline: %w", err)
		}
		q.Until = state.Stamp{Time: now.Add(after)}
	}
	if f.fallback != "" {
		switch {
		case f.deadline == "":
			return q, usage("--default answers at the deadline: give --deadline too")
		case len(q.Choices) > 0 && !slices.Contains(q.Choices, f.fallback):
			return q, usage("--default %q is no choice", f.fallback)
		}
		q.Default = &f.fallback
	}
	return q, nil
}
