package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

func TestShellWord(t *testing.T) {
	for text, want := range map[string]string{
		"rn-01": "rn-01", "a/b_c.d": "a/b_c.d", "": "''", "two words": "'two words'", "it's": `'it'\''s'`, "$x": "'$x'", "*": "'*'", "é": "'é'",
	} {
		if got := shellWord(text); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// parked is a run that waits for what its suspensions say.
func parked(id string, suspensions ...state.Suspension) *state.RunFile {
	f := &state.RunFile{Suspensions: suspensions}
	f.Run = state.Run{ID: id, Step: "release", Status: state.Suspended, Timestamps: state.RunTimes{CreatedAt: 1, StartedAt: 2}}
	for i := range f.Suspensions {
		s := &f.Suspensions[i]
		s.ID, s.RunID, s.Status, s.StepPath = "su-"+s.Name, id, state.Pending, []string{"release", s.Name}
		s.Timestamps.CreatedAt = state.Millis(time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local).UnixMilli())
	}
	return f
}

func TestOpenQuestions(t *testing.T) {
	p := newPlace(t)
	ws := p.workspace(p.dir)
	id := state.NewRunID(time.Now())
	err := ws.WriteRun(parked(id,
		state.Suspension{Kind: state.SuspendInput, Name: "gate", Request: jsontext.Value(`{"title":"Publish\u001b[31m?","choices":["approve","reject"],"mode":"approval"}`)},
		state.Suspension{Kind: state.SuspendInput, Name: "who", Request: jsontext.Value(`{"title":"Who?","choices":[],"mode":"question","deadline":"2999-01-03T00:00:00Z","default":"me"}`)},
		state.Suspension{Kind: state.SuspendWait, Name: "night", Request: jsontext.Value(`{"until":"2026-01-03T00:00:00Z"}`)},
	))
	if err != nil {
		t.Fatal(err)
	}
	out, _, code := p.main("answer")
	if code != 0 || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d, %q", code, out)
	}
	for _, want := range []string{"gate", "approve, reject", "2026-01-02 03:04:05", "who", "any text", "(then me)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "night") {
		t.Errorf("a wait is no question:\n%s", out)
	}
	for args, wants := range map[string][]string{
		"show " + id:                    {"waits for", "gate", "answer " + id + " approve --question su-gate", "answer " + id + " TEXT --question su-who"},
		"status":                        {"WAITING", "night", "answer " + id + " approve|reject", "release"},
		"runs --status suspended":       {id, "waits for an answer to"},
		"answer " + id + " --json":      {`"deadline": "2999-01-03T00:00:00Z"`, `"mode": "approval"`, `"default": "me"`},
		"__complete answer " + id + " ": {"approve", "reject"},
	} {
		words := strings.Fields(args)
		if strings.HasSuffix(args, " ") {
			words = append(words, "")
		}
		out, errs, code := p.main(words...)
		if code != 0 {
			t.Errorf("%s exits with %d: %s", args, code, errs)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", args, want, out)
			}
		}
	}
	for args, want := range map[string]string{
		"answer " + id + " perhaps --question su-gate": "marbles: Choose one of: approve, reject\n",
		"answer " + id + " :empty --question su-who":   "marbles: An answer is required.\n",
		"cancel nothing": "no run \"nothing\"",
		"resume " + id:   "it is not paused",
	} {
		words := strings.Fields(args)
		for i := range words {
			if words[i] == ":empty" {
				words[i] = ""
			}
		}
		if _, errs, code := p.main(words...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s exits with %d: %s", args, code, errs)
		}
	}
	if _, errs, code := p.main("answer", id, "approve", "--dry-run"); code != exitUsage || !strings.Contains(errs, "no dry run") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestGraph(t *testing.T) {
	item := func(i int) *int { return &i }
	f := parked("rn-1", state.Suspension{Kind: state.SuspendInput, Name: "gate", Request: jsontext.Value(`{"title":"Go?","choices":[],"mode":"question"}`)})
	f.Steps = []state.StepRecord{
		{Name: "b", Status: state.Complete, Attempts: 3},
		{Name: "a", Status: state.Complete, Item: item(1)},
		{Name: "a", Status: state.Failed, Item: item(0), Error: &state.RunError{Name: "ExitError", Message: "exited with code 1"}},
		{Name: "a", Status: state.Failed},
		{Name: "c", Status: state.Skipped},
	}
	f.Marbles = &state.RunMarbles{Literals: map[string]jsontext.Value{
		"release":      jsontext.Value(`{"name":"release"}`),
		"release.a":    jsontext.Value(`{"name":"a","order":0,"needs":[]}`),
		"release.b":    jsontext.Value(`{"name":"b","order":1,"needs":[]}`),
		"release.c":    jsontext.Value(`{"name":"c","order":2,"needs":["a","b"]}`),
		"release.gate": jsontext.Value(`{"name":"gate","order":3}`),
		"release.last": jsontext.Value(`{"name":"last","order":4,"final":"on_failure"}`),
	}}
	var got []string
	for _, row := range newGraph(f, nil).rows() {
		got = append(got, strings.Join([]string{row[0], row[1], row[2], row[6]}, "|"))
	}
	want := []string{
		"STEP|AFTER|STATUS|", "a|-|failed|", "  [0]|-|failed|exited with code 1", "  [1]|-|complete|",
		"b|-|complete (attempt 3)|", "c|a, b|skipped|", `gate|c|waits|waits for an answer to "Go?"`, "last|(on failure)|-|",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRunsOfAnUnknownKey(t *testing.T) {
	p := newPlace(t)
	p.workspace(p.dir)
	p.write(filepath.Join(p.dir, ".foundry/marbles/a.yaml"), "workflows: {w: {run: 'true'}}\nschedules: [{run: w, key: nightly, every: 1h}]\n")
	if _, errs, code := p.main("runs", "--key", "nigthly"); code != exitUsage || !strings.Contains(errs, `did you mean "nightly"?`) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if out, errs, code := p.main("runs", "--key", "nightly"); code != 0 || out != "no runs\n" {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
