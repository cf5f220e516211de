package monitor

import "strings"

// wildcard is a pattern of a .gitignore as wildmatch.c of git reads it, compiled.
type wildcard struct {
	ops   []wildOp
	sets  []byteSet
	least int // bytes that a match has at least
}

// wildOp is a byte that stands for itself, one of the wildcards below, or, from opSet
// on, an index into sets.
type wildOp uint16

const (
	opAny   wildOp = 256 + iota // ?: one byte, no slash
	opStar                      // *: any bytes, no slash
	opDirs                      // **/ : nothing, or any bytes and a slash
	opCross                     // ** elsewhere: any bytes
	opSet                       // [...]
)

type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// compileWildcard is false for a pattern that matches nothing: one with an open
// bracket, an unknown class or a backslash at its end. Where it is not for paths, two
// stars are one.
func compileWildcard(text string, paths bool) (w wildcard, ok bool) {
	for i := 0; i < len(text); i++ {
		op := wildOp(text[i])
		switch text[i] {
		case '*':
			first := i
			for i+1 < len(text) && text[i+1] == '*' {
				i++
			}
			op = opStar
			rest := text[i+1:]
			if !paths || i == first || first > 0 && text[first-1] != '/' {
				break
			}
			switch {
			case strings.HasPrefix(rest, "/"):
				op = opDirs
				i++
			case rest == "", strings.HasPrefix(rest, `\/`):
				op = opCross
			}
		case '?':
			op = opAny
		case '\\':
			if i++; i == len(text) {
				return w, false
			}
			op = wildOp(text[i])
		case '[':
			set, end := compileSet(text, i)
			if end < 0 {
				return w, false
			}
			op = opSet + wildOp(len(w.sets))
			w.sets = append(w.sets, set)
			i = end
		}
		if op != opStar && op != opDirs && op != opCross {
			w.least++
		}
		w.ops = append(w.ops, op)
	}
	return w, len(w.sets) < 1<<16-int(opSet) // no path has as many bytes
}

// compileSet reads the bracket expression that begins at text[i]; end is the place of
// its last bracket, or -1. No set has the slash.
func compileSet(text string, i int) (set byteSet, end int) {
	at := func(i int) byte { // no pattern has a NUL
		if i < len(text) {
			return text[i]
		}
		return 0
	}
	i++
	negated := at(i) == '!' || at(i) == '^'
	if negated {
		i++
	}
	var before byte // what a range may begin with
	for first := true; first || at(i) != ']'; first, i = false, i+1 {
		c := at(i)
		switch {
		case c == 0:
			return set, -1
		case c == '-' && before != 0 && at(i+1) != 0 && at(i+1) != ']':
			i++
			if at(i) == '\\' {
				i++
			}
			if at(i) == 0 {
				return set, -1
			}
			for b := int(before); b <= int(at(i)); b++ {
				set.add(byte(b))
			}
			c = 0
		case c == '[' && at(i+1) == ':':
			length := strings.IndexByte(text[i+2:], ']')
			if length < 0 {
				return set, -1
			}
			name, closed := strings.CutSuffix(text[i+2:i+2+length], ":")
			if !closed {
				set.add('[')
				break
			}
			if !set.addClass(name) {
				return set, -1
			}
			i += 2 + length
			c = 0
		case c == '\\':
			i++
			if c = at(i); c == 0 {
				return set, -1
			}
			set.add(c)
		default:
			set.add(c)
		}
		before = c
	}
	if negated {
		for i := range set {
			set[i] = ^set[i]
		}
	}
	set['/'>>6] &^= 1 << ('/' & 63)
	return set, i
}

// addClass adds the bytes of a POSIX class, which are ASCII in git, whatever the locale.
func (s *byteSet) addClass(name string) bool {
	var in func(c byte) bool
	lower := func(c byte) bool { return 'a' <= c && c <= 'z' }
	upper := func(c byte) bool { return 'A' <= c && c <= 'Z' }
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	alnum := func(c byte) bool { return lower(c) || upper(c) || digit(c) }
	graph := func(c byte) bool { return '!' <= c && c <= '~' }
	switch name {
	case "alnum":
		in = alnum
	case "alpha":
		in = func(c byte) bool { return lower(c) || upper(c) }
	case "blank":
		in = func(c byte) bool { return c == ' ' || c == '\t' }
	case "cntrl":
		in = func(c byte) bool { return c < ' ' || c == 0x7f }
	case "digit":
		in = digit
	case "graph":
		in = graph
	case "lower":
		in = lower
	case "print":
		in = func(c byte) bool { return c == ' ' || graph(c) }
	case "punct":
		in = func(c byte) bool { return graph(c) && !alnum(c) }
	case "space": // git's own: without vertical tab and form feed
		in = func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
	case "upper":
		in = upper
	case "xdigit":
		in = func(c byte) bool { return digit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
	default:
		return false
	}
	for c := range 128 {
		if in(byte(c)) {
			s.add(byte(c))
		}
	}
	return true
}

// matchWildcard goes back only to the last star, or else to the last double star. That
// is enough: a star does not cross a slash, so between two double stars the end of a
// match is fixed by where it begins, and the earliest leaves the most to what follows.
func matchWildcard[T string | []byte](w *wildcard, text T) bool {
	if len(text) < w.least {
		return false
	}
	p, t := 0, 0
	star, starEnd := -1, 0 // the op after the last star, and where what it took ends
	deep, deepEnd := -1, 0 // the same of a double star
	for {
		if p == len(w.ops) && t == len(text) {
			return true
		}
		if p < len(w.ops) {
			op := w.ops[p]
			switch {
			case op == opStar:
				p++
				star, starEnd = p, t
				continue
			case op == opDirs, op == opCross:
				p++
				star, deep, deepEnd = -1, p, t
				continue
			case t < len(text) && w.takes(op, text[t]):
				p++
				t++
				continue
			}
		}
		if star >= 0 && starEnd < len(text) && text[starEnd] != '/' {
			starEnd++
			p, t = star, starEnd
			continue
		}
		if deep < 0 {
			return false
		}
		for w.ops[deep-1] == opDirs && deepEnd < len(text) && text[deepEnd] != '/' {
			deepEnd++
		}
		if deepEnd == len(text) {
			return false
		}
		deepEnd++
		p, t, star = deep, deepEnd, -1
	}
}

func (w *wildcard) takes(op wildOp, c byte) bool {
	switch {
	case op < 256:
		return byte(op) == c
	case op == opAny:
		return c != '/'
	}
	return w.sets[op-opSet].has(c)
}
