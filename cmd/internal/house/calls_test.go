package house

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

// calls are names of other packages that may be used only in some places, in code that ends up in a binary. A place
// is a folder or a file.
var calls = []struct {
	names, only, why string
}{
	{"os.Exit", "cmd/marbles/main.go", "the program ends in one place, after everything was closed"},
	{"os.Args os.Environ os.Stdin os.Stdout os.Stderr os.UserHomeDir", "cmd/internal/cli/cli.go",
		"a command gets its process as a value, so that a test can give it another"},
	{"os.Getenv os.LookupEnv", "scheduler/zone.go runner/transient/manager_linux.go",
		"the environment is read once; only TZ is followed, as package time does, and where a service manager listens"},
	{"os.Setenv os.Unsetenv os.Clearenv os.Chdir", "", "the process is shared by everything in it"},
	{"fmt.Print fmt.Printf fmt.Println", "", "output goes to a writer that was given"},
	{"slog.Default slog.SetDefault slog.Debug slog.Info slog.Warn slog.Error slog.Log", "", "loggers are given"},
	{"os.Rename os.Link os.Symlink os.Truncate os.CopyFS syscall.Rename unix.Rename unix.Renameat unix.Renameat2 unix.Fsync",
		"state cmd/internal/cli/init.go cmd/internal/initsys/files.go", "one package knows how a file is replaced so that it survives power loss"},
	{"os.WriteFile os.Create os.OpenFile os.CreateTemp os.Mkdir os.MkdirAll os.MkdirTemp os.Remove os.RemoveAll os.Chmod os.Chtimes os.Chown os.Lchown",
		"state runner cmd/internal/cli/init.go cmd/internal/initsys", "only state writes below the root; a runner has temporary files for its steps, init writes a starter, and initsys the files of init systems"},
	{"exec.Command exec.CommandContext os.StartProcess syscall.Exec syscall.ForkExec", "runner cmd/internal/initsys/host.go cmd/internal/importer/analyze.go",
		"every process is in a group that is ended and recorded; but for the commands of init systems, and systemd-analyze, which starts nothing"},
	{"time.Tick", "", "nobody can stop it"},
	{"time.Sleep", "state runner", "it cannot be cancelled, and knows no wall clock; only what the kernel or the disk must do in a moment is waited for so"},
	{"context.TODO", "", "somebody ends everything that runs"},
}

// used calls f with every name of an imported package that a file uses, as "os.Exit".
func used(s source, f func(name string, at ast.Node)) {
	imports := s.imports()
	ast.Inspect(s.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		if p, ok := imports[id.Name]; ok {
			f(p[strings.LastIndex(p, "/")+1:]+"."+sel.Sel.Name, sel)
		}
		return true
	})
}

func TestCallsAreInTheirPlace(t *testing.T) {
	for _, s := range program(t) {
		used(s, func(name string, at ast.Node) {
			for _, c := range calls {
				if !slices.Contains(strings.Fields(c.names), name) {
					continue
				}
				if !s.in(c.only) {
					t.Errorf("%s: %s belongs in %q: %s", s.at(at), name, c.only, c.why)
				}
			}
		})
	}
}

// TestTime looks for time that is right until a suspend, a clock change, or the thousandth turn.
func TestTime(t *testing.T) {
	for _, s := range program(t) {
		imports := s.imports()
		isAfter := func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return false
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "After" || len(call.Args) != 1 {
				return false
			}
			id, ok := sel.X.(*ast.Ident)
			return ok && imports[id.Name] == "time"
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				ast.Inspect(n, func(inner ast.Node) bool {
					if isAfter(inner) {
						t.Errorf("%s: time.After in a loop makes a timer each turn and cannot be reset: use one timer", s.at(inner))
					}
					return true
				})
				return false
			case *ast.BinaryExpr:
				call, ok := n.X.(*ast.CallExpr)
				if !ok || n.Op != token.QUO {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if ok && sel.Sel.Name == "Hours" && len(call.Args) == 0 {
					t.Errorf("%s: days are not 24 hours: use the calendar", s.at(n))
				}
			}
			return true
		})
	}
}

func TestNothingIsUnfinished(t *testing.T) {
	for _, s := range program(t) {
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			id, _ := call.Fun.(*ast.Ident)
			text, _ := call.Args[0].(*ast.BasicLit)
			if id != nil && id.Name == "panic" && text != nil && strings.Contains(strings.ToLower(text.Value), "todo") {
				t.Errorf("%s: not written yet", s.at(n))
			}
			return true
		})
	}
}

// constructors are the calls that may make a package's variable: what they return never changes, or is a sentinel.
const constructors = "errors.New regexp.MustCompile strings.NewReplacer sync.OnceValue sync.OnceValues sync.OnceFunc " +
	"crc32.MakeTable netip.MustParsePrefix time.Date"

// TestNoPackageState: a package's variable is set where it is declared, to an error, a table or something embedded, and never
// again; and nothing runs before main.
func TestNoPackageState(t *testing.T) {
	for _, s := range program(t) {
		for _, d := range s.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s: init runs in every program that links the package, before anybody asked", s.at(d))
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, spec := range d.Specs {
					checkVariable(t, s, d, spec.(*ast.ValueSpec))
				}
			}
		}
	}
	checkAssignments(t, program(t))
}

func checkVariable(t *testing.T, s source, d *ast.GenDecl, spec *ast.ValueSpec) {
	t.Helper()
	if spec.Names[0].Name == "_" { // an assertion
		return
	}
	for _, doc := range []*ast.CommentGroup{d.Doc, spec.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return
		}
	}
	if s.path == "runner/process_linux.go" && spec.Names[0].Name == "orphanList" {
		return // the kernel keeps one list of orphans for the process, whoever asks for it
	}
	if len(spec.Values) == 0 {
		t.Errorf("%s: the package's variable %s has no value: it is state, which belongs into a struct", s.at(spec), spec.Names[0])
		return
	}
	imports := s.imports()
	for _, v := range spec.Values {
		ast.Inspect(v, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit: // runs when it is called
				return false
			case *ast.CallExpr:
				if !constructs(imports, n) {
					t.Errorf("%s: the package's variable %s is made by a call that is in no list of ours", s.at(n), spec.Names[0])
				}
			}
			return true
		})
	}
}

// constructs reports whether a call is one of the constructors, or a conversion.
func constructs(imports map[string]string, call *ast.CallExpr) bool {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		if id, ok := f.X.(*ast.Ident); ok {
			p := imports[id.Name]
			return slices.Contains(strings.Fields(constructors), p[strings.LastIndex(p, "/")+1:]+"."+f.Sel.Name) || p == "time" && f.Sel.Name == "Duration"
		}
		inner, ok := f.X.(*ast.CallExpr) // a method of what a constructor made
		return ok && constructs(imports, inner)
	case *ast.ArrayType, *ast.ParenExpr:
		return true
	case *ast.Ident:
		return types.Universe.Lookup(f.Name) != nil
	}
	return false
}

// checkAssignments finds what changes a package's variable, an element of it, or takes its address.
func checkAssignments(t *testing.T, all []source) {
	t.Helper()
	objects := uses(t, all)
	var variable func(e ast.Expr) string
	variable = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.Ident:
			if v, ok := objects[e].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				return e.Name
			}
		case *ast.IndexExpr:
			return variable(e.X)
		case *ast.SelectorExpr:
			return variable(e.X)
		case *ast.ParenExpr:
			return variable(e.X)
		case *ast.StarExpr:
			return variable(e.X)
		}
		return ""
	}
	for _, s := range all {
		report := func(n ast.Node, e ast.Expr) {
			if name := variable(e); name != "" {
				t.Errorf("%s: the package's variable %s is changed here, or could be: state belongs into a struct", s.at(n), name)
			}
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					report(n, e)
				}
			case *ast.IncDecStmt:
				report(n, n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					report(n, n.X)
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && slices.Contains([]string{"delete", "clear", "copy"}, id.Name) {
					report(n, n.Args[0])
				}
			}
			return true
		})
	}
}

// TestGoroutinesHaveAnEnd: a go statement has a comment that says who waits for it, beside it or in its function's doc.
// sync.WaitGroup.Go says it itself.
func TestGoroutinesHaveAnEnd(t *testing.T) {
	for _, s := range program(t) {
		said := map[int]bool{} // lines on which a comment ends, or stands behind code
		for _, g := range s.syntax.Comments {
			said[s.fset.Position(g.End()).Line] = true
		}
		for _, d := range s.syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || strings.Contains(f.Doc.Text(), "wait") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					if line := s.fset.Position(g.Pos()).Line; !said[line] && !said[line-1] {
						t.Errorf("%s: say who waits for this goroutine", s.at(g))
					}
				}
				return true
			})
		}
	}
}
