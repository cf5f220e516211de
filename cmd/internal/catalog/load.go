package catalog

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"marbles/cmd/internal/strict"
)

// Load reads one or more sources of one workspace as one catalog. On error the error is Diagnostics (all of them).
func Load(sources []Source, o Options) (*Catalog, error) {
	all := newLoading(o)
	l := lister{euid: all.euid}
	for _, s := range sources {
		l.list(s)
	}
	c := &Catalog{Sources: sources, Files: l.sorted()}
	files := make([]*file, len(c.Files))
	parallel(len(c.Files), func(i int) {
		path := c.Files[i]
		files[i] = loadFile(path, sourceOf(sources, path), all)
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

// loading is what the files of one load have in common. It is safe for concurrent use.
type loading struct {
	cadences    *cadences
	euid        int // 0: what others may write is refused
	credentials string
	environment []string // the service's own
	shared      *Shared
}

func newLoading(o Options) *loading {
	all := &loading{cadences: newCadences(o), euid: -1, credentials: o.Credentials, environment: o.Env,
		shared: o.Shared}
	if o.Running {
		all.euid = os.Geteuid()
	}
	if all.shared == nil {
		all.shared = new(Shared)
	}
	return all
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
func loadFile(path string, s Source, all *loading) *file {
	f := &file{name: display(s, path)}
	data, mode, err := read(path, all.euid)
	if err != nil {
		f.errors = Diagnostics{strict.Whole(f.name, err.Error())}
		f.broken = true
		return f
	}
	return parseFile(f.name, data, mode, s, all)
}

// parseFile turns a file's bytes into what they declare. mode is the file's permissions.
func parseFile(name string, data []byte, mode fs.FileMode, s Source, all *loading) *file {
	f := &file{name: name}
	doc := strict.Parse(name, data)
	d := decoder{
		Document: doc, file: f, workspace: s.Workspace, exposed: mode&0o004 != 0, loading: all, names: make(map[string]string),
	}
	if doc.Root != nil {
		d.decode(doc.Root)
	}
	f.errors, f.warnings, f.broken = doc.Errors, doc.Warnings, doc.Broken
	return f
}
