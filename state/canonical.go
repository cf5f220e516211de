package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// Canonical is the canonical JSON of a text that is exactly one JSON value: object
// members sorted by UTF-16 code units, no white space, strings as JavaScript prints
// them. Numbers are written as JavaScript does (through float64; beyond its range
// null), and of members with one name the last counts. It is what keys are derived from.
func Canonical(text []byte) ([]byte, error) { return canonical(text, false) }

// CanonicalExact is the same with exact decimal numbers, for digests: 1, 1.0 and 1e0
// are equal, 9007199254740993 and 9007199254740992 are not, and -0 is 0. A text in which
// an object repeats a member, or that is not exactly one value, is an error, so that
// the form never hides a change. It agrees with Canonical below 2^53.
func CanonicalExact(text []byte) ([]byte, error) { return canonical(text, true) }

// maxDepth bounds the nesting, and with it the stack.
const maxDepth = 10_000

var byteOrderMark = []byte("\uFEFF")

func canonical(text []byte, exact bool) ([]byte, error) {
	text = bytes.TrimPrefix(text, byteOrderMark)
	c := &canonicalizer{in: text, exact: exact, out: make([]byte, 0, len(text))}
	c.space()
	if err := c.value(0); err != nil {
		return nil, err
	}
	if c.space(); c.at < len(c.in) {
		return nil, c.errorf("unexpected text after the value")
	}
	if len(c.objects) == 0 {
		return c.out, nil
	}
	slices.SortFunc(c.objects, func(a, b reordered) int { return cmp.Compare(a.all.from, b.all.from) })
	return c.emit(make([]byte, 0, len(c.out)), 0, len(c.out)), nil
}

// canonicalizer works in two passes, so that its cost does not grow with nesting
// times size. The first writes everything in its final form but in the order of the
// text, and notes the objects whose members have to move. The second copies.
type canonicalizer struct {
	in    []byte
	at    int
	exact bool
	out   []byte

	members []member    // of the objects that are open
	objects []reordered // for the second pass in the order in which they begin
}

// span is out[from:to].
type span struct{ from, to int }

// member is a name, and name, colon and value together.
type member struct{ name, all span }

// reordered is an object with its members' places in their final order.
type reordered struct {
	all     span
	members []span
}

func (c *canonicalizer) errorf(format string, args ...any) error {
	return fmt.Errorf("%s at byte %d", fmt.Sprintf(format, args...), c.at)
}

func (c *canonicalizer) space() {
	for c.at < len(c.in) {
		switch c.in[c.at] {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return
		}
	}
}

// next is the next byte after white space, 0 at the end.
func (c *canonicalizer) next() byte {
	c.space()
	if c.at == len(c.in) {
		return 0
	}
	return c.in[c.at]
}

func (c *canonicalizer) value(depth int) error {
	if depth > maxDepth {
		return c.errorf("nested deeper than %d", maxDepth)
	}
	switch b := c.next(); {
	case b == '{':
		return c.object(depth)
	case b == '[':
		return c.array(depth)
	case b == '"':
		return c.text()
	case b == '-' || b >= '0' && b <= '9':
		return c.number()
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(c.in[c.at:], []byte(word)) {
			c.at += len(word)
			c.out = append(c.out, word...)
			return nil
		}
	}
	if c.at == len(c.in) {
		return c.errorf("unexpected end")
	}
	return c.errorf("unexpected character %q", c.in[c.at])
}

func (c *canonicalizer) array(depth int) error {
	c.at++
	c.out = append(c.out, '[')
	if c.next() == ']' {
		c.at++
		c.out = append(c.out, ']')
		return nil
	}
	for {
		if err := c.value(depth + 1); err != nil {
			return err
		}
		b := c.next()
		if b != ',' && b != ']' {
			return c.errorf("want , or ] in array")
		}
		c.at++
		c.out = append(c.out, b)
		if b == ']' {
			return nil
		}
	}
}

func (c *canonicalizer) object(depth int) error {
	var (
		base  = len(c.members)
		begin = len(c.out)
	)
	c.at++
	c.out = append(c.out, '{')
	if c.next() == '}' {
		c.at++
		c.out = append(c.out, '}')
		return nil
	}
	for {
		if err := c.member(depth); err != nil {
			return err
		}
		b := c.next()
		if b != ',' && b != '}' {
			return c.errorf("want , or } in object")
		}
		c.at++
		c.out = append(c.out, b)
		if b == '}' {
			break
		}
	}
	order, moved, err := c.order(c.members[base:])
	if err != nil {
		return err
	}
	c.members = c.members[:base]
	if moved {
		c.objects = append(c.objects, reordered{span{begin, len(c.out)}, order})
	}
	return nil
}

func (c *canonicalizer) member(depth int) error {
	if c.next() != '"' {
		return c.errorf("want a name in object")
	}
	m := member{name: span{from: len(c.out)}}
	if err := c.text(); err != nil {
		return err
	}
	m.name.to = len(c.out)
	if c.next() != ':' {
		return c.errorf("want : after name")
	}
	c.at++
	c.out = append(c.out, ':')
	if err := c.value(depth + 1); err != nil {
		return err
	}
	m.all = span{m.name.from, len(c.out)}
	c.members = append(c.members, m)
	return nil
}

// order sorts the members of an object. moved is false where they can stay as they are.
func (c *canonicalizer) order(members []member) (order []span, moved bool, err error) {
	compare := func(a, b member) int { return compareNames(c.slice(a.name), c.slice(b.name)) }
	sorted := true
	for i := 1; i < len(members) && sorted; i++ {
		sorted = compare(members[i-1], members[i]) < 0
	}
	if sorted {
		return nil, false, nil
	}
	// Stable, so that of equal names the last one of the text comes last.
	slices.SortStableFunc(members, compare)
	order = make([]span, 0, len(members))
	for i, m := range members {
		if i+1 < len(members) && compare(m, members[i+1]) == 0 {
			if c.exact {
				return nil, false, fmt.Errorf("an object has the member %s more than once", c.slice(m.name))
			}
			continue
		}
		order = append(order, m.all)
	}
	return order, true, nil
}

func (c *canonicalizer) slice(s span) []byte { return c.out[s.from:s.to] }

// emit appends out[from:to] with the members of its objects in order.
func (c *canonicalizer) emit(b []byte, from, to int) []byte {
	for {
		i := sort.Search(len(c.objects), func(i int) bool { return c.objects[i].all.from >= from })
		if i == len(c.objects) || c.objects[i].all.from >= to {
			return append(b, c.out[from:to]...)
		}
		o := c.objects[i]
		b = append(append(b, c.out[from:o.all.from]...), '{')
		for n, m := range o.members {
			if n > 0 {
				b = append(b, ',')
			}
			b = c.emit(b, m.from, m.to)
		}
		b = append(b, '}')
		from = o.all.to
	}
}
