package catalog

import (
	"slices"
	"strings"
	"time"

	"marbles/cmd/internal/strict"
	"marbles/runner"
	"marbles/state"
)

// maxChoices bounds the answers to choose from: each has a digit on a keyboard.
const maxChoices = 9

var (
	approveKeys = []string{"title", "body", "deadline", "default"}
	askKeys     = []string{"title", "body", "choices", "deadline", "default"}
	verdicts    = []string{"approve", "reject"}
	waitKeys    = []string{"until"}
	startKeys   = []string{"workflow", "input"}
)

// ask reads what a person is asked: a title, or that and more.
func (d *decoder) ask(n *strict.Node, approval bool) *runner.Ask {
	a := &runner.Ask{Mode: state.ModeQuestion}
	keys, want := askKeys, "a question as a text, or a mapping such as {title: …, choices: [a, b], deadline: 2h, default: a}"
	if approval {
		a.Mode = state.ModeApproval
		keys, want = approveKeys, "a title as a text, or a mapping such as {title: …, deadline: 2h, default: reject}"
	}
	if strict.KindOf(n) == strict.String {
		a.Title = d.title(n)
		return a
	}
	if !d.Map(n, want) {
		return a
	}
	var title, deadline, fallback *strict.Node
	for k, v := range d.Pairs(n) {
		if !slices.Contains(keys, k.Value) {
			d.Unknown(k, keys)
			continue
		}
		switch k.Value {
		case "title":
			title = v
			a.Title = d.title(v)
		case "body":
			a.Body = d.text(v, "a text")
		case "choices":
			a.Choices = d.choices(v)
		case "deadline":
			deadline = v
			a.Deadline, _ = d.Duration(v)
		case "default":
			fallback = v
		}
	}
	if title == nil {
		d.Errorf(n, "give title, what is asked")
	}
	if fallback == nil {
		return a
	}
	if deadline == nil {
		d.Errorf(fallback, "default is the answer at the deadline, and there is no deadline")
	}
	valid := a.Choices
	if approval {
		valid = verdicts
	}
	if answer, ok := d.answer(fallback, valid); ok {
		a.Default = &answer
	}
	return a
}

// title reads a text of one line.
func (d *decoder) title(n *strict.Node) string {
	text := d.text(n, "a title as a text")
	if strings.ContainsAny(text, "\n\r\x00") {
		d.Errorf(n, "a title is one line; more goes into body")
	}
	return text
}

// choices reads the answers to choose from.
func (d *decoder) choices(n *strict.Node) (choices []string) {
	if !d.List(n, "a list of answers") {
		return nil
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "list is empty; leave choices out for an answer in free words")
	}
	if len(n.Content) > maxChoices {
		d.Errorf(n, "there are %d choices, at most %d are allowed", len(n.Content), maxChoices)
	}
	for _, item := range d.Items(n) {
		choice, ok := d.Scalar(item, "an answer as a text")
		switch {
		case !ok:
		case strings.TrimSpace(choice) == "":
			d.Errorf(item, "choice is empty")
		case strings.ContainsAny(choice, "\n\r\x00"):
			d.Errorf(item, "a choice is one line")
		case slices.Contains(choices, choice):
			d.Errorf(item, "choice %q is given twice", choice)
		default:
			choices = append(choices, choice)
		}
	}
	return choices
}

// answer reads one of the valid answers, any where there are none.
func (d *decoder) answer(n *strict.Node, valid []string) (string, bool) {
	if len(valid) == 0 {
		return d.Scalar(n, "an answer as a text")
	}
	answer, ok := d.Scalar(n, "one of the texts "+strings.Join(valid, ", "))
	if ok && !slices.Contains(valid, answer) {
		d.Near(n, answer, valid, "want one of %s, got %q", strings.Join(valid, ", "), answer)
		ok = false
	}
	return answer, ok
}

// wait reads how long, or until when.
func (d *decoder) wait(n *strict.Node) *runner.Wait {
	w := new(runner.Wait)
	if strict.KindOf(n) == strict.String {
		w.For, _ = d.Duration(n)
		return w
	}
	if !d.Map(n, "a duration such as 2h as a text, or a mapping such as {until: \"2026-12-24T18:00\"}") {
		return w
	}
	until := false
	for k, v := range d.Pairs(n) {
		if k.Value != "until" {
			d.Unknown(k, waitKeys)
			continue
		}
		until = true
		w.Until = d.instant(v)
	}
	if !until {
		d.Errorf(n, "give until, an instant")
	}
	return w
}

// instant reads an instant: with its offset, or as the machine's clock shows it. It may be past: then nothing is waited
// for.
func (d *decoder) instant(n *strict.Node) time.Time {
	text, ok := d.String(n, "an instant such as 2026-12-24T18:00 or 2026-12-24T18:00:00+01:00 as a text")
	if !ok {
		return time.Time{}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.ParseInLocation(layout, text, d.cadences.local); err == nil {
			if at.Format(layout) != text {
				d.Errorf(n, "%s does not exist in %s: the clocks are changed then; give an offset", text, d.cadences.local)
			}
			return at
		}
	}
	d.Errorf(n, "want an instant such as 2026-12-24T18:00 or 2026-12-24T18:00:00+01:00, got %q", text)
	return time.Time{}
}

// startRef is a workflow that something launches, for the linker.
type startRef struct {
	name    string
	mark    mark
	literal bool // its input is known: the step's own over the workflow's defaults
	start   *runner.Start
	hook    *Hook
	path    func() string
}

// start reads which workflow is launched, and with what.
func (d *decoder) start(n *strict.Node) (*runner.Start, *startRef) {
	s := new(runner.Start)
	r := &startRef{start: s, literal: true}
	if strict.KindOf(n) == strict.String {
		s.Workflow, r.mark = d.target(n)
		r.name = s.Workflow
		return s, r
	}
	if !d.Map(n, "a workflow's name as a text, or a mapping such as {workflow: …, input: {…}}") {
		return s, r
	}
	named := false
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "workflow":
			named = true
			s.Workflow, r.mark = d.target(v)
			r.name = s.Workflow
		case "input":
			switch strict.KindOf(v) {
			case strict.Map:
				s.Input = d.input(v)
			case strict.String:
				r.literal = false
				s.Program = d.jq(v, "")
			default:
				r.literal = false
				d.Want(v, "a mapping, or a jq program over input and results as a text")
			}
		default:
			d.Unknown(k, startKeys)
		}
	}
	if !named {
		d.Errorf(n, "give workflow, the name of the workflow to launch")
	}
	return s, r
}
