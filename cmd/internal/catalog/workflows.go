package catalog

import (
	"path/filepath"
	"slices"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/runner"
)

func (d *decoder) workflows(n *strict.Node) {
	for k, v := range d.Pairs(n) {
		d.name(k, "workflow name", k.Value)
		d.workflow(k, v)
	}
}

func (d *decoder) workflow(name, n *strict.Node) {
	w := Workflow{Workflow: runner.Workflow{Name: name.Value}, Position: d.At(name)}
	r := workflowRef{}
	if d.Map(n, "a workflow: a mapping with run or steps") {
		given := make(map[string]*strict.Node)
		for k, v := range d.Pairs(n) {
			given[k.Value] = v
			if !d.workflowKey(&w, &r, k, v) {
				d.Unknown(k, workflowKeys)
			}
		}
		d.work(&w, &r, n, given)
		d.checkDefaults(&w, given["input"])
		if w.Group != "" && w.User == "" {
			d.Errorf(given["group"], "group goes with user")
		}
	}
	// Kept even with errors: naming it is no further error.
	d.file.workflows = append(d.file.workflows, w)
	d.file.workflowRefs = append(d.file.workflowRefs, r)
}

// workflowKey reads a value if its key is one that says something of the workflow as a whole; what the workflow does is
// read by work.
func (d *decoder) workflowKey(w *Workflow, r *workflowRef, k, v *strict.Node) bool {
	switch k.Value {
	case "describe":
		w.Describe, _ = d.String(v, "a text")
	case "input":
		w.Input = d.input(v)
	case "input_schema":
		w.Schema = d.schema(v)
	case "env":
		w.Env = d.env(v)
	case "timeout":
		w.Timeout, _ = d.Duration(v)
	case "workdir", "run", "steps", "retry", "limits", "worktree", "artifacts", "isolate", "unit":
	case "shell":
		w.Shell = d.shell(v)
	case "concurrency":
		w.Concurrency, _ = d.Int(v, 1, maxConcurrency)
	case "user":
		w.User = d.account(v, "user")
	case "group":
		w.Group = d.account(v, "group")
	case "secrets":
		w.Secrets = d.secrets(v)
	case "on_interrupt":
		w.OnInterrupt, _ = d.oneOf(v, interrupts)
	case "keep":
		w.Keep = d.keep(v)
	default:
		return d.hookKey(&w.Hooks, &r.starts, k, v, func() string { return strict.Join("workflows", w.Name) })
	}
	return true
}

// work reads what a workflow does: its steps, or its one command with the keys that are that step's.
func (d *decoder) work(w *Workflow, r *workflowRef, n *strict.Node, given map[string]*strict.Node) {
	run, steps := given["run"], given["steps"]
	var nodes []*stepNode
	switch {
	case run != nil && steps != nil:
		d.Errorf(steps, "give one of run and steps")
	case run != nil:
		s := &stepNode{Step: runner.Step{Name: w.Name}, node: n, given: given}
		for k, v := range d.Pairs(n) {
			if k.Value == "run" || slices.Contains(inlineKeys, k.Value) || k.Value == "workdir" && given["worktree"] != nil {
				d.stepKey(s, k, v)
			}
		}
		d.isolateTogether(s)
		nodes = []*stepNode{s}
	case steps != nil:
		for _, key := range inlineKeys {
			if v := given[key]; v != nil {
				d.Errorf(v, "%s is for a step; here it goes with run only", key)
			}
		}
		nodes = d.steps(steps)
	default:
		d.Errorf(n, "give run or steps")
	}
	if v := given["workdir"]; v != nil && (run == nil || given["worktree"] == nil) {
		w.Workdir = d.workdir(v)
	}
	d.notTwice(given["secrets"], w.Secrets, w.Env)
	w.Steps = make([]runner.Step, 0, len(nodes))
	for i, s := range nodes {
		d.checkShell(s.text, w.Shell)
		w.Steps = append(w.Steps, s.Step)
		if s.start != nil {
			name := w.Name
			s.start.path = func() string { return strict.Index(strict.Join("workflows", name)+".steps", i) + ".start" }
			r.starts = append(r.starts, s.start)
		}
	}
}

// account reads the name or number of a user or group.
func (d *decoder) account(n *strict.Node, what string) string {
	name, ok := d.Scalar(n, "a "+what+"'s name as a text, or its number")
	switch {
	case !ok || strict.KindOf(n) == strict.Bool || strict.KindOf(n) == strict.Float:
		if ok {
			d.Want(n, "a "+what+"'s name as a text, or its number")
		}
		return ""
	case name == "":
		d.Errorf(n, "%s is empty", what)
	case strings.ContainsAny(name, ":/\x00") || strings.ContainsFunc(name, blank) || strings.HasPrefix(name, "-"):
		d.Errorf(n, "%q is no %s's name", name, what)
	}
	return name
}

// handler reads a monitor's `do`, `on_down` or `on_up` as a workflow of one step. Its name is the monitor's key, which the
// linker knows.
func (d *decoder) handler(n *strict.Node) *runner.Workflow {
	s := new(stepNode)
	if strict.KindOf(n) == strict.Map {
		s = d.step(n, singleKeys)
	} else {
		s.Command, s.text = d.command(n)
	}
	d.checkShell(s.text, nil)
	return &runner.Workflow{Steps: []runner.Step{s.Step}}
}

// command reads a shell text or an argv. The shell text is to be checked once its shell is known.
func (d *decoder) command(n *strict.Node) (runner.Command, shellText) {
	const want = "a command: a text for the shell, or a list of texts"
	if strict.KindOf(n) != strict.List {
		text, ok := d.String(n, want)
		switch {
		case !ok:
			return runner.Command{}, shellText{}
		case strings.TrimSpace(text) == "":
			d.Errorf(n, "command is empty")
			return runner.Command{}, shellText{}
		case strings.Contains(text, "\x00"):
			d.Errorf(n, "command contains a NUL")
			return runner.Command{}, shellText{}
		}
		return runner.Command{Shell: text}, shellText{node: n}
	}
	argv, ok := d.texts(n)
	if ok && argv[0] == "" {
		d.Errorf(n, "command is empty")
	}
	return runner.Command{Argv: argv}, shellText{}
}

// texts reads a list of at least one scalar as texts, as exec wants them.
func (d *decoder) texts(n *strict.Node) (texts []string, ok bool) {
	ok = true
	for _, item := range d.Items(n) {
		text, good := d.Scalar(item, "a text")
		if good && strings.Contains(text, "\x00") {
			d.Errorf(item, "text contains a NUL")
			good = false
		}
		ok = ok && good
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		d.Errorf(n, "list is empty")
		ok = false
	}
	return texts, ok
}

// shell reads what a shell text is given to: a shell's name or path, which then gets "-c", or the whole argv prefix.
func (d *decoder) shell(n *strict.Node) []string {
	if strict.KindOf(n) != strict.List {
		text, ok := d.String(n, "a shell's name as a text, or a list of texts")
		switch {
		case !ok:
			return nil
		case text == "" || strings.ContainsAny(text, " \t\n\x00"):
			d.Errorf(n, "want one word such as bash, or a list such as [bash, -euo, pipefail, -c], got %q", text)
			return nil
		}
		return []string{text, "-c"}
	}
	argv, ok := d.texts(n)
	if !ok {
		return nil
	}
	if argv[0] == "" {
		d.Errorf(n, "shell is empty")
	}
	return argv
}

// workdir reads a directory, relative to the workspace.
func (d *decoder) workdir(n *strict.Node) string {
	text, ok := d.String(n, "a directory as a text")
	switch {
	case !ok:
		return ""
	case text == "":
		d.Errorf(n, "workdir is empty; . is the workspace")
		return ""
	}
	return d.path(n, "workdir", "workdir")
}

// path is a path that is no empty text, relative to the workspace. name and subject name it in errors, the latter at the
// start of a sentence.
func (d *decoder) path(n *strict.Node, name, subject string) string {
	switch text := n.Value; {
	case strings.Contains(text, "\x00"):
		d.Errorf(n, "%s contains a NUL", name)
	case text == "~" || strings.HasPrefix(text, "~/"):
		d.Errorf(n, "%s is no shell text: ~ is not expanded; write the whole path", subject)
	case filepath.IsAbs(text):
		return filepath.Clean(text)
	default:
		return filepath.Join(d.workspace, text)
	}
	return ""
}

// env reads variables as NAME=value, in the order they were written.
func (d *decoder) env(n *strict.Node) []string {
	if !d.Map(n, "a mapping of variables") {
		return nil
	}
	env := make([]string, 0, len(n.Content)/2)
	for k, v := range d.Pairs(n) {
		switch {
		case !isVariable(k.Value):
			d.Errorf(k, "%q is no variable's name: letters, digits and _, not beginning with a digit", k.Value)
		case strings.HasPrefix(k.Value, "MARBLES_"):
			d.Errorf(k, "variables that begin with MARBLES_ are set by marbles itself")
		}
		text, ok := d.Scalar(v, "a text")
		if ok && strings.Contains(text, "\x00") {
			d.Errorf(v, "value contains a NUL")
		}
		env = append(env, k.Value+"="+text)
	}
	return env
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return name != ""
}
