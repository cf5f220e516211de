package catalog

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"marbles/cmd/internal/strict"
)

// shellText is a command text whose syntax is to be checked; a nil node means none.
type shellText struct {
	node  *strict.Node
	shell []string // the step's own; nil: the workflow's
}

// shells keeps one parser a language, made when first needed.
type shells map[syntax.LangVariant]*syntax.Parser

// checkShell reports bad syntax in a shell text, at its place in the file. fallback is the workflow's shell.
func (d *decoder) checkShell(t shellText, fallback []string) {
	if t.node == nil {
		return
	}
	shell := t.shell
	if shell == nil {
		shell = fallback
	}
	variant, ok := language(shell)
	if !ok {
		return
	}
	parser := d.shells[variant]
	if parser == nil {
		parser = syntax.NewParser(syntax.Variant(variant))
		if d.shells == nil {
			d.shells = make(shells)
		}
		d.shells[variant] = parser
	}
	_, err := parser.Parse(strings.NewReader(t.node.Value), "")
	if err == nil {
		return
	}
	var bad syntax.ParseError
	var foreign syntax.LangError
	message, pos := err.Error(), syntax.Pos{}
	switch {
	case errors.As(err, &bad):
		message, pos = bad.Text, bad.Pos
	case errors.As(err, &foreign):
		pos, foreign.Pos, foreign.Filename = foreign.Pos, syntax.Pos{}, ""
		message = strings.TrimPrefix(foreign.Error(), foreign.Pos.String()+": ")
		if slices.Contains(foreign.Langs, syntax.LangBash) {
			message += "; shell: bash would take it"
		}
	}
	d.Errorf(t.node, "bad shell syntax: %s", message)
	if pos.IsValid() {
		last := &d.Errors[len(d.Errors)-1]
		last.Position = d.Inside(t.node, int(pos.Line()), int(pos.Col()))
		if last.Line == t.node.Line && pos.Line() > 1 {
			last.Message = "bad shell syntax in line " + strconv.Itoa(int(pos.Line())) + " of the text: " + message
		}
	}
}

// language is the language of a shell's texts; ok is false for a shell whose syntax we do not know. sh is POSIX, as
// what Debian's sh refuses at run time is better refused when the file is read.
func language(shell []string) (v syntax.LangVariant, ok bool) {
	if len(shell) == 0 {
		return syntax.LangPOSIX, true
	}
	name := path.Base(shell[0])
	if name == "env" && len(shell) > 1 {
		name = path.Base(shell[1])
	}
	switch name {
	case "sh", "dash":
		return syntax.LangPOSIX, true
	case "bash":
		return syntax.LangBash, true
	}
	return 0, false
}
