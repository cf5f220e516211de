//go:build !linux

package state

import "testing"

func mountTemporary(t *testing.T, _, _ string) {
	t.Helper()
	t.Skip("no small file system to mount here")
}

func remountReadOnly(t *testing.T, _ string) {
	t.Helper()
	t.Skip("no file system to remount here")
}
