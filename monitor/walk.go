package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

var (
	errUnmounted = errors.New("was a mounted file system and is not one now")
	errTooDeep   = errors.New("nested too deep")
)

const (
	maxDepth   = 256  // levels of directories; each holds a descriptor while it is walked
	listChunk  = 1024 // directory entries read at once
	maxWorkers = 4
)

// A look is one walk over a workspace, or the part of it that its glob can match.
// Every name ends up in one of three states: in files (present), below or at a name in
// unknown, or in neither (absent).
type look struct {
	ctx           context.Context
	disk          *disk
	dir           string
	glob, exclude *glob
	names         func() []string // of the workspace: as given, and without links
	committed     *observed
	root          *folder
	jobs          chan job

	// Of the walking goroutine alone.
	mounts map[string]bool   // directories that are on another device than their parent; "." is the workspace
	notes  map[string]string // what a person should know though it hides nothing
	learnt bool              // a listing, or a look for one name, that gave an answer

	mu      sync.Mutex // guards what follows
	files   map[string]string
	unknown map[string]error
}

// observed is a committed observation in terms of paths.
type observed struct {
	files  map[string]string // path to digest
	mounts map[string]bool
}

// job is one file to read: name in folder, or where the link of that name leads.
type job struct {
	folder *folder
	name   string
	path   string
	link   bool
}

// place is a directory of the walk with how far its path has come in the globs.
type place struct {
	*folder
	path         string // "" is the workspace
	in, out      cursor // in the glob and in the exclude patterns
	depth        int
	literalNames []string // all that can match here; nil where a listing tells
}

// walk fills the look. An error means that the workspace could not be opened, or ctx ended.
func (l *look) walk() error {
	in := l.glob.start()
	names, direct := l.glob.literals(in)
	root, err := l.disk.openRoot(l.dir, !direct)
	if err != nil {
		return l.rootMissing(err)
	}
	l.root = root
	defer root.release()
	var up unix.Stat_t
	if err := l.disk.lstatat(root.fd, "..", &up); err == nil && uint64(up.Dev) != root.dev {
		l.mounts["."] = true
	} else if l.committed.mounts["."] {
		return errUnmounted
	}

	l.jobs = make(chan job, 64)
	var workers sync.WaitGroup
	for range min(maxWorkers, runtime.GOMAXPROCS(0)) {
		workers.Go(l.work)
	}
	l.walkIn(place{folder: root, in: in, out: l.exclude.start(), literalNames: names})
	close(l.jobs)
	workers.Wait()
	if err := l.ctx.Err(); err != nil {
		return err
	}
	l.missMounts()
	return l.confirm()
}

// rootMissing judges a workspace that cannot be opened: it is gone for good only
// where it was no mount and the directory above it can be read.
func (l *look) rootMissing(err error) error {
	if !absent(err) || len(l.committed.files) == 0 || l.committed.mounts["."] {
		return err
	}
	parent, perr := l.disk.openRoot(filepath.Dir(l.dir), true)
	if perr != nil {
		return err
	}
	defer parent.release()
	if _, lerr := l.disk.list(parent.list, 1); lerr != nil && lerr != io.EOF {
		return err
	}
	l.learnt = true
	l.missMounts()
	return nil
}

func (l *look) walkIn(p place) {
	if p.literalNames != nil {
		for _, name := range p.literalNames {
			l.try(p, name)
		}
		return
	}
	var folders []string
	for {
		if l.ctx.Err() != nil {
			return
		}
		entries, err := l.disk.list(p.list, listChunk)
		for _, e := range entries {
			switch e.Type() {
			case fs.ModeDir:
				folders = append(folders, e.Name())
			case 0, fs.ModeSymlink:
				l.found(p, e.Name(), e.Type() == fs.ModeSymlink)
			}
		}
		if err == io.EOF {
			l.learnt = true
			break
		}
		if err != nil {
			if !absent(err) {
				l.doubt(p.path, err)
			}
			break
		}
	}
	for _, name := range folders {
		l.enter(p, name)
	}
}

// try looks for one name in a directory that is not listed.
func (l *look) try(p place, name string) {
	if l.ctx.Err() != nil {
		return
	}
	path := joinPath(p.path, name)
	var st unix.Stat_t
	err := l.disk.lstatat(p.fd, name, &st)
	mode := uint32(st.Mode)
	switch {
	case err != nil && absent(err) && l.committed.mounts[path]:
		l.doubt(path, errUnmounted)
	case err != nil && absent(err):
		l.learnt = true
	case err != nil:
		l.doubt(path, err)
	case isType(mode, unix.S_IFDIR):
		l.enter(p, name)
	case isType(mode, unix.S_IFREG), isType(mode, unix.S_IFLNK):
		l.learnt = true
		link := isType(mode, unix.S_IFLNK)
		l.found(p, name, link)
		if link && len(l.glob.enter(p.in, name)) > 0 {
			l.notes[path] = "a link, and directories are not looked for behind links"
		}
	default:
		l.learnt = true
	}
}

// found hands a file that matches to the workers.
func (l *look) found(p place, name string, link bool) {
	if ignoredFile(name) || !l.glob.matches(p.in, name) || l.exclude.matches(p.out, name) {
		return
	}
	l.jobs <- job{p.retain(), name, joinPath(p.path, name), link}
}

// enter walks the directory called name, if anything in it can match.
func (l *look) enter(p place, name string) {
	in, out, ok := l.inner(p.in, p.out, name)
	if !ok || l.ctx.Err() != nil {
		return
	}
	path := joinPath(p.path, name)
	if p.depth == maxDepth {
		l.doubt(path, errTooDeep)
		return
	}
	names, direct := l.glob.literals(in)
	f, err := l.disk.openFolder(p.fd, name, filepath.Join(l.dir, path), !direct, unix.O_NOFOLLOW)
	if err != nil {
		if !absent(err) {
			l.doubt(path, err)
		}
		return
	}
	defer f.release()
	if f.dev != p.dev {
		l.mounts[path] = true
	} else if l.committed.mounts[path] {
		l.doubt(path, errUnmounted)
		return
	}
	l.walkIn(place{folder: f, path: path, in: in, out: out, depth: p.depth + 1, literalNames: names})
}

// inner are the cursors inside a directory; ok is false where nothing in it can match.
func (l *look) inner(in, out cursor, name string) (_, _ cursor, ok bool) {
	if ignoredDir(name) || l.exclude.coversBelow(out, name) {
		return nil, nil, false
	}
	in = l.glob.enter(in, name)
	return in, l.exclude.enter(out, name), len(in) > 0
}

// selects reports whether the look would see a file of this path.
func (l *look) selects(path string) bool {
	in, out := l.glob.start(), l.exclude.start()
	dir, name, nested := cutLast(path)
	if nested {
		var ok bool
		if in, out, ok = l.descend(dir); !ok {
			return false
		}
	}
	return !ignoredFile(name) && l.glob.matches(in, name) && !l.exclude.matches(out, name)
}

// descend are the cursors inside the directory of a path; ok is false where the walk
// would not go there.
func (l *look) descend(dir string) (in, out cursor, ok bool) {
	in, out = l.glob.start(), l.exclude.start()
	for name := range strings.SplitSeq(dir, "/") {
		if in, out, ok = l.inner(in, out, name); !ok {
			return nil, nil, false
		}
	}
	return in, out, true
}

// work reads files until there are no more. After ctx ended it only lets go of them.
func (l *look) work() {
	buf := make([]byte, chunk)
	for j := range l.jobs {
		if l.ctx.Err() == nil {
			sum, err := l.read(j, buf)
			l.settle(j.path, sum, err)
		}
		j.folder.release()
	}
}

func (l *look) read(j job, buf []byte) (string, error) {
	if !j.link {
		return l.disk.digest(l.ctx, j.folder.fd, j.name, buf)
	}
	f, name, err := l.resolve(j.path)
	if err != nil {
		return "", err
	}
	defer f.release()
	return l.disk.digest(l.ctx, f.fd, name, buf)
}

// settle puts a path into one of the three states.
func (l *look) settle(path, sum string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.files[path] = sum
	case !absent(err):
		l.unknown[path] = err
	}
}

// doubt makes a directory, or what should be one, unknown with all below it.
func (l *look) doubt(path string, err error) {
	if path == "" {
		path = "."
	}
	l.settle(path, "", err)
}

// missMounts makes unknown what was a mount when it was committed and was not met:
// some tools take the mount point away with the mount.
func (l *look) missMounts() {
	for m := range l.committed.mounts {
		if m == "." || l.mounts[m] || l.inDoubt(m) {
			continue
		}
		if _, _, ok := l.descend(m); ok {
			l.doubt(m, errUnmounted)
		}
	}
}

// inDoubt reports whether a path, or a directory above it, is unknown. The walk has
// ended: the workers' lock is not needed.
func (l *look) inDoubt(path string) bool {
	if _, ok := l.unknown["."]; ok {
		return true
	}
	for {
		if _, ok := l.unknown[path]; ok {
			return true
		}
		dir, _, nested := cutLast(path)
		if !nested {
			return false
		}
		path = dir
	}
}

func cutLast(path string) (dir, name string, nested bool) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:], true
	}
	return "", path, false
}

// describe is a path with what is wrong with it, on one line.
func describe(path, why string) string {
	name := keyOf(path)
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		name = fmt.Sprintf("%q", name)
	}
	return name + ": " + why
}
