package monitor

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// disk is the system calls a look makes. Tests put faults in their place.
type disk struct {
	openat     func(dir int, name string, flags int) (int, error)
	fstat      func(fd int, st *unix.Stat_t) error
	lstatat    func(dir int, name string, st *unix.Stat_t) error
	readlinkat func(dir int, name string) (string, error)
	read       func(fd int, p []byte) (int, error)
	list       func(f *os.File, n int) ([]os.DirEntry, error)
}

func realDisk() *disk {
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
		list: func(f *os.File, n int) ([]os.DirEntry, error) { return f.ReadDir(n) },
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

// A folder is an open directory, closed when its last user has let go of it. All
// names are opened relative to one, so that a directory swapped for a link half-way
// through a look leads nowhere.
type folder struct {
	fd    int
	list  *os.File // owns fd where the directory can be listed; nil where it is only searched
	dev   uint64
	users atomic.Int32
}

// openFolder opens the directory called name in dir. full is its absolute path.
func (d *disk) openFolder(dir int, name, full string, listed bool, flags int) (*folder, error) {
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
	if listed {
		// The name serves os.File's own lstat where the file system lists no types: a hint only.
		f.list = os.NewFile(uintptr(fd), full)
	}
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
	if f.users.Add(-1) > 0 {
		return
	}
	// A directory opened for reading has nothing to lose at close.
	if f.list != nil {
		_ = f.list.Close()
	} else {
		_ = unix.Close(f.fd)
	}
}

// openRoot opens the workspace. It alone may be reached through links.
func (d *disk) openRoot(dir string, listed bool) (*folder, error) {
	return d.openFolder(unix.AT_FDCWD, dir, dir, listed, 0)
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

func isType(mode uint32, kind uint32) bool { return mode&unix.S_IFMT == kind }

func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
