package state

// WriteFile replaces path with data, durably: it survives power loss once it
// returned, and a crash leaves the old file or the new one.
//
//	open(dir/.<name>.<pid>-<random>.tmp, O_EXCL, 0600); write; fsync; close
//	rename(tmp, path); fsync(dir)
//
// The temporary file is removed when anything before the rename fails.
func WriteFile(path string, data []byte) error { panic("todo") }
