package catalog

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"marbles/cmd/internal/strict"
)

// Load reads one or more sources of one workspace as one catalog. On error the error is Diagnostics (all of them).
func Load(sources []Source, o Options) (*Catalog, error) {
	euid := -1
	if o.Running {
		euid = os.Geteuid()
	}
	l := lister{euid: euid}
	for _, s := range sources {
		l.list(s)
	}
	c := &Catalog{Sources: sources, Files: l.sorted()}
	cadences := newCadences(o)
	files := make([]*file, len(c.Files))
	parallel(len(c.Files), func(i int) {
		path := c.Files[i]
		files[i] = loadFile(path, sourceOf(sources, path), cadences, euid)
	})
	errors := l.errors
	for _, f := range files {
		errors = append(errors, f.errors...)
		c.Warnings = append(c.Warnings, f.warnings...)
	}
	k := linker{Catalog: c, files: files, incomplete: len(l.errors) > 0}
	k.link()
	if errors = append(errors, k.errors...); len(errors) > 0 {
		errors.Sort()
		return nil, errors
	}
	Diagnostics(c.Warnings).Sort()
	return c, nil
}

// parallel calls f for 0..n-1 on as many goroutines as there are processors, and returns when all have ended.
func parallel(n int, f func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wait.Wait()
}

// sourceOf is the source a file was found in, the nearest where several hold it.
func sourceOf(sources []Source, path string) Source {
	var found Source
	for _, s := range sources {
		if relative(Source{Workspace: s.Path}, path) != path || s.Path == path {
			if len(s.Path) >= len(found.Path) {
				found = s
			}
		}
	}
	return found
}

// loadFile reads one file.
func loadFile(path string, s Source, cadences *cadences, euid int) *file {
	f := &file{name: display(s, path)}
	data, err := read(path, euid)
	if err != nil {
		f.errors = Diagnostics{strict.Whole(f.name, err.Error())}
		f.broken = true
		return f
	}
	doc := strict.Parse(f.name, data)
	d := decoder{Document: doc, file: f, workspace: s.Workspace, cadences: cadences, names: make(map[string]string)}
	if doc.Root != nil {
		d.decode(doc.Root)
	}
	f.errors, f.warnings, f.broken = doc.Errors, doc.Warnings, doc.Broken
	return f
}
