package state

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// WriteFile replaces path with data, durably: it survives power loss once it
// returned, and a crash leaves the old file or the new one.
//
//	open(dir/.<name>.<pid>-<random>.tmp, O_EXCL, 0600); write; fsync; close
//	rename(tmp, path); fsync(dir)
//
// The temporary file is removed when anything before the rename fails. An error
// after the rename means that the new file is there but may not survive power loss.
func WriteFile(path string, data []byte) error {
	return writer{fs: osFiles{}}.write(path, data)
}

// files is what a write needs of the file system; tests put faults and recorders
// in its place.
type files interface {
	open(name string, flag int, perm fs.FileMode) (handle, error)
	rename(from, to string) error    // replaces to
	renameNew(from, to string) error // fails with fs.ErrExist where to exists
	remove(name string) error
}

// handle is an open file or directory.
type handle interface {
	io.Writer
	Sync() error
	Close() error
}

// osFiles is the real file system.
type osFiles struct{}

func (osFiles) open(name string, flag int, perm fs.FileMode) (handle, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (osFiles) rename(from, to string) error    { return os.Rename(from, to) }
func (osFiles) renameNew(from, to string) error { return renameNew(from, to) }
func (osFiles) remove(name string) error        { return os.Remove(name) }

// writer is one way to write a snapshot. The zero options are those of [WriteFile].
type writer struct {
	fs    files
	fresh bool        // the path must not exist yet
	lazy  bool        // atomic only: no fsync at all
	perm  fs.FileMode // of the file; 0: 0600
}

// write writes a file whole.
func (w writer) write(path string, data []byte) error {
	tmp := tempName(path)
	err := w.stage(path, tmp, func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return w.publish(path, tmp)
}

// stage is the only place that creates and fills a temporary file.
func (w writer) stage(path, tmp string, body func(io.Writer) error) error {
	f, err := w.fs.open(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, cmp.Or(w.perm, 0o600))
	if err != nil {
		return writeError(path, "create", err)
	}
	if step, err := w.fill(f, body); err != nil {
		w.drop(tmp)
		return writeError(path, step, err)
	}
	return nil
}

// publish is the only place that gives a temporary file its name.
func (w writer) publish(path, tmp string) error {
	if err := w.move(tmp, path); err != nil {
		w.drop(tmp)
		return writeError(path, "rename", err)
	}
	if w.lazy {
		return nil
	}
	// Only now is the new name in the directory, so only now can its fsync keep it.
	if err := syncDir(w.fs, filepath.Dir(path)); err != nil {
		return writeError(path, "sync directory", err)
	}
	return nil
}

// drop removes a temporary file. The old file is whole; what could not be finished must not stay behind and fill the disk
// further.
func (w writer) drop(tmp string) { _ = w.fs.remove(tmp) }

// fill writes, syncs and closes the temporary file. The data must be on the disk
// before the rename: otherwise power loss can leave the new name with old or no bytes.
func (w writer) fill(f handle, body func(io.Writer) error) (step string, err error) {
	if err := body(f); err != nil {
		_ = f.Close()
		return "write", err
	}
	if !w.lazy {
		// A failed fsync may have dropped the dirty pages, so it is never tried again.
		if err := f.Sync(); err != nil {
			_ = f.Close()
			return "sync", err
		}
	}
	return "close", f.Close()
}

func (w writer) move(tmp, path string) error {
	if w.fresh {
		return w.fs.renameNew(tmp, path)
	}
	return w.fs.rename(tmp, path)
}

// maxTempStem keeps a temporary name within the 255 bytes of a file name.
const maxTempStem = 200

const tempExt = ".tmp"

// tempName is a new name beside path: .<name>.<pid>-<random>.tmp. The pid lets
// [Workspace.Sweep] see whether its writer still lives.
func tempName(path string) string {
	dir, name := filepath.Split(path)
	if len(name) > maxTempStem {
		name = name[:maxTempStem]
	}
	b := make([]byte, 0, len(dir)+len(name)+48)
	b = append(b, dir...)
	b = append(b, '.')
	b = append(b, name...)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(os.Getpid()), 10)
	b = append(b, '-')
	b = strconv.AppendUint(b, rand.Uint64(), 36)
	return string(append(b, tempExt...))
}

// syncDir makes the names in a directory durable. A file system that cannot fsync a
// directory at all (EINVAL, ENOTSUP) gives no better promise, and is not an error.
//
// Concurrent writers do not share one fsync: on ext4, whose journal groups them
// anyway, a queue in front of it gave no measurable gain with 16 to 64 writers.
func syncDir(fs files, dir string) error {
	d, err := fs.open(dir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	err = d.Sync()
	_ = d.Close() // nothing was written through it
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

// writeError names the file and the step, without the temporary name.
func writeError(path, step string, err error) error {
	return fmt.Errorf("cannot write %s: %s: %w", path, step, bare(err))
}

// bare is the cause inside an error of package os, which repeats the path.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	case errors.As(err, &call):
		return call.Err
	}
	return err
}

// SaveStream writes what a reader gives to a file, durably and all or nothing. Unless replace is set the file must not exist
// yet ([fs.ErrExist]).
func SaveStream(path string, replace bool, from io.Reader) error {
	w := writer{fs: osFiles{}, fresh: !replace}
	tmp := tempName(path)
	err := w.stage(path, tmp, func(to io.Writer) error {
		_, err := io.Copy(to, from)
		return err
	})
	if err != nil {
		return err
	}
	return w.publish(path, tmp)
}
