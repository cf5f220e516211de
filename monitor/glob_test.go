package monitor

import (
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"pgregory.net/rapid"
)

// matchPath matches a whole path as the walk does name by name.
func matchPath(g *glob, path string) bool {
	c := g.start()
	names := strings.Split(path, "/")
	for _, name := range names[:len(names)-1] {
		c = g.enter(c, name)
	}
	return g.matches(c, names[len(names)-1])
}

func TestGlobMatches(t *testing.T) {
	for _, tt := range []struct {
		glob    string
		matches string
		not     string
	}{
		{"**/{CLAUDE,AGENTS}.md", "CLAUDE.md a/AGENTS.md a/b/CLAUDE.md", "README.md a/CLAUDE.mdx CLAUDE.md/x"},
		{"*.md", "a.md .md .hidden.md", "a/b.md a.mdx"},
		{"docs/**", "docs/a docs/a/b docs/.x", "docs a/docs/b"},
		{"docs/**/*.md", "docs/a.md docs/a/b/c.md", "docs/a.txt x/docs/a.md"},
		{"**", "a a/b .x/y", ""},
		{"**/**", "a a/b", ""},
		{"**/a/**", "a/b x/a/b x/a/b/c a/a", "a x/a"},
		{"a,b", "a,b", "a b"},
		{"[a].txt", "a.txt", "[a].txt b.txt"},
		{`\[a\].txt`, "[a].txt", "a.txt b.txt"},
		{"[[]a].txt", "[a].txt", "a.txt b.txt"},
		{"[^a].txt", "b.txt é.txt", "a.txt"},
		{"[!a-c].txt", "d.txt", "a.txt b.txt"},
		{`[\]x]`, "] x", `\`},
		{"[a-]", "a -", "b"},
		{"[{,}].txt", "{.txt ,.txt }.txt", "a.txt"},
		{"?.txt", "a.txt é.txt \xff.txt", ".txt ab.txt"},
		{`\*`, "*", "a"},
		{`\!x`, "!x", "x"},
		{"{a}.txt", "{a}.txt", "a.txt"},
		{"{}", "{}", ""},
		{"{a{b,c}}", "{ab} {ac}", "ab {a{b,c}}"},
		{"{a,b{c,d}}.x", "a.x bc.x bd.x", "b.x"},
		{"{a/**,b}/*.go", "a/x.go a/b/c.go b/x.go", "b/c/x.go c/x.go"},
		{"docs/{,api/}*.md", "docs/a.md docs/api/a.md", "docs/x/a.md"},
		{"*(1).txt", "Copy(1).txt", ""},
		{"a*b*c", "abc axbxc", "axbx"},
	} {
		t.Run(tt.glob, func(t *testing.T) {
			g, err := compileGlob(tt.glob)
			if err != nil {
				t.Fatal(err)
			}
			for path := range strings.FieldsSeq(tt.matches) {
				if !matchPath(g, path) {
					t.Errorf("%s: want a match for %q", tt.glob, path)
				}
			}
			for path := range strings.FieldsSeq(tt.not) {
				if matchPath(g, path) {
					t.Errorf("%s: want no match for %q", tt.glob, path)
				}
			}
		})
	}
}

func TestGlobErrors(t *testing.T) {
	for _, tt := range []struct{ glob, reason string }{
		{"", "it is empty"},
		{" ", "it is empty"},
		{"[", "syntax error"},
		{"a.txt[", "syntax error"},
		{"[]", "syntax error"},
		{"[!]", "syntax error"},
		{"[]a]", "syntax error"},
		{"[z-a]", "is empty"},
		{"[a/b]", "cannot hold"},
		{"a{b", "syntax error"},
		{"a}b", "syntax error"},
		{"{a,[}", "syntax error"},
		{`a\`, "syntax error"},
		{`a\/b`, "cannot be escaped"},
		{"a/**.txt", "whole segment"},
		{"a**/b", "whole segment"},
		{"***", "whole segment"},
		{"{a**,b}", "whole segment"},
		{"!a/b.txt", "exclude"},
		{"{!a,b}", "exclude"},
		{"a/!(b).txt", "exclude"},
		{"/etc/*", "absolute"},
		{"../x", "leaves the workspace"},
		{"a/../b", "leaves the workspace"},
		{`a/\.\./b`, "can match nothing"},
		{"./a", "leave it out"},
		{"a//b", "can match nothing"},
		{"docs/", "only files"},
		{"{a,}", "can match nothing"},
		{".git/HEAD", "never watched"},
		{"a/node_modules/**", "never watched"},
		{"**/.DS_Store", "never watched"},
		{"a\x00", "NUL"},
		{"\xff", "UTF-8"},
		{strings.Repeat("{a,b}", 11), "more than 1024"},
		{strings.Repeat("a", 5000), "longer than"},
	} {
		t.Run(tt.glob, func(t *testing.T) {
			_, err := NewFiles(t.TempDir(), tt.glob, FilesOptions{})
			if err == nil {
				t.Fatalf("%q: want an error", tt.glob)
			}
			if got := err.Error(); !strings.Contains(got, tt.reason) || tt.glob != "" && !strings.Contains(got, "pattern") {
				t.Errorf("%q: got %q, want it to name the pattern and %q", tt.glob, got, tt.reason)
			}
			if _, err := NewFiles(t.TempDir(), "*", FilesOptions{Exclude: []string{tt.glob}}); err == nil || !strings.HasPrefix(err.Error(), "exclude: ") {
				t.Errorf("as exclude: got %v, want an error that says so", err)
			}
		})
	}
}

// Where the library and the design agree, matching name by name is matching at once.
func TestGlobAgreesWithDoublestar(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "ab", "*", "?", "a*", "*b", "[ab]", "[^a]", "{a,b}", "{a,*b}c", "**", `\*`, "{a,b/c}", "{**,a}"})
	name := rapid.SampledFrom([]string{"a", "b", "ab", "ba", "abc", "*", ".a", "\xff", "bc"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(part, 1, 5).Draw(t, "pattern"), "/")
		path := strings.Join(rapid.SliceOfN(name, 1, 5).Draw(t, "path"), "/")
		g, err := compileGlob(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		// doublestar lets a final ** stand for nothing, and so match a directory's own name.
		want := slices.ContainsFunc(mustExpand(t, text), func(row string) bool {
			if above, ok := strings.CutSuffix(row, "/**"); ok {
				row = above + "/**/*"
			}
			return doublestar.MatchUnvalidated(row, path)
		})
		if got := matchPath(g, path); got != want {
			t.Fatalf("%q and %q: got %v, want %v", text, path, got, want)
		}
	})
}

func mustExpand(t *rapid.T, text string) []string {
	rows, err := expandBraces(text)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
