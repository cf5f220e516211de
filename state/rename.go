package state

import "os"

// linkNew gives a file a second name that must be new, then takes the first away.
// A crash in between leaves both; the sweep takes the temporary one.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}
