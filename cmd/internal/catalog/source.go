package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/state"
)

// folder is where definitions lie below a project directory.
const folder = ".foundry/marbles"

// Source is where definitions come from and whose they are.
type Source struct {
	Workspace string // project directory, absolute, symbolic links resolved
	Path      string // the folder or single file that holds the definitions; "" for none
}

// ErrSource is wrapped by every error of [Locate]: what was named, or found, cannot be a source.
var ErrSource = errors.New("source cannot be used")

// sourceError is why a source cannot be used. Its text is safe for a terminal, whatever the path is.
type sourceError struct{ err error }

func (e *sourceError) Error() string   { return strict.OneLine(e.err.Error()) }
func (e *sourceError) Unwrap() []error { return []error{ErrSource, e.err} }

// Config is Path as records keep it: nil for none.
func (s Source) Config() *string {
	if s.Path == "" {
		return nil
	}
	return &s.Path
}

// Locate resolves a --source value: "" is ./.foundry/marbles of cwd or of its nearest parent that has one, else
// cwd itself (design §3; spec §1: with no source found the root is the working directory, and the catalog is empty).
// A folder is its own workspace (one that has a .foundry/marbles keeps its definitions there), a file's folder is its
// workspace; but a source that is, or lies in, a .foundry/marbles folder
// belongs to the project above it. A path that does not exist is an error with a hint.
//
// A .foundry/marbles that is only a state root (its default place is the home directory's) is no source unless named.
// One that is there and cannot be read is an error: another further up, or none, would be a guess.
//
// cwd is absolute, or "" where the working directory was removed; then what needs it is an error.
func Locate(path, cwd string) (Source, error) {
	var s Source
	var err error
	switch {
	case cwd == "" && !filepath.IsAbs(path):
		err = errors.New("cannot find the working directory: it was removed, or cannot be reached")
	case path == "":
		s, err = search(cwd)
	case filepath.IsAbs(path):
		s, err = named(filepath.Clean(path))
	default:
		s, err = named(filepath.Join(cwd, path))
	}
	if err != nil {
		return Source{}, &sourceError{err}
	}
	return s, nil
}

// named is the source of an absolute path.
func named(path string) (Source, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, state.Hint(fmt.Errorf("cannot find source %s: %w", path, fs.ErrNotExist),
			"marbles init writes a first one to ./"+folder)
	}
	if err != nil {
		return Source{}, fmt.Errorf("cannot find source %s: %w", path, reason(err))
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return Source{}, fmt.Errorf("cannot find source %s: %w", path, reason(err))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return Source{}, fmt.Errorf("cannot use source %s: it is neither a folder nor a file", path)
	}
	// Under the name it was given by first: the folder itself may be a link to elsewhere.
	for _, name := range []string{path, resolved} {
		project, below, ok := splitProject(name)
		if !ok {
			continue
		}
		if project, err = filepath.EvalSymlinks(project); err != nil {
			return Source{}, fmt.Errorf("cannot find source %s: %w", path, reason(err))
		}
		return Source{Workspace: project, Path: filepath.Join(project, below)}, nil
	}
	if !info.IsDir() {
		return Source{Workspace: filepath.Dir(resolved), Path: resolved}, nil
	}
	own, ok, err := definitions(resolved)
	if err != nil {
		return Source{}, err
	}
	if ok { // a project named by its own folder: its definitions lie where they do without --source
		return Source{Workspace: resolved, Path: own}, nil
	}
	return Source{Workspace: resolved, Path: resolved}, nil
}

// splitProject splits a path that is, or lies in, a .foundry/marbles folder into the project above it and the rest.
// The innermost such folder counts.
func splitProject(path string) (project, below string, ok bool) {
	mark := string(filepath.Separator) + filepath.FromSlash(folder)
	i := strings.LastIndex(path+string(filepath.Separator), mark+string(filepath.Separator))
	if i < 0 {
		return "", "", false
	}
	project = path[:i]
	if project == "" {
		project = string(filepath.Separator)
	}
	return project, path[i+1:], true
}

// search looks for a source in a directory and those above it.
func search(cwd string) (Source, error) {
	cwd, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return Source{}, fmt.Errorf("cannot find the working directory: %w", err)
	}
	for dir := cwd; ; dir = filepath.Dir(dir) {
		path, ok, err := definitions(dir)
		switch {
		case err != nil:
			return Source{}, state.Hint(err, "give --source to name another")
		case ok:
			return Source{Workspace: dir, Path: path}, nil
		case dir == filepath.Dir(dir):
			return Source{Workspace: cwd}, nil
		}
	}
}

// definitions finds the .foundry/marbles of a project directory; ok is false where it has none, or one that is only a
// state root.
func definitions(project string) (path string, ok bool, err error) {
	path = filepath.Join(project, folder)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", false, dangling(filepath.Dir(path), path)
	case isNotDir(err) || err == nil && !info.IsDir():
		return "", false, nil
	}
	only := false
	if err == nil {
		only, err = onlyState(path)
	}
	if err != nil {
		return "", false, fmt.Errorf("cannot read source %s: %w", path, reason(err))
	}
	return path, !only, nil
}

// dangling is an error for the first of the paths that is a link to nothing: what it should lead to is not mounted, say.
func dangling(paths ...string) error {
	for _, path := range paths {
		if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("cannot read source %s: it is a link to nothing", path)
		}
	}
	return nil
}

// onlyState tells whether a folder is a state root that holds no definitions.
func onlyState(path string) (bool, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, err
	}
	found := false
	for _, e := range entries {
		switch {
		case isState(path, e):
			found = true
		case e.IsDir() || isDefinition(e.Name()):
			return false, nil
		}
	}
	return found, nil
}

// isState tells whether a directory entry is a workspace's directory below a state root: 12 hex digits and a
// workspace.json inside.
func isState(dir string, e fs.DirEntry) bool {
	if len(e.Name()) != 12 || strings.Trim(e.Name(), "0123456789abcdef") != "" || !e.IsDir() {
		return false
	}
	_, err := os.Lstat(filepath.Join(dir, e.Name(), "workspace.json"))
	return err == nil
}

// isDefinition tells by its name whether a file holds definitions.
func isDefinition(name string) bool {
	return !isSkipped(name) && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

func isSkipped(name string) bool { return name[0] == '_' || name[0] == '.' }
