package state

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames and fails with [fs.ErrExist] where to exists. A file system
// without RENAME_EXCL gets a hard link, which is as exclusive.
func renameNew(from, to string) error {
	err := unix.RenamexNp(from, to, unix.RENAME_EXCL)
	for errors.Is(err, unix.EINTR) {
		err = unix.RenamexNp(from, to, unix.RENAME_EXCL)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return linkNew(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}
