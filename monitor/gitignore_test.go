package monitor

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// ignoring says which line of which .gitignore decides about a path, as git check-ignore
// names it: ".gitignore:3", "" for none, with "!" behind it where the line begins so.
// files has the .gitignore files by directory, paths by themselves say what is a directory.
func ignoring(files map[string]*ignoreRules, path string, isDir bool) string {
	var stack *ignoreStack
	dir := ""
	parts := strings.Split(path, "/")
	for i, name := range parts {
		stack = stack.push(dir, files[dir])
		last := i == len(parts)-1
		at, v := stack.decide(dir, name, isDir || !last)
		if got := stack.ignored(dir, name, isDir || !last); got != v.ignores() {
			panic("ignored and decide disagree")
		}
		if v.ignores() || last && v != 0 {
			text := fmt.Sprintf("%s:%d", joinPath(at.dir, ".gitignore"), v.line())
			if !v.ignores() {
				text += "!"
			}
			return text
		}
		dir = joinPath(dir, name)
	}
	return ""
}

func TestIgnoreRules(t *testing.T) {
	for _, c := range []struct {
		name, text string
		ignored    string // paths; a directory ends in a slash
		seen       string
	}{
		{"a name at any depth", "foo", "foo a/foo a/b/foo foo/ foo/x", "foobar xfoo Foo"},
		{"a slash in front anchors", "/foo", "foo foo/x", "a/foo"},
		{"a slash in the middle anchors", "a/foo", "a/foo", "b/a/foo foo"},
		{"a slash at the end is for directories", "foo/", "foo/ foo/x a/foo/", "foo a/foo"},
		{"and does not anchor", "frotz/", "frotz/ a/frotz/", "frotz"},
		{"but one in the middle does", "doc/frotz/", "doc/frotz/", "a/doc/frotz/ doc/frotz"},
		{"a star stops at slashes", "a/*", "a/b a/b/c a/.b", "a x/a/b"},
		{"and matches nothing too", "/a*b", "ab axb", "a/b"},
		{"a star matches leading dots", "*.c", ".c x.c a/.x.c", "c"},
		{"double star in front", "**/foo/bar", "foo/bar a/foo/bar a/b/foo/bar", "foo/x/bar"},
		{"double star behind", "abc/**", "abc/x abc/x/y abc/d/", "abc abc/ x/abc/y"},
		{"double star between", "a/**/b", "a/b a/x/b a/x/y/b", "a/xb x/a/b"},
		{"double star glued to text", "/a**b", "ab axb", "a/b"},
		{"double star glued at a wildcard", "x/?a**/b", "x/aab/b x/aa/b", "x/aa/c/b"},
		{"trailing spaces go", "foo   ", "foo", `foo\s`},
		{"not behind a backslash", `foo\ `, `foo\s`, `foo foo\s\s`},
		{"nor tabs", "foo\t", `foo\t`, "foo"},
		{"leading spaces stay", " foo", `\sfoo`, "foo"},
		{"comment", "#foo\n\\#bar\nx#y", "#bar x#y", "#foo"},
		{"bang", "\\!foo\n!!x\n!", "!foo", "!x"},
		{"the last rule wins", "*.log\n!a.log\n/b/a.log", "x.log b/a.log", "a.log c/a.log"},
		{"below an ignored directory nothing comes back", "foo/\n!foo/bar", "foo/ foo/bar", ""},
		{"below its content it does", "foo/*\n!foo/bar", "foo/x", "foo/ foo/bar foo/bar/x"},
		{"all but one directory", "/*\n!/foo\n/foo/*\n!/foo/bar", "x foo/x y/z", "foo/ foo/bar/ foo/bar/z"},
		{"a directory only, brought back", "*\n!*/\n!*.c", "x a/x", "a/ a/x.c x.c"},
		{"CRLF", "foo\r\nbar/\r\nlast\r", "foo bar/ last", "bar"},
		{"byte order mark", "\xef\xbb\xbffoo", "foo", ""},
		{"no byte order mark later", "x\n\xef\xbb\xbffoo", "\xef\xbb\xbffoo", "foo"},
		{"NUL ends a line", "foo\x00bar\nx", "foo x", "foobar bar"},
		{"bytes", "\xff*", "\xff \xffa", "\xfe"},
		{"class", "[a-c]x[!0-9]", "axy cx-", "dxy ax1"},
		{"caret", "[^a]", "b", "a"},
		{"bracket in a class", "[]-]x\n[!]]y", "]x -x ay", "]y"},
		{"POSIX class", "[[:upper:][:digit:]]", "A 7", "a"},
		{"no class has a slash", "a[!x]b\na[/]c", "a-b", "a/b a/c"},
		{"an open bracket matches nothing", "[a\n[[:no:]]\nx\\", "", `[a a x x\\`},
		{"escapes", `\*\?\[a\\`, `*?[a\\`, "xy[a"},
		{"only slashes", "/\n//\n///", "", "a a/b/"},
		{"two slashes", "//foo\na//b", "", "foo a/b"},
		{"case", "Foo", "Foo", "foo"},
		{"empty lines", "\n\r\n   \n", "", "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]*ignoreRules{"": parseIgnore([]byte(c.text))}
			for _, list := range []struct {
				paths   string
				ignored bool
			}{{c.ignored, true}, {c.seen, false}} {
				for _, path := range strings.Fields(list.paths) {
					path = strings.NewReplacer(`\s`, " ", `\t`, "\t", `\\`, `\`).Replace(path)
					plain, isDir := strings.CutSuffix(path, "/")
					by := ignoring(files, plain, isDir)
					if got := by != "" && !strings.HasSuffix(by, "!"); got != list.ignored {
						t.Errorf("%q with %q: got ignored %v (%s), want %v", path, c.text, got, by, list.ignored)
					}
				}
			}
		})
	}
}

func TestNestedIgnoreFiles(t *testing.T) {
	files := map[string]*ignoreRules{
		"":      parseIgnore([]byte("*.log\n/top\nd/e/anchored\n!kept\n")),
		"d":     parseIgnore([]byte("!keep.log\n/top2\nkept\n")),
		"d/e":   parseIgnore([]byte("# nothing\n")),
		"d/e/f": parseIgnore([]byte("keep.log\ng/*.txt\n")),
	}
	for path, want := range map[string]string{
		"keep.log":         ".gitignore:1",
		"d/keep.log":       "d/.gitignore:1!",
		"d/e/keep.log":     "d/.gitignore:1!",
		"d/e/f/keep.log":   "d/e/f/.gitignore:1",
		"d/e/f/g/a.txt":    "d/e/f/.gitignore:2",
		"d/e/f/g/h/a.txt":  "",
		"d/x.log":          ".gitignore:1",
		"top":              ".gitignore:2",
		"d/top":            "",
		"d/top2":           "d/.gitignore:2",
		"d/e/top2":         "",
		"d/e/anchored":     ".gitignore:3",
		"d/e/f/d/e/ancho":  "",
		"kept":             ".gitignore:4!",
		"d/kept":           "d/.gitignore:3",
		"e/d/kept":         ".gitignore:4!",
		"dd/keep.log":      ".gitignore:1",
		"d/e/anchored/x/y": ".gitignore:3",
	} {
		if got := ignoring(files, path, false); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	if files["d/e"] != nil {
		t.Errorf("a file without rules: got %v, want nil", files["d/e"])
	}
}

// A pattern cannot make a look slow.
func TestWildcardsTakeLittleTime(t *testing.T) {
	name := strings.Repeat("a", 255)
	path := strings.Repeat(strings.Repeat("a", 200)+"/", 20)
	for _, p := range []string{
		strings.Repeat("*a", 100) + "*b",
		strings.Repeat("**/", 100) + "b",
		"x/" + strings.Repeat("**/", 100) + "b",
		"/" + strings.Repeat("**/*a*a*/", 10) + "b",
		"/" + strings.Repeat("**/a*", 30) + "/c",
		"/" + strings.Repeat("*a*", 100) + "/" + strings.Repeat("**/*a*a*", 9) + "/b",
		`/**\/` + strings.Repeat(`*a*a**\/`, 10) + "b",
		strings.Repeat("[!b]*", 1000) + "b",
		"/" + strings.Repeat("*", 100_000) + "b",
		strings.Repeat("[a-", 100_000),
		strings.Repeat("[[:", 100_000),
	} {
		start := time.Now()
		stack := (*ignoreStack)(nil).push("", parseIgnore([]byte(p)))
		for range 100 {
			stack.ignored(path[:len(path)-1], name, false)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%.60s: 100 matches took %v", p, took)
		}
	}
}

func TestIgnoredDoesNotAllocate(t *testing.T) {
	stack := (*ignoreStack)(nil).push("", parseIgnore([]byte(typicalIgnore))).push("src", parseIgnore([]byte("gen\n*.tmp\na/*/c\n")))
	if n := testing.AllocsPerRun(100, func() {
		stack.ignored("src/main/java", "Main.java", false)
		stack.ignored("src/main", "node_modules", true)
		stack.ignored("src/a/b", "c", false)
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}

const typicalIgnore = `# build
/build/
/dist
node_modules/
*.o
*.log
*.py[cod]
*~
.DS_Store
!important.log
docs/_build/
src/**/generated/
**/coverage
.env.*
*.tar.gz
/tmp/*
!/tmp/.gitkeep
vendor
.idea/
Thumbs.db
`

func BenchmarkIgnored(b *testing.B) {
	stack := (*ignoreStack)(nil).push("", parseIgnore([]byte(typicalIgnore))).push("src", parseIgnore([]byte("*.class\n/out/\n")))
	b.ReportAllocs()
	for b.Loop() {
		if stack.ignored("src/main/java/org/example", "Main.java", false) {
			b.Fatal("ignored")
		}
	}
}
