// Package filter finds the part of a body that counts: what a jq program or a CSS selector selects, or what is left
// once regular expressions have been dropped.
//
// It isolates the three languages and their libraries. A filter sees its body and nothing else: no environment, no
// files, no modules. It changes nothing, so one may be used by several goroutines. Pages and programs are hostile:
// what is nested, long, endless or swells in memory ends in an error, and so does everything when its context ends.
// One built-in function of jq, and one search for one regular expression, are the least that is not interrupted.
package filter

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxSelection is the most bytes of one selection of a program or selector, or of all results of a Program.
const maxSelection = 16 << 20

// Spec says what to select: exactly one of JQ, CSS and Drop is set.
type Spec struct {
	JQ        string   // a jq program over a body that is one JSON value
	CSS       string   // a selector, or several with commas, over a page
	Attribute string   // with CSS: the attribute to take; "" for the text
	Drop      []string // regular expressions (RE2, multi-line) of what does not count; all else does
}

// Filter is a compiled Spec. Make it with Compile.
type Filter struct {
	text string
	jq   *Program // one of the three is set
	css  *selector
	drop *dropper
}

// Compile checks a Spec. Its errors name the place in the program, selector or expression.
func Compile(spec Spec) (*Filter, error) {
	set := 0
	for _, is := range []bool{spec.JQ != "", spec.CSS != "", len(spec.Drop) > 0} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return nil, errors.New("want exactly one of jq, css and drop")
	case spec.Attribute != "" && spec.CSS == "":
		return nil, errors.New("an attribute is taken from what a css selector matches")
	}
	f := &Filter{text: spec.canonical()}
	var err error
	switch {
	case spec.JQ != "":
		f.jq, err = CompileProgram(spec.JQ)
	case spec.CSS != "":
		f.css, err = compileSelector(spec.CSS, spec.Attribute)
	default:
		f.drop, err = compileDrop(spec.Drop)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// canonical is JSON, so that no two specs have one text.
func (s Spec) canonical() string {
	quote := func(text string) string {
		b, _ := jsontext.AppendQuote(nil, text) // what is not UTF-8 does not compile
		return string(b)
	}
	switch {
	case s.JQ != "":
		return `{"jq":` + quote(strings.TrimSpace(s.JQ)) + "}"
	case s.Attribute != "":
		return `{"css":` + quote(strings.TrimSpace(s.CSS)) + `,"attribute":` + quote(strings.ToLower(s.Attribute)) + "}"
	case s.CSS != "":
		return `{"css":` + quote(strings.TrimSpace(s.CSS)) + "}"
	}
	all := make([]string, len(s.Drop))
	for i, p := range s.Drop {
		all[i] = quote(p)
	}
	return `{"drop":[` + strings.Join(all, ",") + "]}"
}

// String is the canonical text of the spec: equal for equal ones only.
func (f *Filter) String() string { return f.text }

// Selection is what a filter found.
type Selection struct {
	JSON   jsontext.Value // of a jq program: its result, or an array of its results; canonical (state.CanonicalExact)
	Text   string         // of a selector or of what was dropped; what is not UTF-8 in the latter stays as it is
	IsJSON bool           // which of the two it is
}

// Apply filters a body. contentType is its Content-Type header, "" for none. That nothing was selected is an error.
//
// A jq program reads the body as Program.Run does. A selector reads it as HTML. Expressions are dropped one after the
// other, each from what the ones before left.
func (f *Filter) Apply(ctx context.Context, body []byte, contentType string) (Selection, error) {
	if err := ctx.Err(); err != nil {
		return Selection{}, context.Cause(ctx)
	}
	switch {
	case f.jq != nil:
		found, err := f.jq.one(ctx, body)
		return Selection{JSON: found, IsJSON: true}, err
	case f.css != nil:
		text, err := f.css.apply(ctx, body, contentType)
		return Selection{Text: text}, err
	}
	left, err := f.drop.apply(ctx, body)
	return Selection{Text: string(left)}, err
}
