package live

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A kqueue watches by descriptor, and fsnotify opens one for each file of a directory. budget keeps them to half of
// what the process may open, so that looks, runs and the service's own files never want for one.
type budget struct {
	notifier
	most int

	mu   sync.Mutex // guards what follows
	cost map[string]int
	sum  int
}

func budgeted(n notifier) (notifier, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return &budget{notifier: n, most: int(min(limit.Cur, 1<<20) / 2), cost: map[string]int{}}, nil
}

// Add is EMFILE where the directory's files are more than the budget has left. What is created later is counted
// when the watch is renewed.
func (b *budget) Add(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := len(entries) + 1
	if b.sum-b.cost[dir]+cost > b.most {
		return unix.EMFILE
	}
	if err := b.notifier.Add(dir); err != nil {
		return err
	}
	b.sum += cost - b.cost[dir]
	b.cost[dir] = cost
	return nil
}

func (b *budget) Remove(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum -= b.cost[dir]
	delete(b.cost, dir)
	return b.notifier.Remove(dir)
}

// limitOf names the limit that an error says was reached, and how to raise it.
func limitOf(err error) (limit, hint string, ok bool) {
	switch {
	case errors.Is(err, unix.EMFILE):
		return "open files of the process, half of which may watch: one for each file and directory",
			"SoftResourceLimits in the property list, or ulimit -n, and sysctl kern.maxfilesperproc", true
	case errors.Is(err, unix.ENFILE):
		return "kern.maxfiles", "sysctl kern.maxfiles=…", true
	}
	return "", "", false
}

// A kqueue has no queue that overflows.
const (
	queueLimit = ""
	queueHint  = ""
)

// notDirectory is the error of a path through what is no directory.
const notDirectory = unix.ENOTDIR
