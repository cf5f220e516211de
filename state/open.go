package state

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// errNotRegular is what stands where a file should be: a directory, a pipe, a socket
// or a device.
var errNotRegular = errors.New("it is not a regular file")

// openRegular opens a file of the state root. It neither waits for the other end of a
// pipe nor takes a terminal: what is no regular file is errNotRegular.
func openRegular(path string, flag int) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		// A directory opened for writing, a socket, a device without a driver.
		for _, other := range []error{unix.EISDIR, unix.ENXIO, unix.ENODEV, unix.EOPNOTSUPP} {
			if errors.Is(err, other) {
				err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
			}
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readFile reads a regular file whole.
func readFile(path string) ([]byte, error) {
	f, info, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	const more = 512 // one byte to see the end with, and a little for a file that grows
	data := make([]byte, 0, info.Size()+more)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, more)
		}
	}
}

// openAppend opens a file for reading and appending, with a further flag, and reports
// whether that created it.
func openAppend(path string, flag int) (f *os.File, info fs.FileInfo, created bool, err error) {
	const attempts = 3 // others may create and remove it meanwhile
	flag |= os.O_RDWR | os.O_APPEND
	for range attempts {
		f, info, err = openRegular(path, flag)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, info, false, err
		}
		f, info, err = openRegular(path, flag|os.O_CREATE|os.O_EXCL)
		if !errors.Is(err, fs.ErrExist) {
			return f, info, err == nil, err
		}
	}
	return nil, nil, false, err
}
