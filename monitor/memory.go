package monitor

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"sort"
	"strings"

	"marbles/state"
)

// memory is what a source remembers from one look to the next. It never changes: a look makes a new one, which shares
// with the old what stayed.
type memory struct {
	dirs    []*knownDir           // sorted by path, none empty
	ignores map[string]ignoreFile // by directory
	moving  map[string]int        // files that changed while they were read, and in how many looks running
	settled bool                  // the files are exactly those of the committed observation with this stamp:
	stamp   state.FileStamp
	mounts  map[string]bool // and these are its mounts
}

// A knownDir is the files of one directory.
type knownDir struct {
	path  string // "" is the workspace
	names string // one after the other, sorted
	files []known
}

// known is one file. Its name ends at end in its directory's names.
type known struct {
	sig    signature
	digest [sha256.Size]byte
	read   uint32 // when, in seconds since the epoch
	end    uint32
	state  knownState
}

type knownState uint8

const (
	trusted knownState = iota // the digest holds as long as the signature does
	suspect                   // it was read, but another state of the file may have the same signature
	hollow                    // it was not read: the digest is the committed one of a file that cannot be seen
)

func (d *knownDir) name(i int) string {
	from := uint32(0)
	if i > 0 {
		from = d.files[i-1].end
	}
	return d.names[from:d.files[i].end]
}

// find is the index of the file called name, or -1. d may be nil.
func (d *knownDir) find(name string) int {
	if d == nil {
		return -1
	}
	if i, ok := sort.Find(len(d.files), func(i int) int { return strings.Compare(name, d.name(i)) }); ok {
		return i
	}
	return -1
}

// named is a file with its name, to build a knownDir from.
type named struct {
	name string
	known
}

// newKnownDir is nil for no files. Of two of one name the first counts.
func newKnownDir(path string, files []named) *knownDir {
	if len(files) == 0 {
		return nil
	}
	slices.SortStableFunc(files, func(a, b named) int { return cmp.Compare(a.name, b.name) })
	files = slices.CompactFunc(files, func(a, b named) bool { return a.name == b.name })
	size := 0
	for _, f := range files {
		size += len(f.name)
	}
	var names strings.Builder
	names.Grow(size)
	d := &knownDir{path: path, files: make([]known, len(files))}
	for i, f := range files {
		names.WriteString(f.name)
		d.files[i] = f.known
		d.files[i].end = uint32(names.Len())
	}
	d.names = names.String()
	return d
}

func (d *knownDir) named() []named {
	files := make([]named, len(d.files), len(d.files)+1)
	for i, f := range d.files {
		files[i] = named{d.name(i), f}
	}
	return files
}

// dir is nil where nothing is known there.
func (m *memory) dir(path string) *knownDir {
	if i, ok := slices.BinarySearchFunc(m.dirs, path, func(d *knownDir, path string) int { return cmp.Compare(d.path, path) }); ok {
		return m.dirs[i]
	}
	return nil
}

// file is nil where nothing is known of it.
func (m *memory) file(path string) *known {
	dir, name, _ := cutLast(path)
	d := m.dir(dir)
	if i := d.find(name); i >= 0 {
		return &d.files[i]
	}
	return nil
}

func (m *memory) count() int {
	n := 0
	for _, d := range m.dirs {
		n += len(d.files)
	}
	return n
}

func (m *memory) sort() {
	slices.SortFunc(m.dirs, func(a, b *knownDir) int { return cmp.Compare(a.path, b.path) })
}

// put adds files, by path, in place of what is known of them. Only the look that makes m may call it.
func (m *memory) put(files map[string]known) {
	byDir := map[string][]named{}
	for path, f := range files {
		dir, name, _ := cutLast(path)
		byDir[dir] = append(byDir[dir], named{name, f})
	}
	for i, d := range m.dirs {
		if more, ok := byDir[d.path]; ok {
			m.dirs[i] = newKnownDir(d.path, append(more, d.named()...))
			delete(byDir, d.path)
		}
	}
	for dir, files := range byDir {
		m.dirs = append(m.dirs, newKnownDir(dir, files))
	}
	m.sort()
}
