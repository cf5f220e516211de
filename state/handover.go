package state

// HandOver creates the file of a run that another process is to start, with that process as its owner, and files the
// request that tells it so. The file comes first: an owner that dies before it sees the request leaves a queued run,
// which its next service starts. A file that exists is [fs.ErrExist].
func (w *Workspace) HandOver(f *RunFile, owner Process, q Request) error {
	path, err := w.recordPath("run id", runsDir, f.Run.ID)
	if err != nil {
		return err
	}
	f.Run.Status = Queued
	f.PID, f.BootID, f.StartTicks = owner.PID, owner.BootID, owner.StartTicks
	how := w.writer()
	how.fresh = true
	if err := w.putRun(how, path, f); err != nil {
		return err
	}
	return w.Ask(q)
}
