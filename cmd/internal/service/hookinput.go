package service

import (
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/cmd/internal/catalog"
	"marbles/state"
)

// hookInput is what a hook's run gets.
type hookInput struct {
	Event      string         `json:"event"`
	Key        string         `json:"key,omitempty"`
	Workflow   string         `json:"workflow"`
	Host       string         `json:"host,omitempty"`
	Run        string         `json:"run,omitempty"`
	Status     state.Status   `json:"status,omitempty"`
	Error      string         `json:"error,omitempty"`
	FailedStep string         `json:"failed_step,omitempty"`
	Attempts   int            `json:"attempts,omitempty"` // of that step, or of the run's last one
	Slot       state.Stamp    `json:"slot,omitzero"`
	Started    state.Stamp    `json:"started,omitzero"`
	Ended      state.Stamp    `json:"ended,omitzero"`
	Lines      []string       `json:"lines,omitempty"`  // the last of the run's output
	Missed     *missedSlots   `json:"missed,omitempty"` // of eventMissed
	Result     jsontext.Value `json:"result,omitzero"`
}

type missedSlots struct {
	From   state.Stamp `json:"from"`
	To     state.Stamp `json:"to"`
	Count  int         `json:"count"`
	Reason string      `json:"reason"`
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

func (h *Hooks) inputOfRun(ws *state.Workspace, f *state.RunFile, event string) (jsontext.Value, error) {
	t := f.Run.Timestamps
	in := hookInput{
		Event: event, Key: f.Run.Extensions.TriggerID, Workflow: f.Run.Step, Host: hostname(), Run: f.Run.ID, Status: f.Run.Status,
		Slot: f.Run.Extensions.Slot, Started: state.Stamp{Time: t.StartedAt.Time()}, Ended: state.Stamp{Time: t.Ended().Time()},
		Lines: lastLines(ws, f.Run.ID), Result: f.Run.Output,
	}
	if f.Run.Error != nil {
		in.Error = f.Run.Error.Message
	}
	for _, s := range f.Steps {
		if s.Item != nil || in.FailedStep != "" && s.Status != state.Failed {
			continue
		}
		in.Attempts = max(s.Attempts, 1)
		if s.Status == state.Failed {
			in.FailedStep = s.Name
		}
	}
	return json.Marshal(in, jsontext.AllowInvalidUTF8(true))
}

func (h *Hooks) inputOfMissed(s *catalog.Schedule, e state.SlotEntry) (jsontext.Value, error) {
	m := &missedSlots{From: e.From, To: e.Slot, Count: max(e.Count, 1), Reason: e.Reason}
	if m.From.IsZero() {
		m.From = e.Slot
	}
	return json.Marshal(hookInput{Event: eventMissed, Key: s.Key, Workflow: s.Workflow, Host: hostname(), Missed: m}, jsontext.AllowInvalidUTF8(true))
}

// lastLines are the last lines of a run's output.
func lastLines(ws *state.Workspace, run string) []string {
	const (
		most    = 20
		longest = 1000 // bytes of a line
	)
	var lines []string
	open := map[string]string{} // of each stream, the line that has not ended
	add := func(line string) {
		if len(line) > longest {
			line = strings.ToValidUTF8(line[:longest], "") + "…"
		}
		if lines = append(lines, line); len(lines) > 2*most {
			lines = append(lines[:0], lines[len(lines)-most:]...)
		}
	}
	_ = ws.ReadJournal(run, func(e state.Entry) error { // as far as it can be read
		if e.Kind != "text" || e.Stream != state.Stdout && e.Stream != state.Stderr {
			return nil
		}
		id := e.Step + "\x00" + e.Stream
		text := open[id] + string(e.Text)
		for {
			line, rest, ok := strings.Cut(text, "\n")
			if !ok {
				break
			}
			add(line)
			text = rest
		}
		open[id] = text
		return nil
	})
	for _, rest := range open {
		if rest != "" {
			add(rest)
		}
	}
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	return lines
}
