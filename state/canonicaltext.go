package state

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// text reads a string and writes it as JavaScript does.
func (c *canonicalizer) text() error {
	c.at++
	c.out = append(c.out, '"')
	for c.at < len(c.in) {
		switch b := c.in[c.at]; {
		case b == '"':
			c.at++
			c.out = append(c.out, '"')
			return nil
		case b == '\\':
			r, err := c.escape()
			if err != nil {
				return err
			}
			c.out = appendUnit(c.out, r)
		case b < ' ':
			return c.errorf("control character %q in string", b)
		case b < utf8.RuneSelf:
			c.at++
			c.out = append(c.out, b)
		default:
			r, n := utf8.DecodeRune(c.in[c.at:])
			if r == utf8.RuneError && n == 1 {
				return c.errorf("string is not UTF-8")
			}
			c.out = append(c.out, c.in[c.at:c.at+n]...)
			c.at += n
		}
	}
	return c.errorf("string does not end")
}

// escape reads one escape, or two where they are the halves of a surrogate pair. A
// lone half is returned as it is.
func (c *canonicalizer) escape() (rune, error) {
	if c.at+1 < len(c.in) {
		switch b := c.in[c.at+1]; b {
		case '"', '\\', '/':
			c.at += 2
			return rune(b), nil
		case 'b', 'f', 'n', 'r', 't':
			c.at += 2
			return rune("\b\f\n\r\t"[bytes.IndexByte([]byte("bfnrt"), b)]), nil
		}
	}
	high, ok := hexEscape(c.in[c.at:])
	if !ok {
		return 0, c.errorf("bad escape in string")
	}
	c.at += hexEscapeLen
	if high < highSurrogate || high >= lowSurrogate {
		return high, nil
	}
	if low, ok := hexEscape(c.in[c.at:]); ok && low >= lowSurrogate && low < endSurrogate {
		c.at += hexEscapeLen
		return (high-highSurrogate)<<10 | (low - lowSurrogate) + 0x10000, nil
	}
	return high, nil
}

const (
	hexEscapeLen  = len(`\u0000`)
	highSurrogate = 0xd800
	lowSurrogate  = 0xdc00
	endSurrogate  = 0xe000
)

// hexEscape reads \uXXXX.
func hexEscape(b []byte) (r rune, ok bool) {
	if len(b) < hexEscapeLen || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	for _, d := range b[2:hexEscapeLen] {
		switch {
		case d >= '0' && d <= '9':
			r = r<<4 | rune(d-'0')
		case d|0x20 >= 'a' && d|0x20 <= 'f':
			r = r<<4 | rune(d|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendUnit appends a character of a string as JavaScript's JSON.stringify does: a
// lone surrogate as an escape (ECMA-262, QuoteJSONString).
func appendUnit(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	if r < ' ' || r >= highSurrogate && r < endSurrogate {
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return utf8.AppendRune(b, r)
}

// appendJSString appends a Go string as JavaScript prints it; bad bytes become U+FFFD.
func appendJSString(b []byte, text string) []byte {
	b = append(b, '"')
	for _, r := range text {
		b = appendUnit(b, r)
	}
	return append(b, '"')
}

// compareNames orders two canonical strings by their UTF-16 code units. That is not
// the order of their bytes: U+10000 and above begin with a surrogate and come before U+E000.
func compareNames(a, b []byte) int {
	x, y := units{rest: a[1 : len(a)-1]}, units{rest: b[1 : len(b)-1]}
	for {
		m, n := x.next(), y.next()
		if m != n || m < 0 {
			return int(m) - int(n)
		}
	}
}

// units yields the UTF-16 code units of the inside of a canonical string.
type units struct {
	rest []byte
	low  rune // the second half of a pair, to come next; 0 for none
}

// next is the next unit, -1 at the end.
func (u *units) next() rune {
	if low := u.low; low != 0 {
		u.low = 0
		return low
	}
	if len(u.rest) == 0 {
		return -1
	}
	switch b := u.rest[0]; {
	case b == '\\':
		if r, ok := hexEscape(u.rest); ok {
			u.rest = u.rest[hexEscapeLen:]
			return r
		}
		r := rune(u.rest[1])
		if i := bytes.IndexByte([]byte("bfnrt"), u.rest[1]); i >= 0 {
			r = rune("\b\f\n\r\t"[i])
		}
		u.rest = u.rest[2:]
		return r
	case b < utf8.RuneSelf:
		u.rest = u.rest[1:]
		return rune(b)
	}
	r, n := utf8.DecodeRune(u.rest)
	u.rest = u.rest[n:]
	if r < 0x10000 {
		return r
	}
	u.low = lowSurrogate + (r-0x10000)&0x3ff
	return highSurrogate + (r-0x10000)>>10
}
