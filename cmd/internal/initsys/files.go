package initsys

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// File is a file that is installed, or was.
type File struct {
	Path string
	Data []byte
}

// Digest is the SHA-256 of what was written, in hex.
func (f File) Digest() string { return digest(f.Data) }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Written is what is known to have been written: digests, by path.
type Written map[string][]string

// Add adds the digest of what was written to a path.
func (w Written) Add(path, digest string) { w[path] = append(w[path], digest) }

func (w Written) has(path string, data []byte) bool { return slices.Contains(w[path], digest(data)) }

// before is a file as it was.
type before struct {
	data []byte
	was  bool
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// read reads what is at a path now. What is no regular file, as a unit that is masked, is nothing to write over.
func read(path string) (b before, err error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return before{}, nil
	case err != nil:
		return before{}, err
	case !info.Mode().IsRegular():
		return before{}, fmt.Errorf("%s is no regular file: a unit that is masked, or a link that somebody made", path)
	}
	b.data, err = os.ReadFile(path)
	b.was = err == nil
	return b, err
}

// place writes a file whole or not at all, readable to everybody as unit files are, and names the directories it made.
func place(path string, data []byte) (made []string, err error) {
	for dir := filepath.Dir(path); !exists(dir); dir = filepath.Dir(dir) {
		made = append(made, dir) // the innermost first
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".marbles-*")
	if err != nil {
		return made, err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return made, err
}

// remove removes a file that may be gone already.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
