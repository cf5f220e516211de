package state

// Canonical is the canonical JSON of a text that is exactly one JSON value: object
// members sorted by UTF-16 code units, no white space, strings as JavaScript prints
// them (spec §3.6). Numbers are written as JavaScript does (through float64).
// It is what keys are derived from.
func Canonical(text []byte) ([]byte, error) { panic("todo") }

// CanonicalExact is the same with exact decimal numbers, for digests: 1, 1.0 and 1e0
// are equal, 9007199254740993 and 9007199254740992 are not, and -0 is 0. A text in which
// an object repeats a member, or that is not exactly one value, is an error, so that
// the form never hides a change. It agrees with Canonical below 2^53.
func CanonicalExact(text []byte) ([]byte, error) { panic("todo") }

// PlainName checks that a text can be one file name: not empty, "." or "..", and without "/", "\" or NUL.
// what is "key" or "lock name".
func PlainName(what, name string) error { panic("todo") }
