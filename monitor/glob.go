package monitor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// A glob is one pattern, its braces written out: each alternative is a row of
// segments that must match a path's from the first to the last (design §8, "Globs").
type glob struct {
	text string
	alts [][]segment
}

type segment struct {
	kind segmentKind
	text string // a literal's name, or the pattern of one segment
}

type segmentKind uint8

const (
	literal segmentKind = iota
	pattern
	anyDepth // **
)

// Bounds that keep a hostile pattern from costing more than a tree does.
const (
	maxPattern      = 4096 // bytes
	maxAlternatives = 1024
)

// ignoredDir and ignoredFile say what no monitor ever sees (spec §4.2).
func ignoredDir(name string) bool {
	return name == ".git" || name == ".foundry" || name == ".turbo" || name == "node_modules"
}

func ignoredFile(name string) bool { return name == ".DS_Store" || name == "Thumbs.db" }

// compileGlob checks a pattern. Its errors name the pattern and the reason.
func compileGlob(text string) (*glob, error) {
	alts, err := compileAlternatives(text)
	if err != nil {
		return nil, fmt.Errorf("bad pattern %q: %w", text, err)
	}
	return &glob{text: text, alts: alts}, nil
}

func compileAlternatives(text string) ([][]segment, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, errors.New("it is empty")
	case len(text) > maxPattern:
		return nil, fmt.Errorf("it is longer than %d bytes", maxPattern)
	case !utf8.ValidString(text):
		return nil, errors.New("it is not UTF-8")
	case strings.IndexByte(text, 0) >= 0:
		return nil, errors.New("it holds a NUL")
	}
	rows, err := expandBraces(text)
	if err != nil {
		return nil, err
	}
	var alts [][]segment
	for _, row := range rows {
		alt, err := compileRow(row)
		if err != nil {
			if len(rows) > 1 {
				return nil, fmt.Errorf("its alternative %q: %w", row, err)
			}
			return nil, err
		}
		alts = append(alts, alt)
	}
	return alts, nil
}

// compileRow compiles a pattern without braces.
func compileRow(row string) ([]segment, error) {
	switch {
	case strings.HasPrefix(row, "/"):
		return nil, errors.New("an absolute path can match nothing: patterns are relative to the workspace")
	case strings.HasPrefix(row, "!"):
		return nil, errors.New(`a leading "!" does not negate; use exclude, or write \! for a name that begins so`)
	case strings.HasSuffix(row, "/"):
		return nil, errors.New(`it ends in "/", but only files are matched; end it in /** for all below a directory`)
	}
	var alt []segment
	texts, err := splitSegments(row)
	if err != nil {
		return nil, err
	}
	for i, text := range texts {
		s, err := compileSegment(text)
		if err != nil {
			return nil, err
		}
		last := i == len(texts)-1
		if s.kind == literal && (!last && ignoredDir(s.text) || last && ignoredFile(s.text)) {
			return nil, fmt.Errorf("%q is never watched", s.text)
		}
		if s.kind == anyDepth && i > 0 && alt[len(alt)-1].kind == anyDepth {
			continue // **/** is **
		}
		alt = append(alt, s)
	}
	return alt, nil
}

func compileSegment(text string) (segment, error) {
	switch text {
	case "**":
		return segment{kind: anyDepth}, nil
	case "":
		return segment{}, errors.New(`an empty segment ("//") can match nothing`)
	case ".":
		return segment{}, errors.New(`the segment "." can match nothing; leave it out`)
	case "..":
		return segment{}, errors.New(`the segment ".." leaves the workspace`)
	}
	if strings.HasPrefix(text, "!(") {
		return segment{}, errors.New(`"!(…)" is not negation here; use exclude, or write \!( for a name that begins so`)
	}
	var plain strings.Builder
	wild := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			i++ // splitSegments saw to it that something follows
			plain.WriteByte(text[i])
		case '*':
			if strings.HasPrefix(text[i:], "**") {
				return segment{}, fmt.Errorf(`"**" must be a whole segment, not part of %q`, text)
			}
			wild = true
		case '?':
			wild = true
		case '[':
			n, _ := classLen(text[i:]) // checked by splitSegments
			i += n - 1
			wild = true
		default:
			plain.WriteByte(c)
		}
	}
	if !wild {
		switch name := plain.String(); name {
		case ".", "..":
			return segment{}, fmt.Errorf("the segment %q can match nothing", text)
		default:
			return segment{literal, name}, nil
		}
	}
	if !doublestar.ValidatePattern(text) {
		return segment{}, errors.New("syntax error")
	}
	return segment{pattern, text}, nil
}

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

// expandBraces writes out {a,b}. Braces with one alternative are literal (spec §4.2).
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

// A cursor is how far a directory's path has come in a glob: the segments that the
// next name may match, sorted and each once. An empty one matches nothing below.
type cursor []position

type position struct{ alt, seg int32 }

// start is the cursor of the workspace itself.
func (g *glob) start() cursor {
	var c cursor
	for alt := range g.alts {
		c = g.add(c, position{int32(alt), 0})
	}
	return c.tidy()
}

// add adds a position, and, as ** also stands for no segment at all, what follows it.
func (g *glob) add(c cursor, p position) cursor {
	c = append(c, p)
	row := g.alts[p.alt]
	if row[p.seg].kind == anyDepth && int(p.seg)+1 < len(row) {
		return g.add(c, position{p.alt, p.seg + 1})
	}
	return c
}

func (c cursor) tidy() cursor {
	slices.SortFunc(c, func(a, b position) int {
		if a.alt != b.alt {
			return int(a.alt - b.alt)
		}
		return int(a.seg - b.seg)
	})
	return slices.Compact(c)
}

// enter is the cursor inside the directory called name.
func (g *glob) enter(c cursor, name string) cursor {
	var next cursor
	for _, p := range c {
		row := g.alts[p.alt]
		if row[p.seg].kind == anyDepth {
			next = g.add(next, p)
		} else if int(p.seg)+1 < len(row) && row[p.seg].matches(name) {
			next = g.add(next, position{p.alt, p.seg + 1})
		}
	}
	return next.tidy()
}

// matches reports whether the file called name, where c is, matches the glob.
func (g *glob) matches(c cursor, name string) bool {
	for _, p := range c {
		row := g.alts[p.alt]
		if int(p.seg) == len(row)-1 && row[p.seg].matches(name) {
			return true
		}
	}
	return false
}

func (s segment) matches(name string) bool {
	switch s.kind {
	case literal:
		return s.text == name
	case pattern:
		return doublestar.MatchUnvalidated(s.text, name)
	default:
		return true
	}
}

// literals are the only names that can match where c is; ok is false where a listing
// is needed to tell. So directories before the first wildcard need not be readable.
func (g *glob) literals(c cursor) (names []string, ok bool) {
	for _, p := range c {
		s := g.alts[p.alt][p.seg]
		if s.kind != literal {
			return nil, false
		}
		names = append(names, s.text)
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// coversBelow reports whether every file below the directory called name matches: a
// `name/**`. A pattern whose last segment is a plain name covers what lies below a
// directory of that name too. It is asked of exclude patterns.
func (g *glob) coversBelow(c cursor, name string) bool {
	for _, p := range c {
		row := g.alts[p.alt]
		last := row[len(row)-1]
		switch left := len(row) - int(p.seg); {
		case left == 1 && (last.kind == anyDepth || last.kind == literal && last.text == name):
			return true
		case left == 2 && last.kind == anyDepth && row[p.seg].matches(name):
			return true
		}
	}
	return false
}
