package filter

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SyntaxError says what is wrong with a program, selector or expression, and where.
type SyntaxError struct {
	Line, Column int    // from 1, in characters; 0 where the place is not known
	Problem      string // "unexpected token \"}\""
	Hint         string // what is probably meant, or ""
}

// Error names the line only where that says something.
func (e *SyntaxError) Error() string {
	text := e.Problem
	switch {
	case e.Line > 1:
		text = fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, text)
	case e.Line == 1:
		text = fmt.Sprintf("column %d: %s", e.Column, text)
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// at is a SyntaxError at a byte of a text; a negative one is nowhere.
func at(text string, offset int, problem, hint string) *SyntaxError {
	e := &SyntaxError{Problem: problem, Hint: hint}
	if offset < 0 {
		return e
	}
	before := text[:min(offset, len(text))]
	e.Line = 1 + strings.Count(before, "\n")
	e.Column = 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	return e
}

// badUTF8 is where a text stops being UTF-8, or -1.
func badUTF8(text string) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}
