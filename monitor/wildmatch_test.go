package monitor

import (
	"io/fs"
	"strings"
	"testing"
)

// One pattern on one path, each as bytes, against the C code's own way to match: with
// recursion, and without anything that makes it fast.
func FuzzWildcard(f *testing.F) {
	for _, p := range ignorePieces {
		f.Add(p+"/**/b"+p, "a/b/ab")
	}
	f.Add("*a*a*a*b", "aaaaab")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 24 || len(path) > 24 || strings.ContainsAny(pattern, "\x00\n\r") || strings.ContainsRune(path, 0) || !fs.ValidPath(strings.ToValidUTF8(path, "x")) || path == "." {
			return
		}
		for _, isDir := range []bool{false, true} {
			dir, name, _ := cutLast(path)
			got := (*ignoreStack)(nil).push("", parseIgnore([]byte(pattern))).ignored(dir, name, isDir)
			if want := plainlyIgnored(pattern, path, isDir); got != want {
				t.Errorf("%q on %q (directory %v): got %v, want %v", pattern, path, isDir, got, want)
			}
		}
	})
}

// plainlyIgnored does what git does with one line, by the letter of its description.
func plainlyIgnored(line, path string, isDir bool) bool {
	line = strings.TrimPrefix(line, "\xef\xbb\xbf")
	line = trimSpaces(line)
	if line == "" || line[0] == '#' || line[0] == '!' {
		return false
	}
	line, dirsOnly := strings.CutSuffix(line, "/")
	if dirsOnly && !isDir {
		return false
	}
	if !strings.Contains(line, "/") {
		_, name, _ := cutLast(path)
		return plainMatch(line, name, false)
	}
	line = strings.TrimPrefix(line, "/")
	plain := strings.IndexAny(line, wildBytes)
	if plain < 0 {
		return line == path
	}
	return strings.HasPrefix(path, line[:plain]) && plainMatch(line[plain:], path[plain:], true)
}

func plainMatch(p, text string, paths bool) bool {
	for i := 0; i < len(p); i++ {
		if p[i] == '*' {
			end := i
			for end < len(p) && p[end] == '*' {
				end++
			}
			rest := p[end:]
			cross := paths && end-i > 1 && (i == 0 || p[i-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
			if cross && strings.HasPrefix(rest, "/") && plainMatch("/"+rest[1:], "/"+text, paths) {
				return true
			}
			for n := 0; n <= len(text); n++ {
				if !cross && strings.Contains(text[:n], "/") {
					break
				}
				// What is behind the stars goes on in its place: with a byte before it
				// that is neither a slash nor the beginning.
				if plainMatch("x"+rest, "x"+text[n:], paths) {
					return true
				}
			}
			return false
		}
		if text == "" {
			return false
		}
		op := p[i : i+1]
		switch p[i] {
		case '\\':
			if i+1 == len(p) {
				return false
			}
			i++
			op = p[i-1 : i+1]
		case '[':
			_, end := compileSet(p, i)
			if end < 0 {
				return false
			}
			op = p[i : end+1]
			i = end
		}
		w, ok := compileWildcard(op, paths)
		if !ok || !w.takes(w.ops[0], text[0]) {
			return false
		}
		text = text[1:]
	}
	return text == ""
}
