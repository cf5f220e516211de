package catalog

import (
	"fmt"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/runner"
)

// steps reads a workflow's steps, and checks them as a graph.
func (d *decoder) steps(n *strict.Node) (steps []*stepNode) {
	if !d.List(n, "a list of steps") {
		return nil
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "a workflow has at least one step")
	}
	g := graph{decoder: d, names: make(map[string]int, len(n.Content))}
	normal := false
	for _, item := range d.Items(n) {
		if !d.Map(item, "a step: a mapping with name and run") {
			g.holes = true
			continue
		}
		s := d.step(item, stepKeys)
		normal = normal || s.Final == runner.NotFinal
		if s.name == nil {
			d.Errorf(item, "give the step a name")
		} else if i, ok := g.names[s.Name]; ok && s.Name != "" {
			d.Errorf(s.name, "step %q is there already, in line %d", s.Name, steps[i].name.Line)
		} else if s.Name != "" {
			g.names[s.Name] = len(steps)
		}
		g.holes = g.holes || s.Name == ""
		steps = append(steps, s)
	}
	if !normal && len(steps) > 0 {
		d.Errorf(n, "every step runs after the others, and there are no others")
	}
	g.steps = steps
	g.check()
	return steps
}

// graph is the steps of a workflow and what each needs.
type graph struct {
	*decoder
	steps []*stepNode
	names map[string]int // the first of a name
	holes bool           // a step has no name that is known, so that one that is needed may be it
	edges [][]int        // by step, those it needs
	// nearest is how many names that are not known the nearest one was looked for.
	nearest int
}

func (g *graph) check() {
	g.edges = make([][]int, len(g.steps))
	above := -1 // the normal step above
	for i, s := range g.steps {
		switch {
		case s.given["needs"] != nil:
			g.needs(i)
		case s.Final == runner.NotFinal && above >= 0:
			g.edges[i] = []int{above}
		}
		if s.Final == runner.NotFinal {
			above = i
		}
	}
	g.cycles()
}

// needs checks the names that a step gives.
func (g *graph) needs(i int) {
	s := g.steps[i]
	list := valueOf(s.node, "needs")
	if strict.KindOf(list) != strict.List {
		return
	}
	seen := make(map[string]bool, len(list.Content))
	for _, item := range g.Items(list) {
		if strict.KindOf(item) != strict.String {
			continue // reported
		}
		name := item.Value
		if seen[name] {
			g.Errorf(item, "step %q is given twice", name)
			continue
		}
		seen[name] = true
		j, ok := g.names[name]
		switch {
		case !ok && g.holes:
		case !ok:
			g.unknown(item, name)
		case j == i:
			g.Errorf(item, "step %q needs itself", name)
		case s.Final == runner.NotFinal && g.steps[j].Final != runner.NotFinal:
			g.Errorf(item, "step %q runs after all others, so that none of them can need it", name)
		case s.Final != runner.NotFinal && g.steps[j].Final == runner.NotFinal:
			g.Errorf(item, "this step runs after all others as it is; it needs no step such as %q", name)
		case s.Final != runner.NotFinal && j > i:
			g.Errorf(item, "steps that run after all others run in the order they stand in, and %q stands below", name)
		default:
			g.edges[i] = append(g.edges[i], j)
		}
	}
}

// unknown reports a step that is not there, with the nearest one for the first of them.
func (g *graph) unknown(item *strict.Node, name string) {
	var valid []string
	if g.nearest++; g.nearest <= maxSuggestions {
		for _, s := range g.steps {
			if s.Name != "" {
				valid = append(valid, s.Name)
			}
		}
	}
	g.Near(item, name, valid, "no step %q", name)
}

// cycles reports steps that need themselves through others: one cycle of each knot.
func (g *graph) cycles() {
	const (
		fresh = iota
		open
		done
	)
	state := make([]byte, len(g.steps))
	next := make([]int, len(g.steps)) // of each open step, the edge to follow
	for root := range g.steps {
		if state[root] != fresh {
			continue
		}
		path := []int{root}
		state[root] = open
		for len(path) > 0 {
			at := path[len(path)-1]
			if next[at] == len(g.edges[at]) {
				state[at] = done
				path = path[:len(path)-1]
				continue
			}
			to := g.edges[at][next[at]]
			next[at]++
			switch state[to] {
			case fresh:
				state[to] = open
				path = append(path, to)
			case open:
				from := len(path) - 1
				for path[from] != to {
					from--
				}
				g.cycle(path[from:])
			}
		}
	}
}

// cycle reports a cycle, at the first of its steps that says itself what it needs.
func (g *graph) cycle(path []int) {
	const most = 10 // steps that are named
	first := 0
	for i, at := range path {
		if g.steps[at].given["needs"] != nil {
			first = i
			break
		}
	}
	var b strings.Builder
	for i := range path {
		at, to := g.steps[path[(first+i)%len(path)]], g.steps[path[(first+i+1)%len(path)]]
		if i == 0 {
			fmt.Fprintf(&b, "%q", at.Name)
		}
		if i >= most && i < len(path)-1 {
			if i == most {
				fmt.Fprintf(&b, ", and so on through %d more", len(path)-1-most)
			}
			continue
		}
		fmt.Fprintf(&b, " needs %q", to.Name)
		if at.given["needs"] == nil {
			b.WriteString(" (the one above)")
		}
		if i < len(path)-1 {
			b.WriteString(", which")
		}
	}
	g.Errorf(g.steps[path[first]].node, "steps wait for one another: %s", b.String())
}

// valueOf is the value of a key that a mapping has.
func valueOf(n *strict.Node, key string) *strict.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			if v := n.Content[i+1]; v.Alias != nil {
				return v.Alias
			} else {
				return v
			}
		}
	}
	return nil
}
