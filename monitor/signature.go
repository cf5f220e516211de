package monitor

import (
	"time"

	"golang.org/x/sys/unix"
)

// A signature tells one state of a file from another without reading it. All five count: a program can put size and
// times back, a file renamed over another can have all of them, and only a kernel sets a ctime.
type signature struct {
	size, mtime, ctime int64 // times in nanoseconds since the epoch; beyond the year 2262 they wrap around
	inode, device      uint64
}

func signatureOf(st *unix.Stat_t) signature {
	return signature{
		size: st.Size, mtime: nanos(st.Mtim), ctime: nanos(st.Ctim),
		inode: uint64(st.Ino), device: uint64(st.Dev),
	}
}

func nanos(t unix.Timespec) int64 { return int64(t.Sec)*int64(time.Second) + int64(t.Nsec) }

// changed is the ctime.
func (s *signature) changed() time.Time { return time.Unix(0, s.ctime) }

// racyWithin is how coarse a file system's clock may be: FAT has two seconds.
const racyWithin = 2 // seconds

// racy is git's rule: a file read at a moment so close to its times, or before them, may have been written again
// afterwards without a change of any. Its signature does not vouch for the digest.
func racy(st *unix.Stat_t, observed time.Time) bool {
	for _, t := range []unix.Timespec{st.Mtim, st.Ctim} {
		late := int64(t.Sec) - (observed.Unix() - racyWithin)
		if late > 0 || late == 0 && int64(t.Nsec) > int64(observed.Nanosecond()) {
			return true
		}
	}
	return false
}
