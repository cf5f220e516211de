package strict

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file to read it. It neither waits for the other end of a pipe nor takes a terminal; what is no
// regular file is an error.
func Open(path string) (*os.File, fs.FileInfo, error) {
	f, err := open(path, syscall.O_NONBLOCK|syscall.O_NOCTTY)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// OpenDir opens a directory to list it; anything else is an error.
func OpenDir(path string) (*os.File, error) { return open(path, syscall.O_DIRECTORY) }

// open opens for reading, with a further flag that os.Open has no place for.
func open(path string, flag int) (*os.File, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|flag, 0)
	for err == syscall.EINTR {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|flag, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if flag&syscall.O_NONBLOCK != 0 {
		_ = syscall.SetNonblock(fd, false) // it was for the opening alone
	}
	return os.NewFile(uintptr(fd), path), nil
}
