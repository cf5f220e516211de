package monitor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	errNotRegular = errors.New("not a regular file")
	errOutside    = errors.New("a link out of the workspace")
	errChanging   = errors.New("changing while read")
)

// chunk is how much is read at once: the context is looked at between two chunks, and
// a worker's memory is one chunk.
const chunk = 64 << 10

// maxLinks is how many links one path may lead through, as in Linux.
const maxLinks = 40

// digest is the SHA-256 of the regular file called name in dir, in hex. A file that
// moves while it is read is read once more; if it moves again it is errChanging, so
// that a digest never belongs to a state the file was not in.
//
// The caller has just seen that it is a regular file: to open a FIFO or a device is an
// act of its own. Should it be swapped for one, O_NONBLOCK keeps the open from waiting.
func (d *disk) digest(ctx context.Context, dir int, name string, buf []byte) (string, error) {
	var before, after unix.Stat_t
	fd, err := d.openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for range 2 {
		if err := d.fstat(fd, &before); err != nil {
			return "", err
		}
		if !isType(uint32(before.Mode), unix.S_IFREG) {
			return "", errNotRegular
		}
		sum, err := d.sum(ctx, fd, buf)
		if err != nil {
			return "", err
		}
		if err := d.fstat(fd, &after); err != nil {
			return "", err
		}
		if before.Size == after.Size && before.Mtim == after.Mtim && sameChange(&before, &after) {
			return sum, nil
		}
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			return "", err
		}
	}
	return "", errChanging
}

// sameChange compares the change times, but not where only a link was added or taken
// away: a file removed while it is read has been read whole.
func sameChange(before, after *unix.Stat_t) bool {
	return before.Ctim == after.Ctim || before.Nlink != after.Nlink
}

func (d *disk) sum(ctx context.Context, fd int, buf []byte) (string, error) {
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := d.read(fd, buf)
		if err != nil {
			return "", err
		}
		if n <= 0 {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		h.Write(buf[:n])
	}
}

// resolve follows the path of a link through the workspace, name by name from its
// root, and returns the directory and the name of what it ends at. The caller releases
// the directory. A step out of the workspace is errOutside; what is no regular file in
// the end is errNotRegular.
func (l *look) resolve(path string) (*folder, string, error) {
	trail := []*folder{l.root.retain()}
	defer func() {
		for _, f := range trail {
			f.release()
		}
	}()
	left := strings.Split(path, "/")
	for links := 0; len(left) > 0; {
		if err := l.ctx.Err(); err != nil {
			return nil, "", err
		}
		at, name := trail[len(trail)-1], left[0]
		left = left[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(trail) == 1 {
				return nil, "", errOutside
			}
			at.release()
			trail = trail[:len(trail)-1]
			continue
		}
		var st unix.Stat_t
		if err := l.disk.lstatat(at.fd, name, &st); err != nil {
			return nil, "", err
		}
		switch mode := uint32(st.Mode); {
		case isType(mode, unix.S_IFLNK):
			if links++; links > maxLinks {
				return nil, "", unix.ELOOP
			}
			target, err := l.disk.readlinkat(at.fd, name)
			if err != nil {
				return nil, "", err
			}
			if strings.HasPrefix(target, "/") {
				inside, ok := l.inside(target)
				if !ok {
					return nil, "", errOutside
				}
				target = inside
				for _, f := range trail[1:] {
					f.release()
				}
				trail = trail[:1]
			}
			left = append(strings.Split(target, "/"), left...)
		case isType(mode, unix.S_IFDIR):
			sub, err := l.disk.openFolder(at.fd, name, "", false, unix.O_NOFOLLOW)
			if err != nil {
				return nil, "", err
			}
			trail = append(trail, sub)
		case isType(mode, unix.S_IFREG) && len(left) == 0:
			return at.retain(), name, nil
		default:
			return nil, "", errNotRegular
		}
	}
	return nil, "", errNotRegular // a directory
}

// inside is an absolute link target relative to the workspace, if it lies there.
func (l *look) inside(target string) (string, bool) {
	for _, dir := range l.names() {
		if rest, ok := strings.CutPrefix(target, strings.TrimSuffix(dir, "/")+"/"); ok {
			return rest, true
		}
	}
	return "", false
}
