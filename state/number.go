package state

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// number reads a number and writes it in the form of the two.
func (c *canonicalizer) number() error {
	d, n, err := readDecimal(c.in[c.at:])
	if err != nil {
		return c.errorf("%v", err)
	}
	text := c.in[c.at : c.at+n]
	c.at += n
	if c.exact {
		c.out = d.append(c.out)
		return nil
	}
	c.out = appendDouble(c.out, text)
	return nil
}

// appendDouble writes a JSON number as JavaScript prints the double it reads:
// nothing beyond the range, which JSON.stringify prints as null.
func appendDouble(b, text []byte) []byte {
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil || math.IsInf(f, 0):
		return append(b, "null"...)
	case f == 0:
		return append(b, '0') // also -0
	}
	return jsontext.AppendFloat(b, f, 64)
}

// decimal is the number 0.DIGITS × 10^point, exactly: its digits neither begin nor
// end with a zero, and zero has none.
type decimal struct {
	negative bool
	digits   []byte
	point    int64
	// huge is the number as it was written, but for the form of its exponent, where
	// that does not fit an int64. Equal numbers may then differ in text; different
	// ones still do.
	huge []byte
}

// maxExponentDigits keeps every sum of an exponent and a count of digits in an int64.
const maxExponentDigits = 18

// readDecimal reads the JSON number at the beginning of b and how long it is.
func readDecimal(b []byte) (d decimal, n int, err error) {
	if n < len(b) && b[n] == '-' {
		d.negative = true
		n++
	}
	whole := digitsAt(b, n)
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return d, n, errors.New("bad number")
	}
	n += len(whole)
	var fraction []byte
	if n < len(b) && b[n] == '.' {
		fraction = digitsAt(b, n+1)
		if len(fraction) == 0 {
			return d, n, errors.New("bad number")
		}
		n += 1 + len(fraction)
	}
	var exponent []byte
	minus := false
	if n < len(b) && b[n]|0x20 == 'e' {
		n++
		if n < len(b) && (b[n] == '+' || b[n] == '-') {
			minus = b[n] == '-'
			n++
		}
		exponent = digitsAt(b, n)
		if len(exponent) == 0 {
			return d, n, errors.New("bad number")
		}
		n += len(exponent)
	}
	mantissa := len(whole)
	if len(fraction) > 0 {
		mantissa += 1 + len(fraction)
	}
	if d.negative {
		mantissa++
	}
	d.set(b[:mantissa], whole, fraction, bytes.TrimLeft(exponent, "0"), minus)
	return d, n, nil
}

func digitsAt(b []byte, from int) []byte {
	to := from
	for to < len(b) && b[to] >= '0' && b[to] <= '9' {
		to++
	}
	return b[from:to]
}

func (d *decimal) set(mantissa, whole, fraction, exponent []byte, minus bool) {
	all := whole
	if len(fraction) > 0 {
		all = append(bytes.Clone(whole), fraction...)
	}
	digits := bytes.TrimLeft(all, "0")
	d.point = int64(len(whole)) - int64(len(all)-len(digits))
	d.digits = bytes.TrimRight(digits, "0")
	if len(d.digits) == 0 {
		d.negative, d.point = false, 0 // 0, -0, 0e999
		return
	}
	if len(exponent) > maxExponentDigits {
		sign := byte('+')
		if minus {
			sign = '-'
		}
		d.huge = append(append(bytes.Clone(mantissa), 'e', sign), exponent...)
		return
	}
	e, _ := strconv.ParseInt(string(exponent), 10, 64) // "" is 0
	if minus {
		e = -e
	}
	d.point += e
}

// append writes the number as JavaScript would (ECMA-262, Number::toString), but with all
// its digits. That never writes more than a few zeros: large and small numbers have
// an exponent.
func (d *decimal) append(b []byte) []byte {
	switch {
	case d.huge != nil:
		return append(b, d.huge...)
	case len(d.digits) == 0:
		return append(b, '0')
	case d.negative:
		b = append(b, '-')
	}
	const mostWhole, mostZeros = 21, 6
	k, n := int64(len(d.digits)), d.point
	switch {
	case k <= n && n <= mostWhole:
		b = append(b, d.digits...)
		return append(b, bytes.Repeat([]byte{'0'}, int(n-k))...)
	case 0 < n && n <= mostWhole:
		b = append(append(b, d.digits[:n]...), '.')
		return append(b, d.digits[n:]...)
	case -mostZeros < n && n <= 0:
		b = append(append(b, "0."...), bytes.Repeat([]byte{'0'}, int(-n))...)
		return append(b, d.digits...)
	}
	b = append(b, d.digits[0])
	if k > 1 {
		b = append(append(b, '.'), d.digits[1:]...)
	}
	b = append(b, 'e')
	if n-1 > 0 {
		b = append(b, '+')
	}
	return strconv.AppendInt(b, n-1, 10)
}
