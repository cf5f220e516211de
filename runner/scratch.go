package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"marbles/state"
)

// scratch gives runs their private directories (0700). One that a run leaves as it should serves the next run, and so
// does its input file, emptied: making and removing them for each would cost a busy service more than the rest of a short
// run does.
//
// Their parent is open to others, and cleaned by the system now and then, so a directory is looked at again before it
// serves.
type scratch struct {
	parent string
	prefix string // names the owner, so that what a dead one left is found

	mu   sync.Mutex
	free []string
}

const scratchPrefix = "marbles-"

func newScratch(parent string, owner state.Process) *scratch {
	return &scratch{parent: parent, prefix: fmt.Sprintf("%s%d-%d-", scratchPrefix, owner.PID, owner.StartTicks)}
}

// take gives a directory, one of another user's for who.
func (s *scratch) take(who *identity) (string, error) {
	if who != nil {
		return s.takeFor(who)
	}
	for {
		s.mu.Lock()
		n := len(s.free)
		if n == 0 {
			s.mu.Unlock()
			break
		}
		dir := s.free[n-1]
		s.free = s.free[:n-1]
		s.mu.Unlock()
		if ownDir(dir) {
			return dir, nil
		}
	}
	dir, err := os.MkdirTemp(s.parent, s.prefix) // 0700
	if err != nil {
		return "", fmt.Errorf("cannot make a private directory: %w", err)
	}
	return dir, nil
}

// takeFor makes a directory that another user may use. Where that one could not get to it, it is made in /tmp.
func (s *scratch) takeFor(who *identity) (string, error) {
	parent := s.parent
	if !openToAll(parent) {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, s.prefix)
	if err == nil {
		if err = who.give(dir); err != nil {
			_ = os.Remove(dir)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cannot make a private directory: %w", err)
	}
	return dir, nil
}

// openToAll reports whether every user gets to a directory.
func openToAll(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		up := filepath.Dir(dir)
		if up == dir {
			return true
		}
		dir = up
	}
}

// give takes a directory back.
func (s *scratch) give(dir string, who *identity) error {
	if who != nil || !isClean(dir) {
		return os.RemoveAll(dir)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, dir)
	return nil
}

// close removes the directories that nobody uses.
func (s *scratch) close() error {
	s.mu.Lock()
	free := s.free
	s.free = nil
	s.mu.Unlock()
	var errs []error
	for _, dir := range free {
		if ownDir(dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// sweep removes what dead owners left.
func (s *scratch) sweep() {
	dirs, _ := filepath.Glob(filepath.Join(s.parent, scratchPrefix+"*"))
	if s.parent != "/tmp" {
		others, _ := filepath.Glob("/tmp/" + scratchPrefix + "*") // see takeFor
		dirs = append(dirs, others...)
	}
	for _, dir := range dirs {
		parts := strings.Split(strings.TrimPrefix(filepath.Base(dir), scratchPrefix), "-")
		if len(parts) != 3 {
			continue
		}
		pid, perr := strconv.Atoi(parts[0])
		start, serr := strconv.ParseUint(parts[1], 10, 64)
		if perr == nil && serr == nil && (ownDir(dir) || os.Geteuid() == 0 && privateDir(dir)) && !(state.Process{PID: pid, StartTicks: start}).Alive() {
			_ = os.RemoveAll(dir)
		}
	}
}

// privateDir reports whether a path is a directory that only its owner may enter, whoever that is.
func privateDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode() == fs.ModeDir|0o700
}

// ownDir reports whether a path is a directory of this user that nobody else may enter.
func ownDir(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// isClean reports whether there is nothing in a directory but files of inputs.
func isClean(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	const most = 32 // steps of a workflow that are worth it
	names, err := f.Readdirnames(most)
	if err != nil && err != io.EOF {
		return false
	}
	other := func(name string) bool { return !strings.HasSuffix(name, inputSuffix) }
	return len(names) < most && !slices.ContainsFunc(names, other)
}

const inputSuffix = "-input.json"

// putInput writes a step's input, over the emptied file that an earlier run left where it is still that.
func putInput(path string, data []byte) (f *os.File, err error) {
	const flags = os.O_WRONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err = os.OpenFile(path, flags, 0)
	if err == nil && !ownFile(f) {
		_ = f.Close()
		err = fs.ErrInvalid
	}
	if err != nil {
		_ = os.Remove(path)
		if f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return nil, err
		}
	}
	if err = f.Truncate(0); err == nil {
		_, err = f.Write(data)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// clearInput empties it.
func clearInput(f *os.File) {
	_ = f.Truncate(0)
	_ = f.Close()
}

// ownFile reports whether an open file is a plain one that only this user may read, under one name.
func ownFile(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode() != 0o600 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && st.Nlink == 1
}
