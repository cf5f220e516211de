package strict

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// UTF8 writes each byte of a path that is not UTF-8 as \xNN: JSON holds only UTF-8, a path any bytes.
func UTF8(path string) string {
	return escape(path, func(rune) bool { return false })
}

// OneLine makes foreign text one line that can do nothing to a terminal: control characters and line ends as Go writes
// them (\x1b, \n), bytes that are not UTF-8 as \xNN, and what turns the direction of writing around as \u202e.
func OneLine(text string) string {
	return escape(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
	})
}

// escape escapes the characters for which bad is true, and the bytes that are not UTF-8.
func escape(text string, bad func(rune) bool) string {
	var b strings.Builder
	done := 0 // so much of text is in b
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		invalid := r == utf8.RuneError && size == 1
		if invalid || bad(r) {
			b.WriteString(text[done:i])
			quoted := strconv.QuoteToASCII(text[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return text
	}
	return b.String() + text[done:]
}
