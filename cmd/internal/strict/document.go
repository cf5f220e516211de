package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Node is a YAML value with its place.
type Node = yaml.Node

// maxExpanded bounds how many values the aliases of one file may stand for, so that a small file cannot grow to
// fill the memory.
const maxExpanded = 1 << 20

// Document is one YAML file. Its methods that read a value report what is wrong with it in Errors.
type Document struct {
	File     string
	Root     *Node // nil where the file holds nothing, or Broken
	Broken   bool  // not read to its end: what it declares is not known
	Errors   Diagnostics
	Warnings Diagnostics

	data     []byte
	parents  map[*Node]parent // made for the first diagnostic
	sizes    map[*Node]int    // of anchored values, aliases expanded; -1 while being measured
	expanded int
}

type parent struct {
	node  *Node
	name  string
	index int // where name is not used: -1 for a key or its value
}

// Parse reads a file's bytes. It never fails: what is wrong stands in Errors.
func Parse(file string, data []byte) *Document {
	d := &Document{File: file, data: data}
	if !utf8.Valid(data) {
		d.fail(place(data, func(r rune, size int) bool { return r == utf8.RuneError && size == 1 }), "text is not valid UTF-8")
		return d
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		d.fail(Position{Line: 1, Column: 1}, "cannot parse: "+err.Error())
		return d
	}
	var document yaml.Node
	switch err := d.load(loader, &document); {
	case err == io.EOF:
		return d
	case err != nil:
		d.fail(syntaxError(err, data))
		return d
	}
	var further yaml.Node
	switch err := d.load(loader, &further); {
	case err == io.EOF:
	case err != nil:
		d.fail(syntaxError(err, data))
		return d
	default:
		d.fail(Position{Line: further.Line, Column: further.Column}, "a file is one document; further ones are not read")
	}
	if len(document.Content) == 0 {
		return d
	}
	d.Root = document.Content[0]
	d.check(d.Root)
	if d.Broken || KindOf(d.Root) == Null {
		d.Root = nil
	}
	return d
}

// load turns a panic of the library into an error: a definition file must never end the service.
func (d *Document) load(loader *yaml.Loader, into *yaml.Node) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the YAML parser failed: %v", v)
		}
	}()
	return loader.Load(into)
}

// fail records that the file could not be read to its end.
func (d *Document) fail(at Position, message string) {
	at.File = UTF8(d.File)
	at.Line, at.Column = max(at.Line, 1), max(at.Column, 1)
	d.Broken = true
	d.Errors = append(d.Errors, Diagnostic{Position: at, Message: message})
}

// syntaxError is the place and text of a library's error. Errors of its reader carry no place; they are about
// characters that YAML does not allow.
func syntaxError(err error, data []byte) (Position, string) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return Position{}, "cannot parse: " + err.Error()
	}
	at := Position{Line: load.Mark.Line, Column: load.Mark.Column}
	if at.Line == 0 {
		at = place(data, func(r rune, _ int) bool { return !printable(r) })
	}
	message := "cannot parse: " + load.Message
	if load.ContextMsg != "" {
		message += " " + load.ContextMsg
		if load.ContextMark.Line > 0 && load.ContextMark.Line != at.Line {
			message += fmt.Sprintf(" that begins in line %d", load.ContextMark.Line)
		}
	}
	return at, message
}

// printable is YAML's set of characters (1.2, production 1).
func printable(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= 0x20 && r <= 0x7e || r == 0x85 ||
		r >= 0xa0 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000
}

// place is where the first character lies for which bad is true, else the beginning.
func place(data []byte, bad func(r rune, size int) bool) Position {
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if bad(r, size) {
			return Position{Line: line, Column: column}
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		i += size
	}
	return Position{Line: 1, Column: 1}
}

// check reports what is wrong with a value whatever it is for, and returns how many values it stands for.
func (d *Document) check(n *Node) int {
	if n.Kind == yaml.AliasNode {
		return d.checkAlias(n)
	}
	if n.Anchor != "" {
		if d.sizes == nil {
			d.sizes = make(map[*Node]int)
		}
		d.sizes[n] = -1
	}
	if !allowedTag(n) {
		d.Errorf(n, "tag %s is not supported", n.Tag)
	}
	size := 1
	switch n.Kind {
	case yaml.ScalarNode:
		if plain(n) {
			if problem := badNumber(n.Value); problem != "" {
				d.Errorf(n, "%s", problem)
			}
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			size += d.check(item)
		}
	case yaml.MappingNode:
		d.checkKeys(n)
		for i := 1; i < len(n.Content); i += 2 {
			size += d.check(n.Content[i])
		}
	}
	if n.Anchor != "" {
		d.sizes[n] = size
	}
	return size
}

func (d *Document) checkAlias(n *Node) int {
	size, measured := d.sizes[n.Alias]
	switch {
	case measured && size < 0:
		if !d.Broken {
			d.Errorf(n, "alias *%s stands inside of what it names", n.Value)
		}
		d.Broken = true
		return 1
	case !measured: // an anchor on a key
		size = 1
	}
	size = min(size, maxExpanded+1)
	d.expanded += size
	if d.expanded > maxExpanded && !d.Broken {
		d.Errorf(n, "aliases stand for more than %d values", maxExpanded)
		d.Broken = true
	}
	return size
}

// checkKeys reports keys that are no plain text, and repeated ones.
func (d *Document) checkKeys(n *Node) {
	const few = 16
	var seen map[string]*Node
	if len(n.Content) > 2*few {
		seen = make(map[string]*Node, len(n.Content)/2)
	}
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Kind != yaml.ScalarNode:
			d.Errorf(k, "a key must be a text")
			continue
		case !allowedTag(k):
			d.Errorf(k, "tag %s is not supported", k.Tag)
		case plain(k) && k.Value == "<<":
			d.Errorf(k, "merge keys are not supported")
		case plain(k) && isNull(k.Value):
			d.Errorf(k, "a key must be a text; quote it")
		}
		var first *Node
		if seen != nil {
			if first = seen[k.Value]; first == nil {
				seen[k.Value] = k
			}
		} else {
			for j := 0; j < i; j += 2 {
				if n.Content[j].Kind == yaml.ScalarNode && n.Content[j].Value == k.Value {
					first = n.Content[j]
					break
				}
			}
		}
		if first != nil {
			d.Errorf(k, "key %q is given twice, first in line %d", k.Value, first.Line)
		}
	}
}

// Pairs ranges over the keys and values of a mapping, aliases followed. What [Parse] refused as a key is left out.
func (d *Document) Pairs(n *Node) iter.Seq2[*Node, *Node] {
	return func(yield func(k, v *Node) bool) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || plain(k) && (k.Value == "<<" || isNull(k.Value)) {
				continue
			}
			if !yield(k, follow(n.Content[i+1])) {
				return
			}
		}
	}
}

// Items ranges over a list, aliases followed.
func (d *Document) Items(n *Node) iter.Seq2[int, *Node] {
	return func(yield func(i int, v *Node) bool) {
		for i, item := range n.Content {
			if !yield(i, follow(item)) {
				return
			}
		}
	}
}

func follow(n *Node) *Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// At is the place of a value or key.
func (d *Document) At(n *Node) Position {
	return Position{File: UTF8(d.File), Line: n.Line, Column: n.Column}
}

// Errorf reports an error in a value or key.
func (d *Document) Errorf(n *Node, format string, args ...any) {
	d.Errors = append(d.Errors, d.diagnostic(n, fmt.Sprintf(format, args...)))
}

// Warnf reports a warning about a value or key.
func (d *Document) Warnf(n *Node, format string, args ...any) {
	d.Warnings = append(d.Warnings, d.diagnostic(n, fmt.Sprintf(format, args...)))
}

// Near reports an error in a value or key, with the nearest of the valid names.
func (d *Document) Near(n *Node, text string, valid []string, format string, args ...any) {
	found := d.diagnostic(n, fmt.Sprintf(format, args...))
	found.Nearest = Nearest(text, slices.Values(valid))
	d.Errors = append(d.Errors, found)
}

// Unknown reports a key that is none of the valid ones.
func (d *Document) Unknown(k *Node, valid []string) {
	d.Near(k, k.Value, valid, "unknown key %q", k.Value)
}

func (d *Document) diagnostic(n *Node, message string) Diagnostic {
	at := d.At(n)
	at.Line, at.Column = max(at.Line, 1), max(at.Column, 1)
	return Diagnostic{Position: at, Path: d.Path(n), Message: UTF8(message)}
}

// Path is the dotted path of a value or key.
func (d *Document) Path(n *Node) string {
	if d.parents == nil {
		d.parents = make(map[*Node]parent)
		if d.Root != nil {
			d.adopt(d.Root)
		}
	}
	var parts []parent
	for {
		p, ok := d.parents[n]
		if !ok {
			break
		}
		parts = append(parts, p)
		n = p.node
	}
	path := ""
	for _, p := range slices.Backward(parts) {
		if p.index < 0 {
			path = Join(path, p.name)
		} else {
			path = Index(path, p.index)
		}
	}
	return path
}

func (d *Document) adopt(n *Node) {
	switch n.Kind {
	case yaml.SequenceNode:
		for i, item := range n.Content {
			d.parents[item] = parent{node: n, index: i}
			d.adopt(item)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			p := parent{node: n, name: k.Value, index: -1}
			d.parents[k], d.parents[v] = p, p
			d.adopt(v)
		}
	}
}

// Inside is the place of a character of a text value, lines and columns counted from 1: exact for a literal block and
// for a text in one line without escapes, else the value's own place.
func (d *Document) Inside(n *Node, line, column int) Position {
	at := d.At(n)
	switch {
	case n.Style&yaml.LiteralStyle != 0:
		lines := bytes.SplitN(d.data, []byte{'\n'}, at.Line+line+1)
		if at.Line+line > len(lines) {
			return at
		}
		indent := -1
		for _, l := range lines[at.Line:min(at.Line+line, len(lines))] {
			if text := bytes.TrimLeft(l, " "); len(bytes.TrimSpace(text)) > 0 && (indent < 0 || len(l)-len(text) < indent) {
				indent = len(l) - len(text)
			}
		}
		at.Line += line
		at.Column = max(indent, 0) + column
	case line == 1 && plain(n):
		at.Column += column - 1
	case line == 1 && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && !bytes.ContainsAny([]byte(n.Value), "\"'\\\n\t"):
		at.Column += column
	}
	return at
}
