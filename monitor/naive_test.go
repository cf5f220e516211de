package monitor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// naive is what there is to see, found out the slow way: every directory is listed and
// every file read, each time, and the glob is matched in one piece.
type naive struct {
	t       *testing.T
	dir     string
	glob    *glob
	exclude []string // directories, as "a/d/**"
	honour  bool     // .gitignore

	files   map[string]string // path to digest
	unknown map[string]bool   // paths that cannot be seen, with all below; "." is everything
	rules   map[string]*ignoreRules
}

func (n *naive) look() {
	n.files, n.unknown, n.rules = map[string]string{}, map[string]bool{}, map[string]*ignoreRules{}
	n.walk("", nil)
}

func (n *naive) walk(dir string, stack *ignoreStack) {
	full := filepath.Join(n.dir, dir)
	entries, err := os.ReadDir(full)
	if n.missed(dir, err) {
		return
	}
	if n.honour {
		name := filepath.Join(full, ".gitignore")
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() {
			text, err := os.ReadFile(name)
			if n.missed(dir, err) {
				return
			}
			n.rules[dir] = parseIgnore(text)
			stack = stack.push(dir, n.rules[dir])
		}
	}
	for _, e := range entries {
		path := joinPath(dir, e.Name())
		switch {
		case stack.ignored(dir, e.Name(), e.IsDir()):
		case e.IsDir():
			if e.Name() != "node_modules" && e.Name() != ".git" {
				n.walk(path, stack)
			}
		case n.wanted(path):
			sum, err := n.digest(path)
			if !n.missed(path, err) && sum != "" {
				n.files[path] = sum
			}
		}
	}
}

// missed notes what err says of a path, and reports whether there is nothing to see.
func (n *naive) missed(path string, err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		if path == "" {
			path = "."
		}
		n.unknown[path] = true
	}
	return err != nil
}

func (n *naive) wanted(path string) bool {
	if !matchPath(n.glob, path) {
		return false
	}
	for _, x := range n.exclude {
		if strings.HasPrefix(path, strings.TrimSuffix(x, "**")) {
			return false
		}
	}
	return true
}

// digest is "" for what is no regular file of the workspace.
func (n *naive) digest(path string) (string, error) {
	real, err := filepath.EvalSymlinks(n.dir)
	must(n.t, err)
	target, err := filepath.EvalSymlinks(filepath.Join(n.dir, path))
	if err != nil || !strings.HasPrefix(target, real+"/") {
		return "", err
	}
	if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return "", err
	}
	content, err := os.ReadFile(target)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// next is what a look should find, given what was committed: its events, and what is
// committed afterwards. got are the events of the look: where a file was replaced by a
// directory that cannot be read, it may say now or later that it is gone.
func (n *naive) next(committed map[string]string, got string) (events string, after map[string]string) {
	before := map[string]string{}
	after = map[string]string{}
	for path, sum := range n.files {
		after[path] = sum
	}
	for path, sum := range committed {
		switch fate := n.fate(path); {
		case fate == "ignored": // no longer watched, and no change
		case fate == "unknown" && !(n.unknown[path] && n.isDir(path) && slices.Contains(strings.Split(got, " "), "-"+keyOf(path))):
			after[path] = sum
			before[path] = sum
		default:
			before[path] = sum
		}
	}
	return eventsBetween(before, after), after
}

// fate is what became of a committed path: seen, ignored, unknown, or "" for gone. Each
// directory on the way decides before those below it.
func (n *naive) fate(path string) string {
	if _, seen := n.files[path]; seen {
		return "seen"
	}
	var stack *ignoreStack
	dir := ""
	parts := strings.Split(path, "/")
	for i, name := range parts {
		if dir == "" && n.unknown["."] || n.unknown[dir] {
			return "unknown"
		}
		stack = stack.push(dir, n.rules[dir])
		if stack.ignored(dir, name, i < len(parts)-1) {
			return "ignored"
		}
		dir = joinPath(dir, name)
	}
	if n.unknown[path] {
		return "unknown"
	}
	return ""
}

func (n *naive) isDir(path string) bool {
	info, err := os.Lstat(filepath.Join(n.dir, path))
	return err == nil && info.IsDir()
}

func eventsBetween(before, after map[string]string) string {
	var added, modified, removed []string
	for path, sum := range after {
		if old, known := before[path]; !known {
			added = append(added, "+"+keyOf(path))
		} else if old != sum {
			modified = append(modified, "~"+keyOf(path))
		}
	}
	for path := range before {
		if _, still := after[path]; !still {
			removed = append(removed, "-"+keyOf(path))
		}
	}
	for _, list := range [][]string{added, modified, removed} {
		slices.Sort(list)
	}
	return strings.Join(slices.Concat(added, modified, removed), " ")
}
