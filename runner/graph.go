package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// node is a step in the graph of a run.
type node struct {
	Step
	i      int     // its place in the workflow
	needs  []*node // what comes right before it
	after  []*node // what comes right after it
	waits  int     // how many of needs have not ended
	before bitset  // all that comes before it; nil until it begins

	phase  phase
	result jsontext.Value // where it has finished; nil is null
}

// phase is how far a step is.
type phase int

const (
	pending phase = iota
	working
	parked
	finished
)

// graph is the steps of a workflow by what they need, final steps apart.
type graph struct {
	nodes  []*node // normal steps, in the workflow's order
	finals []*node
	all    []*node
}

// newGraph builds the graph. The catalog has refused what cannot be one already; a workflow that was made otherwise is
// checked here.
func newGraph(steps []Step) (*graph, error) {
	g := &graph{all: make([]*node, len(steps))}
	byName := make(map[string]*node, len(steps))
	for i, s := range steps {
		n := &node{Step: s, i: i}
		if byName[s.Name] != nil {
			return nil, fmt.Errorf("step %q is there twice", s.Name)
		}
		byName[s.Name], g.all[i] = n, n
		if s.Final != NotFinal {
			g.finals = append(g.finals, n)
			continue
		}
		if s.Needs == nil && len(g.nodes) > 0 {
			n.needs = []*node{g.nodes[len(g.nodes)-1]}
		}
		g.nodes = append(g.nodes, n)
	}
	for _, n := range g.nodes {
		for _, name := range n.Needs {
			other := byName[name]
			if other == nil || other.Final != NotFinal {
				return nil, fmt.Errorf("step %q needs %q, which is no step before it", n.Name, name)
			}
			if !slices.Contains(n.needs, other) {
				n.needs = append(n.needs, other)
			}
		}
		for _, other := range n.needs {
			other.after = append(other.after, n)
		}
		n.waits = len(n.needs)
	}
	return g, g.acyclic()
}

func (g *graph) acyclic() error {
	left := make(map[*node]int, len(g.nodes))
	var ready []*node
	for _, n := range g.nodes {
		if left[n] = len(n.needs); left[n] == 0 {
			ready = append(ready, n)
		}
	}
	for len(ready) > 0 {
		n := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		delete(left, n)
		for _, m := range n.after {
			if left[m]--; left[m] == 0 {
				ready = append(ready, m)
			}
		}
	}
	if len(left) == 0 {
		return nil
	}
	var names []string
	for _, n := range g.nodes {
		if _, ok := left[n]; ok {
			names = append(names, n.Name)
		}
	}
	return errors.New("steps need each other: " + strings.Join(names, ", "))
}

// begin fixes what comes before a step. All of that has ended.
func (n *node) begin(size int) {
	n.before = newBitset(size)
	for _, m := range n.needs {
		n.before.add(m.i)
		n.before.join(m.before)
	}
}

// inputOf is what a step gets: the run's input with the results of what came before it.
func (g *graph) inputOf(input []member, n *node) []member {
	list := slices.Clone(input)
	for _, m := range g.nodes {
		if n.Final == NotFinal && !n.before.has(m.i) {
			continue
		}
		at := slices.IndexFunc(input, func(b member) bool { return b.name == m.Name })
		if at < 0 {
			list = append(list, member{m.Name, m.value()})
		} else {
			list[at].value = m.value()
		}
	}
	return list
}

// value is a step's result, null where it has none.
func (n *node) value() jsontext.Value {
	if n.phase != finished || n.result == nil {
		return jsontext.Value("null")
	}
	return n.result
}

// take keeps the result of a record after which the run goes on: one that failed has none.
func (n *node) take(rec *state.StepRecord) {
	if n.result = rec.Result; rec.Status == state.Failed {
		n.result = nil
	}
}

// goesOn reports whether what comes after a step with this record may begin.
func (n *node) goesOn(rec *state.StepRecord) bool {
	switch rec.Status {
	case state.Complete, state.Skipped:
		return true
	case state.Failed:
		return n.ContinueOnError
	}
	return false
}

// bitset is a set of places in a workflow.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) has(i int) bool { return b != nil && b[i/64]&(1<<(i%64)) != 0 }

func (b bitset) join(o bitset) {
	for i, w := range o {
		b[i] |= w
	}
}
