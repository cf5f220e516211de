package monitor

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// confirm looks by name for each committed file that the walk did not see. A listing
// may pass over a name that is being replaced, and a link may be read at the instant
// its target moves; neither may read as removed.
func (l *look) confirm() error {
	missing := map[string][]string{} // names by directory
	l.unseen(func(path string) {
		if l.root != nil && l.selects(path) && !l.inDoubt(path) {
			dir, name, _ := cutLast(path)
			missing[dir] = append(missing[dir], name)
		}
	})
	var r reader
	var more []*scan // of directories in which the walk found nothing
	for dir, names := range missing {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		again := l.lookFor(dir, names, &r)
		switch s := l.scanOf(dir); {
		case len(again.files) == 0:
		case s == nil:
			more = append(more, again)
		default:
			s.put(again.files)
		}
	}
	for _, s := range more {
		s.finish()
	}
	l.scans = append(l.scans, more...)
	slices.SortFunc(l.scans, func(a, b *scan) int { return strings.Compare(a.path, b.path) })
	return l.ctx.Err()
}

// lookFor is what there is of some names in a directory.
func (l *look) lookFor(dir string, names []string, r *reader) *scan {
	s := &scan{path: dir, old: l.memory.dir(dir)}
	at, err := l.openDir(dir)
	if err == nil {
		s.at = at
		defer at.release()
	}
	for _, name := range names {
		var st unix.Stat_t
		if s.at != nil {
			err = l.disk.lstatat(at.fd, name, &st)
		}
		f := found{name: name, kind: unix.DT_REG}
		if isType(&st, unix.S_IFLNK) {
			f.kind = unix.DT_LNK
		}
		switch {
		case err != nil && !absent(err):
			l.doubt(joinPath(dir, name), err)
		case err == nil && (isType(&st, unix.S_IFREG) || isType(&st, unix.S_IFLNK)):
			l.see(s, &f, r)
			if s.known(&f) != nil {
				s.files = append(s.files, f)
			}
		}
	}
	s.at = nil
	return s
}

// put adds files that the scan had missed.
func (s *scan) put(files []found) {
	if s.same {
		s.same = false
		for i := range s.old.files {
			s.files = append(s.files, found{name: s.old.name(i), old: int32(i) + 1})
		}
	}
	s.files = append(s.files, files...)
	s.finish()
}

// openDir opens a directory of the workspace without following a link.
func (l *look) openDir(dir string) (*folder, error) {
	at := l.root.retain()
	if dir == "" {
		return at, nil
	}
	for name := range strings.SplitSeq(dir, "/") {
		sub, err := l.disk.openFolder(at.fd, name, false, unix.O_NOFOLLOW)
		at.release()
		if err != nil {
			return nil, err
		}
		at = sub
	}
	return at, nil
}
