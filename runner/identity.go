package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"marbles/state"
)

// identity is whom a run's processes are, where that is not the service's own user.
type identity struct {
	uid, gid uint32
	groups   []uint32
	env      []string // HOME, USER, LOGNAME and SHELL of that user
}

// identityOf is whom a workflow's processes are to be; nil for this process's own user. Only root can give another one.
func identityOf(wf *Workflow) (*identity, error) {
	if wf.User == "" && wf.Group == "" {
		return nil, nil
	}
	name := wf.User
	if name == "" {
		name = strconv.Itoa(os.Geteuid())
	}
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot run as user %s: there is no such user", name)
	}
	id := &identity{}
	if id.uid, err = number(u.Uid); err == nil {
		id.gid, err = number(u.Gid)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot run as user %s: %w", name, err)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("cannot run as user %s: cannot read its groups: %w", name, err)
	}
	for _, g := range groups {
		if n, err := number(g); err == nil {
			id.groups = append(id.groups, n)
		}
	}
	if wf.Group != "" {
		g, err := user.LookupGroup(wf.Group)
		if err != nil {
			g, err = user.LookupGroupId(wf.Group)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot run as group %s: there is no such group", wf.Group)
		}
		if id.gid, err = number(g.Gid); err != nil {
			return nil, fmt.Errorf("cannot run as group %s: %w", wf.Group, err)
		}
	}
	if int(id.uid) == os.Geteuid() && int(id.gid) == os.Getegid() {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, state.Hint(fmt.Errorf("cannot run as user %s: marbles is not root", name),
			"leave out user and group, or let the service run as root (a drop-in with User=root)")
	}
	id.env = []string{"HOME=" + u.HomeDir, "USER=" + u.Username, "LOGNAME=" + u.Username, "SHELL=/bin/sh"}
	return id, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}

// attr lets a process be that user's.
func (id *identity) attr(a *syscall.SysProcAttr) {
	if id != nil {
		a.Credential = &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: id.groups}
	}
}

// environment is that user's part of a step's environment.
func (id *identity) environment() []string {
	if id == nil {
		return nil
	}
	return id.env
}

// give makes a file or directory of the run's private ones that user's.
func (id *identity) give(path string) error {
	if id == nil {
		return nil
	}
	return os.Lchown(path, int(id.uid), int(id.gid))
}

// mayRead refuses what a step of another user put in the place of a file that is read for it: a link, or somebody else's file.
func (id *identity) mayRead(path string) error {
	if id == nil {
		return nil
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return bare(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || !ok || st.Uid != id.uid || st.Nlink != 1 {
		return errors.New("it is not a file of the user that the step ran as")
	}
	return nil
}
