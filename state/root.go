package state

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRoot is wrapped by every error that says the state root cannot be used
// (exit code 3).
var ErrRoot = errors.New("state root cannot be used")

// rootError is why a state root cannot be used.
type rootError struct {
	dir string
	err error
}

func (e *rootError) Error() string   { return fmt.Sprintf("cannot use state root %s: %v", e.dir, e.err) }
func (e *rootError) Unwrap() []error { return []error{ErrRoot, e.err} }

// Root is a state root.
type Root struct{ dir string }

// Open opens a root for writing: creates it (0700) where missing, and refuses one
// that is a file or cannot be written. When this process is root it also refuses
// one that belongs to another user, because what it wrote there that user could no
// longer change, and one that others may write (cron's rule). Left-over temporary
// files whose writer is dead are swept lazily by [Workspace.Sweep].
func Open(dir string) (*Root, error) {
	abs, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(abs); err == nil {
			info, err = os.Stat(abs)
		}
	}
	if err != nil {
		return nil, &rootError{abs, bare(err)}
	}
	if !info.IsDir() {
		return nil, &rootError{abs, errors.New("it is not a directory")}
	}
	if err := checkOwner(abs, info, os.Geteuid()); err != nil {
		return nil, err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, abs, unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return nil, asOwner(&rootError{abs, fmt.Errorf("it cannot be written: %w", err)}, info, os.Geteuid())
	}
	return &Root{dir: abs}, nil
}

// OpenReader opens a root for reading. It creates nothing; a root that does not
// exist reads as empty.
func OpenReader(dir string) (*Root, error) {
	abs, err := absolute(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Root{dir: abs}, nil
	case err != nil:
		return nil, &rootError{abs, bare(err)}
	case !info.IsDir():
		return nil, &rootError{abs, errors.New("it is not a directory")}
	}
	if err := unix.Faccessat(unix.AT_FDCWD, abs, unix.R_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return nil, asOwner(&rootError{abs, fmt.Errorf("it cannot be read: %w", err)}, info, os.Geteuid())
	}
	return &Root{dir: abs}, nil
}

// OpenTemporary opens a throw-away root for a dry run; close removes it.
func OpenTemporary() (r *Root, close func() error, err error) {
	dir, err := os.MkdirTemp("", "marbles-")
	if err != nil {
		return nil, nil, &rootError{os.TempDir(), bare(err)}
	}
	return &Root{dir: dir}, func() error { return os.RemoveAll(dir) }, nil
}

func absolute(dir string) (string, error) {
	if dir == "" {
		return "", &rootError{`""`, errors.New("the path is empty")}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", &rootError{dir, err}
	}
	return abs, nil
}

// checkOwner applies cron's rule to a directory that a process of user euid is
// about to write.
func checkOwner(path string, info fs.FileInfo, euid int) error {
	if euid != 0 {
		return nil
	}
	if owner(info) != 0 {
		return asOwner(&rootError{path, fmt.Errorf("it belongs to user %s and this process is root", userName(owner(info)))}, info, euid)
	}
	const others = 0o022
	if mode := info.Mode().Perm(); mode&others != 0 {
		return Hint(&rootError{path, fmt.Errorf("its mode is %#o: others may write it, and this process is root", mode)},
			"chmod go-w "+path)
	}
	return nil
}

// asOwner adds how to act as the owner, where that is another user.
func asOwner(err error, info fs.FileInfo, euid int) error {
	if owner(info) == euid {
		return err
	}
	name := userName(owner(info))
	if rooted := (*rootError)(nil); errors.As(err, &rooted) {
		if real, rerr := filepath.EvalSymlinks(rooted.dir); rerr == nil && filepath.Dir(real) == "/var/lib/private" {
			// Of a service with DynamicUser=yes: the way there is closed to everybody but what systemd starts for it.
			return Hint(err, "systemd-run -q --pipe --wait --collect -p DynamicUser=yes -p User="+name+" -p StateDirectory="+filepath.Base(real)+" marbles --state "+rooted.dir+" …")
		}
	}
	return Hint(err, "sudo -u "+name+" marbles …")
}

func owner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return 0
}

func group(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Gid)
	}
	return 0
}

// userName is a form that sudo -u takes: the login name, or #uid without one.
func userName(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return "#" + strconv.Itoa(uid)
	}
	return u.Username
}

// makeDir creates a directory and its parents (0700), each one durably: a file
// below it would otherwise be lost with it.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	switch parent := filepath.Dir(dir); {
	case err == nil:
		return syncDir(osFiles{}, parent)
	case errors.Is(err, fs.ErrExist):
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return err
	case errors.Is(err, fs.ErrNotExist) && parent != dir:
		if err := makeDir(parent); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return syncDir(osFiles{}, parent)
	}
	return err
}

// Dir is the root's directory.
func (r *Root) Dir() string { return r.dir }

// Workspaces lists the workspaces below the root: the directories that hold a valid
// workspace.json, sorted by project root. Others are ignored ([Root.Survey] names them).
func (r *Root) Workspaces() ([]*Workspace, error) {
	list, _, err := r.Survey()
	return list, err
}

// Survey is [Root.Workspaces] together with an error for each workspace.json that
// cannot be used: damaged, of a version we do not know, or in the wrong directory.
func (r *Root) Survey() (list []*Workspace, damaged []error, err error) {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, &rootError{r.dir, bare(err)}
	}
	for _, e := range entries {
		if !isWorkspaceID(e.Name()) {
			continue
		}
		w := &Workspace{id: e.Name(), dir: filepath.Join(r.dir, e.Name())}
		rec, err := w.Record()
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		case err != nil:
			damaged = append(damaged, err)
		default:
			w.project = rec.Project()
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b *Workspace) int { return strings.Compare(a.project, b.project) })
	return list, damaged, nil
}

// Workspace is the workspace of a project directory; the path is made canonical
// (symbolic links resolved). Nothing is written.
func (r *Root) Workspace(project string) (*Workspace, error) {
	abs, err := filepath.Abs(project)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve project directory %s: %w", project, err)
	}
	canonical, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve project directory %s: %w", abs, bare(err))
	}
	id := WorkspaceID(canonical)
	return &Workspace{id: id, project: canonical, dir: filepath.Join(r.dir, id)}, nil
}

const workspaceIDLen = 12

// WorkspaceID is the first 12 hex digits of the SHA-256 of a canonical path.
func WorkspaceID(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return hex.EncodeToString(sum[:])[:workspaceIDLen]
}

func isWorkspaceID(name string) bool {
	return len(name) == workspaceIDLen && strings.Trim(name, "0123456789abcdef") == ""
}
