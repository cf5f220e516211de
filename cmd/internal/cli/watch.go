package cli

import (
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"marbles/state"
)

func newWatch(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "watch <run>",
		Short: "Follow a run's output to its end, and exit with its status",
		Long: `Follow a run's output to its end, and exit with its status: 0 complete, 1 failed, cancelled or
interrupted. What the steps printed to stdout and stderr goes to stdout and stderr, byte for byte. Of a run that is
parked it says on stderr what that waits for, and goes on following, whoever carries the run on. Nothing is changed.`,
		Args:              oneArg("watch", "run id"),
		ValidArgsFunction: a.completeRuns,
		RunE:              func(c *cobra.Command, args []string) error { return a.watch(c, args[0], asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print each record of the journal as one line of JSON")
	return c
}

func (a *app) watch(c *cobra.Command, text string, asJSON bool) error {
	_, root, err := a.reader(c)
	if err != nil {
		return err
	}
	ws, id, err := a.findRun(root, text)
	if err != nil {
		if keys, kerr := a.findKey(root, text); kerr == nil && len(keys) > 0 {
			return state.Hint(usage("no run %q: it is a key", text), "its runs: marbles runs --key "+text)
		}
		return err
	}
	w := &watcher{ws: ws, id: id, out: a.Stdout, err: a.Stderr, json: asJSON}
	ctx, stop := interrupt(c.Context())
	defer stop()
	if err := ws.FollowJournal(ctx, id, w.entry, w.done); err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot watch %s: %w", id, err)
	}
	if ctx.Err() != nil {
		return &codedError{code: exitRun, err: errSilent}
	}
	if w.begun && !w.ended {
		fmt.Fprintf(a.Stderr, "warning: the output of run %s is incomplete: its journal has no end record\n", id)
	}
	return w.verdict()
}

// watcher follows one run.
type watcher struct {
	ws       *state.Workspace
	id       string
	out, err io.Writer
	json     bool
	ended    bool         // the end record was seen
	status   state.Status // how it ended: by the end record, else by the run file
	reason   *state.RunError
	begun    bool   // it has settled by its record, and had begun
	orphan   bool   // its owner is gone and nobody settled it
	unit     string // of its latest step, where that has one and has not ended: it outlives the run's owner
	waits    string // what a parked run was last said to wait for
	instead  string // the run that was launched in its place
}

func (w *watcher) entry(e state.Entry) error {
	switch e.Kind {
	case "start": // a further owner goes on in the same journal
		w.ended = false
	case "spawn":
		if w.unit = ""; e.Unit != nil {
			w.unit = e.Unit.Unit
		}
	case "step":
		w.unit = ""
	case "end":
		w.ended, w.status, w.reason = true, e.Status, e.Error
	}
	if w.json {
		return w.line(e)
	}
	if e.Kind != "text" {
		return nil
	}
	to := w.out
	if e.Stream == state.Stderr || e.Stream == state.StepStream {
		to = w.err
	}
	_, err := to.Write(e.Text)
	return err
}

// done is asked when nothing new came. Where the record is settled and the end is missing, the record is trusted.
func (w *watcher) done() (bool, error) {
	if w.ended {
		return true, nil
	}
	f, err := w.ws.Run(w.id)
	if err != nil {
		return false, unknownRun(w.id, err)
	}
	if f.Run.Status.Settled() {
		w.status, w.reason, w.instead = f.Run.Status, f.Run.Error, f.Run.Extensions.Restarted
		w.begun = f.Run.Timestamps.StartedAt != 0 // else nothing was written
		return true, nil
	}
	if f.Run.Status == state.Running && !f.Owner().Alive() {
		if w.unit != "" {
			w.say("run " + w.id + " goes on in unit " + w.unit + "; the next `marbles run` takes it over")
			return false, nil
		}
		w.orphan = true
		return true, nil
	}
	w.orphan = false
	if f.Run.Status == state.Suspended {
		if text := waitsText(f); text != "" {
			w.say("run " + w.id + " waits for " + text)
		}
	} else {
		w.waits = ""
	}
	return false, nil
}

// say says once what a run waits for.
func (w *watcher) say(text string) {
	if text != w.waits {
		w.waits = text
		fmt.Fprintln(w.err, safe(text))
	}
}

func (w *watcher) verdict() error {
	switch {
	case w.orphan && !w.ended:
		return &codedError{code: exitRun, err: fmt.Errorf("run %s was interrupted: its process is gone; the next `marbles run` settles it", w.id)}
	case w.status == state.Complete:
		return nil
	case w.reason != nil:
		err := &codedError{code: exitRun, err: fmt.Errorf("run %s %s: %s", w.id, w.status, w.reason.Message)}
		if w.instead != "" {
			return state.Hint(err, "it was started anew: marbles watch "+w.instead)
		}
		return err
	}
	return &codedError{code: exitRun, err: fmt.Errorf("run %s %s", w.id, w.status)}
}

// line prints an entry as one line of JSON: text as text, or base64 where it is not UTF-8.
func (w *watcher) line(e state.Entry) error {
	out := struct {
		Kind    string            `json:"kind"`
		At      string            `json:"at"`
		Run     string            `json:"run,omitempty"`
		Name    string            `json:"name,omitempty"`
		PID     int               `json:"pid,omitzero"`
		Step    string            `json:"step,omitempty"`
		Stream  string            `json:"stream,omitempty"`
		Text    *string           `json:"text,omitempty"`
		Base64  []byte            `json:"base64,omitempty"`
		Partial bool              `json:"partial,omitzero"`
		Status  state.Status      `json:"status,omitempty"`
		Result  jsontext.Value    `json:"result,omitempty"`
		Error   *state.RunError   `json:"error,omitempty"`
		Record  *state.StepRecord `json:"record,omitzero"`
	}{
		Kind: e.Kind, At: e.At.UTC().Format("2006-01-02T15:04:05.000Z07:00"), Run: e.Run, Name: e.Name, PID: e.Process.PID,
		Step: e.Step, Stream: e.Stream, Partial: e.Partial, Status: e.Status, Result: e.Result, Error: e.Error,
		Record: e.Record,
	}
	if e.Kind == "text" {
		if utf8.Valid(e.Text) {
			text := string(e.Text)
			out.Text = &text
		} else {
			out.Base64 = e.Text
		}
	}
	data, err := json.Marshal(out, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	_, err = w.out.Write(append(data, '\n'))
	return err
}

func oneArg(name, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%s takes one %s", name, what)
		}
		return nil
	}
}
