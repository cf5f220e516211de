package monitor

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// A git repository that nothing outside it can influence.
type gitOracle struct {
	t         *testing.T
	dir, home string
}

func newGit(t *testing.T) *gitOracle {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("git is not installed, and there is nothing else to compare with")
	}
	g := &gitOracle{t: t, dir: t.TempDir(), home: t.TempDir()}
	if out, err := g.command("init", "-q", "--template=").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	return g
}

func (g *gitOracle) command(args ...string) *exec.Cmd {
	c := exec.Command("git", append([]string{"-c", "core.excludesFile=/dev/null", "-c", "core.ignoreCase=false", "-c", "core.precomposeUnicode=false"}, args...)...)
	c.Dir = g.dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + g.home, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C"}
	return c
}

func (g *gitOracle) clear() {
	entries, err := os.ReadDir(g.dir)
	must(g.t, err)
	for _, e := range entries {
		if e.Name() != ".git" {
			must(g.t, os.RemoveAll(filepath.Join(g.dir, e.Name())))
		}
	}
}

// check asks git which line decides about each path. The "./" keeps a colon at the
// beginning of a name from meaning something.
func (g *gitOracle) check(paths []string) map[string]string {
	c := g.command("check-ignore", "--no-index", "--stdin", "-z", "-v", "-n")
	c.Stdin = strings.NewReader("./" + strings.Join(paths, "\x00./") + "\x00")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil && c.ProcessState.ExitCode() != 1 { // 1: none is ignored
		g.t.Fatalf("git check-ignore: %v\n%s", err, errs.String())
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(fields) != 4*len(paths) {
		g.t.Fatalf("git check-ignore: %d fields for %d paths\n%q\n%s", len(fields), len(paths), out, errs.String())
	}
	want := map[string]string{}
	for f := range slices.Chunk(fields, 4) {
		source, line, pattern, path := f[0], f[1], f[2], strings.TrimPrefix(f[3], "./")
		switch {
		case source == "":
			want[path] = ""
		case strings.HasPrefix(pattern, "!"):
			want[path] = source + ":" + line + "!"
		default:
			want[path] = source + ":" + line
		}
	}
	return want
}

// entries are all paths below the repository, and the parsed .gitignore files.
func (g *gitOracle) entries() (paths []string, isDir map[string]bool, files map[string]*ignoreRules) {
	isDir, files = map[string]bool{}, map[string]*ignoreRules{}
	must(g.t, filepath.WalkDir(g.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == g.dir {
			return err
		}
		rel, _ := filepath.Rel(g.dir, path)
		if rel == ".git" {
			return filepath.SkipDir
		}
		paths = append(paths, rel)
		isDir[rel] = e.IsDir()
		if e.Name() == ".gitignore" && e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			must(g.t, err)
			dir, _, _ := cutLast(rel)
			files[dir] = parseIgnore(text)
		}
		return nil
	}))
	return paths, isDir, files
}

// compare fails where we do not decide by the same line as git.
func (g *gitOracle) compare(t rapid.TB) {
	t.Helper()
	paths, isDir, files := g.entries()
	if len(paths) == 0 {
		return
	}
	want := g.check(paths)
	got := map[string]string{}
	for _, path := range paths {
		got[path] = ignoring(files, path, isDir[path])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		var texts strings.Builder
		for dir := range files {
			text, _ := os.ReadFile(filepath.Join(g.dir, dir, ".gitignore"))
			fmt.Fprintf(&texts, "%s: %q\n", joinPath(dir, ".gitignore"), text)
		}
		t.Fatalf("line that decides (-git +got):\n%s\n%s", diff, texts.String())
	}
}

var (
	ignoreNames = []string{
		"a", "b", "ab", "abc", "A", ".a", "a.b", "a.b.c", "x.log", "y.log", "z.", ".log", "log", "a ", " a", "a  ", "a b", "#a", "!a", "!", "#", `\a`, `a\`, `\`,
		"*", "**", "a*b", "?", "[a]", "[", "]", "-", "a-b", "ü", "\xff", "a\xfe", "a\tb", "a\t", "a\r", "a\nb", "\x01", "\x0b", "\x7f", "aaaaaaab", "foo", "foobar", "build", "0", "^", ":", ":a", "~", "a~", "\xef\xbb\xbfa",
	}
	ignorePieces = []string{
		"*", "**", "***", "?", "/", "/", "//", "/**", "**/", "/**/", "*/", `\`, `\/`, `**\/`, `\*`, `\\`, `\ `, " ", "  ", "\t", "\r", "#", "!", "a", "b", ".", "-", "[", "]", "^", "\x00", "\xff",
		"[ab]", "[!a]", "[^a]", "[a-c]", "[c-a]", "[]a]", "[!]a]", "[]-a]", "[a-]", "[-a]", "[--0]", `[\]]`, `[a\]`, `[a-\c]`, `[\--a]`, "[[a]", "[a", "[]", "[!]", "[!", "[a-", "[]", "[[:", "[[:alpha:", "[/]", "[!/]", "[.-0]", "[\x80-\xff]", "[!\x01-\x7f]", "[*]", "[?]",
		"[[:alpha:]]", "[[:alnum:]]", "[[:blank:]]", "[[:cntrl:]]", "[[:digit:]]", "[[:graph:]]", "[[:lower:]]", "[[:print:]]", "[[:punct:]]", "[[:space:]]", "[[:upper:]]", "[[:xdigit:]]", "[[:word:]]", "[[::]]", "[[:]", "[[:a]", "[[:alpha:]b]", "[![:alpha:]]", "[a-[:digit:]]", "[[:alpha]",
		"foo", "log", ".log", "ü",
	}
)

// drawPattern is a line that has a chance to match: a real path with some of its bytes
// replaced, or pieces at random.
func drawPattern(t *rapid.T, paths []string) string {
	piece := rapid.SampledFrom(ignorePieces)
	var b strings.Builder
	if rapid.IntRange(0, 4).Draw(t, "negate") == 0 {
		b.WriteByte('!')
	}
	path := rapid.SampledFrom(paths).Draw(t, "path")
	switch rapid.IntRange(0, 7).Draw(t, "shape") {
	case 0:
		for range rapid.IntRange(0, 5).Draw(t, "pieces") {
			b.WriteString(piece.Draw(t, "piece"))
		}
		return b.String()
	case 1:
		from := rapid.IntRange(0, len(path)).Draw(t, "from")
		to := rapid.IntRange(from, len(path)).Draw(t, "to")
		return b.String() + path[:from] + rapid.SampledFrom([]string{"*", "**", "**/", "/**/"}).Draw(t, "stars") + path[to:]
	case 2:
		_, name, _ := cutLast(path)
		return b.String() + "*" + name[rapid.IntRange(0, len(name)).Draw(t, "from"):]
	}
	parts := strings.Split(path, "/")
	parts = parts[rapid.IntRange(0, len(parts)-1).Draw(t, "from"):]
	if rapid.IntRange(0, 3).Draw(t, "anchor") == 0 {
		b.WriteByte('/')
	}
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('/')
		}
		switch rapid.IntRange(0, 6).Draw(t, "part") {
		case 0:
			b.WriteString("**")
			continue
		case 1:
			b.WriteString("*")
			continue
		case 2:
			b.WriteString(part)
			continue
		}
		for j := 0; j < len(part); j++ {
			switch k := rapid.IntRange(0, 9).Draw(t, "byte"); {
			case k == 0:
				b.WriteString(piece.Draw(t, "piece"))
			case k == 1:
				b.WriteByte('*')
			case k == 2:
				b.WriteByte('?')
			case k == 3:
				b.WriteByte('\\')
				b.WriteByte(part[j])
			case k == 4:
				b.WriteString(piece.Draw(t, "piece"))
				b.WriteByte(part[j])
			default:
				b.WriteByte(part[j])
			}
		}
	}
	b.WriteString(rapid.SampledFrom([]string{"", "", "", "/", "/", "/*", "/**", "*", " ", `\ `, "//"}).Draw(t, "end"))
	return b.String()
}

// Git is right by definition. More rounds: go test -run GitAgrees -rapid.checks=10000.
func TestGitAgreesOnIgnoredPaths(t *testing.T) {
	g := newGit(t)
	rapid.Check(t, func(rt *rapid.T) {
		g.clear()
		name := rapid.SampledFrom(ignoreNames)
		dirs := []string{""}
		for range rapid.IntRange(1, 40).Draw(rt, "entries") {
			dir := rapid.SampledFrom(dirs).Draw(rt, "dir")
			path := joinPath(dir, name.Draw(rt, "name"))
			full := filepath.Join(g.dir, path)
			// What exists already, or what this file system cannot hold, is left alone.
			switch kind := rapid.IntRange(0, 7).Draw(rt, "kind"); {
			case kind < 3 && strings.Count(path, "/") < 4:
				if os.Mkdir(full, 0o755) == nil {
					dirs = append(dirs, path)
				}
			case kind == 3:
				os.Symlink(".", full)
			default:
				if f, err := os.OpenFile(full, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err == nil {
					f.Close()
				}
			}
		}
		paths, _, _ := g.entries()
		if len(paths) == 0 {
			return
		}
		for _, dir := range dirs {
			if dir != "" && rapid.IntRange(0, 3).Draw(rt, "file") > 0 {
				continue
			}
			var text strings.Builder
			if rapid.IntRange(0, 9).Draw(rt, "bom") == 0 {
				text.WriteString("\xef\xbb\xbf")
			}
			for range rapid.IntRange(0, 15).Draw(rt, "lines") {
				text.WriteString(drawPattern(rt, paths))
				text.WriteString(rapid.SampledFrom([]string{"\n", "\n", "\n", "\r\n", "\n\n", "\r\r\n"}).Draw(rt, "end"))
			}
			if rapid.Bool().Draw(rt, "unended") {
				text.WriteString(drawPattern(rt, paths))
			}
			must(t, os.WriteFile(filepath.Join(g.dir, dir, ".gitignore"), []byte(text.String()), 0o644))
		}
		g.compare(rt)

		// And a look sees the files that are left.
		var want []string
		paths, isDir, _ := g.entries()
		for path, by := range g.check(paths) {
			info, err := os.Lstat(filepath.Join(g.dir, path))
			must(t, err)
			if (by == "" || strings.HasSuffix(by, "!")) && !isDir[path] && info.Mode().IsRegular() {
				want = append(want, keyOf(path))
			}
		}
		slices.Sort(want)
		o := watchFiles(t, g.dir, "**").mustLook()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(o.Record.Files)), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("files seen (-git +look):\n%s", diff)
		}
	})
}

// Each byte against each class, and each byte as a range's end.
func TestGitAgreesOnClasses(t *testing.T) {
	g := newGit(t)
	for c := 1; c < 256; c++ {
		if c != '/' && c != '.' {
			os.WriteFile(filepath.Join(g.dir, string([]byte{byte(c)})), nil, 0o644) // a Mac refuses some
		}
	}
	for _, p := range ignorePieces {
		if strings.HasPrefix(p, "[") {
			must(t, os.WriteFile(filepath.Join(g.dir, ".gitignore"), []byte(p+"\n"), 0o644))
			g.compare(t)
		}
	}
}
