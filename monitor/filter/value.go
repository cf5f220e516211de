package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// often is how many values are read or written between two looks at the context.
const often = 4096

// maxDigits is the longest number that is read. Calculating with one takes the square of its length.
const maxDigits = 4096

var byteOrderMark = []byte("\uFEFF")

// decode reads exactly one JSON value into what the interpreter takes. An integer becomes an int where it fits, and any
// other number stays the text it is.
func decode(g *guard, text []byte) (any, error) {
	d := &decoder{Decoder: jsontext.NewDecoder(bytes.NewBuffer(bytes.TrimPrefix(text, byteOrderMark))), guard: g}
	value, err := d.value()
	if err == nil {
		switch _, extra := d.ReadToken(); {
		case extra == nil:
			err = fmt.Errorf("more than one value: the second begins before byte %d", d.InputOffset())
		case !errors.Is(extra, io.EOF):
			err = extra
		}
	}
	switch syntax, is := errors.AsType[*jsontext.SyntacticError](err); {
	case err == nil:
		return value, nil
	case g.err != nil:
		return nil, g.err
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return nil, errors.New("not JSON: it ends too early")
	case is:
		return nil, fmt.Errorf("not JSON: %w at byte %d", syntax.Err, syntax.ByteOffset)
	}
	return nil, fmt.Errorf("not JSON: %w", err)
}

type decoder struct {
	*jsontext.Decoder

	guard *guard
	n     uint
}

// value recurses: the decoder refuses to nest deeper than 10,000.
func (d *decoder) value() (any, error) {
	if d.n++; d.n%often == 0 {
		if err := d.guard.check(); err != nil {
			return nil, err
		}
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return t.Bool(), nil
	case '"':
		return t.String(), nil
	case '0':
		return number(t.String())
	case '[':
		return d.array()
	}
	return d.object()
}

func number(text string) (any, error) {
	if len(text) > maxDigits {
		return nil, fmt.Errorf("a number of %d characters", len(text))
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil // -0 is 0
	}
	return json.Number(text), nil
}

func (d *decoder) array() (any, error) {
	found := []any{}
	for d.PeekKind() != ']' {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		found = append(found, v)
	}
	_, err := d.ReadToken()
	return found, err
}

func (d *decoder) object() (any, error) {
	found := map[string]any{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		if found[key], err = d.value(); err != nil {
			return nil, err
		}
	}
	_, err := d.ReadToken()
	return found, err
}

// encode writes a result in canonical form.
func encode(g *guard, value any) (jsontext.Value, error) {
	e := &encoder{guard: g}
	if err := e.value(value, 0); err != nil {
		return nil, err
	}
	return canonical(e.out)
}

type encoder struct {
	guard *guard
	out   []byte
	n     uint
}

// maxDepth is that of the decoder.
const maxDepth = 10_000

func (e *encoder) value(value any, depth int) error {
	if e.n++; e.n%often == 0 {
		if err := e.guard.check(); err != nil {
			return err
		}
	}
	switch {
	case depth > maxDepth:
		return fmt.Errorf("the jq program's result is nested deeper than %d", maxDepth)
	case len(e.out) > maxSelection:
		return errSelection
	}
	switch v := value.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case int:
		e.out = strconv.AppendInt(e.out, int64(v), 10)
	case *big.Int:
		return e.big(v)
	case json.Number:
		e.out = append(e.out, v...)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return errors.New("the jq program's result has a number that is infinite, or none")
		}
		e.out = jsontext.AppendFloat(e.out, v, 64)
	case string:
		return e.text(v)
	case []any:
		return e.array(v, depth)
	case map[string]any:
		return e.object(v, depth)
	default:
		return fmt.Errorf("the jq program's result has a %T", value)
	}
	return nil
}

func (e *encoder) big(v *big.Int) error {
	// Writing one costs more than its length.
	const mostBits = 4 * maxDigits
	if v.BitLen() > mostBits {
		return fmt.Errorf("the jq program's result has a number of more than %d digits", maxDigits)
	}
	e.out = v.Append(e.out, 10)
	return nil
}

func (e *encoder) text(v string) (err error) {
	if len(v) > maxSelection {
		return errSelection
	}
	if e.out, err = jsontext.AppendQuote(e.out, v); err != nil {
		return errors.New("the jq program's result has a text that is not UTF-8")
	}
	return nil
}

func (e *encoder) array(v []any, depth int) error {
	e.out = append(e.out, '[')
	for i, member := range v {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if err := e.value(member, depth+1); err != nil {
			return err
		}
	}
	e.out = append(e.out, ']')
	return nil
}

func (e *encoder) object(v map[string]any, depth int) error {
	e.out = append(e.out, '{')
	for i, name := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if err := e.text(name); err != nil {
			return err
		}
		e.out = append(e.out, ':')
		if err := e.value(v[name], depth+1); err != nil {
			return err
		}
	}
	e.out = append(e.out, '}')
	return nil
}
