package monitor

import (
	"bytes"
	"context"
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

// held is a body as far as a value in a record holds it: a JSON value without its white space.
func held(value jsontext.Value, isBase64 bool) []byte {
	if value.Kind() != '"' {
		return value
	}
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return value
	}
	if isBase64 {
		if body, err := base64.StdEncoding.AppendDecode(nil, text); err == nil {
			return body
		}
	}
	return text
}

// bodyOf is the body that a record was made of, as far as it holds it. A string stands for a text and for a JSON
// string, which only the digest tells apart.
func bodyOf(rec *state.MonitorRecord) []byte {
	body := held(rec.Current, rec.CurrentBase64)
	if rec.Filter == "" && rec.Current.Kind() == '"' && !rec.CurrentBase64 {
		if c, err := contentOf(body); err == nil && c.hash != rec.Hash {
			return rec.Current
		}
	}
	return body
}

// selection is the part of a body that counts.
type selection struct {
	hash  string
	value jsontext.Value // nil where the whole counts
	bytes []byte
}

// pick finds the part of a body that counts. The digest of what a jq program made is that of its exact canonical
// form, else that of the bytes.
func (s *httpSource) pick(ctx context.Context, body []byte, contentType string, whole content) (selection, error) {
	if s.o.Select == nil {
		return selection{hash: whole.hash}, nil
	}
	found, err := s.o.Select.Apply(ctx, body, contentType)
	if err != nil {
		return selection{}, err
	}
	if found.IsJSON {
		c, err := contentOf(found.JSON)
		return selection{hash: c.hash, value: c.value, bytes: found.JSON}, err
	}
	// What is not UTF-8 counts as it is, and is shown as U+FFFD.
	value, err := json.Marshal(found.Text, jsontext.AllowInvalidUTF8(true))
	return selection{hash: hashOf([]byte(found.Text)), value: value, bytes: []byte(found.Text)}, err
}

// previous is what was committed before a change.
type previous struct {
	body      []byte // nil for none
	value     jsontext.Value
	base64    bool
	selection jsontext.Value
}

// differs compares with a record. Where it was made by another filter, the old body is filtered again and compared in
// the same form as the new one, so that a changed filter is no event. And the same body is the same, whatever a
// header says that its charset is.
func (s *httpSource) differs(ctx context.Context, now content, picked selection, contentType string, rec *state.MonitorRecord) (bool, previous, error) {
	old := previous{body: bodyOf(rec), value: rec.Current, base64: rec.CurrentBase64, selection: rec.Selection}
	if len(old.value) == 0 {
		old.value = jsontext.Value("null")
	}
	if rec.Filter == s.filter && (s.filter == "" || rec.Hash == picked.hash) {
		return rec.Hash != picked.hash, old, nil
	}
	was, is := held(rec.Current, rec.CurrentBase64), held(now.value, now.base64)
	wasWhole, err := contentOf(was)
	if err != nil {
		return false, old, err
	}
	isWhole, err := contentOf(is)
	if err != nil || wasWhole.hash == isWhole.hash || rec.Filter == s.filter {
		return wasWhole.hash != isWhole.hash, old, err
	}
	before, err := s.pick(ctx, was, contentType, wasWhole)
	old.selection = before.value
	if err != nil {
		return true, old, ctx.Err() // it selects nothing of the old one: the new one is news
	}
	after, err := s.pick(ctx, is, contentType, isWhole)
	if err != nil {
		return true, old, ctx.Err()
	}
	return before.hash != after.hash, old, nil
}

// httpChange is the change of an HTTP monitor. What was before is absent, not null, on the first look. The two marks
// say which bodies are base64, as in the record.
func httpChange(status int, c content, picked jsontext.Value, old previous) ([]byte, error) {
	return json.Marshal(struct {
		Kind              string         `json:"kind"`
		Status            int            `json:"status"`
		Current           jsontext.Value `json:"current"`
		CurrentBase64     bool           `json:"currentBase64,omitzero"`
		Selection         jsontext.Value `json:"selection,omitzero"`
		Previous          jsontext.Value `json:"previous,omitzero"`
		PreviousBase64    bool           `json:"previousBase64,omitzero"`
		PreviousSelection jsontext.Value `json:"previousSelection,omitzero"`
	}{KindHTTP, status, c.value, c.base64, picked, old.value, old.base64, old.selection})
}
