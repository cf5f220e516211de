package state

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// mountTemporary puts a small file system on a directory; options as in mount -o.
func mountTemporary(t *testing.T, dir, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skip("cannot mount here:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// remountReadOnly makes a directory that mountTemporary mounted read-only.
func remountReadOnly(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skip("cannot remount here:", err)
	}
}
