package runner

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// punchHole frees the blocks of a file before an offset. Where the file system cannot, they stay until the file goes.
func punchHole(f *os.File, to int64) {
	_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, to)
}

// dataFrom goes to the first byte at or behind an offset that was not freed.
func dataFrom(f *os.File, offset int64) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), offset, unix.SEEK_DATA)
	switch {
	case err == nil:
		return at, nil
	case errors.Is(err, unix.ENXIO): // there is none, or nothing but a hole
		return f.Seek(max(offset, sizeOf(f)), 0)
	}
	return f.Seek(offset, 0)
}

// unitCgroup is the directory of a unit's control group.
func unitCgroup(path string) string {
	const root = "/sys/fs/cgroup"
	if dir := filepath.Join(root, "unified", path); isCgroup(dir) {
		return dir
	}
	return filepath.Join(root, path)
}
