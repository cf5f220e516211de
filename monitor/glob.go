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
	text string // a literal's name, an ending's text, or the pattern of one segment
}

type segmentKind uint8

const (
	literal segmentKind = iota
	pattern
	ending   // * and a plain text
	anyDepth // **
)

// Bounds that keep a hostile pattern from costing more than a tree does.
const (
	maxPattern      = 4096 // bytes
	maxAlternatives = 1024
)

// ignoredDir and ignoredFile say what no monitor ever sees.
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
	if rest := text[1:]; text[0] == '*' && !strings.ContainsAny(rest, `*?[\`) {
		return segment{ending, rest}, nil
	}
	return segment{pattern, text}, nil
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
	case ending:
		return strings.HasSuffix(name, s.text)
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
