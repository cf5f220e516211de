//go:build !linux

package state

import "errors"

// asUser is Linux's; elsewhere an error of [errors.ErrUnsupported].
func asUser(int, int, func() error) error { return errors.ErrUnsupported }
