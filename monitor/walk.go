package monitor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"marbles/state"
)

var (
	errUnmounted = errors.New("was a mounted file system and is not one now")
	errTooDeep   = errors.New("nested too deep")
)

const (
	maxDepth   = 256 // levels of directories; each may hold a descriptor while it is walked
	maxWorkers = 4
	together   = 128 // files that one task looks at
)

// A look is one walk over a workspace, or the part of it that its glob can match.
// Every name ends up in one of three states: found in a scan (present), below or at a name in
// unknown, or in neither (absent).
type look struct {
	ctx           context.Context
	disk          *disk
	dir           string
	glob, exclude *glob
	names         func() []string // of the workspace: as given, and without links
	honour        bool            // .gitignore files
	memory        *memory         // from the look before; never nil
	committed     Committed
	prev          *state.MonitorRecord // what was committed, once it is loaded
	base          baseline             // the same
	calm          bool                 // all is as it was committed, and prev is not loaded
	failed        error                // why it could not be loaded
	now           time.Time
	reread        time.Duration // a digest older than this is not trusted
	how           lookHow
	batch         *batch // what is shared with other looks; nil for nothing
	pool          *pool
	root          *folder
	learnt        atomic.Bool // a listing, or a look for one name, that gave an answer

	mu      sync.Mutex // guards what follows until the walk has ended
	scans   []*scan    // sorted by path when the walk has ended
	mounts  map[string]bool
	notes   map[string]string // what a person should know though it hides nothing
	unknown map[string]error
	moving  map[string]int // see memory
	ignores map[string]ignoreFile
}

// lookHow is how a look differs from the usual one.
type lookHow struct {
	statOnly   bool // read nothing: each file found has a signature and no digest
	distrust   bool // read everything
	takeMoving bool // take the digest of what was read from a file that changes while it is read
}

// A place is a directory of the walk with how far its path has come in the globs.
type place struct {
	*folder
	path    string // "" is the workspace
	in, out cursor // in the glob and in the exclude patterns
	rules   *ignoreStack
	depth   int
	only    []string // all names that can match here; nil where a listing tells
}

// A scan is what a look saw of the files of one directory.
type scan struct {
	path  string
	at    *folder
	old   *knownDir    // as remembered; may be nil
	files []found      // sorted by name when the walk has ended; nil if same
	left  atomic.Int32 // tasks that have not ended
	same  bool         // the files are those of old, each unchanged
}

// found is a name that the glob selects. It is present if one of old and now says so.
type found struct {
	name string
	kind uint8  // unix.DT_REG or DT_LNK
	old  int32  // 1 + its index in the scan's old directory, where that still holds
	now  *known // what was learnt in this look
}

func (s *scan) known(f *found) *known {
	if f.old > 0 {
		return &s.old.files[f.old-1]
	}
	return f.now
}

// A task is a directory to enter, or some files of a scan to look at. It holds its folder.
type task struct {
	place
	name string // of the directory; "" for files of scan
	scan *scan
	from int
	to   int
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
	} else if l.base.mounts["."] {
		return errUnmounted
	}
	l.pool = newPool(maxWorkers, l.do)
	var r reader
	l.walkIn(place{folder: root, in: in, out: l.exclude.start(), only: names}, &r)
	l.pool.wait()
	slices.SortFunc(l.scans, func(a, b *scan) int { return strings.Compare(a.path, b.path) })
	if err := l.ctx.Err(); err != nil {
		return err
	}
	return l.judge()
}

// judge brings together what was seen and what was committed. Where all is as it was there is no need to load that.
func (l *look) judge() error {
	l.missMounts()
	if l.base.memory != nil {
		if l.calm = l.asCommitted(); l.calm {
			return nil
		}
		if l.failed = l.load(); l.failed != nil {
			return l.failed
		}
		l.missMounts()
	}
	return l.confirm()
}

// load loads what was committed.
func (l *look) load() (err error) {
	if l.prev, err = l.committed.load(); err == nil {
		l.base = newBaseline(l.prev)
	}
	return err
}

// rootMissing judges a workspace that cannot be opened: it is gone for good only
// where it was no mount and the directory above it can be read.
func (l *look) rootMissing(err error) error {
	if !absent(err) || l.base.empty() || l.base.mounts["."] {
		return err
	}
	parent, perr := l.disk.openRoot(filepath.Dir(l.dir), true)
	if perr != nil {
		return err
	}
	defer parent.release()
	if _, lerr := l.disk.list(l.ctx, parent.fd); lerr != nil {
		return err
	}
	l.learnt.Store(true)
	return l.judge()
}

// do does a task. After ctx ended it only lets go of what the task holds.
func (l *look) do(t task, r *reader) {
	defer t.release()
	switch {
	case l.ctx.Err() != nil:
	case t.scan == nil:
		l.enter(t.place, t.name, r)
	default:
		for i := t.from; i < t.to; i++ {
			if l.ctx.Err() != nil {
				return
			}
			l.see(t.scan, &t.scan.files[i], r)
		}
		if t.scan.left.Add(-1) == 0 {
			t.scan.finish()
		}
	}
}

// walkIn looks into a directory that is open. It hands on what is in it.
func (l *look) walkIn(p place, r *reader) {
	if l.honour {
		rules, err := l.rulesIn(p, r)
		if err != nil {
			// Without its rules nothing can be said of what is in there.
			l.doubt(p.path, errors.New("cannot read its .gitignore: "+reason(err)))
			return
		}
		p.rules = p.rules.push(p.path, rules)
	}
	files, tasks, err := l.split(p)
	if err != nil {
		if !absent(err) && l.ctx.Err() == nil {
			l.doubt(p.path, err)
		}
		return
	}
	if len(files) > 0 {
		s := &scan{path: p.path, at: p.folder, files: files, old: l.memory.dir(p.path)}
		pieces := (len(files) + together - 1) / together
		s.left.Store(int32(pieces))
		for i := range pieces {
			tasks = append(tasks, task{place: p, scan: s, from: i * together, to: min(len(files), (i+1)*together)})
		}
		l.mu.Lock()
		l.scans = append(l.scans, s)
		l.mu.Unlock()
	}
	for range tasks {
		p.retain()
	}
	// The files come last and so are done first: their directory can be closed before others are opened.
	l.pool.add(tasks...)
}

// split says which names in a directory are files that the glob selects, and which are directories to enter.
func (l *look) split(p place) (files []found, folders []task, err error) {
	names, kinds := p.only, []uint8(nil)
	if p.only == nil {
		all, err := l.list(p)
		if err != nil {
			return nil, nil, err
		}
		l.learnt.Store(true)
		names, kinds = all.names, all.kinds
	}
	for i, name := range names {
		kind := uint8(unix.DT_UNKNOWN)
		if kinds != nil {
			kind = kinds[i]
		}
		if kind == unix.DT_UNKNOWN {
			kind = l.kindOf(p, name)
		}
		switch kind {
		case unix.DT_DIR:
			if in, out, ok := l.inner(p.in, p.out, name); ok && !p.rules.ignored(p.path, name, true) {
				inside := p
				inside.in, inside.out = in, out
				folders = append(folders, task{place: inside, name: name})
			}
		case unix.DT_REG, unix.DT_LNK:
			if !l.wants(p, name) || p.rules.ignored(p.path, name, false) {
				continue
			}
			if files == nil {
				files = make([]found, 0, len(names)-i)
			}
			files = append(files, found{name: name, kind: kind})
		}
	}
	return files, folders, nil
}

// kindOf looks for one name, and says what it is where the listing does not, or there is none.
func (l *look) kindOf(p place, name string) uint8 {
	if _, _, ok := l.inner(p.in, p.out, name); !ok && !l.wants(p, name) {
		return unix.DT_CHR // whatever it is, it is of no use
	}
	path := joinPath(p.path, name)
	var st unix.Stat_t
	err := l.disk.lstatat(p.fd, name, &st)
	switch {
	case err != nil && absent(err) && l.base.mounts[path]:
		l.doubt(path, errUnmounted)
	case err != nil && absent(err):
		l.learnt.Store(true)
	case err != nil:
		l.doubt(path, err)
	case isType(&st, unix.S_IFDIR):
		return unix.DT_DIR
	case isType(&st, unix.S_IFREG):
		l.learnt.Store(true)
		return unix.DT_REG
	case isType(&st, unix.S_IFLNK):
		l.learnt.Store(true)
		if p.only != nil && len(l.glob.enter(p.in, name)) > 0 {
			l.mu.Lock()
			l.notes[path] = "a link, and directories are not looked for behind links"
			l.mu.Unlock()
		}
		return unix.DT_LNK
	default:
		l.learnt.Store(true)
	}
	return unix.DT_CHR
}

// wants reports whether a file of this name is selected, as far as the patterns say.
func (l *look) wants(p place, name string) bool {
	return !ignoredFile(name) && l.glob.matches(p.in, name) && !l.exclude.matches(p.out, name)
}

// enter walks the directory called name. The cursors of p are those inside it, all else is outside.
func (l *look) enter(p place, name string, r *reader) {
	path := joinPath(p.path, name)
	if p.depth == maxDepth {
		l.doubt(path, errTooDeep)
		return
	}
	names, direct := l.glob.literals(p.in)
	f, err := l.disk.openFolder(p.fd, name, !direct, unix.O_NOFOLLOW)
	if err != nil {
		if !absent(err) {
			l.doubt(path, err)
		}
		return
	}
	defer f.release()
	if f.dev != p.dev {
		l.mu.Lock()
		l.mounts[path] = true
		l.mu.Unlock()
	} else if l.base.mounts[path] {
		l.doubt(path, errUnmounted)
		return
	}
	l.walkIn(place{folder: f, path: path, in: p.in, out: p.out, rules: p.rules, depth: p.depth + 1, only: names}, r)
}

// inner are the cursors inside a directory; ok is false where nothing in it can match.
func (l *look) inner(in, out cursor, name string) (_, _ cursor, ok bool) {
	if ignoredDir(name) || l.exclude.coversBelow(out, name) {
		return nil, nil, false
	}
	in = l.glob.enter(in, name)
	return in, l.exclude.enter(out, name), len(in) > 0
}

// selects reports whether the look would see a file of this path. The walk has ended.
func (l *look) selects(path string) bool {
	dir, name, _ := cutLast(path)
	p, ok := l.descend(dir)
	return ok && l.wants(p, name) && !l.ignored(p, name, false)
}

// ignored is for a name that the walk need not have come to. In a directory that is unknown the rules are unknown too,
// and none of those above it decides: a deeper one may bring the name back.
func (l *look) ignored(p place, name string, isDir bool) bool {
	return p.rules.ignored(p.path, name, isDir) && !l.inDoubt(p.path)
}

// descend is the inside of the directory of a path; ok is false where the walk would not go there.
func (l *look) descend(dir string) (p place, ok bool) {
	p = place{in: l.glob.start(), out: l.exclude.start()}
	p.rules = p.rules.push("", l.ignores[""].rules)
	if dir == "" {
		return p, true
	}
	for name := range strings.SplitSeq(dir, "/") {
		if p.in, p.out, ok = l.inner(p.in, p.out, name); !ok || l.ignored(p, name, true) {
			return p, false
		}
		p.path = joinPath(p.path, name)
		p.rules = p.rules.push(p.path, l.ignores[p.path].rules)
	}
	return p, true
}

// doubt makes a path unknown with all below it.
func (l *look) doubt(path string, err error) {
	if path == "" {
		path = "."
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unknown[path] = err
}

// missMounts makes unknown what was a mount when it was committed and was not met:
// some tools take the mount point away with the mount.
func (l *look) missMounts() {
	for m := range l.base.mounts {
		if m == "." || l.mounts[m] || l.inDoubt(m) {
			continue
		}
		if _, ok := l.descend(m); ok {
			l.doubt(m, errUnmounted)
		}
	}
}

// inDoubt reports whether a path, or a directory above it, is unknown. The walk has ended.
func (l *look) inDoubt(path string) bool {
	if len(l.unknown) == 0 {
		return false
	}
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

// describe is a path with what is wrong with it, on one line.
func describe(path, why string) string {
	name := keyOf(path)
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		name = fmt.Sprintf("%q", name)
	}
	return name + ": " + why
}
