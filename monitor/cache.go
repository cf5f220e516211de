package monitor

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// A kept cache is what is remembered of the files that were read, for another process:
//
//	cacheMagic, the digest of the source, the digest of what follows,
//	and for each directory its path, the number of its files and the files by name.
//
// Numbers are varints; a text is its length and its bytes. Of a name only what differs from the one before is written.
// Only what may be trusted is kept, and nothing of what was committed.
const cacheMagic = "marbles files 1\n"

const sumSize = sha256.Size

var errCache = errors.New("not a cache of this source")

// boundTo is the digest of what a source watches. What it leaves out of that does not matter: a digest holds by the
// file's signature.
func (s *filesSource) boundTo() [sumSize]byte {
	return sha256.Sum256([]byte(s.dir + "\x00" + s.glob.text))
}

func (s *filesSource) saveCache() []byte {
	s.mu.Lock()
	m, fresh := s.memory, s.fresh
	s.fresh = false
	s.mu.Unlock()
	if !fresh {
		return nil
	}
	return m.encode(s.boundTo())
}

// restoreCache does nothing where there is something remembered already: that is newer.
func (s *filesSource) restoreCache(data []byte) {
	m, err := decodeMemory(data, s.boundTo())
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.memory.dirs) == 0 && !s.memory.settled {
		s.memory, s.fresh = m, false
	}
}

func (m *memory) encode(source [sumSize]byte) []byte {
	const body = len(cacheMagic) + 2*sumSize
	b := make([]byte, 0, body+80*m.count())
	b = append(append(b, cacheMagic...), source[:]...)
	b = append(b, make([]byte, sumSize)...)
	for _, d := range m.dirs {
		n := uint64(0)
		for i := range d.files {
			if d.files[i].state == trusted {
				n++
			}
		}
		if n == 0 {
			continue
		}
		b = appendText(b, d.path)
		b = binary.AppendUvarint(b, n)
		last, before := "", signature{}
		for i := range d.files {
			k := &d.files[i]
			if k.state != trusted {
				continue
			}
			name := d.name(i)
			same := 0
			for same < len(name) && same < len(last) && name[same] == last[same] {
				same++
			}
			b = binary.AppendUvarint(b, uint64(same))
			b = appendText(b, name[same:])
			b = k.append(b, &before)
			last, before = name, k.sig
		}
	}
	sum := sha256.Sum256(b[body:])
	copy(b[len(cacheMagic)+sumSize:], sum[:])
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// append writes a file. Its times and numbers are mostly near those of the file before.
func (k *known) append(b []byte, before *signature) []byte {
	b = binary.AppendVarint(b, k.sig.size)
	b = binary.AppendVarint(b, k.sig.mtime-before.mtime)
	b = binary.AppendVarint(b, k.sig.ctime-k.sig.mtime)
	b = binary.AppendVarint(b, int64(k.sig.inode-before.inode))
	b = binary.AppendVarint(b, int64(k.sig.device-before.device))
	b = binary.AppendUvarint(b, uint64(k.read))
	return append(b, k.digest[:]...)
}

// decodeMemory is strict: what encode did not write is an error, so that no damage reads as a digest.
func decodeMemory(data []byte, source [sumSize]byte) (*memory, error) {
	rest, ok := bytes.CutPrefix(data, []byte(cacheMagic))
	if !ok || len(rest) < 2*sumSize || !bytes.Equal(rest[:sumSize], source[:]) {
		return nil, errCache
	}
	sum, body := rest[sumSize:2*sumSize], rest[2*sumSize:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, errCache
	}
	m := &memory{}
	r := &cacheReader{left: body}
	for len(r.left) > 0 {
		path := r.text()
		// A file takes more than a digest: a count beyond that is damage, and no reason to make room.
		n := r.number()
		if r.bad || n == 0 || n > uint64(len(r.left)/sumSize) || len(m.dirs) > 0 && path <= m.dirs[len(m.dirs)-1].path {
			return nil, errCache
		}
		files := make([]named, 0, n)
		last, before := "", signature{}
		for range n {
			f := r.file(last, &before)
			if r.bad || len(files) > 0 && f.name <= last || f.name == "" {
				return nil, errCache
			}
			files = append(files, f)
			last, before = f.name, f.sig
		}
		m.dirs = append(m.dirs, newKnownDir(path, files))
	}
	return m, nil
}

// cacheReader reads what is left. After the first thing that makes no sense it is bad.
type cacheReader struct {
	left []byte
	bad  bool
}

func (r *cacheReader) number() uint64 {
	n, size := binary.Uvarint(r.left)
	r.skip(size)
	return n
}

func (r *cacheReader) signed() int64 {
	n, size := binary.Varint(r.left)
	r.skip(size)
	return n
}

func (r *cacheReader) skip(size int) {
	if size <= 0 {
		r.bad, r.left = true, nil
		return
	}
	r.left = r.left[size:]
}

func (r *cacheReader) text() string {
	n := r.number()
	if n > uint64(len(r.left)) {
		r.bad, r.left = true, nil
		return ""
	}
	text := string(r.left[:n])
	r.left = r.left[n:]
	return text
}

func (r *cacheReader) file(last string, before *signature) (f named) {
	same := r.number()
	if same > uint64(len(last)) {
		r.bad = true
		return f
	}
	f.name = last[:same] + r.text()
	f.sig.size = r.signed()
	f.sig.mtime = before.mtime + r.signed()
	f.sig.ctime = f.sig.mtime + r.signed()
	f.sig.inode = before.inode + uint64(r.signed())
	f.sig.device = before.device + uint64(r.signed())
	read := r.number()
	f.read = uint32(read)
	if uint64(f.read) != read || len(r.left) < sumSize {
		r.bad = true
		return f
	}
	copy(f.digest[:], r.left)
	r.left = r.left[sumSize:]
	return f
}
