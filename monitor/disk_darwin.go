package monitor

import "golang.org/x/sys/unix"

// searchOnly opens a directory that is passed through, not listed: it needs no read
// permission.
const searchOnly = unix.O_SEARCH | unix.O_DIRECTORY

// Where a directory entry of getdirentries64, a struct dirent, has its parts.
const (
	direntSize = 16
	direntKind = 20
	direntName = 21
)
