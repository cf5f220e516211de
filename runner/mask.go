package runner

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// masked is what stands for a secret.
const masked = "***"

const (
	// minSecret is how long a value must be to be masked: a shorter one would mask half of everything.
	minSecret = 3
	// minLine is the same for one line of a value of several.
	minLine = 8
)

// secrets are the values that must not appear in what a run leaves: those its steps have been given so far.
type secrets struct {
	mu    sync.Mutex // guards forms
	forms [][]byte   // longest first
}

// add adds a value in the forms in which it may be printed.
func (s *secrets) add(value string) {
	forms := []string{value}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); line != value && len(line) >= minLine {
			forms = append(forms, line)
		}
	}
	for _, f := range slices.Clone(forms) {
		quoted, _ := jsontext.AppendQuote(nil, f)
		forms = append(forms,
			string(quoted[1:len(quoted)-1]),
			base64.StdEncoding.EncodeToString([]byte(f)), base64.RawStdEncoding.EncodeToString([]byte(f)),
			base64.URLEncoding.EncodeToString([]byte(f)), url.QueryEscape(f), url.PathEscape(f))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range forms {
		if len(f) >= minSecret && !slices.ContainsFunc(s.forms, func(b []byte) bool { return string(b) == f }) {
			s.forms = append(s.forms, []byte(f))
		}
	}
	slices.SortFunc(s.forms, func(a, b []byte) int { return len(b) - len(a) })
}

// now are the forms known so far.
func (s *secrets) now() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.forms)
}

// text masks a whole text.
func (s *secrets) text(text string) string {
	for _, f := range s.now() {
		text = strings.ReplaceAll(text, string(f), masked)
	}
	return text
}

// value masks a JSON value. One that is no JSON any more then, because a secret was a number or a name, is a text.
func (s *secrets) value(v jsontext.Value) jsontext.Value {
	out := v
	for _, f := range s.now() {
		out = bytes.ReplaceAll(out, f, []byte(masked))
	}
	if len(out) == len(v) && bytes.Equal(out, v) || out.IsValid() {
		return out
	}
	quoted, _ := jsontext.AppendQuote(nil, string(out))
	return quoted
}

// mask masks a stream piece by piece. What may be the beginning of a secret is kept back for the next piece.
type mask struct {
	forms [][]byte
	held  []byte
}

// next is what of a further piece can be shown.
func (m *mask) next(data []byte) []byte {
	m.held = append(m.held, data...)
	out := make([]byte, 0, len(m.held))
	for i := 0; i < len(m.held); {
		rest := m.held[i:]
		if f := m.match(rest); f > 0 {
			out = append(out, masked...)
			i += f
			continue
		}
		if m.mayBegin(rest) {
			m.held = append(m.held[:0], rest...)
			return out
		}
		out = append(out, rest[0])
		i++
	}
	m.held = m.held[:0]
	return out
}

// end is what was kept back to the last: no more than the beginning of a longer secret, but it may hold a shorter one.
func (m *mask) end() []byte {
	var out []byte
	for i := 0; i < len(m.held); {
		if f := m.match(m.held[i:]); f > 0 {
			out = append(out, masked...)
			i += f
			continue
		}
		out = append(out, m.held[i])
		i++
	}
	m.held = nil
	return out
}

func (m *mask) match(b []byte) int {
	for _, f := range m.forms {
		if b[0] == f[0] && bytes.HasPrefix(b, f) {
			return len(f)
		}
	}
	return 0
}

// mayBegin reports whether a longer form than what is there begins so.
func (m *mask) mayBegin(b []byte) bool {
	for _, f := range m.forms {
		if len(b) < len(f) && bytes.HasPrefix(f, b) {
			return true
		}
	}
	return false
}
