package runner

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// Literals are what a run's workflow and steps were when it started, so that one that parks goes on with these, whatever
// is defined by then. They hold everything but what cannot be written down: the value of a secret, which is read anew from
// where the workflow of that name says now, a schema, which has done its work, and functions of this program.

// workflowLiteral is a workflow without its steps.
type workflowLiteral struct {
	Env         []string `json:"env,omitempty"`
	TimeoutMS   int64    `json:"timeoutMs,omitzero"`
	Workdir     string   `json:"workdir,omitempty"`
	Shell       []string `json:"shell,omitempty"`
	Concurrency int      `json:"concurrency,omitzero"`
	User        string   `json:"user,omitempty"`
	Group       string   `json:"group,omitempty"`
	Secrets     []string `json:"secrets,omitempty"` // names
	OnInterrupt string   `json:"onInterrupt,omitempty"`
}

// stepLiteral is a step.
type stepLiteral struct {
	Order     int            `json:"order"`
	Run       string         `json:"run,omitempty"`
	Argv      []string       `json:"argv,omitempty"`
	Ask       *askLiteral    `json:"ask,omitempty"`
	Wait      *waitLiteral   `json:"wait,omitempty"`
	Start     *startLiteral  `json:"start,omitempty"`
	Call      bool           `json:"call,omitzero"`
	Needs     []string       `json:"needs,omitzero"`
	Final     Final          `json:"final,omitempty"`
	If        string         `json:"if,omitempty"`
	GoOn      bool           `json:"continueOnError,omitzero"`
	Retry     *retryLiteral  `json:"retry,omitempty"`
	Each      *eachLiteral   `json:"each,omitempty"`
	TimeoutMS int64          `json:"timeoutMs,omitzero"`
	Env       []string       `json:"env,omitempty"`
	Workdir   string         `json:"workdir,omitempty"`
	Shell     []string       `json:"shell,omitempty"`
	Secrets   []string       `json:"secrets,omitempty"`
	Limits    *limitsLiteral `json:"limits,omitempty"`
	Worktree  *worktreeLit   `json:"worktree,omitempty"`
	Artifacts []artifactLit  `json:"artifacts,omitempty"`
	Isolate   *isolateLit    `json:"isolate,omitzero"`
}

type (
	askLiteral struct {
		Mode       string   `json:"mode"`
		Title      string   `json:"title"`
		Body       string   `json:"body,omitempty"`
		Choices    []string `json:"choices,omitempty"`
		DeadlineMS int64    `json:"deadlineMs,omitzero"`
		Default    *string  `json:"default,omitempty"`
	}
	waitLiteral struct {
		ForMS int64       `json:"forMs,omitzero"`
		Until state.Stamp `json:"until,omitzero"`
	}
	startLiteral struct {
		Workflow string         `json:"workflow"`
		Input    jsontext.Value `json:"input,omitzero"`
		Program  string         `json:"program,omitempty"`
	}
	eachLiteral struct {
		List     jsontext.Value `json:"list,omitzero"`
		Program  string         `json:"program,omitempty"`
		Parallel int            `json:"parallel,omitzero"`
	}
	retryLiteral struct {
		Attempts  int   `json:"attempts"`
		WaitMS    int64 `json:"waitMs,omitzero"`
		MaxWaitMS int64 `json:"maxWaitMs,omitzero"`
		ExitCodes []int `json:"exitCodes,omitempty"`
	}
	limitsLiteral struct {
		Memory int64   `json:"memory,omitzero"`
		CPU    float64 `json:"cpu,omitzero"`
		Tasks  int     `json:"tasks,omitzero"`
	}
	worktreeLit struct {
		Base   string `json:"base,omitempty"`
		Branch string `json:"branch,omitempty"`
	}
	isolateLit struct {
		Directives []Directive `json:"directives,omitempty"`
	}
	artifactLit struct {
		Name string `json:"name"`
		Type string `json:"type,omitempty"`
		Path string `json:"path"`
	}
)

// literals writes a workflow down.
func literals(wf *Workflow) (map[string]jsontext.Value, error) {
	all := make(map[string]jsontext.Value, len(wf.Steps)+1)
	put := func(name string, v any) (err error) {
		all[name], err = json.Marshal(v, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
		return err
	}
	err := put(wf.Name, workflowLiteral{
		Env: wf.Env, TimeoutMS: wf.Timeout.Milliseconds(), Workdir: wf.Workdir, Shell: wf.Shell, Concurrency: wf.Concurrency,
		User: wf.User, Group: wf.Group, Secrets: secretNames(wf.Secrets), OnInterrupt: wf.OnInterrupt,
	})
	for i := range wf.Steps {
		if err == nil {
			err = put(wf.Name+"."+wf.Steps[i].Name, literalOf(&wf.Steps[i], i))
		}
	}
	return all, err
}

func secretNames(list []Secret) (names []string) {
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

func literalOf(s *Step, order int) stepLiteral {
	l := stepLiteral{
		Order: order, Run: s.Command.Shell, Argv: s.Command.Argv, Call: s.Call != nil, Needs: s.Needs, Final: s.Final,
		GoOn: s.ContinueOnError, TimeoutMS: s.Timeout.Milliseconds(), Env: s.Env, Workdir: s.Workdir, Shell: s.Shell,
		Secrets: secretNames(s.Secrets),
	}
	if s.If != nil {
		l.If = s.If.String()
	}
	if a := s.Ask; a != nil {
		l.Ask = &askLiteral{a.Mode, a.Title, a.Body, a.Choices, a.Deadline.Milliseconds(), a.Default}
	}
	if w := s.Wait; w != nil {
		l.Wait = &waitLiteral{w.For.Milliseconds(), state.Stamp{Time: w.Until}}
	}
	if st := s.Start; st != nil {
		l.Start = &startLiteral{Workflow: st.Workflow, Input: st.Input, Program: programText(st.Program)}
	}
	if e := s.Each; e != nil {
		l.Each = &eachLiteral{e.List, programText(e.Program), e.Parallel}
	}
	if r := s.Retry; r.Attempts > 0 {
		l.Retry = &retryLiteral{r.Attempts, r.Wait.Milliseconds(), r.MaxWait.Milliseconds(), r.ExitCodes}
	}
	if s.Limits != (Limits{}) {
		l.Limits = &limitsLiteral{s.Limits.Memory, s.Limits.CPU, s.Limits.Tasks}
	}
	if w := s.Worktree; w != nil {
		l.Worktree = &worktreeLit{w.Base, w.Branch}
	}
	for _, a := range s.Artifacts {
		l.Artifacts = append(l.Artifacts, artifactLit(a))
	}
	if i := s.Isolate; i != nil {
		l.Isolate = &isolateLit{i.Directives}
	}
	return l
}

func programText(p Program) string {
	if p == nil {
		return ""
	}
	return p.String()
}

// putLiterals writes the run's workflow into its file, where it is not there yet.
func (r *Run) putLiterals() {
	if r.file.Marbles != nil && r.file.Marbles.Literals != nil {
		return
	}
	all, err := literals(r.launch.Workflow)
	if err != nil {
		r.log().Error("definition of a run cannot be written down", "error", err)
		return
	}
	r.marbles().Literals = all
}

// workflowOf is the workflow that a run was started with, as its file has it; now is how it is defined at present, for its
// secrets and for a run that has no literals.
func workflowOf(f *state.RunFile, now *Workflow, compile func(string) (Program, error)) (*Workflow, error) {
	if f.Marbles == nil || len(f.Marbles.Literals) == 0 {
		return now, nil
	}
	fail := func(name string, err error) (*Workflow, error) {
		return nil, fmt.Errorf("cannot read what %s was when run %s started: %w", name, f.Run.ID, err)
	}
	var l workflowLiteral
	name := f.Run.Step
	if err := unmarshal(f.Marbles.Literals[name], &l); err != nil {
		return fail(name, err)
	}
	wf := &Workflow{
		Name: name, Describe: now.Describe, Env: l.Env, Timeout: ms(l.TimeoutMS), Workdir: l.Workdir, Shell: l.Shell,
		Concurrency: l.Concurrency, User: l.User, Group: l.Group, OnInterrupt: l.OnInterrupt,
	}
	wf.Secrets = secretsNow(l.Secrets, now.Secrets)
	type ordered struct {
		order int
		Step
	}
	var steps []ordered
	for path, text := range f.Marbles.Literals {
		if path == name {
			continue
		}
		if len(path) <= len(name)+1 || path[:len(name)+1] != name+"." {
			return fail(path, errors.New("it is no step of "+name))
		}
		var l stepLiteral
		if err := unmarshal(text, &l); err != nil {
			return fail(path, err)
		}
		s, err := l.step(path[len(name)+1:], now, compile)
		if err != nil {
			return fail(path, err)
		}
		steps = append(steps, ordered{l.Order, s})
	}
	slices.SortFunc(steps, func(a, b ordered) int { return a.order - b.order })
	for _, s := range steps {
		wf.Steps = append(wf.Steps, s.Step)
	}
	return wf, nil
}

func unmarshal(text jsontext.Value, into any) error {
	if text == nil {
		return errors.New("it is not there")
	}
	return json.Unmarshal(text, into, jsontext.AllowInvalidUTF8(true))
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// secretsNow are the secrets of these names, from where they are now.
func secretsNow(names []string, lists ...[]Secret) (out []Secret) {
	for _, name := range names {
		found := Secret{Name: name, From: "a secret that is not defined any more", Read: func() (string, error) {
			return "", fmt.Errorf("secret %s is not defined any more", name)
		}}
		for _, list := range lists {
			if i := slices.IndexFunc(list, func(s Secret) bool { return s.Name == name }); i >= 0 {
				found = list[i]
			}
		}
		out = append(out, found)
	}
	return out
}

// step is the step that a literal stands for.
func (l *stepLiteral) step(name string, now *Workflow, compile func(string) (Program, error)) (s Step, err error) {
	program := func(text string) Program {
		if text == "" || err != nil {
			return nil
		}
		if compile == nil {
			err = errors.New("this process compiles no programs")
			return nil
		}
		var p Program
		p, err = compile(text)
		return p
	}
	s = Step{
		Name: name, Command: Command{Shell: l.Run, Argv: l.Argv}, Needs: l.Needs, Final: l.Final, ContinueOnError: l.GoOn,
		Timeout: ms(l.TimeoutMS), Env: l.Env, Workdir: l.Workdir, Shell: l.Shell, If: program(l.If),
	}
	var current Step
	if i := slices.IndexFunc(now.Steps, func(o Step) bool { return o.Name == name }); i >= 0 {
		current = now.Steps[i]
	}
	s.Secrets = secretsNow(l.Secrets, now.Secrets, current.Secrets)
	if l.Call {
		if s.Call = current.Call; s.Call == nil {
			return s, errors.New("it is not defined any more")
		}
	}
	if a := l.Ask; a != nil {
		s.Ask = &Ask{a.Mode, a.Title, a.Body, a.Choices, ms(a.DeadlineMS), a.Default}
	}
	if w := l.Wait; w != nil {
		s.Wait = &Wait{ms(w.ForMS), w.Until.Time}
	}
	if st := l.Start; st != nil {
		s.Start = &Start{st.Workflow, st.Input, program(st.Program)}
	}
	if e := l.Each; e != nil {
		s.Each = &Each{e.List, program(e.Program), e.Parallel}
	}
	if r := l.Retry; r != nil {
		s.Retry = Retry{r.Attempts, ms(r.WaitMS), ms(r.MaxWaitMS), r.ExitCodes}
	}
	if m := l.Limits; m != nil {
		s.Limits = Limits{m.Memory, m.CPU, m.Tasks}
	}
	if w := l.Worktree; w != nil {
		s.Worktree = &Worktree{w.Base, w.Branch}
	}
	for _, a := range l.Artifacts {
		s.Artifacts = append(s.Artifacts, Artifact(a))
	}
	if i := l.Isolate; i != nil {
		s.Isolate = &Isolate{i.Directives}
	}
	return s, err
}
