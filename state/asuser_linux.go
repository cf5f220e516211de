package state

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// asUser calls f with the access to files that a user has. The identity is a thread's, so f has one of its own, which ends
// with it. Root's capabilities over files go with the identity.
func asUser(uid, gid int, f func() error) error {
	done := make(chan error)
	go func() { // waited for below
		runtime.LockOSThread() // and never unlocked: the thread ends
		done <- func() error {
			for _, set := range []func() (int, error){
				func() (int, error) { _ = unix.Setfsgid(gid); return unix.SetfsgidRetGid(-1) },
				func() (int, error) { _ = unix.Setfsuid(uid); return unix.SetfsuidRetUid(-1) },
			} {
				if _, err := set(); err != nil {
					return fmt.Errorf("cannot act as user %d: %w", uid, err)
				}
			}
			if now, err := unix.SetfsuidRetUid(-1); err != nil || now != uid {
				return fmt.Errorf("cannot act as user %d", uid)
			}
			return f()
		}()
	}()
	return <-done
}
