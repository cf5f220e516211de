package monitor

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxMoving is in how many looks running a file may change while it is read. Then what was read of one that grows is taken:
// a log that is always written is reported too. A digest that was taken so is never trusted.
const maxMoving = 2

// see puts one name into one of the three states.
func (l *look) see(s *scan, f *found, r *reader) {
	old := s.old.find(f.name)
	var last *known
	if old >= 0 {
		last = &s.old.files[old]
	}
	k, err := l.learn(s, f, last, r)
	if grows := err == errGrowing; grows || err == errChanging {
		path := joinPath(s.path, f.name)
		times := l.memory.moving[path] + 1
		l.mu.Lock()
		l.moving[path] = times
		l.mu.Unlock()
		err = errChanging
		if grows && times > maxMoving || l.how.takeMoving {
			err = nil
		}
	}
	switch {
	case err == nil && last != nil && (k == last || unchanged(k, last)):
		f.old = int32(old) + 1
	case err == nil:
		f.now = k
	case !absent(err):
		l.doubt(joinPath(s.path, f.name), err)
	}
}

// unchanged reports whether there is nothing in k that last does not say. When a suspect was read does not matter.
func unchanged(k, last *known) bool {
	return k.sig == last.sig && k.digest == last.digest && k.state == suspect && last.state == suspect
}

// learn finds out about one name; it is last where that still holds.
func (l *look) learn(s *scan, f *found, last *known, r *reader) (*known, error) {
	if f.kind == unix.DT_LNK {
		return l.follow(joinPath(s.path, f.name), last, r)
	}
	if last == nil && !l.how.statOnly { // the listing said what it is, and there is nothing to compare
		return l.read(s.at, f.name, joinPath(s.path, f.name), nil, r)
	}
	st := &r.st
	if err := l.disk.lstatat(s.at.fd, f.name, st); err != nil {
		return nil, err
	}
	if isType(st, unix.S_IFLNK) {
		return l.follow(joinPath(s.path, f.name), last, r)
	}
	if !isType(st, unix.S_IFREG) {
		return nil, errNotRegular
	}
	sig := signatureOf(st)
	if k := l.holds(last, sig); k != nil {
		return k, nil
	}
	return l.read(s.at, f.name, joinPath(s.path, f.name), &sig, r)
}

// follow is learn for a link. The signature is that of what the link leads to.
func (l *look) follow(path string, last *known, r *reader) (*known, error) {
	to, err := l.resolve(path)
	if err != nil {
		return nil, err
	}
	defer to.at.release()
	sig := signatureOf(&to.st)
	if k := l.holds(last, sig); k != nil {
		return k, nil
	}
	return l.read(to.at, to.name, path, &sig, r)
}

// holds is what is known of a file of this signature without reading it; nil for nothing.
func (l *look) holds(last *known, sig signature) *known {
	switch {
	case l.how.statOnly && last != nil && last.sig == sig:
		return last
	case l.how.statOnly:
		return &known{sig: sig, state: hollow}
	case last == nil || l.how.distrust || last.state != trusted || last.sig != sig || !l.recent(last.read):
		return nil
	}
	return last
}

// recent reports whether what was read then need not be read again. A moment that has not come yet (the clock was set back)
// says nothing.
func (l *look) recent(read uint32) bool {
	age := l.now.Unix() - int64(read)
	return age >= 0 && age < int64(l.reread.Seconds())
}

// read reads a file, or takes what another look of the batch read. Its signature, if it was looked at, must then agree.
func (l *look) read(at *folder, name, path string, sig *signature, r *reader) (*known, error) {
	if l.batch.empty() {
		k, err := l.disk.digest(l.ctx, at.fd, name, r)
		return &k, err
	}
	k, mine, err := l.batch.files.get(l.ctx, path, func() (*known, error) {
		k, err := l.disk.digest(l.ctx, at.fd, name, r)
		return &k, err
	})
	if mine || err != nil || sig == nil || k.sig == *sig {
		return k, err
	}
	own, err := l.disk.digest(l.ctx, at.fd, name, r)
	return &own, err
}

// finish sorts what a scan found. All its tasks have ended.
func (s *scan) finish() {
	s.at = nil
	kept := s.files[:0]
	held := 0
	for _, f := range s.files {
		if f.old > 0 {
			held++
		}
		if f.old > 0 || f.now != nil {
			kept = append(kept, f)
		}
	}
	if s.old != nil && held == len(kept) && held == len(s.old.files) {
		s.same, s.files = true, nil
		return
	}
	clear(s.files[len(kept):])
	s.files = kept
	slices.SortFunc(s.files, func(a, b found) int { return strings.Compare(a.name, b.name) })
}

// present is what was learnt of a path; nil for nothing. The walk has ended.
func (l *look) present(path string) *known {
	dir, name, _ := cutLast(path)
	return l.scanOf(dir).file(name)
}

func (l *look) scanOf(dir string) *scan {
	if i, ok := slices.BinarySearchFunc(l.scans, dir, func(s *scan, dir string) int { return strings.Compare(s.path, dir) }); ok {
		return l.scans[i]
	}
	return nil
}

// file is nil where the scan, which may be nil, found no file of this name.
func (s *scan) file(name string) *known {
	switch {
	case s == nil:
		return nil
	case s.same:
		if i := s.old.find(name); i >= 0 {
			return &s.old.files[i]
		}
		return nil
	}
	if i, ok := slices.BinarySearchFunc(s.files, name, func(f found, name string) int { return strings.Compare(f.name, name) }); ok {
		return s.known(&s.files[i])
	}
	return nil
}

func (s *scan) count() int {
	if s.same {
		return len(s.old.files)
	}
	return len(s.files)
}

// all are the files a scan found, by name.
func (s *scan) all(yield func(name string, k *known) bool) {
	if s.same {
		for i := range s.old.files {
			if !yield(s.old.name(i), &s.old.files[i]) {
				return
			}
		}
		return
	}
	for i := range s.files {
		if !yield(s.files[i].name, s.known(&s.files[i])) {
			return
		}
	}
}
