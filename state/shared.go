package state

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// The index and the ledgers grow at their ends, by any process, and are rewritten now and then. Whoever appends holds a
// shared flock on the file, and whoever rewrites it an exclusive one from before it reads until the new file has its
// name: no line gets lost between the two. Where flock is not supported a line that comes at that moment is.

// openShared opens a file for appending, as [openAppend] does, that is not being rewritten until it is closed.
func openShared(path string) (f *os.File, created bool, err error) {
	const attempts = 100 // each follows a rewrite
	for range attempts {
		f, info, created, err := openAppend(path, 0)
		if err != nil {
			return nil, created, err
		}
		waitFlock(f, unix.LOCK_SH)
		there, err := os.Stat(path)
		if err == nil && os.SameFile(info, there) {
			return f, created, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, created, err
		}
	}
	return nil, false, errors.New("it is being replaced all the time")
}

func waitFlock(f *os.File, how int) {
	_, _ = uninterrupted(func() (int, error) { return 0, unix.Flock(int(f.Fd()), how) })
}

// holdFile keeps a file that others append to as it is, until release is called. One that is missing is made, empty.
func holdFile(path string) (f *os.File, release func(), err error) {
	const attempts = 100
	for range attempts {
		f, info, _, err := openAppend(path, 0)
		if err != nil {
			return nil, nil, err
		}
		waitFlock(f, unix.LOCK_EX)
		there, err := os.Stat(path)
		if err == nil && os.SameFile(info, there) {
			return f, func() { _ = f.Close() }, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	return nil, nil, errors.New("it is being replaced all the time")
}
