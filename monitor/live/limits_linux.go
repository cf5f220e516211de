package live

import (
	"errors"

	"golang.org/x/sys/unix"
)

// A watch of a directory costs kernel memory and no descriptor: the system counts them itself.
func budgeted(n notifier) (notifier, error) { return n, nil }

// limitOf names the limit that an error says was reached, and how to raise it.
func limitOf(err error) (limit, hint string, ok bool) {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "fs.inotify.max_user_watches", "sysctl -w fs.inotify.max_user_watches=…", true
	case errors.Is(err, unix.EMFILE):
		return "fs.inotify.max_user_instances, or the process's open files", "sysctl -w fs.inotify.max_user_instances=…, or LimitNOFILE=", true
	case errors.Is(err, unix.ENFILE):
		return "fs.file-max", "sysctl -w fs.file-max=…", true
	}
	return "", "", false
}

const (
	queueLimit = "fs.inotify.max_queued_events"
	queueHint  = "sysctl -w fs.inotify.max_queued_events=…"
)

// notDirectory is the error of a path through what is no directory.
const notDirectory = unix.ENOTDIR
