package state

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Stamp is an instant written as ISO-8601 UTC with milliseconds, or null where it
// is zero. What cannot be read as a date is the zero Stamp ("never"), as in the
// first format.
type Stamp struct{ time.Time }

const stampLayout = "2006-01-02T15:04:05.000Z"

// MarshalJSON writes "2026-11-30T17:00:00.000Z", or null for the zero Stamp and for
// years that the form has no room for.
func (s Stamp) MarshalJSON() ([]byte, error) {
	t := s.UTC()
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(stampLayout)+2)
	b = append(b, '"')
	b = t.AppendFormat(b, stampLayout)
	return append(b, '"'), nil
}

// UnmarshalJSON never fails: what is no date is zero.
func (s *Stamp) UnmarshalJSON(b []byte) error {
	*s = Stamp{}
	if jsontext.Value(b).Kind() != '"' {
		return nil
	}
	var room [64]byte
	text, err := jsontext.AppendUnquote(room[:0], b)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err == nil {
		*s = Stamp{Time: t.UTC()}
	}
	return nil
}

// Millis is an instant as milliseconds since the epoch, as run records keep it.
// The zero value is written as null.
type Millis int64

// ToMillis is the instant to the millisecond below; the zero Time is zero.
func ToMillis(t time.Time) Millis {
	if t.IsZero() {
		return 0
	}
	return Millis(t.UnixMilli())
}

// Time is the instant in UTC, or the zero Time.
func (m Millis) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// MarshalJSON writes a whole number, or null.
func (m Millis) MarshalJSON() ([]byte, error) {
	if m == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(m), 10), nil
}

// maxMillis is the last instant that a JavaScript Date can hold.
const maxMillis = 8.64e15

// UnmarshalJSON reads null as zero, and any JSON number within the range of a
// JavaScript Date, without its fraction.
func (m *Millis) UnmarshalJSON(b []byte) error {
	switch jsontext.Value(b).Kind() {
	case 'n':
		*m = 0
		return nil
	case '0':
	default:
		return errors.New("want a number of milliseconds or null")
	}
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil && n <= maxMillis && n >= -maxMillis {
		*m = Millis(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.Abs(f) > maxMillis {
		return errors.New("number of milliseconds out of range")
	}
	*m = Millis(f)
	return nil
}
