package monitor

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"marbles/state"
)

// content is a body in the forms a record and a change keep it in.
type content struct {
	value  jsontext.Value // the JSON value with its own digits and texts, or the body as a string
	base64 bool           // the string is the body's base64
	hash   string
}

// maxNesting is how deep a JSON value may be to be kept as one: a record or an input
// that holds it is deeper, and readers have limits of their own.
const maxNesting = 1000

// contentOf takes a body in. Its digest is that of its exact canonical form where it is
// one JSON value, so that order, white space and the spelling of numbers and strings
// make no change; else that of its bytes, as for an object that repeats a member
// (design §8). A text abc and the JSON string "abc" differ. The first marbles hashed a
// text as a JSON string: a record of its making differs from the same text once.
func contentOf(body []byte) (content, error) {
	canonical, err := state.CanonicalExact(body)
	if err != nil {
		return textOf(body, body)
	}
	value := jsontext.Value(bytes.Clone(bytes.TrimPrefix(body, []byte("\ufeff"))))
	if nesting(value) > maxNesting || value.Compact() != nil || !value.IsValid() {
		return textOf(body, canonical)
	}
	return content{value: value, hash: hashOf(canonical)}, nil
}

func textOf(body, hashed []byte) (content, error) {
	c := content{hash: hashOf(hashed)}
	text := string(body)
	if !utf8.Valid(body) {
		c.base64 = true
		text = base64.StdEncoding.EncodeToString(body)
	}
	var err error
	c.value, err = json.Marshal(text)
	return c, err
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// nesting is how many arrays and objects lie within each other in a JSON text.
func nesting(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// httpChange is the change of an HTTP monitor. previous is absent, not null, on the
// first look. The two marks say which bodies are base64, as in the record.
func httpChange(status int, c content, prev *state.MonitorRecord, first bool) ([]byte, error) {
	change := struct {
		Kind           string         `json:"kind"`
		Status         int            `json:"status"`
		Current        jsontext.Value `json:"current"`
		CurrentBase64  bool           `json:"currentBase64,omitzero"`
		Previous       jsontext.Value `json:"previous,omitzero"`
		PreviousBase64 bool           `json:"previousBase64,omitzero"`
	}{Kind: KindHTTP, Status: status, Current: c.value, CurrentBase64: c.base64}
	if !first {
		change.Previous, change.PreviousBase64 = prev.Current, prev.CurrentBase64
		if len(change.Previous) == 0 {
			change.Previous = jsontext.Value("null")
		}
	}
	return json.Marshal(change)
}
