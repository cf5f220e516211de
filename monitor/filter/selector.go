package filter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"
	"golang.org/x/net/html/charset"
)

// selector is a compiled CSS selector.
type selector struct {
	match     cascadia.SelectorGroup
	attribute string
	memory    uint64 // see guard
}

func compileSelector(src, attribute string) (*selector, error) {
	const maxSelector = 4 << 10
	if len(src) > maxSelector {
		return nil, at(src, -1, fmt.Sprintf("the selector is longer than %d KiB", maxSelector>>10), "")
	}
	if i := badUTF8(src); i >= 0 {
		return nil, at(src, i, "not UTF-8", "")
	}
	// Each looks at all that is below an element, for each element that the one around it looks at.
	const maxNested = 2
	nested, lower := 0, strings.ToLower(src)
	for _, name := range []string{":has(", ":contains(", ":matches("} {
		nested += strings.Count(lower, name)
	}
	if nested > maxNested {
		return nil, at(src, -1, fmt.Sprintf("more than %d of :has(), :contains() and :matches() take too long", maxNested), "")
	}
	if strings.ContainsAny(attribute, " \t\r\n\"'>/=\x00") || badUTF8(attribute) >= 0 {
		return nil, fmt.Errorf("%q is not the name of an attribute", attribute)
	}
	match, err := cascadia.ParseGroup(src)
	if err != nil {
		where := culprit(src, err)
		return nil, at(src, where, err.Error(), "")
	}
	return &selector{match, strings.ToLower(attribute), memory}, nil
}

// culprit is where a selector stops being one: the end of its shortest beginning that fails in the same way, which the
// library does not say. Where the end is missing, it is the last character.
func culprit(src string, err error) int {
	end := len(src)
	for end > 0 {
		_, last := utf8.DecodeLastRuneInString(src[:end])
		if _, short := cascadia.ParseGroup(src[:end-last]); short == nil || short.Error() != err.Error() {
			return end - last
		}
		end -= last
	}
	return 0
}

// apply gives what the selector matches, a line for each match in the page's order.
func (s *selector) apply(ctx context.Context, body []byte, contentType string) (string, error) {
	g := newGuard(ctx, s.memory, body)
	page, err := html.ParseWithOptions(decoded(g, body, contentType), html.ParseOptionEnableScripting(false))
	switch {
	case g.err != nil:
		return "", fmt.Errorf("the page cannot be read: %w", g.err)
	case err != nil:
		return "", fmt.Errorf("the page cannot be read: %w", err)
	}
	var out strings.Builder
	matches, lines := 0, 0
	var failed error
	for n := range page.Descendants() {
		if failed = g.ended(); failed != nil {
			break
		}
		if n.Type != html.ElementNode || !s.match.Match(n) {
			continue
		}
		matches++
		line, ok := s.take(n)
		if !ok {
			continue
		}
		if out.Len()+len(line) > maxSelection {
			failed = errSelection
			break
		}
		if lines++; lines > 1 {
			out.WriteByte('\n')
		}
		out.WriteString(line)
	}
	switch {
	case failed != nil:
		return "", failed
	case matches == 0:
		return "", errors.New("the selector matches nothing")
	case lines == 0:
		return "", fmt.Errorf("nothing that the selector matches has the attribute %s", s.attribute)
	}
	return out.String(), nil
}

// take is the text or the attribute of a match, in one line.
func (s *selector) take(n *html.Node) (string, bool) {
	if s.attribute == "" {
		return textOf(n), true
	}
	for _, a := range n.Attr {
		name := a.Key
		if a.Namespace != "" {
			name = a.Namespace + ":" + a.Key
		}
		if name == s.attribute {
			return strings.Join(strings.Fields(a.Val), " "), true
		}
	}
	return "", false
}

// decoded reads a page as UTF-8. What is valid UTF-8 beyond ASCII is that, whatever its header says: servers change
// their minds about the name of the encoding without changing a byte. Else the first of byte order mark, header and `meta` counts,
// and windows-1252 where there is none, as in browsers.
func decoded(g *guard, body []byte, contentType string) io.Reader {
	if !plain(body) && utf8.Valid(body) {
		return &watchedReader{bytes.NewReader(bytes.TrimPrefix(body, byteOrderMark)), g}
	}
	encoding, _, _ := charset.DetermineEncoding(body, contentType)
	return encoding.NewDecoder().Reader(&watchedReader{bytes.NewReader(body), g})
}

// plain reports whether a text is ASCII, which UTF-16 and ISO-2022-JP can look like.
func plain(text []byte) bool {
	for _, b := range text {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// A watchedReader gives a page in small pieces, so that its guard looks often: a piece can become thousands of times its
// size in elements.
type watchedReader struct {
	r     io.Reader
	guard *guard
}

// Read implements io.Reader.
func (w *watchedReader) Read(p []byte) (int, error) {
	const piece = 4 << 10
	if err := w.guard.check(); err != nil {
		return 0, err
	}
	return w.r.Read(p[:min(len(p), piece)])
}
