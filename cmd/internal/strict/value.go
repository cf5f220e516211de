package strict

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v4"
)

// Kind is what a value is by the core schema.
type Kind int

// The kinds of values. Bad is a value that [Parse] has already reported.
const (
	Bad Kind = iota
	Null
	Bool
	Int
	Float
	String
	List
	Map
)

// KindOf tells what a value is, aliases followed.
func KindOf(n *Node) Kind {
	n = follow(n)
	switch n.Kind {
	case yaml.SequenceNode:
		return List
	case yaml.MappingNode:
		return Map
	case yaml.ScalarNode:
	default:
		return Bad
	}
	switch {
	case !allowedTag(n):
		return Bad
	case !plain(n):
		return String
	case badNumber(n.Value) != "":
		return Bad
	}
	kind := scalarKind(n.Value)
	if n.Tag == "!!float" && kind == Int && n.Style&yaml.TaggedStyle != 0 {
		return Float
	}
	return kind
}

// plain tells whether a scalar's kind is told by its text: it is neither quoted nor tagged as a string.
func plain(n *Node) bool {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	if n.Style&quoted != 0 || n.Tag == "!" {
		return false
	}
	return n.Style&yaml.TaggedStyle == 0 || n.Tag != "!!str"
}

// allowedTag tells whether a value has no tag of its own, or one of the core schema's that fits what it is.
func allowedTag(n *Node) bool {
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	switch n.Kind {
	case yaml.MappingNode:
		return n.Tag == "!!map"
	case yaml.SequenceNode:
		return n.Tag == "!!seq"
	}
	if n.Tag == "!!str" {
		return true
	}
	if !plain(n) {
		return false
	}
	switch scalarKind(n.Value) {
	case Null:
		return n.Tag == "!!null"
	case Bool:
		return n.Tag == "!!bool"
	case Int:
		return n.Tag == "!!int" || n.Tag == "!!float"
	case Float:
		return n.Tag == "!!float"
	}
	return false
}

// isNull tells whether a plain scalar is the core schema's null.
func isNull(text string) bool {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// scalarKind is the core schema of YAML 1.2 (chapter 10.3.2) for a plain scalar.
func scalarKind(text string) Kind {
	if isNull(text) {
		return Null
	}
	if c := text[0]; c != '+' && c != '-' && c != '.' && (c < '0' || c > '9') && c != 't' && c != 'T' && c != 'f' && c != 'F' {
		return String
	}
	switch text {
	case "true", "True", "TRUE", "false", "False", "FALSE":
		return Bool
	case ".nan", ".NaN", ".NAN":
		return Float
	}
	s := text
	if s[0] == '+' || s[0] == '-' {
		s = s[1:]
	}
	switch s {
	case ".inf", ".Inf", ".INF":
		return Float
	case "":
		return String
	}
	if hex, ok := strings.CutPrefix(text, "0x"); ok && hex != "" && strings.Trim(hex, "0123456789abcdefABCDEF") == "" {
		return Int
	}
	return decimalKind(s)
}

// decimalKind tells an int, a float or a string from a text without its sign.
func decimalKind(s string) Kind {
	rest := strings.TrimLeft(s, "0123456789")
	whole := len(s) - len(rest)
	if rest == "" {
		return Int
	}
	if fraction, ok := strings.CutPrefix(rest, "."); ok {
		rest = strings.TrimLeft(fraction, "0123456789")
		whole += len(fraction) - len(rest)
	}
	if whole == 0 {
		return String
	}
	if rest == "" {
		return Float
	}
	if rest[0] != 'e' && rest[0] != 'E' {
		return String
	}
	exponent := rest[1:]
	if exponent != "" && (exponent[0] == '+' || exponent[0] == '-') {
		exponent = exponent[1:]
	}
	if exponent == "" || strings.Trim(exponent, "0123456789") != "" {
		return String
	}
	return Float
}

// badNumber says what is wrong with a plain scalar that some readers take as a number and others as another number
// or a text.
func badNumber(text string) string {
	s := text
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	if s == "" || s[0] < '0' || s[0] > '9' {
		return ""
	}
	if len(s) > 2 && s[0] == '0' {
		digits := strings.ReplaceAll(s[2:], "_", "")
		switch s[1] {
		case 'o', 'b':
			if digits != "" && strings.Trim(digits, map[byte]string{'o': "01234567", 'b': "01"}[s[1]]) == "" {
				return fmt.Sprintf("number %s is octal or binary; write it as a decimal, or quote it", text)
			}
			return ""
		case 'x':
			if digits != "" && len(digits) < len(s)-2 && strings.Trim(digits, "0123456789abcdefABCDEF") == "" {
				return fmt.Sprintf("number %s has underscores; leave them out, or quote it", text)
			}
			return ""
		}
	}
	if bare := strings.ReplaceAll(s, "_", ""); len(bare) < len(s) {
		if decimalKind(bare) == String {
			return ""
		}
		return fmt.Sprintf("number %s has underscores; leave them out, or quote it", text)
	}
	if len(s) > 1 && s[0] == '0' && s[1] >= '0' && s[1] <= '9' && decimalKind(s) != String {
		return fmt.Sprintf("number %s has a leading zero, which some read as octal; leave it out, or quote it", text)
	}
	return ""
}

// describe says what a value is, for a message.
func describe(n *Node) string {
	switch KindOf(n) {
	case Null:
		return "nothing"
	case Bool:
		return "the boolean " + n.Value
	case Int, Float:
		return "the number " + n.Value
	case List:
		return "a list"
	case Map:
		return "a mapping"
	}
	text := n.Value
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:40], "") + "…"
	}
	return fmt.Sprintf("the text %q", text)
}

// Want reports that a value is not what it should be, unless [Parse] has reported it already.
func (d *Document) Want(n *Node, what string) {
	if KindOf(n) == Bad {
		return
	}
	got := describe(n)
	switch KindOf(n) {
	case Bool, Int, Float:
		if strings.Contains(what, "text") {
			got += "; quote it"
		}
	}
	d.Errorf(n, "want %s, got %s", what, got)
}

// String reads a text. what says what is wanted, as "a text".
func (d *Document) String(n *Node, what string) (string, bool) {
	if KindOf(n) != String {
		d.Want(n, what)
		return "", false
	}
	return n.Value, true
}

// Scalar reads a text, number or boolean as the text it was written as.
func (d *Document) Scalar(n *Node, what string) (string, bool) {
	switch KindOf(n) {
	case String, Int, Float, Bool:
		return n.Value, true
	}
	d.Want(n, what)
	return "", false
}

// Bool reads true or false.
func (d *Document) Bool(n *Node) (value, ok bool) {
	if KindOf(n) != Bool {
		d.Want(n, "true or false")
		return false, false
	}
	return n.Value[0] == 't' || n.Value[0] == 'T', true
}

// Int reads a whole number between two bounds, both included.
func (d *Document) Int(n *Node, low, high int) (int, bool) {
	if KindOf(n) == Int {
		if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil && v >= int64(low) && v <= int64(high) {
			return int(v), true
		}
	}
	d.Want(n, fmt.Sprintf("a whole number from %d to %d", low, high))
	return 0, false
}

// Duration reads a positive duration.
func (d *Document) Duration(n *Node) (time.Duration, bool) {
	if KindOf(n) != String {
		d.Want(n, "a duration such as 30s, 10m, 6h or 1d")
		return 0, false
	}
	v, err := Duration(n.Value)
	if err != nil {
		d.Errorf(n, "%v", err)
		return 0, false
	}
	return v, true
}

// Map and List check that a value is a mapping or a list; what says what is wanted.
func (d *Document) Map(n *Node, what string) bool  { return d.is(n, Map, what) }
func (d *Document) List(n *Node, what string) bool { return d.is(n, List, what) }

func (d *Document) is(n *Node, kind Kind, what string) bool {
	if KindOf(n) != kind {
		d.Want(n, what)
		return false
	}
	return true
}

// JSON is a value as JSON text, in the order it was written in. Numbers keep their text as far as JSON allows it;
// what JSON cannot say is reported.
func (d *Document) JSON(n *Node) (jsontext.Value, bool) {
	before := len(d.Errors)
	text := d.appendJSON(nil, n)
	return text, len(d.Errors) == before && text != nil
}

func (d *Document) appendJSON(dst []byte, n *Node) []byte {
	n = follow(n)
	switch KindOf(n) {
	case Null:
		return append(dst, "null"...)
	case Bool:
		return append(dst, strings.ToLower(n.Value)...)
	case Int, Float:
		text, ok := jsonNumber(n.Value)
		if !ok {
			d.Errorf(n, "number %s cannot be said in JSON", n.Value)
		}
		return append(dst, text...)
	case String:
		dst, _ = jsontext.AppendQuote(dst, n.Value)
		return dst
	case List:
		dst = append(dst, '[')
		for i, item := range d.Items(n) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = d.appendJSON(dst, item)
		}
		return append(dst, ']')
	case Map:
		dst = append(dst, '{')
		comma := false
		for k, v := range d.Pairs(n) {
			if comma {
				dst = append(dst, ',')
			}
			comma = true
			dst, _ = jsontext.AppendQuote(dst, k.Value)
			dst = append(dst, ':')
			dst = d.appendJSON(dst, v)
		}
		return append(dst, '}')
	}
	return append(dst, "null"...) // reported by Parse
}

// jsonNumber writes a number of the core schema as JSON's grammar has it; ok is false for what is not finite.
func jsonNumber(text string) (string, bool) {
	if strings.HasPrefix(text, "0x") {
		const most = 255 // hexadecimal digits that surely fit in a float64
		if len(text) > len("0x")+most {
			return "null", false
		}
		n, ok := new(big.Int).SetString(text[len("0x"):], 16)
		if !ok {
			return "null", false
		}
		return n.String(), true
	}
	sign, s := "", strings.TrimPrefix(text, "+")
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		sign, s = "-", rest
	}
	mantissa, exponent := s, ""
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, exponent = s[:i], s[i:]
	}
	if strings.HasPrefix(mantissa, ".") {
		mantissa = "0" + mantissa
	}
	number := sign + strings.TrimSuffix(mantissa, ".") + exponent
	if _, err := strconv.ParseFloat(number, 64); err != nil || !jsontext.Value(number).IsValid() {
		return "null", false
	}
	return number, true
}
