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
	var missing []string
	for path := range l.committed.files {
		if _, seen := l.files[path]; !seen && l.root != nil && l.selects(path) && !l.inDoubt(path) {
			missing = append(missing, path)
		}
	}
	slices.Sort(missing) // so that files of one directory follow each other
	var last struct {
		dir string
		at  *folder
		err error
	}
	defer func() {
		if last.at != nil {
			last.at.release()
		}
	}()
	buf := make([]byte, chunk)
	for _, path := range missing {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		dir, name, _ := cutLast(path)
		if last.at == nil && last.err == nil || last.dir != dir {
			if last.at != nil {
				last.at.release()
			}
			last.dir = dir
			last.at, last.err = l.openDir(dir)
		}
		if last.err != nil {
			l.settle(path, "", last.err)
			continue
		}
		sum, err := l.readAt(last.at, name, path, buf)
		l.settle(path, sum, err)
	}
	return l.ctx.Err()
}

// openDir opens a directory of the workspace without following a link.
func (l *look) openDir(dir string) (*folder, error) {
	at := l.root.retain()
	if dir == "" {
		return at, nil
	}
	for name := range strings.SplitSeq(dir, "/") {
		sub, err := l.disk.openFolder(at.fd, name, "", false, unix.O_NOFOLLOW)
		at.release()
		if err != nil {
			return nil, err
		}
		at = sub
	}
	return at, nil
}

func (l *look) readAt(at *folder, name, path string, buf []byte) (string, error) {
	var st unix.Stat_t
	if err := l.disk.lstatat(at.fd, name, &st); err != nil {
		return "", err
	}
	link := isType(uint32(st.Mode), unix.S_IFLNK)
	if !link && !isType(uint32(st.Mode), unix.S_IFREG) {
		return "", errNotRegular
	}
	return l.read(job{folder: at, name: name, path: path, link: link}, buf)
}
