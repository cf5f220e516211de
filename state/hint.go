package state

import "errors"

// Hint attaches the next command to type to an error. errors.As finds it by
// interface{ Hint() string }. Hint of a nil error is nil.
func Hint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

// HintOf is the outermost hint of an error, "" for none.
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

type hinted struct {
	err  error
	hint string
}

func (h *hinted) Error() string { return h.err.Error() }
func (h *hinted) Unwrap() error { return h.err }
func (h *hinted) Hint() string  { return h.hint }
