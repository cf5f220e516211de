package catalog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"marbles/cmd/internal/strict"
)

// maxFile bounds the size of a definition file, in bytes.
const maxFile = 32 << 20

// lister finds the definition files of sources.
type lister struct {
	euid   int // 0: what others may write is refused
	errors Diagnostics
	files  []string // absolute
}

// list finds the files of a source.
func (l *lister) list(s Source) {
	if s.Path == "" {
		return
	}
	info, err := os.Stat(s.Path)
	switch {
	case err != nil:
		l.fail(s, s.Path, err)
	case info.IsDir():
		l.walk(s, s.Path)
	case info.Mode().IsRegular():
		l.trustFolder(s, filepath.Dir(s.Path))
		l.files = append(l.files, s.Path)
	default:
		l.fail(s, s.Path, errors.New("it is neither a folder nor a file"))
	}
}

// trustFolder checks the folder of a file that is a source by itself: who may write the folder can put another file in
// its place.
func (l *lister) trustFolder(s Source, dir string) {
	if l.euid != 0 {
		return
	}
	info, err := os.Stat(dir)
	if err != nil {
		l.fail(s, dir, err)
	} else if untrusted := strict.Trust(dir, info, l.euid); untrusted != nil {
		l.errors = append(l.errors, strict.Whole(display(s, dir), untrusted.Error()))
	}
}

func (l *lister) walk(s Source, dir string) {
	f, err := strict.OpenDir(dir)
	if err != nil {
		l.fail(s, dir, err)
		return
	}
	entries, err := f.ReadDir(-1)
	if err == nil && l.euid == 0 {
		var info fs.FileInfo
		if info, err = f.Stat(); err == nil {
			if untrusted := strict.Trust(dir, info, l.euid); untrusted != nil {
				l.errors = append(l.errors, strict.Whole(display(s, dir), untrusted.Error()))
			}
		}
	}
	f.Close()
	if err != nil {
		l.fail(s, dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case isSkipped(e.Name()) || e.Type()&fs.ModeSymlink != 0:
		case e.IsDir():
			if !isState(dir, e) {
				l.walk(s, path)
			}
		case !isDefinition(e.Name()):
		case e.Type().IsRegular():
			l.files = append(l.files, path)
		default:
			l.fail(s, path, errors.New("it is no regular file"))
		}
	}
}

func (l *lister) fail(s Source, path string, err error) {
	l.errors = append(l.errors, strict.Whole(display(s, path), "cannot read: "+reason(err).Error()))
}

// sorted is the files found, each once, in reading order: by their whole path, bytewise.
func (l *lister) sorted() []string {
	slices.Sort(l.files)
	return slices.Compact(l.files)
}

// display is a path as messages show it: relative to the workspace where it lies in it, and valid UTF-8.
func display(s Source, path string) string { return strict.UTF8(relative(s, path)) }

func relative(s Source, path string) string {
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(s.Workspace, "/")+"/"); ok && s.Workspace != "" && rest != "" {
		return rest
	}
	return path
}

// reason is an error without the path that the message names already.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// read reads a definition file, and its permissions. euid 0 refuses one that others may write.
func read(path string, euid int) ([]byte, fs.FileMode, error) {
	f, info, err := strict.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read: %w", reason(err))
	}
	defer f.Close()
	if err := strict.Trust(path, info, euid); err != nil {
		return nil, 0, err
	}
	if info.Size() <= maxFile {
		data := make([]byte, 0, info.Size()+1)
		if data, err = readAll(data, f); err != nil {
			return nil, 0, fmt.Errorf("cannot read: %w", reason(err))
		}
		if len(data) <= maxFile {
			return data, info.Mode().Perm(), nil
		}
	}
	return nil, 0, fmt.Errorf("file is larger than %d MiB", maxFile>>20)
}

// readAll reads at most one byte more than a file may have.
func readAll(data []byte, r io.Reader) ([]byte, error) {
	for len(data) <= maxFile {
		if len(data) == cap(data) {
			data = slices.Grow(data, 64<<10)
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}
