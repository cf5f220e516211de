package state

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Output is most of what a journal holds and may come at the speed of a pipe, so the
// JSON of text records is written and read here by hand: eight bytes at a time up to
// the next one that must be escaped.

// SplitUTF8 cuts off an incomplete character at the end of a piece of a stream. The
// caller keeps rest (at most 3 bytes) and puts it before the stream's next piece, or
// hands it on alone when the stream has ended. Bytes that no continuation can make
// valid stay in whole.
func SplitUTF8(data []byte) (whole, rest []byte) {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		tail := data[len(data)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if utf8.FullRune(tail) {
			break
		}
		return data[:len(data)-n], tail
	}
	return data, nil
}

// plainPrefix is how many leading bytes stand for themselves in a JSON string: all but
// the controls, '"' and '\'. Bytes above 0x7f do; whether they are UTF-8 is checked
// elsewhere.
func plainPrefix(b []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		// The high bit of the lowest byte that is less than 0x20, or equal to '"' or '\',
		// is set exactly (a borrow only ever spoils bytes above it).
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		special := ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
		if special != 0 {
			return i + bits.TrailingZeros64(special)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// appendEscaped appends valid UTF-8 as the inside of a JSON string.
func appendEscaped(dst, src []byte) []byte {
	const hex = "0123456789abcdef"
	for {
		n := plainPrefix(src)
		dst = append(dst, src[:n]...)
		if n == len(src) {
			return dst
		}
		switch c := src[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		src = src[n+1:]
	}
}

// appendUnescaped is the inverse of appendEscaped. ok is false for anything that
// appendEscaped does not write.
func appendUnescaped(dst, src []byte) (_ []byte, ok bool) {
	for {
		n := plainPrefix(src)
		dst = append(dst, src[:n]...)
		if n == len(src) {
			return dst, true
		}
		if src[n] != '\\' || n+1 == len(src) {
			return dst, false
		}
		src = src[n+1:]
		switch c := src[0]; c {
		case '"', '\\', '/':
			dst = append(dst, c)
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'u':
			if len(src) < 5 {
				return dst, false
			}
			c, err := strconv.ParseUint(string(src[1:5]), 16, 8)
			if err != nil || c >= utf8.RuneSelf {
				return dst, false
			}
			dst = append(dst, byte(c))
			src = src[4:]
		default:
			return dst, false
		}
		src = src[1:]
	}
}

// appendQuoted appends a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendQuoted(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	dst = append(dst, '"')
	dst = appendEscaped(dst, []byte(s))
	return append(dst, '"')
}

// appendMember appends a further member with a string value.
func appendMember(dst []byte, name, value string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return appendQuoted(dst, value)
}

// appendAt appends the time of a record, UTC with milliseconds.
func appendAt(dst []byte, at time.Time) []byte {
	dst = append(dst, `,"at":"`...)
	dst = at.UTC().AppendFormat(dst, stampLayout)
	return append(dst, '"')
}

// appendIdentity appends what tells a process from a later one with its pid.
func appendIdentity(dst []byte, p Process) []byte {
	if p.StartTicks != 0 {
		dst = append(dst, `,"startTicks":`...)
		dst = strconv.AppendUint(dst, p.StartTicks, 10)
	}
	if p.BootID != "" {
		dst = appendMember(dst, "bootId", p.BootID)
	}
	return dst
}

// appendData appends what a stream gave: as text where it is UTF-8, else as base64.
func appendData(dst, data []byte) []byte {
	if utf8.Valid(data) {
		// Room for an escape every 16 bytes; more makes it grow.
		dst = slices.Grow(dst, len(data)+len(data)/16+64)
		dst = append(dst, `,"text":"`...)
		dst = appendEscaped(dst, data)
	} else {
		dst = append(dst, `,"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, data)
	}
	return append(dst, '"')
}

// parseText reads a text record as a Journal writes it. ok is false for any other
// line, which then goes to the JSON decoder. last is the record before it, whose step
// and stream are used again where they are equal.
func parseText(line []byte, last *Entry) (e Entry, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"kind":"text","at":"`))
	if !ok {
		return e, false
	}
	if len(rest) < len(stampLayout) {
		return e, false
	}
	e.Kind = "text"
	if e.At, ok = parseAt(rest[:len(stampLayout)]); !ok {
		return e, false
	}
	rest = rest[len(stampLayout):]
	if e.Step, rest, ok = cutPlain(rest, `","step":"`, last.Step); !ok {
		return e, false
	}
	if e.Stream, rest, ok = cutPlain(rest, `","stream":"`, last.Stream); !ok {
		return e, false
	}
	if body, cut := bytes.CutSuffix(rest, []byte(`","partial":true}`)); cut {
		rest, e.Partial = body, true
	} else if rest, ok = bytes.CutSuffix(rest, []byte(`"}`)); !ok {
		return e, false
	}
	if body, cut := bytes.CutPrefix(rest, []byte(`","text":"`)); cut {
		if !utf8.Valid(body) {
			return e, false
		}
		e.Text, ok = appendUnescaped(make([]byte, 0, len(body)), body)
		return e, ok
	}
	body, cut := bytes.CutPrefix(rest, []byte(`","base64":"`))
	if !cut || plainPrefix(body) < len(body) { // the base64 package would pass over line ends
		return e, false
	}
	var err error
	e.Text, err = base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(body))), body)
	return e, err == nil
}

// cutPlain cuts a key and the string without escapes that follows it, up to but not
// including the closing quote. A value equal to last is returned as last.
func cutPlain(b []byte, key, last string) (value string, rest []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(key))
	if !ok {
		return "", nil, false
	}
	n := plainPrefix(b)
	if n == len(b) || b[n] != '"' || !utf8.Valid(b[:n]) {
		return "", nil, false
	}
	if string(b[:n]) == last {
		return last, b[n:], true
	}
	return string(b[:n]), b[n:], true
}

// parseAt reads the layout that appendAt writes.
func parseAt(b []byte) (time.Time, bool) {
	if b[len(b)-len(".000Z")] != '.' || b[len(b)-1] != 'Z' {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, string(b)) // takes the milliseconds too, and is much the fastest layout
	return t, err == nil
}
