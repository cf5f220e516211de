package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"marbles/cmd/internal/catalog"
	"marbles/runner"
	"marbles/state"
)

// questions is `answer --json` without an answer.
type questions struct {
	Questions []openQuestion `json:"questions"`
	Damaged   []string       `json:"damaged"` // runs, and workspaces, that cannot be told
}

// openQuestion is a question that waits for an answer.
type openQuestion struct {
	Run      string   `json:"run"`
	Workflow string   `json:"workflow"`
	Key      string   `json:"key,omitempty"`
	Step     string   `json:"step"`
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Body     string   `json:"body,omitempty"`
	Mode     string   `json:"mode"`    // question | approval
	Choices  []string `json:"choices"` // none: any text
	Default  *string  `json:"default,omitzero"`
	Since    *string  `json:"since"`
	Deadline *string  `json:"deadline"`
	Project  string   `json:"project"`
}

// answered is `answer --json` with an answer.
type answered struct {
	Run    string         `json:"run"`
	Answer string         `json:"answer"`
	Note   string         `json:"note,omitempty"`
	PID    int            `json:"pid,omitzero"`     // who carries the run on, where it is another process
	Status state.Status   `json:"status,omitempty"` // how the run is, where this process carried it on
	Result jsontext.Value `json:"result,omitempty"`
}

type answerFlags struct {
	note, step  string
	question    string
	noRun, json bool
}

func newAnswer(a *app) *cobra.Command {
	var f answerFlags
	c := &cobra.Command{
		Use:   "answer [<run> [approve|reject|<choice>|<text>]]",
		Short: "Answer a question that a run waits for, or list the open ones",
		Long: `Answer a question that a run waits for. Without an answer: list the open questions, of the run, or of every
workspace under the state root.

The process that keeps the run goes on with it within a second. Where there is none, neither a service nor another
owner, this command goes on with the run itself, as roll would, unless --no-run leaves it to the next service.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 {
				return usage("answer takes a run id and one answer (quote an answer of several words)")
			}
			return nil
		},
		ValidArgsFunction: a.completeAnswer,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) < 2 {
				return a.openQuestions(c, args, f.json)
			}
			return a.answer(c, args[0], args[1], f)
		},
	}
	c.Flags().StringVar(&f.note, "note", "", "a `text` that is kept with the answer; of a rejection it is the reason")
	c.Flags().StringVar(&f.step, "step", "", "the `step` that asks, where several do")
	c.Flags().StringVar(&f.question, "question", "", "the `id` of the very question, as it was printed with it")
	c.Flags().BoolVar(&f.noRun, "no-run", false, "leave the run to the next service where none is up")
	jsonFlag(c, &f.json)
	return c
}

func (a *app) answer(c *cobra.Command, text, answer string, f answerFlags) error {
	act, err := a.actor(c)
	if err != nil {
		return err
	}
	ws, run, err := act.run(text)
	if err != nil {
		return err
	}
	id := run.Run.ID
	run, err = ws.AnswerRun(c.Context(), id, cmp.Or(f.question, f.step), state.Answer{Answer: answer, Note: f.note, By: a.who()})
	if err != nil {
		return refusedAnswer(id, err)
	}
	done := answered{Run: id, Answer: answer, Note: f.note}
	wentOn := func(f *state.RunFile) bool { return f.Run.Status != state.Suspended }
	pid, now, err := settleOn(c.Context(), ws, id, wentOn)
	if err != nil {
		return err
	}
	if pid == 0 && wentOn(now) {
		pid = now.PID // that is gone already
	}
	if pid != 0 || f.noRun || paused(run) {
		done.PID = pid
		if f.json {
			return printJSON(a.Stdout, done)
		}
		switch {
		case paused(run):
			fmt.Fprintf(a.Stderr, "answered; the run is paused: %s\n", a.command("resume", id))
		case pid != 0:
			fmt.Fprintf(a.Stderr, "answered; pid %d goes on with run %s\n", pid, id)
		default:
			fmt.Fprintf(a.Stderr, "answered; the next service goes on with run %s\n", id)
		}
		return nil
	}
	res, err := act.carryOn(c, ws, func(_ context.Context, w *runner.Worker, _ *catalog.Catalog) (*runner.Run, error) {
		return w.Continue(ws, id, a.Stderr)
	})
	if held := (*state.HeldError)(nil); errors.As(err, &held) { // a service came up meanwhile
		fmt.Fprintf(a.Stderr, "answered; %s goes on with run %s\n", safe(held.Holder), id)
		return nil
	}
	if err != nil && res.RunID == "" {
		return fmt.Errorf("the answer is kept, but run %s cannot go on here: %w", id, err)
	}
	if f.json && err == nil {
		done.Status, done.Result = res.Status, res.Output
		return printJSON(a.Stdout, done)
	}
	return a.rolled(res, err)
}

// refusedAnswer is an answer that was not taken. What the original says stands alone.
func refusedAnswer(id string, err error) error {
	coded := &codedError{code: exitRun, err: err}
	if errors.Is(err, state.ErrAnswered) {
		return state.Hint(coded, "marbles show "+id)
	}
	if hint := state.HintOf(err); hint != "" {
		return state.Hint(coded, hint)
	}
	return state.Hint(coded, "marbles answer "+id)
}

// paused reports whether a pause keeps a run from going on.
func paused(f *state.RunFile) bool {
	for _, s := range f.Open() {
		if s.Kind == state.SuspendPause {
			return true
		}
	}
	return false
}

// openQuestions lists what waits for an answer.
func (a *app) openQuestions(c *cobra.Command, args []string, asJSON bool) error {
	_, root, err := a.reader(c)
	if err != nil {
		return err
	}
	list := questions{Questions: []openQuestion{}, Damaged: []string{}}
	damaged := func(errs ...error) {
		for _, err := range errs {
			list.Damaged = append(list.Damaged, err.Error())
		}
	}
	if len(args) == 1 {
		ws, id, err := a.findRun(root, args[0])
		if err != nil {
			return err
		}
		f, err := ws.Run(id)
		if err != nil {
			return unknownRun(id, err)
		}
		list.Questions = appendQuestions(list.Questions, ws, f, damaged)
	} else {
		workspaces, errs, err := root.Survey()
		if err != nil {
			return err
		}
		damaged(errs...)
		for _, ws := range workspaces {
			files, errs, err := ws.Unsettled()
			damaged(errs...)
			if err != nil {
				damaged(err)
			}
			for _, f := range files {
				list.Questions = appendQuestions(list.Questions, ws, f, damaged)
			}
		}
	}
	if asJSON {
		return printJSON(a.Stdout, list)
	}
	a.warnDamaged(list.Damaged)
	return list.print(a)
}

// appendQuestions adds the open questions of a run that waits.
func appendQuestions(list []openQuestion, ws *state.Workspace, f *state.RunFile, damaged func(...error)) []openQuestion {
	if f.Run.Status != state.Suspended {
		return list
	}
	for _, s := range f.Open() {
		if s.Kind != state.SuspendInput {
			continue
		}
		q, err := s.Question()
		if err != nil {
			damaged(err)
			continue
		}
		list = append(list, openQuestion{
			Run: f.Run.ID, Workflow: f.Run.Step, Key: f.Run.Extensions.TriggerID, Step: s.Name, ID: s.Short(),
			Title: q.Title, Body: q.Body, Mode: q.Mode, Choices: append([]string{}, choices(q)...), Default: q.Default,
			Since: instant(millis(s.Timestamps.CreatedAt)), Deadline: instant(s.Due()), Project: ws.Project(),
		})
	}
	return list
}

func (l questions) print(a *app) error {
	if len(l.Questions) == 0 {
		_, err := fmt.Fprintln(a.Stdout, "no open questions")
		return err
	}
	rows := [][]string{{"RUN", "STEP", "TITLE", "CHOICES", "SINCE", "DEADLINE"}}
	for _, q := range l.Questions {
		answers := "any text"
		if len(q.Choices) > 0 {
			answers = strings.Join(q.Choices, ", ")
		}
		deadline := localText(q.Deadline)
		if q.Deadline != nil && q.Default != nil {
			deadline += " (then " + clean(*q.Default, 40) + ")"
		}
		rows = append(rows, []string{q.Run, clean(q.Step, 40), clean(q.Title, 80), clean(answers, 100), localText(q.Since), deadline})
	}
	return a.paint(a.Stdout).table(a.Stdout, rows)
}

// completeAnswer completes the runs that ask, then the choices of the one that was given.
func (a *app) completeAnswer(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	_, root, err := a.reader(c)
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	workspaces, _, err := root.Survey() // a list of proposals has no place for damage
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []string
	ignore := func(...error) {}
	for _, ws := range workspaces {
		files, _, _ := ws.Unsettled()
		for _, f := range files {
			for _, q := range appendQuestions(nil, ws, f, ignore) {
				switch {
				case len(args) == 0 && strings.HasPrefix(q.Run, prefix):
					offers = append(offers, q.Run+"\t"+clean(q.Title, 80))
				case len(args) == 1 && (q.Run == args[0] || strings.HasSuffix(q.Run, args[0])):
					offers = append(offers, q.Choices...)
				}
			}
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
