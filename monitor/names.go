package monitor

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// A path is a string of bytes; JSON holds only UTF-8. keyOf is the form in which
// records and changes hold a path (see state.MonitorRecord.Files): a path that is
// UTF-8 stands as it is; in any other, each byte that is not UTF-8 is \xNN and each
// backslash is doubled. A UTF-8 path that already reads like such a form, say a file
// named `\xff` in four characters, has its backslashes doubled too, so that no two
// paths share a key and pathOf gives every path back.
func keyOf(path string) string {
	if utf8.ValidString(path) && !isEscaped(path) {
		return path
	}
	return escape(path)
}

// pathOf is the inverse of keyOf.
func pathOf(key string) string {
	if isEscaped(key) {
		path, _ := unescape(key)
		return path
	}
	return key
}

// isEscaped reports whether keyOf makes this text by escaping. It ends: each round
// works on a shorter text.
func isEscaped(key string) bool {
	path, ok := unescape(key)
	if !ok || len(path) == len(key) || escape(path) != key {
		return false
	}
	return !utf8.ValidString(path) || isEscaped(path)
}

const hexDigits = "0123456789abcdef"

func escape(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, size := utf8.DecodeRuneInString(path[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x`)
			b.WriteByte(hexDigits[path[i]>>4])
			b.WriteByte(hexDigits[path[i]&15])
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteString(path[i : i+size])
		}
		i += size
	}
	return b.String()
}

// unescape is false for a text in which a backslash begins neither `\\` nor `\xNN`.
func unescape(key string) (path string, ok bool) {
	if strings.IndexByte(key, '\\') < 0 {
		return key, true
	}
	var b strings.Builder
	for i := 0; i < len(key); i++ {
		switch rest := key[i:]; {
		case rest[0] != '\\':
			b.WriteByte(rest[0])
		case strings.HasPrefix(rest, `\\`):
			b.WriteByte('\\')
			i++
		case strings.HasPrefix(rest, `\x`) && len(rest) >= 4:
			high, low := strings.IndexByte(hexDigits, rest[2]), strings.IndexByte(hexDigits, rest[3])
			if high < 0 || low < 0 {
				return "", false
			}
			b.WriteByte(byte(high<<4 | low))
			i += 3
		default:
			return "", false
		}
	}
	return b.String(), true
}

// fileOf is a path and its digest as a change names them.
func fileOf(path, checksum string) File {
	f := File{Path: keyOf(path), Checksum: checksum}
	if f.Path != path {
		f.Bytes = base64.StdEncoding.EncodeToString([]byte(path))
	}
	return f
}
