package monitor

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var (
	errNotRegular = errors.New("not a regular file")
	errOutside    = errors.New("a link out of the workspace")
	errChanging   = errors.New("changing while read")
	errGrowing    = errors.New("growing while read")
)

// chunk is how much is read at once: the context is looked at between two chunks, and
// a worker's memory is one chunk.
const chunk = 64 << 10

// maxLinks is how many links one path may lead through, as in Linux.
const maxLinks = 40

// reader is what reading takes, of one goroutine. The zero value is ready.
type reader struct {
	buf  []byte
	hash hash.Hash
	st   unix.Stat_t
}

// open opens a file to read it. The caller has just seen that it is a regular file: to open a FIFO or a device is an act of
// its own. Should it be swapped for one, O_NONBLOCK keeps the open from waiting, and errNotRegular is returned.
func (d *disk) open(dir int, name string, st *unix.Stat_t) (fd int, err error) {
	fd, err = d.openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_NOCTTY)
	if err != nil {
		return -1, err
	}
	err = d.fstat(fd, st)
	if err == nil && !isType(st, unix.S_IFREG) {
		err = errNotRegular
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// digest reads the regular file called name in dir. With errChanging the file was written meanwhile: the digest is of what
// was read, which may be no state the file ever had; with errGrowing, as a log does, it is of what the file was at first,
// if it was only added to.
func (d *disk) digest(ctx context.Context, dir int, name string, r *reader) (known, error) {
	observed := d.now() // before the first look at the times: see racy
	var before, after unix.Stat_t
	fd, err := d.open(dir, name, &before)
	if err != nil {
		return known{}, err
	}
	defer unix.Close(fd)
	k := known{sig: signatureOf(&before), read: seconds(observed)}
	if racy(&before, observed) {
		k.state = suspect
	}
	if k.digest, err = d.sum(ctx, fd, before.Size, r); err != nil {
		return known{}, err
	}
	// A stat after the read alone would put the digest of an old content beside the signature of a new one, for good.
	if err := d.fstat(fd, &after); err != nil {
		return known{}, err
	}
	now := signatureOf(&after)
	if now == k.sig {
		return k, nil
	}
	k.state = suspect
	if now.ctime != k.sig.ctime && before.Nlink != after.Nlink {
		now.ctime = k.sig.ctime // a link was added or taken away: a file removed while it is read has been read whole
	}
	switch {
	case now == k.sig:
		return k, nil
	case now.size > k.sig.size && k.sig.size > 0:
		return k, errGrowing
	}
	return k, errChanging
}

func seconds(t time.Time) uint32 { return uint32(max(0, t.Unix())) }

// sum reads to the end. A file that gives as much as it said is at its end: what came since shows in its signature.
func (d *disk) sum(ctx context.Context, fd int, size int64, r *reader) (digest [sha256.Size]byte, err error) {
	if r.hash == nil {
		r.hash, r.buf = sha256.New(), make([]byte, chunk)
	}
	r.hash.Reset()
	for total := int64(0); total == 0 || total != size; {
		if err := ctx.Err(); err != nil {
			return digest, err
		}
		p := r.buf
		if left := size - total; left > 0 && left < int64(len(p)) {
			p = p[:left] // not what was added since, of which there might be no end
		}
		n, err := d.read(fd, p)
		if err != nil {
			return digest, err
		}
		if n <= 0 {
			break
		}
		r.hash.Write(p[:n])
		total += int64(n)
	}
	r.hash.Sum(digest[:0])
	return digest, nil
}

// target is where a link leads to: a regular file inside the workspace.
type target struct {
	at   *folder // the caller releases it
	name string
	st   unix.Stat_t
}

// resolve follows the path of a link through the workspace, name by name from its root. A step out of the workspace is
// errOutside; what is no regular file in the end is errNotRegular.
func (l *look) resolve(path string) (target, error) {
	trail := []*folder{l.root.retain()}
	defer func() {
		for _, f := range trail {
			f.release()
		}
	}()
	left := strings.Split(path, "/")
	for links := 0; len(left) > 0; {
		if err := l.ctx.Err(); err != nil {
			return target{}, err
		}
		at, name := trail[len(trail)-1], left[0]
		left = left[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(trail) == 1 {
				return target{}, errOutside
			}
			at.release()
			trail = trail[:len(trail)-1]
			continue
		}
		var st unix.Stat_t
		if err := l.disk.lstatat(at.fd, name, &st); err != nil {
			return target{}, err
		}
		switch {
		case isType(&st, unix.S_IFLNK):
			if links++; links > maxLinks {
				return target{}, unix.ELOOP
			}
			to, err := l.disk.readlinkat(at.fd, name)
			if err != nil {
				return target{}, err
			}
			if strings.HasPrefix(to, "/") {
				inside, ok := l.inside(to)
				if !ok {
					return target{}, errOutside
				}
				to = inside
				for _, f := range trail[1:] {
					f.release()
				}
				trail = trail[:1]
			}
			left = append(strings.Split(to, "/"), left...)
		case isType(&st, unix.S_IFDIR):
			sub, err := l.disk.openFolder(at.fd, name, false, unix.O_NOFOLLOW)
			if err != nil {
				return target{}, err
			}
			trail = append(trail, sub)
		case isType(&st, unix.S_IFREG) && len(left) == 0:
			return target{at.retain(), name, st}, nil
		default:
			return target{}, errNotRegular
		}
	}
	return target{}, errNotRegular // a directory
}

// inside is an absolute link target relative to the workspace, if it lies there.
func (l *look) inside(to string) (string, bool) {
	for _, dir := range l.names() {
		if rest, ok := strings.CutPrefix(to, strings.TrimSuffix(dir, "/")+"/"); ok {
			return rest, true
		}
	}
	return "", false
}
