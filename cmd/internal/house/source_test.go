package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "marbles"

// A source is one Go file of the repository, whatever system it is for.
type source struct {
	path   string // from the top, with slashes
	test   bool
	syntax *ast.File
	fset   *token.FileSet
}

func (s source) dir() string { return path.Dir(s.path) }

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

// in reports whether the file is, or lies below, one of several places.
func (s source) in(places string) bool {
	return slices.ContainsFunc(strings.Fields(places), func(p string) bool { return below(s.path, p) })
}

// imports are the file's import paths by the name they have in it.
func (s source) imports() map[string]string {
	names := map[string]string{}
	for _, i := range s.syntax.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser has checked it
		}
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		if name == "_" {
			name = "_ " + p // nothing can refer to it
		}
		names[name] = p
	}
	return names
}

// top is the repository's first folder, from here.
var top = filepath.Join("..", "..", "..")

// everySource parses the repository once for all tests.
var everySource = sync.OnceValues(func() ([]source, error) {
	var all []source
	fset := token.NewFileSet()
	err := eachFile(func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(fset, filepath.Join(top, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{name, strings.HasSuffix(name, "_test.go"), syntax, fset})
		return nil
	})
	return all, err
})

// eachFile calls f for every file that belongs to the repository.
func eachFile(f func(name string) error) error {
	return filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "testdata", "dist"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(name))
	})
}

func sources(t *testing.T) []source {
	t.Helper()
	all, err := everySource()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d Go files below %s", len(all), top)
	}
	return all
}

// program are the sources that end up in the binary: no tests, and no tools that measure or describe it.
func program(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(sources(t)), func(s source) bool { return s.test || s.in("bench cmd/internal/manpages") })
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(top, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// uses resolves the names of each package to what they are declared as, without its imports: enough to tell a package's
// variable from a local one.
func uses(t *testing.T, all []source) map[*ast.Ident]types.Object {
	t.Helper()
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	packages := map[string][]*ast.File{}
	for _, s := range all {
		packages[s.dir()] = append(packages[s.dir()], s.syntax)
	}
	for dir, files := range packages {
		config := types.Config{
			Importer: noImports{},
			Error:    func(error) {}, // of imports, and of what is declared once for each system
		}
		_, _ = config.Check(dir, all[0].fset, files, &info)
	}
	return info.Uses
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }
