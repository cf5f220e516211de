package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// readNames lists the names in a directory that end in ext, without it, in no order.
// It is the heart of every list of runs, so for 100,000 names it makes two
// allocations rather than 100,000.
func readNames(dir, ext string) ([]string, error) {
	fd, err := uninterrupted(func() (int, error) {
		return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var (
		buf   = make([]byte, 64<<10)
		arena strings.Builder // the names one after the other
		ends  []int
	)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Size > int64(len(buf)) {
		// On most file systems the size of a directory bounds its names.
		arena.Grow(int(min(st.Size, maxArena)))
		const typical = 64
		ends = make([]int, 0, min(st.Size, maxArena)/typical)
	}
	for {
		n, err := uninterrupted(func() (int, error) { return unix.Getdents(fd, buf) })
		if err != nil {
			return nil, &os.PathError{Op: "list", Path: dir, Err: err}
		}
		if n <= 0 {
			break
		}
		for rest := buf[:n]; len(rest) > 0; {
			var name []byte
			if name, rest, err = nextDirent(rest); err != nil {
				return nil, &os.PathError{Op: "list", Path: dir, Err: err}
			}
			if stem, ok := bytes.CutSuffix(name, []byte(ext)); ok && len(stem) > 0 {
				arena.Write(stem)
				ends = append(ends, arena.Len())
			}
		}
	}
	all, from := arena.String(), 0
	names := make([]string, len(ends))
	for i, end := range ends {
		names[i], from = all[from:end], end
	}
	return names, nil
}

const maxArena = 64 << 20

// nextDirent takes one struct linux_dirent64 off b: inode and offset (8 bytes each),
// record length (2), type (1), then the name, ended by NUL.
func nextDirent(b []byte) (name, rest []byte, err error) {
	const lenAt, nameAt = 16, 19
	if len(b) < nameAt {
		return nil, nil, errors.New("short directory record")
	}
	n := int(binary.NativeEndian.Uint16(b[lenAt:]))
	if n < nameAt || n > len(b) {
		return nil, nil, errors.New("bad directory record")
	}
	name, _, _ = bytes.Cut(b[nameAt:n], []byte{0})
	return name, b[n:], nil
}
