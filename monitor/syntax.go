package monitor

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// splitSegments splits at each "/" outside of escapes, and checks escapes and classes.
func splitSegments(row string) ([]string, error) {
	var texts []string
	from := 0
	for i := 0; i < len(row); i++ {
		switch row[i] {
		case '/':
			texts = append(texts, row[from:i])
			from = i + 1
		case '\\':
			i++
			if i == len(row) {
				return nil, errors.New(`syntax error: nothing follows the last "\"`)
			}
			if row[i] == '/' {
				return nil, errors.New(`syntax error: "/" cannot be escaped`)
			}
		case '[':
			n, err := classLen(row[i:])
			if err != nil {
				return nil, err
			}
			i += n - 1
		}
	}
	return append(texts, row[from:]), nil
}

// classLen is the length in bytes of the class at the start of text.
func classLen(text string) (int, error) {
	i := 1
	if i < len(text) && (text[i] == '!' || text[i] == '^') {
		i++
	}
	if strings.HasPrefix(text[i:], "]") {
		return 0, errors.New(`syntax error: an empty class; write \] for a "]" inside one`)
	}
	low := rune(-1) // a range's start, if the next rune is "-"
	for i < len(text) && text[i] != ']' {
		if text[i] == '-' && low >= 0 && i+1 < len(text) && text[i+1] != ']' {
			high, size := classRune(text[i+1:])
			if high < low {
				return 0, fmt.Errorf("the range %c-%c in a class is empty", low, high)
			}
			low = -1
			i += 1 + size
			continue
		}
		r, size := classRune(text[i:])
		if r == '/' {
			return 0, errors.New(`a class cannot hold "/"`)
		}
		low = r
		i += size
	}
	if i >= len(text) {
		return 0, errors.New(`syntax error: "[" without "]"; write \[ for the character`)
	}
	return i + 1, nil
}

// classRune is the rune at the start of text, which may be escaped, and its length.
func classRune(text string) (rune, int) {
	escaped := 0
	if text[0] == '\\' && len(text) > 1 {
		escaped = 1
	}
	r, size := utf8.DecodeRuneInString(text[escaped:])
	return r, escaped + size
}

// expandBraces writes out {a,b}. Braces with one alternative are literal.
func expandBraces(text string) ([]string, error) {
	open, comma, end, err := findBraces(text)
	if err != nil {
		return nil, err
	}
	if open < 0 {
		return []string{text}, nil
	}
	var middles []string
	from := open + 1
	for _, to := range append(comma, end) {
		inner, err := expandBraces(text[from:to])
		if err != nil {
			return nil, err
		}
		middles = append(middles, inner...)
		from = to + 1
	}
	if len(comma) == 0 {
		for i := range middles {
			middles[i] = `\{` + middles[i] + `\}`
		}
	}
	tails, err := expandBraces(text[end+1:])
	if err != nil {
		return nil, err
	}
	if len(middles)*len(tails) > maxAlternatives {
		return nil, fmt.Errorf("its braces stand for more than %d patterns", maxAlternatives)
	}
	rows := make([]string, 0, len(middles)*len(tails))
	for _, middle := range middles {
		for _, tail := range tails {
			rows = append(rows, text[:open]+middle+tail)
		}
	}
	return rows, nil
}

// findBraces finds the first outermost braces and their own commas; open is -1 for none.
func findBraces(text string) (open int, comma []int, end int, err error) {
	open = -1
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '[':
			n, err := classLen(text[i:])
			if err != nil {
				return 0, nil, 0, err
			}
			i += n - 1
		case '{':
			if depth == 0 {
				open = i
			}
			depth++
		case ',':
			if depth == 1 {
				comma = append(comma, i)
			}
		case '}':
			depth--
			switch depth {
			case -1:
				return 0, nil, 0, errors.New(`syntax error: "}" without "{"; write \} for the character`)
			case 0:
				return open, comma, i, nil
			}
		}
	}
	if depth > 0 {
		return 0, nil, 0, errors.New(`syntax error: "{" without "}"; write \{ for the character`)
	}
	return -1, nil, 0, nil
}
