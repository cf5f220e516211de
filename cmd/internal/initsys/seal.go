package initsys

import (
	"bytes"
	"strings"
)

// The service itself has no workspace whose state could say what was written, so its file does: a line holds the digest of
// the rest.
const sealText = "Written by `marbles service install`; sha256 of the rest: "

// Seal adds that line to a unit or a property list.
func Seal(data []byte) []byte {
	if xml, rest, ok := cutDoctype(data); ok {
		return bytes.Join([][]byte{xml, []byte("<!-- " + sealText + digest(data) + " -->\n"), rest}, nil)
	}
	return append([]byte("# "+sealText+digest(data)+"\n"), data...)
}

// cutDoctype splits a property list behind its document type, which nothing may stand before.
func cutDoctype(data []byte) (head, rest []byte, ok bool) {
	if !bytes.HasPrefix(data, []byte("<?xml")) {
		return nil, nil, false
	}
	i := bytes.Index(data, []byte("<!DOCTYPE"))
	if i < 0 {
		return nil, nil, false
	}
	j := bytes.IndexByte(data[i:], '\n')
	if j < 0 {
		return nil, nil, false
	}
	return data[:i+j+1], data[i+j+1:], true
}

// Sealed is what the sealed files of a plan are known to be: their digests, for those that nobody has changed since.
func (p Plan) Sealed() Written {
	ours := Written{}
	for _, f := range p.Files {
		if now, err := read(f.Path); err == nil && now.was && intact(now.data) {
			ours.Add(f.Path, digest(now.data))
		}
	}
	return ours
}

// intact reports whether a file is as it was sealed.
func intact(data []byte) bool {
	text := string(data)
	i := strings.Index(text, sealText)
	if i < 0 {
		return false
	}
	begin := strings.LastIndexByte(text[:i], '\n') + 1
	end := strings.IndexByte(text[i:], '\n')
	if end < 0 {
		return false
	}
	said := strings.TrimSuffix(text[i+len(sealText):i+end], " -->")
	return said == digest([]byte(text[:begin]+text[i+end+1:]))
}

// Foreign is the first file of a plan that is there and was never sealed: somebody else has put it there; "" for none. One
// that cannot be read as a file, as a unit that is masked, is somebody else's too.
func (p Plan) Foreign() string {
	for _, f := range p.Files {
		if now, err := read(f.Path); err != nil || now.was && !bytes.Contains(now.data, []byte(sealText)) {
			return f.Path
		}
	}
	return ""
}

// There reports whether any file of a plan is there.
func (p Plan) There() bool {
	for _, f := range p.Files {
		if exists(f.Path) {
			return true
		}
	}
	return false
}
