package monitor

import (
	"bytes"
	"strings"
)

// Files are left out as git leaves them out, with these differences: only the
// .gitignore files from the workspace downwards count (no file above it, not
// .git/info/exclude, not core.excludesFile), names are always told apart by case, and
// git's index is not read: a file that a rule ignores stays ignored though git tracks it.
//
// The rules are gitignore(5) and, where that is silent, dir.c and wildmatch.c of git.
// As in git, a .gitignore that is no regular file counts as missing, links included.

// maxIgnoreFile is the largest .gitignore that is read, in bytes. Git's own limit is
// 100 MiB; a larger file than this is an error, not a file without rules.
const maxIgnoreFile = 1 << 20

// wildBytes begin what is not plain in a pattern.
const wildBytes = `*?[\`

// ignoreRules are the rules of one .gitignore; nil are none. They never change.
type ignoreRules struct {
	names    map[string]verdicts            // plain names, at any depth
	endings  map[string]verdicts            // of *.ext: ".ext" without a further dot, at any depth
	paths    map[string]map[string]verdicts // plain paths: directory below the file's own, then name
	patterns []ignorePattern                // all else, the last line first
}

// verdict is the rule that decided: its line, doubled, and one more where it begins
// with "!". A later rule has the greater verdict; 0 is no rule.
type verdict uint32

func (v verdict) ignores() bool { return v != 0 && v&1 == 0 }
func (v verdict) line() int     { return int(v >> 1) }

// verdicts are the last rules of one text: for all, and for directories only.
type verdicts struct{ all, dirs verdict }

func (v verdicts) of(isDir bool) verdict {
	if isDir {
		return max(v.all, v.dirs)
	}
	return v.all
}

func (v *verdicts) add(rule verdict, dirsOnly bool) {
	if dirsOnly {
		v.dirs = rule
	} else {
		v.all = rule
	}
}

type ignorePattern struct {
	verdict  verdict
	dirsOnly bool
	anchored bool   // against the path below the file's directory, not the name
	prefix   string // plain bytes before the first wildcard
	ending   string // plain bytes that are all behind a first and only star; else "" and
	rest     wildcard
}

// parseIgnore reads a .gitignore. There are no errors: as in git, a line that makes no
// sense matches nothing. Lines end at LF or CRLF and are bytes; a NUL ends its line early.
func parseIgnore(text []byte) *ignoreRules {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	r := &ignoreRules{}
	for number := 1; len(text) > 0; number++ {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		line, _, _ = bytes.Cut(line, []byte{0})
		r.add(trimSpaces(string(line)), number)
	}
	if r.names == nil && r.endings == nil && r.paths == nil && r.patterns == nil {
		return nil
	}
	for i, j := 0, len(r.patterns)-1; i < j; i, j = i+1, j-1 {
		r.patterns[i], r.patterns[j] = r.patterns[j], r.patterns[i]
	}
	return r
}

// trimSpaces takes trailing spaces away, and no tabs, up to one behind a backslash.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			if i++; i == len(line) {
				return line
			}
		}
		end = i + 1
	}
	return line[:end]
}

func (r *ignoreRules) add(text string, number int) {
	v := verdict(number) << 1
	if strings.HasPrefix(text, "!") {
		text, v = text[1:], v|1
	}
	text, dirsOnly := strings.CutSuffix(text, "/")
	anchored := strings.Contains(text, "/")
	text = strings.TrimPrefix(text, "/")
	if inner, ok := strings.CutPrefix(text, "**/"); ok && !strings.Contains(inner, "/") {
		text, anchored = inner, false // "**/x" is x at any depth
	}
	plain := strings.IndexAny(text, wildBytes)
	switch {
	case text == "", text[0] == '/':
	case plain < 0 && anchored:
		dir, name, _ := cutLast(text)
		if r.paths == nil {
			r.paths = map[string]map[string]verdicts{}
		}
		r.paths[dir] = note(r.paths[dir], name, v, dirsOnly)
	case plain < 0:
		r.names = note(r.names, text, v, dirsOnly)
	case !anchored && isEnding(text):
		r.endings = note(r.endings, text[1:], v, dirsOnly)
	case !anchored && text[plain] == '*' && text[plain+1:] != "" && !strings.ContainsAny(text[plain+1:], wildBytes):
		r.patterns = append(r.patterns, ignorePattern{verdict: v, dirsOnly: dirsOnly, prefix: text[:plain], ending: text[plain+1:]})
	default:
		// What is plain at the beginning is cut off first, as git does it. So "a**/b"
		// has its stars at a beginning, where they are more than one star, if a slash
		// makes it a pattern for paths.
		if rest, ok := compileWildcard(text[plain:], anchored); ok {
			r.patterns = append(r.patterns, ignorePattern{v, dirsOnly, anchored, text[:plain], "", rest})
		}
	}
}

func note(m map[string]verdicts, text string, v verdict, dirsOnly bool) map[string]verdicts {
	if m == nil {
		m = map[string]verdicts{}
	}
	known := m[text]
	known.add(v, dirsOnly)
	m[text] = known
	return m
}

// isEnding reports whether a pattern for names is * and an ending with one dot, in front.
func isEnding(text string) bool {
	return strings.HasPrefix(text, "*.") && !strings.ContainsAny(text[2:], "."+wildBytes)
}

// last is the last rule for name in dir, which is relative to the file's own directory.
func (r *ignoreRules) last(dir, name string, isDir bool) verdict {
	best := r.names[name].of(isDir)
	if r.endings != nil {
		if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
			best = max(best, r.endings[name[dot:]].of(isDir))
		}
	}
	if r.paths != nil {
		best = max(best, r.paths[dir][name].of(isDir))
	}
	for i := range r.patterns {
		p := &r.patterns[i]
		if p.verdict < best {
			break
		}
		if (isDir || !p.dirsOnly) && p.matches(dir, name) {
			return p.verdict
		}
	}
	return best
}

func (p *ignorePattern) matches(dir, name string) bool {
	switch {
	case p.ending != "":
		return len(name) >= len(p.prefix)+len(p.ending) && strings.HasPrefix(name, p.prefix) && strings.HasSuffix(name, p.ending)
	case !p.anchored || dir == "":
		return strings.HasPrefix(name, p.prefix) && matchWildcard(&p.rest, name[len(p.prefix):])
	case len(p.prefix) <= len(dir) && !strings.HasPrefix(dir, p.prefix):
		return false
	case len(p.prefix) > len(dir) && !strings.HasPrefix(p.prefix, dir):
		return false
	}
	var room [256]byte
	path := append(append(append(room[:0], dir...), '/'), name...)
	return len(path) >= len(p.prefix) && string(path[:len(p.prefix)]) == p.prefix &&
		matchWildcard(&p.rest, path[len(p.prefix):])
}

// ignoreStack are the rules that hold in a directory: its own, and those of the
// directories above it up to the workspace. It never changes; nil has no rules.
type ignoreStack struct {
	up    *ignoreStack
	rules *ignoreRules
	dir   string // whose rules these are; "" is the workspace
}

// push adds the rules of the .gitignore in dir, a path below the workspace ("" for the
// workspace itself). The stack it is called on is that of the directory above.
func (s *ignoreStack) push(dir string, rules *ignoreRules) *ignoreStack {
	if rules == nil {
		return s
	}
	return &ignoreStack{up: s, rules: rules, dir: dir}
}

// ignored reports whether the file or directory called name in dir is left out. The
// stack is that of dir. A link is no directory, wherever it leads. Nothing
// below an ignored directory is seen, whatever the rules say of it: the caller does
// not enter it.
func (s *ignoreStack) ignored(dir, name string, isDir bool) bool {
	_, v := s.decide(dir, name, isDir)
	return v.ignores()
}

// decide also tells which directory's rules decided: the deepest that know the path.
func (s *ignoreStack) decide(dir, name string, isDir bool) (*ignoreStack, verdict) {
	for ; s != nil; s = s.up {
		if v := s.rules.last(below(s.dir, dir), name, isDir); v != 0 {
			return s, v
		}
	}
	return nil, 0
}

// below is the path dir relative to base, which is dir or above it.
func below(base, dir string) string {
	switch {
	case base == "":
		return dir
	case len(dir) == len(base):
		return ""
	}
	return dir[len(base)+1:]
}
