package catalog

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// linkStarts checks what workflows name: those that their steps launch, and those that are told of their runs.
func (l *linker) linkStarts() {
	edges := make(map[string][]edge)
	for _, f := range l.files {
		for i := range f.workflows {
			w := &f.workflows[i]
			l.linkHooks(f, w.Hooks, w.Name, f.workflowRefs[i].starts)
			for _, r := range f.workflowRefs[i].starts {
				target := l.workflows[r.name]
				if r.start == nil || target == nil {
					continue
				}
				l.collide(f, r.mark, target, r.start.Input, r.path)
				if r.literal {
					l.accepts(f, r.mark, target, r.start.Input, r.path)
				}
				if l.workflows[w.Name] == w {
					edges[w.Name] = append(edges[w.Name], edge{target.Name, f, r})
				}
			}
		}
		f.workflowRefs = nil
	}
	l.startCycles(edges)
}

// linkHooks finds the workflows that a trigger's or workflow's steps and hooks launch, and names the hooks' own.
func (l *linker) linkHooks(f *file, h Hooks, owner string, starts []*startRef) {
	for _, r := range starts {
		w := l.target(f, r.mark, r.name, r.path)
		if w == nil {
			continue
		}
		if r.start != nil {
			r.start.Workflow = w.Name
		} else {
			r.hook.Start = w.Name
		}
	}
	for _, hook := range h.all() {
		if hook.hook == nil || hook.hook.Workflow == nil {
			continue
		}
		hook.hook.Workflow.Name = owner
		if step := &hook.hook.Workflow.Steps[0]; step.Name == "" {
			step.Name = hook.key
		}
	}
}

// accepts reports a literal input that a workflow's schema can never take.
func (l *linker) accepts(f *file, at mark, w *Workflow, input jsontext.Value, path func() string) {
	s, ok := w.Schema.(*schema)
	if !ok || s == nil || at.line == 0 {
		return
	}
	whole, err := overlay(w.Input, input)
	if err == nil {
		err = s.Validate(whole)
	}
	if err != nil {
		l.error(f.at(at), path(), fmt.Sprintf("the input that workflow %q would get is not what its input_schema allows: %v", w.Name, err))
	}
}

// edge is a workflow that another one starts, and where it says so.
type edge struct {
	to   string
	file *file
	ref  *startRef
}

// startCycles reports workflows that would start themselves, through others too: each knot once.
func (l *linker) startCycles(edges map[string][]edge) {
	const (
		open = iota + 1
		done
	)
	state := make(map[string]int, len(edges))
	next := make(map[string]int, len(edges))
	for _, root := range l.Workflows {
		if state[root.Name] != 0 || len(edges[root.Name]) == 0 {
			continue
		}
		path := []string{root.Name}
		state[root.Name] = open
		for len(path) > 0 {
			at := path[len(path)-1]
			if next[at] == len(edges[at]) {
				state[at] = done
				path = path[:len(path)-1]
				continue
			}
			e := edges[at][next[at]]
			next[at]++
			switch state[e.to] {
			case 0:
				state[e.to] = open
				path = append(path, e.to)
			case open:
				from := len(path) - 1
				for path[from] != e.to {
					from--
				}
				l.error(e.file.at(e.ref.mark), e.ref.path(), startCycle(path[from:]))
			}
		}
	}
}

// startCycle says how a workflow would start itself.
func startCycle(path []string) string {
	const most = 10
	if len(path) == 1 {
		return fmt.Sprintf("workflow %q would start itself", path[0])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "workflow %q would start itself: it starts", path[0])
	for i := 1; i < len(path); i++ {
		if i >= most {
			fmt.Fprintf(&b, " others, and so on through %d more, which start", len(path)-i)
			break
		}
		fmt.Fprintf(&b, " %q, which starts", path[i])
	}
	fmt.Fprintf(&b, " %q", path[0])
	return b.String()
}

// hookOf is one of the hooks with its key.
type hookOf struct {
	key  string
	hook *Hook
}

func (h Hooks) all() [3]hookOf {
	return [...]hookOf{{"on_failure", h.OnFailure}, {"on_recovery", h.OnRecovery}, {"on_missed", h.OnMissed}}
}
