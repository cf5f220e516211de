package monitor

import "golang.org/x/sys/unix"

// searchOnly opens a directory that is passed through, not listed: it needs no read
// permission.
const searchOnly = unix.O_PATH | unix.O_DIRECTORY

// Where a directory entry of getdents64(2) has its parts.
const (
	direntSize = 16
	direntKind = 18
	direntName = 19
)
