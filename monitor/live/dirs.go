package live

import (
	"slices"
	"strings"
)

// dirs are the directories that somebody wants to hear of, as a tree of names.
type dirs struct {
	top node
}

type node struct {
	below  map[string]*node
	owners []owner
	on     bool // the notifier took it
	alias  bool // the notifier has it under another path, and says nothing of this one
}

type owner struct {
	w     *watch
	hears func(name string) bool
	round int // of the owner's last full round that wanted it
}

func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// find is the node of an absolute path, nil for none.
func (d *dirs) find(path string) *node {
	n := &d.top
	for _, name := range names(path) {
		if n = n.below[name]; n == nil {
			return nil
		}
	}
	return n
}

func (d *dirs) make(path string) *node {
	n := &d.top
	for _, name := range names(path) {
		next := n.below[name]
		if next == nil {
			next = &node{}
			if n.below == nil {
				n.below = map[string]*node{}
			}
			n.below[name] = next
		}
		n = next
	}
	return n
}

// cut takes away the node of a path with all below it, and returns it; nil for none.
func (d *dirs) cut(path string) *node {
	trail := []*node{&d.top}
	all := names(path)
	for _, name := range all {
		next := trail[len(trail)-1].below[name]
		if next == nil {
			return nil
		}
		trail = append(trail, next)
	}
	last := len(all)
	if last == 0 {
		whole := d.top
		d.top = node{}
		return &whole
	}
	delete(trail[last-1].below, all[last-1])
	for i := last - 1; i > 0 && trail[i].empty(); i-- {
		delete(trail[i-1].below, all[i-1])
	}
	return trail[last]
}

func (n *node) empty() bool { return len(n.below) == 0 && len(n.owners) == 0 }

// each calls f for every node at and below n that has owners.
func (n *node) each(path string, f func(path string, n *node)) {
	if len(n.owners) > 0 {
		f(orTop(path), n)
	}
	for name, next := range n.below {
		next.each(path+"/"+name, f)
	}
}

// orTop is the path of a node whose own text is empty for the top.
func orTop(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

func (n *node) own(o owner) {
	if i := n.indexOf(o.w); i >= 0 {
		n.owners[i] = o
		return
	}
	n.owners = append(n.owners, o)
}

func (n *node) disown(w *watch) {
	if i := n.indexOf(w); i >= 0 {
		n.owners = slices.Delete(n.owners, i, i+1)
	}
}

func (n *node) indexOf(w *watch) int {
	return slices.IndexFunc(n.owners, func(o owner) bool { return o.w == w })
}
