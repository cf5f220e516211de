package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Finding is something that is wrong below a state root.
type Finding struct {
	Kind    string // see the Found… constants
	Project string // of its workspace; "" for the root itself
	Where   string // a path
	What    string // is wrong
	Cause   string // why that is, or can be
	Mend    string // the command that mends it, or what else there is to do

	fix func() error // mends it safely; nil where only a person can
}

// Kinds of findings.
const (
	FoundBreak     = "break"      // a turn at breaking a lock that nobody ended
	FoundLock      = "lock"       // a lock that nobody holds, or that names nobody
	FoundDamaged   = "damaged"    // a record that cannot be read
	FoundContrary  = "contrary"   // records that contradict each other
	FoundOrphan    = "orphan"     // a run whose process is gone
	FoundJournal   = "journal"    // output without a run
	FoundTorn      = "torn"       // a line that a crash cut off
	FoundMode      = "mode"       // others may read or write what is ours
	FoundOwner     = "owner"      // it belongs to another user
	FoundTemp      = "temp"       // a temporary file of a dead writer
	FoundFuture    = "future"     // an instant that has not come yet
	FoundDisk      = "disk"       // full, or read-only
	FoundHeartbeat = "heartbeat"  // a service that died
	FoundRequest   = "request"    // nobody took it
	FoundGone      = "definition" // a parked run whose workflow is gone
)

// Fixable reports whether [Finding.Fix] can mend it.
func (f *Finding) Fixable() bool { return f.fix != nil }

// Fix mends a finding. It looks again first: what is in order by now stays as it is.
func (f *Finding) Fix() error {
	if f.fix == nil {
		return errors.New("this cannot be mended without you")
	}
	return f.fix()
}

// Examination says what an examination goes by.
type Examination struct {
	Now time.Time
	// Defined tells whether a workspace defines a workflow; known is false where its definitions cannot be read.
	Defined func(ws *Workspace, name string) (defined, known bool)
}

// examiner collects findings.
type examiner struct {
	Examination
	ctx   context.Context
	owner int // who the root belongs to
	found []*Finding
}

func (x *examiner) add(f Finding) { x.found = append(x.found, &f) }

// Examine looks for all that is wrong below the root. It writes nothing.
func (r *Root) Examine(ctx context.Context, e Examination) ([]*Finding, error) {
	x := &examiner{Examination: e, ctx: ctx}
	info, err := os.Stat(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &rootError{r.dir, bare(err)}
	}
	x.owner = owner(info)
	x.root(r.dir, info)
	x.disk(r.dir)
	x.record("", &Pauses{}, filepath.Join(r.dir, pausedFile))
	workspaces, damaged, err := r.Survey()
	if err != nil {
		return nil, err
	}
	for _, err := range damaged {
		x.unreadable("", "", err)
	}
	for _, w := range workspaces {
		x.locks(w)
		x.files(w)
		x.records(w)
		if err := x.runs(w); err != nil {
			return nil, err
		}
		x.requests(w)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return x.found, nil
}

// root checks the state root itself, which a service manager may have made readable.
func (x *examiner) root(dir string, info fs.FileInfo) {
	const writers = 0o022
	if mode := info.Mode().Perm(); mode&writers != 0 {
		f := Finding{
			Kind: FoundMode, Where: dir, What: fmt.Sprintf("its mode is %#o: others may write it", mode),
			Cause: "whoever made it, or a chmod since", Mend: "chmod go-w " + dir,
		}
		if x.owner == os.Geteuid() {
			f.fix = func() error { return os.Chmod(dir, mode&^writers) }
		}
		x.add(f)
	}
}

const (
	// leastFree and leastInodes are what a disk should have left at least.
	leastFree   = 64 << 20
	leastInodes = 1000
)

func (x *examiner) disk(dir string) {
	if errors.Is(unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS), syscall.EROFS) {
		x.add(Finding{
			Kind: FoundDisk, Where: dir, What: "its file system is read-only",
			Cause: "it was mounted so, or the kernel found an error on it", Mend: "look at dmesg, then mount -o remount,rw",
		})
	}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return
	}
	if free := uint64(st.Bavail) * uint64(st.Bsize); free < leastFree {
		x.add(Finding{
			Kind: FoundDisk, Where: dir, What: fmt.Sprintf("its disk has %s left", sizeText(int64(free))),
			Cause: "something filled it", Mend: "marbles prune --keep-bytes 512MiB",
		})
	}
	if st.Files > 0 && uint64(st.Ffree) < leastInodes {
		x.add(Finding{
			Kind: FoundDisk, Where: dir, What: fmt.Sprintf("its file system has room for %d more files", st.Ffree),
			Cause: "too many small files on it", Mend: "marbles prune --keep-runs 100",
		})
	}
}

// unreadable adds a record that could not be read.
func (x *examiner) unreadable(project, path string, err error) {
	f := Finding{Kind: FoundDamaged, Project: project, Where: path, What: err.Error()}
	var damaged *DamagedError
	switch {
	case errors.Is(err, ErrVersion):
		f.Cause, f.Mend = "a newer marbles wrote it", "use that marbles"
	case errors.As(err, &damaged):
		f.Where, f.What = damaged.Path, "it cannot be read: "+damaged.Err.Error()
		f.Cause = "a failing disk, or another program that wrote it"
		f.Mend = "mv " + damaged.Path + " " + damaged.Path + ".damaged"
	default:
		f.Cause, f.Mend = "the file system refused it", "ls -l "+path
	}
	x.add(f)
}

// record reads a record, and adds it where that fails; ok is false then, and where it is missing.
func (x *examiner) record(project string, rec record, path string) (ok bool) {
	err := readRecord(path, rec)
	if err == nil {
		return true
	}
	if !errors.Is(err, fs.ErrNotExist) {
		x.unreadable(project, path, err)
	}
	return false
}
