package monitor

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// disk is the system calls a look makes, and the clock it judges their times by. Tests put faults in their place.
type disk struct {
	openat     func(dir int, name string, flags int) (int, error)
	fstat      func(fd int, st *unix.Stat_t) error
	lstatat    func(dir int, name string, st *unix.Stat_t) error
	readlinkat func(dir int, name string) (string, error)
	read       func(fd int, p []byte) (int, error)
	list       func(ctx context.Context, fd int) (*listing, error) // of a directory just opened
	now        func() time.Time
}

func realDisk() *disk {
	chunks := &sync.Pool{New: func() any { return new([listChunk]byte) }}
	return &disk{
		openat: func(dir int, name string, flags int) (fd int, err error) {
			err = uninterrupted(func() error { fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0); return err })
			return fd, err
		},
		fstat: func(fd int, st *unix.Stat_t) error {
			return uninterrupted(func() error { return unix.Fstat(fd, st) })
		},
		lstatat: func(dir int, name string, st *unix.Stat_t) error {
			return uninterrupted(func() error { return unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW) })
		},
		readlinkat: readlinkat,
		read: func(fd int, p []byte) (n int, err error) {
			err = uninterrupted(func() error { n, err = unix.Read(fd, p); return err })
			return n, err
		},
		list: func(ctx context.Context, fd int) (*listing, error) {
			buf := chunks.Get().(*[listChunk]byte)
			defer chunks.Put(buf)
			return list(ctx, fd, buf[:])
		},
		now: time.Now,
	}
}

// uninterrupted repeats a call that a signal cut short, as FUSE and NFS mounts allow.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func readlinkat(dir int, name string) (target string, err error) {
	for size := 256; ; size *= 2 {
		buf := make([]byte, size)
		n := 0
		err := uninterrupted(func() error { n, err = unix.Readlinkat(dir, name, buf); return err })
		if err != nil || n < size {
			return string(buf[:max(n, 0)]), err
		}
	}
}

// A listing is the names in a directory, without "." and "..", and what each is. It never changes.
type listing struct {
	names []string // parts of one text
	kinds []uint8  // unix.DT_…; DT_UNKNOWN where the file system does not say
}

const listChunk = 32 << 10 // bytes of directory entries read at once; the context is looked at in between

func list(ctx context.Context, fd int, buf []byte) (*listing, error) {
	var (
		text  []byte
		ends  []int
		kinds []uint8
	)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := 0
		if err := uninterrupted(func() (err error) { n, err = unix.ReadDirent(fd, buf); return err }); err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		for left := buf[:n]; len(left) > direntName; {
			size := int(binary.NativeEndian.Uint16(left[direntSize:]))
			if size <= direntName || size > len(left) {
				return nil, errors.New("the directory's entries cannot be read")
			}
			dirent := left[:size]
			left = left[size:]
			name := dirent[direntName:]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			if binary.NativeEndian.Uint64(dirent) == 0 || string(name) == "." || string(name) == ".." || len(name) == 0 {
				continue // an inode of 0 was removed
			}
			text = append(text, name...)
			ends = append(ends, len(text))
			kinds = append(kinds, dirent[direntKind])
		}
	}
	l := &listing{names: make([]string, len(ends)), kinds: kinds}
	all, from := string(text), 0
	for i, end := range ends {
		l.names[i] = all[from:end]
		from = end
	}
	return l, nil
}

// A folder is an open directory, closed when its last user has let go of it. All
// names are opened relative to one, so that a directory swapped for a link half-way
// through a look leads nowhere.
type folder struct {
	fd    int
	dev   uint64
	users atomic.Int32
}

// openFolder opens the directory called name in dir, to be listed or only to be passed through.
func (d *disk) openFolder(dir int, name string, listed bool, flags int) (*folder, error) {
	if listed {
		flags |= unix.O_RDONLY | unix.O_DIRECTORY
	} else {
		flags |= searchOnly
	}
	fd, err := d.openat(dir, name, flags)
	if err != nil {
		return nil, err
	}
	f := &folder{fd: fd}
	f.users.Store(1)
	var st unix.Stat_t
	if err := d.fstat(fd, &st); err != nil {
		f.release()
		return nil, err
	}
	f.dev = uint64(st.Dev)
	return f, nil
}

func (f *folder) retain() *folder {
	f.users.Add(1)
	return f
}

func (f *folder) release() {
	if f.users.Add(-1) == 0 {
		_ = unix.Close(f.fd) // a directory opened for reading has nothing to lose at close
	}
}

// openRoot opens the workspace. It alone may be reached through links.
func (d *disk) openRoot(dir string, listed bool) (*folder, error) {
	return d.openFolder(unix.AT_FDCWD, dir, listed, 0)
}

// absent reports an error that says that there is nothing of that name: what else an
// error may mean leaves the name unknown (design §8).
func absent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, errNotRegular) || errors.Is(err, errOutside)
}

// reason is an error without the call and the path that the os package adds.
func reason(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

func isType(st *unix.Stat_t, kind uint32) bool { return uint32(st.Mode)&unix.S_IFMT == kind }

func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

func cutLast(path string) (dir, name string, nested bool) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:], true
	}
	return "", path, false
}
