package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"marbles/state"
)

// folder is where definitions lie below a project directory.
const folder = ".foundry/marbles"

// Source is where definitions come from and whose they are.
type Source struct {
	Workspace string // project directory, absolute, symbolic links resolved
	Path      string // the folder or single file that holds the definitions; "" for none
}

// Locate resolves a --source value: "" is ./.foundry/marbles of cwd or of its nearest parent that has one, else
// cwd itself (design §3; spec §1: with no source found the root is the working directory, and the catalog is empty).
// A folder is its own workspace (one that has a .foundry/marbles keeps its definitions there), a file's folder is its
// workspace; but a source that is, or lies in, a .foundry/marbles folder
// belongs to the project above it. A path that does not exist is an error with a hint.
//
// A .foundry/marbles that is only a state root (its default place is the home directory's) is no source unless named.
func Locate(path, cwd string) (Source, error) {
	if path == "" {
		return search(cwd)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	path = filepath.Clean(path)
	resolved, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, state.Hint(fmt.Errorf("cannot find source %s: %w", path, fs.ErrNotExist),
			"marbles init writes a first one to ./"+folder)
	}
	if err != nil {
		return Source{}, fmt.Errorf("cannot find source %s: %w", path, err)
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return Source{}, fmt.Errorf("cannot find source %s: %w", path, err)
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
			return Source{}, fmt.Errorf("cannot find source %s: %w", path, err)
		}
		return Source{Workspace: project, Path: filepath.Join(project, below)}, nil
	}
	if info.IsDir() {
		// A project named by its own folder: its definitions lie where they do without --source.
		own := filepath.Join(resolved, folder)
		if info, err := os.Stat(own); err == nil && info.IsDir() {
			if only, err := onlyState(own); err == nil && !only {
				return Source{Workspace: resolved, Path: own}, nil
			}
		}
		return Source{Workspace: resolved, Path: resolved}, nil
	}
	return Source{Workspace: filepath.Dir(resolved), Path: resolved}, nil
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

func search(cwd string) (Source, error) {
	cwd, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return Source{}, fmt.Errorf("cannot find the working directory: %w", err)
	}
	for dir := cwd; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, folder)
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			only, err := onlyState(path)
			if err != nil {
				return Source{}, fmt.Errorf("cannot read source %s: %w", path, err)
			}
			if !only {
				return Source{Workspace: dir, Path: path}, nil
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !isNotDir(err):
			return Source{}, fmt.Errorf("cannot look for source %s: %w", path, err)
		}
		if dir == filepath.Dir(dir) {
			return Source{Workspace: cwd}, nil
		}
	}
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
