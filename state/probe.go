package state

import "io"

// probeFile is the name that a probe stages a file for; none ever gets it.
const probeFile = "probe"

// Probe takes the way of a snapshot's write up to its rename (see [WriteFile]) and removes what it wrote: it returns once
// the disk has taken it, or refused, and on a disk that hangs it does not return.
//
// It is not synced, so that asking every few seconds wears no disk out: at most the directory's own blocks are written,
// with the file system's next commit. A device that hangs is noticed all the same, since a commit that is stuck keeps those
// very blocks from being changed again.
func (w *Workspace) Probe() error {
	how, path := w.lazily(), w.path(probeFile)
	tmp := tempName(path)
	err := how.stage(path, tmp, func(to io.Writer) error {
		_, err := io.WriteString(to, "probe\n")
		return err
	})
	if err != nil {
		return err
	}
	if err := how.fs.remove(tmp); err != nil {
		return writeError(path, "remove", err)
	}
	return nil
}
