package catalog

import (
	"slices"
	"strconv"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/runner"
)

// The keys of a step, in the order messages may suggest them.
var (
	stepKeys = []string{"name", "run", "approve", "ask", "wait", "start", "needs", "if", "continue_on_error", "always", "on_failure",
		"timeout", "retry", "each", "parallel", "env", "workdir", "shell", "secrets", "limits", "worktree", "artifacts", "isolate", "unit"}
	kindKeys = []string{"run", "approve", "ask", "wait", "start"} // what it does
	workKeys = []string{"timeout", "retry", "each", "parallel"}   // of run and start
	runKeys  = []string{"env", "workdir", "shell", "secrets", "limits", "worktree", "artifacts", "isolate", "unit"}
	// singleKeys are those of a step that stands for itself: a handler or a hook.
	singleKeys = []string{"name", "run", "timeout", "retry", "env", "workdir", "shell", "secrets", "limits", "worktree", "artifacts"}
	// inlineKeys are those that a workflow of one command has beside the workflow's own.
	inlineKeys = []string{"retry", "limits", "worktree", "artifacts", "isolate", "unit"}
)

// maxParallel bounds how many elements are worked on at once, and maxAttempts how often a step is tried.
const (
	maxParallel = 10000
	maxAttempts = 1000
)

// stepNode is a step with where its parts were written.
type stepNode struct {
	runner.Step
	node, name *strict.Node // name is nil where there is none
	kind       *strict.Node // the key that says what it does; nil where it has been reported
	given      map[string]*strict.Node
	text       shellText
	start      *startRef
}

// step reads a step's keys, of which only some are allowed.
func (d *decoder) step(n *strict.Node, allowed []string) *stepNode {
	s := &stepNode{node: n, given: make(map[string]*strict.Node)}
	for k, v := range d.Pairs(n) {
		if !slices.Contains(allowed, k.Value) {
			d.Unknown(k, allowed)
			continue
		}
		s.given[k.Value] = k
		if slices.Contains(kindKeys, k.Value) {
			if s.kind != nil {
				d.Errorf(k, "a step does one thing; %s stands beside it", s.kind.Value)
				continue
			}
			s.kind = k
		}
		d.stepKey(s, k, v)
	}
	if s.kind == nil {
		if slices.Contains(allowed, "ask") {
			d.Errorf(n, "give run, the command of the step, or one of approve, ask, wait and start")
		} else {
			d.Errorf(n, "give run, the command of the step")
		}
	}
	d.stepTogether(s)
	s.text.shell = s.Shell
	return s
}

// stepKey reads one key of a step.
func (d *decoder) stepKey(s *stepNode, k, v *strict.Node) {
	switch k.Value {
	case "name":
		s.name = v
		if name, ok := d.String(v, "a text"); ok && d.name(v, "step name", name) {
			s.Name = name
		}
	case "run":
		s.Command, s.text = d.command(v)
	case "approve":
		s.Ask = d.ask(v, true)
	case "ask":
		s.Ask = d.ask(v, false)
	case "wait":
		s.Wait = d.wait(v)
	case "start":
		s.Start, s.start = d.start(v)
	case "needs":
		s.Needs = d.needs(v)
	case "if":
		s.If = d.jq(v, "a jq program over input and results as a text")
	case "continue_on_error":
		s.ContinueOnError, _ = d.Bool(v)
	case "always":
		if d.yes(k, v) {
			s.Final = runner.Always
		}
	case "on_failure":
		if d.yes(k, v) {
			s.Final = runner.OnFailure
		}
	case "each":
		s.Each = d.each(s.Each, v)
	case "parallel":
		if s.Each == nil {
			s.Each = new(runner.Each)
		}
		s.Each.Parallel, _ = d.Int(v, 1, maxParallel)
	case "timeout":
		s.Timeout, _ = d.Duration(v)
	case "retry":
		s.Retry = d.retry(v)
	case "env":
		s.Env = d.env(v)
	case "workdir":
		if !hasKey(s.node, "worktree") {
			s.Workdir = d.workdir(v)
		} else {
			s.Workdir = d.inWorktree(v)
		}
	case "shell":
		s.Shell = d.shell(v)
	case "secrets":
		s.Secrets = d.secrets(v)
	case "limits":
		s.Limits = d.limits(v)
	case "worktree":
		s.Worktree = d.worktree(v)
	case "artifacts":
		s.Artifacts = d.artifacts(v)
	case "isolate":
		d.isolate(s, v)
	case "unit":
		d.unit(s, v)
	}
}

// hasKey tells whether a mapping has a key, whatever its value.
func hasKey(n *strict.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

// stepTogether reports keys that do not go with what the step does, or with one another.
func (d *decoder) stepTogether(s *stepNode) {
	if s.kind != nil {
		for _, key := range workKeys {
			if k := s.given[key]; k != nil && s.kind.Value != "run" && s.kind.Value != "start" {
				hint := ""
				if key == "timeout" && s.kind.Value != "wait" {
					hint = "; a question has a deadline"
				}
				d.Errorf(k, "%s is for run and start, and this step has %s%s", key, s.kind.Value, hint)
			}
		}
		for _, key := range runKeys {
			if k := s.given[key]; k != nil && s.kind.Value != "run" {
				d.Errorf(k, "%s is for run, and this step has %s", key, s.kind.Value)
			}
		}
		if s.Start != nil && s.Retry.ExitCodes != nil {
			d.Errorf(s.given["retry"], "exit_codes are a command's, and this step has start")
		}
		if s.Final != runner.NotFinal && (s.Ask != nil || s.Wait != nil) {
			d.Errorf(s.kind, "a step that runs after all others does not wait: %s is for the others", s.kind.Value)
		}
	}
	if k := s.given["parallel"]; k != nil && s.given["each"] == nil {
		d.Errorf(k, "parallel goes with each")
		s.Each = nil
	}
	if s.given["always"] != nil && s.given["on_failure"] != nil {
		d.Errorf(s.given["on_failure"], "give one of always and on_failure")
	}
	d.notTwice(s.given["secrets"], s.Secrets, s.Env)
	d.isolateTogether(s)
}

// yes reads a key that is true or not there.
func (d *decoder) yes(k, v *strict.Node) bool {
	yes, ok := d.Bool(v)
	if ok && !yes {
		d.Errorf(v, "want true; leave %s out for a step that is one of the others", k.Value)
	}
	return yes
}

// needs reads the names of the steps that come before: an empty list is not the same as none.
func (d *decoder) needs(n *strict.Node) []string {
	names := []string{}
	if !d.List(n, "a list of steps' names, [] for none") {
		return names
	}
	for _, item := range d.Items(n) {
		if name, ok := d.String(item, "a step's name as a text"); ok {
			names = append(names, name)
		}
	}
	return names
}

// jq compiles a jq program.
func (d *decoder) jq(n *strict.Node, want string) runner.Program {
	text, ok := d.String(n, want)
	if !ok {
		return nil
	}
	if strings.TrimSpace(text) == "" {
		d.Errorf(n, "jq program is empty; . is all of it, as it is")
		return nil
	}
	p, err := Compile(text)
	if err != nil {
		d.Errorf(n, "%v", err)
		return nil
	}
	return p
}

// each reads what a step is done for: a list, or a jq program that makes one. parallel may have been read before.
func (d *decoder) each(each *runner.Each, n *strict.Node) *runner.Each {
	if each == nil {
		each = new(runner.Each)
	}
	switch strict.KindOf(n) {
	case strict.List:
		each.List, _ = d.JSON(n)
	case strict.String:
		each.Program = d.jq(n, "")
	default:
		d.Want(n, "a list, or a jq program that makes one as a text")
	}
	return each
}

var retryKeys = []string{"attempts", "wait", "max_wait", "exit_codes"}

// retry reads how a step is tried again.
func (d *decoder) retry(n *strict.Node) (r runner.Retry) {
	if !d.Map(n, "a mapping such as {attempts: 3, wait: 10s, max_wait: 5m, exit_codes: [75]}") {
		return r
	}
	attempts, good := false, true
	var longest *strict.Node
	for k, v := range d.Pairs(n) {
		ok := true
		switch k.Value {
		case "attempts":
			attempts = true
			r.Attempts, _ = d.Int(v, 2, maxAttempts)
		case "wait":
			r.Wait, ok = d.Duration(v)
		case "max_wait":
			longest = v
			r.MaxWait, ok = d.Duration(v)
		case "exit_codes":
			r.ExitCodes = d.exitCodes(v)
		default:
			d.Unknown(k, retryKeys)
		}
		good = good && ok
	}
	switch {
	case !attempts:
		d.Errorf(n, "give attempts, how often the step is tried in all")
	case good && longest != nil && r.MaxWait < r.Wait:
		d.Errorf(longest, "max_wait %s is shorter than wait, %s", runner.Brief(r.MaxWait), runner.Brief(r.Wait))
	}
	return r
}

func (d *decoder) exitCodes(n *strict.Node) (codes []int) {
	if !d.List(n, "a list of exit codes") {
		return nil
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "list is empty; leave exit_codes out for every failure")
	}
	for _, item := range d.Items(n) {
		code, ok := d.Int(item, 1, 255)
		switch {
		case !ok:
		case slices.Contains(codes, code):
			d.Errorf(item, "exit code %d is given twice", code)
		default:
			codes = append(codes, code)
		}
	}
	return codes
}

var limitKeys = []string{"memory", "cpu", "tasks"}

// limits reads what a step's processes may use together.
func (d *decoder) limits(n *strict.Node) (l runner.Limits) {
	if !d.Map(n, "a mapping such as {memory: 512MiB, cpu: 1.5, tasks: 64}") {
		return l
	}
	const most = 1 << 22 // the kernel's own bound of processes
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "memory":
			if text, ok := d.String(v, "a size such as 512MiB as a text"); ok {
				size, err := strict.Size(text)
				if err != nil {
					d.Errorf(v, "%v", err)
				}
				l.Memory = size
			}
		case "cpu":
			l.CPU = d.processors(v)
		case "tasks":
			l.Tasks, _ = d.Int(v, 1, most)
		default:
			d.Unknown(k, limitKeys)
		}
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "give one of memory, cpu and tasks")
	}
	return l
}

func (d *decoder) processors(n *strict.Node) float64 {
	const least, most = 0.01, 1024
	if kind := strict.KindOf(n); kind == strict.Int || kind == strict.Float {
		if v, err := strconv.ParseFloat(n.Value, 64); err == nil && v >= least && v <= most {
			return v
		}
	}
	d.Want(n, "a number of processors from 0.01 to 1024")
	return 0
}
