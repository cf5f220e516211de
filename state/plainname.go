package state

import (
	"fmt"
	"strings"
)

// PlainName checks that a text can be one file name: not empty, "." or "..", and without "/", "\" or NUL.
// what is "key" or "lock name".
func PlainName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf(`state %s %s must be a plain name: not empty, "." or "..", and without "/", "\" or NUL`,
			what, appendJSString(nil, name))
	}
	return nil
}
