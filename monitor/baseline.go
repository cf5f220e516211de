package monitor

import (
	"encoding/hex"
	"maps"

	"marbles/state"
)

// baseline is a committed observation in terms of paths: as loaded, or as remembered where what is remembered is known
// to be the same.
type baseline struct {
	files  map[string]string // path to digest in hex; nil where memory is set
	memory *memory
	mounts map[string]bool
}

func newBaseline(rec *state.MonitorRecord) baseline {
	b := baseline{files: map[string]string{}, mounts: map[string]bool{}}
	if rec == nil {
		return b
	}
	b.files = make(map[string]string, len(rec.Files))
	for key, sum := range rec.Files {
		b.files[pathOf(key)] = sum
	}
	for _, key := range rec.Mounts {
		b.mounts[pathOf(key)] = true
	}
	return b
}

func (b *baseline) empty() bool {
	if b.memory != nil {
		return len(b.memory.dirs) == 0
	}
	return len(b.files) == 0
}

// unseen calls f with the committed files that the look has not found.
func (l *look) unseen(f func(path string)) {
	if l.base.memory == nil {
		for path := range l.base.files {
			if l.present(path) == nil {
				f(path)
			}
		}
		return
	}
	for _, d := range l.base.memory.dirs {
		s := l.scanOf(d.path)
		if s != nil && s.same {
			continue
		}
		for i := range d.files {
			if name := d.name(i); s.file(name) == nil {
				f(joinPath(d.path, name))
			}
		}
	}
}

// asCommitted reports whether the look saw exactly what was committed, which the memory stands for.
func (l *look) asCommitted() bool {
	for _, s := range l.scans {
		if s.same {
			continue
		}
		for i := range s.files {
			f := &s.files[i]
			if f.old > 0 {
				continue
			}
			old := s.old.find(f.name)
			if old < 0 || s.old.files[old].digest != f.now.digest {
				return false
			}
		}
	}
	same := true
	l.unseen(func(path string) {
		same = same && l.inDoubt(path) && l.selects(path)
	})
	return same && maps.Equal(l.nextMounts(), l.base.mounts)
}

// nextMounts are the mounts to remember: those met, and those in doubt.
func (l *look) nextMounts() map[string]bool {
	mounts := maps.Clone(l.mounts)
	for m := range l.base.mounts {
		if l.inDoubt(m) {
			mounts[m] = true
		}
	}
	return mounts
}

// nextMemory is what to remember of the look. What it found no answer about is kept: where it ended before its end, that
// is all it did not find.
func (l *look) nextMemory(whole bool) *memory {
	next := &memory{dirs: make([]*knownDir, 0, max(len(l.scans), len(l.memory.dirs))), ignores: l.ignores, moving: l.moving}
	for _, s := range l.scans {
		d := s.old
		if !s.same {
			d = l.rebuild(s, whole)
		}
		if d != nil {
			next.dirs = append(next.dirs, d)
		}
	}
	for _, d := range l.memory.dirs {
		if l.scanOf(d.path) != nil {
			continue
		}
		if whole && !l.inDoubt(d.path) { // a file of it may be in doubt though the directory is not
			d = l.rebuild(&scan{path: d.path, old: d}, whole)
		}
		if d != nil {
			next.dirs = append(next.dirs, d)
		}
	}
	next.sort()
	return next
}

// rebuild is what to remember of a directory in which something changed.
func (l *look) rebuild(s *scan, whole bool) *knownDir {
	files := make([]named, 0, len(s.files))
	for i := range s.files {
		if k := s.known(&s.files[i]); k != nil && k.state != hollow {
			files = append(files, named{s.files[i].name, *k})
		}
	}
	if s.old != nil && (!whole || len(l.unknown) > 0) {
		for i, k := range s.old.files {
			if name := s.old.name(i); !whole || l.inDoubt(joinPath(s.path, name)) {
				files = append(files, named{name, k}) // after what was found, which counts
			}
		}
	}
	return newKnownDir(s.path, files)
}

// hold makes sure that m, which nobody else has yet, has each committed file with its committed digest, and reports
// whether it has no other. It is for a look that found no change: what differs could not be seen, or not whole.
func (m *memory) hold(committed map[string]string) bool {
	missing := map[string]known{}
	for path, sum := range committed {
		k := m.file(path)
		if k != nil && hexEqual(&k.digest, sum) {
			continue
		}
		placeholder := known{state: hollow}
		if n, err := hex.Decode(placeholder.digest[:], []byte(sum)); err != nil || n != len(placeholder.digest) {
			return false
		}
		missing[path] = placeholder
	}
	if len(missing) > 0 {
		m.put(missing)
	}
	return m.count() == len(committed)
}

func hexEqual(digest *[32]byte, text string) bool {
	var room [64]byte
	return string(hex.AppendEncode(room[:0], digest[:])) == text
}
