package catalog

import (
	"path/filepath"
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
	var run, steps *strict.Node
	var texts []shellText
	if d.Map(n, "a workflow: a mapping with run or steps") {
		for k, v := range d.Pairs(n) {
			switch k.Value {
			case "describe":
				w.Describe, _ = d.String(v, "a text")
			case "input":
				w.Input = d.input(v)
			case "env":
				w.Env = d.env(v)
			case "timeout":
				w.Timeout, _ = d.Duration(v)
			case "workdir":
				w.Workdir = d.workdir(v)
			case "shell":
				w.Shell = d.shell(v)
			case "concurrency":
				w.Concurrency, _ = d.Int(v, 1, maxConcurrency)
			case "run":
				run = v
			case "steps":
				steps = v
			default:
				d.Unknown(k, workflowKeys)
			}
		}
		switch {
		case run != nil && steps != nil:
			d.Errorf(steps, "give one of run and steps")
		case run != nil:
			command, text := d.command(run)
			w.Steps = []runner.Step{{Name: w.Name, Command: command}}
			texts = append(texts, text)
		case steps != nil:
			w.Steps, texts = d.steps(steps)
		default:
			d.Errorf(n, "give run or steps")
		}
		for _, t := range texts {
			d.checkShell(t, w.Shell)
		}
	}
	// Kept even with errors: naming it is no further error.
	d.file.workflows = append(d.file.workflows, w)
}

func (d *decoder) steps(n *strict.Node) (steps []runner.Step, texts []shellText) {
	if !d.List(n, "a list of steps") {
		return nil, nil
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "a workflow has at least one step")
	}
	names := make(map[string]int, len(n.Content))
	for _, item := range d.Items(n) {
		if !d.Map(item, "a step: a mapping with name and run") {
			continue
		}
		step, nameNode, text := d.step(item)
		texts = append(texts, text)
		steps = append(steps, step)
		if nameNode == nil {
			d.Errorf(item, "give the step a name")
			continue
		}
		if line, ok := names[step.Name]; ok && step.Name != "" {
			d.Errorf(nameNode, "step %q is there already, in line %d", step.Name, line)
		}
		names[step.Name] = nameNode.Line
	}
	return steps, texts
}

// step reads a step's keys; a nil name node means that it has no name.
func (d *decoder) step(n *strict.Node) (step runner.Step, name *strict.Node, text shellText) {
	run := false
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "name":
			name = v
			if s, ok := d.String(v, "a text"); ok && d.name(v, "step name", s) {
				step.Name = s
			}
		case "run":
			run = true
			step.Command, text = d.command(v)
		case "env":
			step.Env = d.env(v)
		case "timeout":
			step.Timeout, _ = d.Duration(v)
		case "workdir":
			step.Workdir = d.workdir(v)
		case "shell":
			step.Shell = d.shell(v)
		default:
			d.Unknown(k, stepKeys)
		}
	}
	if !run {
		d.Errorf(n, "give run, the command of the step")
	}
	text.shell = step.Shell
	return step, name, text
}

// handler reads a monitor's `do`, `on_down` or `on_up` as a workflow of one step. Its name is the monitor's key, which the
// linker knows.
func (d *decoder) handler(n *strict.Node) *runner.Workflow {
	var step runner.Step
	var text shellText
	if strict.KindOf(n) == strict.Map {
		step, _, text = d.step(n)
	} else {
		step.Command, text = d.command(n)
	}
	d.checkShell(text, nil)
	return &runner.Workflow{Steps: []runner.Step{step}}
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
