package filter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// dropper leaves out what its expressions match.
type dropper struct{ all []*expression }

type expression struct {
	re *regexp.Regexp
	// later finds the expression, as its first group, behind the first character of a text: what stands before a match
	// is part of it (^, \b).
	later *regexp.Regexp
	size  int // instructions of the compiled expression
}

func compileDrop(patterns []string) (*dropper, error) {
	d := &dropper{}
	for i, p := range patterns {
		re, err := compileExpression(p)
		if err != nil {
			return nil, fmt.Errorf("expression %d: %w", i+1, err)
		}
		d.all = append(d.all, re)
	}
	return d, nil
}

// multiLine is how an expression is read.
const multiLine = "(?m)"

func compileExpression(src string) (*expression, error) {
	switch {
	case src == "":
		return nil, at(src, -1, "is empty, which drops nothing", "")
	case len(src) > maxSource:
		return nil, at(src, -1, fmt.Sprintf("is longer than %d KiB", maxSource>>10), "")
	}
	if i := badUTF8(src); i >= 0 {
		return nil, at(src, i, "not UTF-8", "")
	}
	re, err := regexp.Compile(multiLine + src)
	if err == nil {
		return wrap(re, src)
	}
	bad, ok := errors.AsType[*syntax.Error](err)
	if !ok {
		return nil, at(src, -1, err.Error(), "")
	}
	hint := ""
	if bad.Code == syntax.ErrInvalidPerlOp && strings.HasPrefix(bad.Expr, "(?") {
		hint = "expressions are RE2's, without look-around: https://golang.org/s/re2syntax"
	}
	expr := strings.TrimPrefix(bad.Expr, multiLine)
	problem := string(bad.Code)
	if expr != "" && expr != src {
		problem += ": " + expr
	}
	return nil, at(src, strings.Index(src, expr), problem, hint)
}

func wrap(re *regexp.Regexp, src string) (*expression, error) {
	if _, err := regexp.Compile("(" + src + ")"); err != nil {
		src += `\E` // it ends within `\Q`
	}
	later, err := regexp.Compile(`\A(?s:.)(?s:.)*?(` + multiLine + src + ")")
	if err != nil {
		return nil, at(src, -1, "is nested too deep", "")
	}
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil {
		return nil, at(src, -1, err.Error(), "")
	}
	compiled, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, at(src, -1, err.Error(), "")
	}
	return &expression{re, later, len(compiled.Inst)}, nil
}

// apply drops every match.
func (d *dropper) apply(ctx context.Context, text []byte) ([]byte, error) {
	// A step of a search takes up to 8 ns for each instruction, and the library's own loop is not interrupted in a search.
	const short = 1 << 25
	text = bytes.Clone(text)
	for _, e := range d.all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		drop := e.drop
		if e.size*len(text) > short {
			drop = e.dropLong
		}
		left, err := drop(ctx, text)
		if err != nil {
			return nil, err
		}
		text = left
	}
	return text, nil
}

// stopped unwinds the library's loop.
type stopped struct{ err error }

// drop is the fast one. It is interrupted between two matches.
func (e *expression) drop(ctx context.Context, text []byte) (left []byte, err error) {
	defer func() {
		r := recover()
		if s, ok := r.(stopped); ok {
			left, err = nil, s.err
		} else if r != nil {
			panic(r)
		}
	}()
	return e.re.ReplaceAllFunc(text, func([]byte) []byte {
		if ctx.Err() != nil {
			panic(stopped{context.Cause(ctx)})
		}
		return nil
	}), nil
}

// dropLong is interrupted anywhere.
func (e *expression) dropLong(ctx context.Context, text []byte) ([]byte, error) {
	left := make([]byte, 0, len(text))
	for at := 0; at <= len(text); {
		from, to := e.find(ctx, text, at)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if from < 0 {
			return append(left, text[at:]...), nil
		}
		left = append(left, text[at:from]...)
		at = to
		if from == to { // go on behind the next character
			_, size := utf8.DecodeRune(text[to:])
			left = append(left, text[to:to+size]...)
			at += max(size, 1)
		}
	}
	return left, nil
}

// find is the first match at or behind a place, or -1.
func (e *expression) find(ctx context.Context, text []byte, at int) (from, to int) {
	var found []int
	base := 0
	if at == 0 {
		found = e.re.FindReaderIndex(&runes{ctx: ctx, text: text})
	} else {
		_, size := utf8.DecodeLastRune(text[:at])
		base = at - size
		if found = e.later.FindReaderSubmatchIndex(&runes{ctx: ctx, text: text[base:]}); found != nil {
			found = found[2:]
		}
	}
	if found == nil {
		return -1, -1
	}
	return base + found[0], base + found[1]
}

// runes ends when its context does.
type runes struct {
	ctx  context.Context
	text []byte
	at   int
	n    uint
}

// ReadRune implements io.RuneReader.
func (r *runes) ReadRune() (rune, int, error) {
	if r.n++; r.n%often == 0 && r.ctx.Err() != nil || r.at == len(r.text) {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.text[r.at:])
	r.at += size
	return c, size, nil
}
