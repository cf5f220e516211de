package strict

import (
	"fmt"
	"io/fs"
	"syscall"
)

// Trust says why root must not act on a file: others own it or may write it (cron's rule). info must come from the
// open file or from a stat that followed links. For any other user than root everything is trusted.
func Trust(path string, info fs.FileInfo, euid int) error {
	if euid != 0 {
		return nil
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
		return fmt.Errorf("belongs to uid %d, and root acts only on what root owns (chown root %s)", stat.Uid, path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("has mode %04o, and root acts only on what nobody else may write (chmod go-w %s)",
			info.Mode().Perm(), path)
	}
	return nil
}
