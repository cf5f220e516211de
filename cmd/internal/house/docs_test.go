package house

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"marbles/cmd/internal/catalog"
)

// A block is a fenced block of a Markdown file.
type block struct {
	file string
	line int    // of its first line
	info string // behind the fence: "yaml", "sh"
	text string
}

// pages are the Markdown files that people read.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := eachFile(func(name string) error {
		if path.Ext(name) == ".md" && !below(name, "examples/tour/notes") {
			found = append(found, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func blocks(t *testing.T, file string) []block {
	t.Helper()
	var found []block
	var open *block
	var fence, indent string
	for i, line := range strings.Split(readFile(t, file), "\n") {
		text := strings.TrimLeft(line, " ")
		switch {
		case open == nil && strings.HasPrefix(text, "```"):
			info := strings.TrimLeft(text, "`")
			fence, indent = text[:len(text)-len(info)], line[:len(line)-len(text)]
			open = &block{file: file, line: i + 2, info: strings.TrimSpace(info)}
		case open != nil && strings.TrimRight(text, " ") == fence:
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		t.Errorf("%s:%d: this block never ends", file, open.line-1)
	}
	return found
}

// definition matches what can only be a definition file.
var definition = regexp.MustCompile(`(?m)^(workflows|schedules|monitors):`)

// named matches files that an example needs to be there.
var named = regexp.MustCompile(`(?m)\bca: (\S+)$`)

// TestDocumentedDefinitionsLoad reads every example in the documentation as the service would. One that shows an error is
// fenced as "yaml refused", and is.
func TestDocumentedDefinitionsLoad(t *testing.T) {
	for _, file := range pages(t) {
		for _, b := range blocks(t, file) {
			if lang, _, _ := strings.Cut(b.info, " "); lang != "yaml" && lang != "yml" || !definition.MatchString(b.text) {
				continue
			}
			dir := t.TempDir()
			name := filepath.Join(dir, "documented.yaml")
			// Empty lines in front, so that the loader names the page's own lines.
			text := strings.Repeat("\n", b.line-1) + b.text
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, m := range named.FindAllStringSubmatch(b.text, -1) {
				file := filepath.Join(dir, m[1])
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := load(name)
			switch {
			case b.info == "yaml refused" && err == nil:
				t.Errorf("%s:%d: this loads, and is shown as refused", b.file, b.line)
			case b.info != "yaml refused" && err != nil:
				t.Errorf("%s:%d: this does not load:\n%s", b.file, b.line, strings.ReplaceAll(err.Error(), name, b.file))
			}
		}
	}
}

// TestExamplesLoad: each folder of examples is a workspace without errors, and without warnings.
func TestExamplesLoad(t *testing.T) {
	examples, err := os.ReadDir(filepath.Join(top, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		c, err := load(filepath.Join(top, "examples", e.Name()))
		if err != nil {
			t.Errorf("examples/%s does not load:\n%v", e.Name(), err)
			continue
		}
		if len(c.Schedules)+len(c.Monitors) == 0 {
			t.Errorf("examples/%s declares nothing that would run", e.Name())
		}
		for _, w := range c.Warnings {
			t.Errorf("examples/%s: %s", e.Name(), w)
		}
	}
}

func load(name string) (*catalog.Catalog, error) {
	source, err := catalog.Locate(name, ".")
	if err != nil {
		return nil, err
	}
	return catalog.Load([]catalog.Source{source}, catalog.Options{
		Now:   time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		Local: time.UTC,
	})
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksLeadSomewhere checks links to the repository's own files.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, file := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(readFile(t, file), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, ":") {
				continue
			}
			if _, err := os.Stat(filepath.Join(top, path.Dir(file), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", file, target)
			}
		}
	}
}
