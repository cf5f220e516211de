package house

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// below reports whether a directory is another or lies in it.
func below(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

type direction struct {
	dir   string
	needs []string
	why   string
}

// directions is what each folder may import of ours, and why it may import nothing else. The first entry that fits
// a package counts.
var directions = []direction{
	{"state", nil, "what is on disk is understood and changed in one place, below everything else"},
	{"packaging", nil, "the files are data: they are rendered, not wired"},
	{"scheduler", []string{"state"}, "when is decided without knowing what is watched or run; cmd joins the three"},
	{"monitor", []string{"state"}, "what changed is found without knowing when or what for; cmd joins the three"},
	{"runner", []string{"state"}, "work is done without knowing who asked; cmd joins the three"},
	{"cmd/internal/strict", nil, "reading strictly knows nothing of what is read"},
	{"cmd/internal/settings", []string{"cmd/internal/strict"}, "settings are known before there is anything to wire"},
	{"cmd/internal/catalog", []string{"cmd/internal/strict", "scheduler", "monitor", "runner", "state"},
		"a catalog is read the same for the service, roll and check: it knows no settings and no command line"},
	{"cmd/internal/importer", []string{"cmd/internal/catalog", "cmd/internal/strict", "scheduler", "state"},
		"what it makes is read by the catalog, as any definition is; it writes nothing itself"},
	{"cmd/internal/service", []string{"cmd/internal/catalog", "cmd/internal/settings", "scheduler", "monitor", "runner", "state"},
		"the service is told what to do; the command line is above it"},
	{"cmd/internal/initsys", []string{"packaging", "scheduler", "state"},
		"an init system is told of cadences and files; what a key does is not its business"},
	{"cmd/internal/cli", []string{"cmd/internal", "packaging", "scheduler", "monitor", "runner", "state"},
		"the command line wires everything, except the program itself"},
	{"cmd/internal/manpages", []string{"cmd/internal/cli", "packaging"}, "it describes the command line and the settings file as they are"},
	{"bench", []string{"scheduler", "monitor", "runner", "state"}, "figures are measured from outside"},
	{"cmd/marbles", []string{"cmd/internal/cli", "state"}, "the program is one call; its tests look at what it left on disk"},
}

func TestImportDirections(t *testing.T) {
	all := sources(t)
	seen := map[string]bool{}
	for _, s := range all {
		i := slices.IndexFunc(directions, func(d direction) bool { return below(s.dir(), d.dir) })
		if i < 0 {
			if s.dir() != "cmd/internal/house" {
				t.Errorf("%s: %s is in no table of import directions: add it, with the reason", s.path, s.dir())
			}
			continue
		}
		d := directions[i]
		seen[d.dir] = true
		for _, p := range s.imports() {
			ours, ok := strings.CutPrefix(p, module+"/")
			if !ok || below(ours, d.dir) || slices.ContainsFunc(d.needs, func(n string) bool { return below(ours, n) }) {
				continue
			}
			t.Errorf("%s imports %s, but %s may import only %q: %s", s.path, ours, d.dir, d.needs, d.why)
		}
	}
	for _, d := range directions {
		if !seen[d.dir] {
			t.Errorf("there is no %s", d.dir)
		}
	}
}

func TestNobodyImportsTheHouse(t *testing.T) {
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			if p == module+"/cmd/internal/house" || p == module+"/cmd/marbles" {
				t.Errorf("%s imports %s", s.path, p)
			}
		}
	}
}

// forbidden are packages that may be imported only in some folders or files.
var forbidden = []struct {
	imported, only, why string
}{
	{"log", "", "loggers are given, and structured: log/slog"},
	{"flag", "", "flags are read by cmd/internal/cli and settings, through pflag"},
	{"io/ioutil", "", "os and io have it"},
	{"math/rand", "", "its v2 seeds itself"},
	{"reflect", "", "types are known; JSON and settings have libraries for it"},
	{"unsafe", "runner/process_darwin.go", "golang.org/x/sys has what is needed, except waitid on macOS"},
	{"embed", "cmd packaging", "only what is printed for people or init systems is embedded"},
	{"os/signal", "cmd", "signals are for the whole process"},
	{"net/http", "monitor", "only a monitor talks to the network"},
}

func TestForbiddenImports(t *testing.T) {
	for _, s := range program(t) {
		for _, p := range s.imports() {
			for _, f := range forbidden {
				if p == f.imported && !s.in(f.only) {
					t.Errorf("%s imports %s: %s", s.path, p, f.why)
				}
			}
		}
	}
}

// A dependency is a row of docs/dependencies.md.
type dependency struct {
	where []string // folders; nil for everywhere
	tests bool
}

func documented(t *testing.T) map[string]dependency {
	t.Helper()
	found := map[string]dependency{}
	tests := false
	for line := range strings.Lines(readFile(t, "docs/dependencies.md")) {
		if strings.HasPrefix(line, "## ") {
			tests = strings.Contains(line, "tests")
		}
		cells := strings.Split(line, " | ")
		name, ok := strings.CutPrefix(cells[0], "| `")
		if !ok {
			continue
		}
		d := dependency{tests: tests}
		if !tests && cells[1] != "everywhere" {
			for where := range strings.SplitSeq(cells[1], ", ") {
				d.where = append(d.where, strings.Trim(where, "`"))
			}
		}
		found[strings.TrimSuffix(name, "`")] = d
	}
	return found
}

// required are the modules that go.mod requires directly.
func required(t *testing.T) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(readFile(t, "go.mod")) {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] == "require" {
			fields = fields[1:]
		}
		if len(fields) == 2 && strings.Contains(fields[0], "/") {
			found = append(found, fields[0])
		}
	}
	return found
}

func TestDependenciesAreArgued(t *testing.T) {
	want := required(t)
	got := slices.Sorted(maps.Keys(documented(t)))
	for _, m := range want {
		if !slices.Contains(got, m) {
			t.Errorf("go.mod requires %s, and docs/dependencies.md does not say why", m)
		}
	}
	for _, m := range got {
		if !slices.Contains(want, m) {
			t.Errorf("docs/dependencies.md argues for %s, which go.mod does not require directly", m)
		}
	}
}

func TestDependenciesStayInPlace(t *testing.T) {
	rows := documented(t)
	used := map[string]bool{}
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			for m, d := range rows {
				if !below(p, m) {
					continue
				}
				in := d.where == nil || slices.ContainsFunc(d.where, func(dir string) bool { return below(s.dir(), dir) })
				switch {
				case s.in("bench"):
				case d.tests && !s.test:
					t.Errorf("%s imports %s, which is for tests", s.path, p)
				case !d.tests && !s.test && !in:
					t.Errorf("%s imports %s, which docs/dependencies.md keeps in %q", s.path, p, d.where)
				}
				used[m] = used[m] || d.tests || !s.test
			}
		}
	}
	for m := range rows {
		if !used[m] {
			t.Errorf("nothing imports %s", m)
		}
	}
}
