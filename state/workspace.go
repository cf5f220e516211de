package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Workspace is the state of one project directory. It is safe for concurrent use.
type Workspace struct {
	id      string
	project string // canonical path of the project directory
	dir     string // <root>/<id>

	fs files // nil is the real file system

	spares atomic.Pointer[spareLocks] // nil until KeepLocks

	// Ledgers created by this process, and how many of them have a durable name.
	ledgersMade, ledgersKept atomic.Int64

	owed owedLines
}

// ID is the workspace's id, Project its canonical project directory, Dir its
// directory below the root.
func (w *Workspace) ID() string      { return w.id }
func (w *Workspace) Project() string { return w.project }
func (w *Workspace) Dir() string     { return w.dir }

// Worktrees is the directory of the worktrees of steps at work: each named by its run and what follows.
func (w *Workspace) Worktrees() string { return w.path(worktreesDir) }

// Units is the directory of the private directories of steps that are done in units of the init system, which outlive this
// process. Whoever starts one makes it.
func (w *Workspace) Units() string { return w.path(unitsDir) }

// The directories of a workspace.
const (
	runsDir      = "runs"
	outputDir    = "output"
	schedulesDir = "schedules"
	slotsDir     = "slots"
	monitorsDir  = "monitors"
	healthDir    = "health"
	cacheDir     = "cache"
	locksDir     = "locks"
	requestsDir  = "requests"
	toldDir      = "told"
	worktreesDir = "worktrees"
	unitsDir     = "units"
	handedDir    = "handed"
)

// subDirs is all of them.
var subDirs = [...]string{runsDir, outputDir, schedulesDir, slotsDir, monitorsDir, healthDir, cacheDir, locksDir, requestsDir, toldDir, worktreesDir, unitsDir, handedDir}

const (
	recordExt  = ".json"
	journalExt = ".jsonl"
	ledgerExt  = ".jsonl"
)

func (w *Workspace) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

// recordPath is where the record of a name lies, where it is one plain file name.
func (w *Workspace) recordPath(what, dir, name string) (string, error) {
	if err := PlainName(what, name); err != nil {
		return "", err
	}
	return w.path(dir, name+recordExt), nil
}

func (w *Workspace) files() files {
	if w.fs == nil {
		return osFiles{}
	}
	return w.fs
}

func (w *Workspace) writer() writer { return writer{fs: w.files()} }
func (w *Workspace) lazily() writer { return writer{fs: w.files(), lazy: true} }

// save writes a record.
func (w *Workspace) save(how writer, path string, v any) error {
	data, err := encode(v)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return w.put(how, path, data)
}

// put writes a file. A workspace whose directories were deleted under a running service
// gets them back.
func (w *Workspace) put(how writer, path string, data []byte) error {
	err := how.write(path, data)
	if errors.Is(err, fs.ErrNotExist) {
		if err := w.makeDirs(); err != nil {
			return fmt.Errorf("cannot write %s: %w", path, err)
		}
		return how.write(path, data)
	}
	return err
}

// makeDirs creates the workspace's directories where they are missing, durably.
func (w *Workspace) makeDirs() error {
	if err := makeDir(w.dir); err != nil {
		return err
	}
	made := false
	for _, dir := range subDirs {
		err := os.Mkdir(w.path(dir), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		made = made || err == nil
	}
	if !made {
		return nil
	}
	return syncDir(osFiles{}, w.dir)
}

// checkOwners applies cron's rule to the workspace's directories that are there. What
// lies in one that others may write is theirs: a record to believe, a pid to kill.
func (w *Workspace) checkOwners(euid int) error {
	if euid != 0 {
		return nil
	}
	for _, dir := range append([]string{""}, subDirs[:]...) {
		path := w.path(dir)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return &rootError{filepath.Dir(w.dir), err}
		}
		if err := checkOwner(path, info, euid); err != nil {
			return err
		}
	}
	return nil
}

// Register creates the workspace's directories and writes workspace.json: firstSeen
// is kept, lastSeen and config (nil for none) updated. Call it before any other write.
// A damaged workspace.json is set aside; one of a version we do not know is an error.
func (w *Workspace) Register(config *string, now time.Time) error {
	if err := w.checkOwners(os.Geteuid()); err != nil {
		return err
	}
	return w.register(config, now)
}

// register is Register without a look at who owns what is there.
func (w *Workspace) register(config *string, now time.Time) error {
	if err := w.makeDirs(); err != nil {
		return &rootError{filepath.Dir(w.dir), fmt.Errorf("cannot create %s: %w", w.dir, bare(err))}
	}
	rec, err := w.Record()
	var damaged *DamagedError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		rec = &WorkspaceRecord{}
	case errors.As(err, &damaged):
		if _, err := damaged.SetAside(); err != nil {
			return err
		}
		rec = &WorkspaceRecord{}
	case err != nil:
		return err
	}
	if rec.FirstSeen.IsZero() {
		rec.FirstSeen = Stamp{now}
	}
	rec.ID, rec.Config, rec.LastSeen, rec.Version = w.id, config, Stamp{now}, 1
	rec.setProject(w.project)
	if err := w.save(w.writer(), w.path(workspaceFile), rec); err != nil {
		return &rootError{filepath.Dir(w.dir), err}
	}
	return nil
}

const workspaceFile = "workspace.json"

// Record reads workspace.json; a missing one is [fs.ErrNotExist].
func (w *Workspace) Record() (*WorkspaceRecord, error) {
	path := w.path(workspaceFile)
	var rec WorkspaceRecord
	if err := readRecord(path, &rec); err != nil {
		return nil, err
	}
	if rec.ID != w.id {
		return nil, &DamagedError{path, fmt.Errorf("it holds workspace %q", rec.ID)}
	}
	if rec.Root == "" {
		return nil, &DamagedError{path, errors.New("it names no project directory")}
	}
	return &rec, nil
}

// setProject keeps a project directory's path.
func (r *WorkspaceRecord) setProject(path string) {
	r.Root, r.RootBytes = path, nil
	if !utf8.ValidString(path) {
		r.RootBytes = []byte(path)
	}
}

// Project is the path of the project directory, byte by byte. RootBytes counts only
// while it belongs to this workspace: a program that knows no such member may have
// written another root beside it.
func (r *WorkspaceRecord) Project() string {
	if path := string(r.RootBytes); path != "" && WorkspaceID(path) == r.ID {
		return path
	}
	return r.Root
}

// Key reads a key's history; a missing record is nil without error, a damaged one
// is an error that names the file.
func (w *Workspace) Key(key string) (*KeyRecord, error) {
	return readNamed(w, schedulesDir, key, &KeyRecord{})
}

// WriteKey writes a key's history durably. The record's unknown fields are kept.
func (w *Workspace) WriteKey(key string, rec *KeyRecord) error {
	return w.writeKey(w.writer(), key, rec)
}

// WriteKeyLazily writes it atomically but without any fsync: losing it costs one
// early poll. For polls that saw nothing only.
func (w *Workspace) WriteKeyLazily(key string, rec *KeyRecord) error {
	return w.writeKey(w.lazily(), key, rec)
}

func (w *Workspace) writeKey(how writer, key string, rec *KeyRecord) error {
	path, err := w.recordPath("key", schedulesDir, key)
	if err != nil {
		return err
	}
	out := *rec
	out.Version = 1
	return w.save(how, path, &out)
}

// Keys lists the keys that have a history, sorted.
func (w *Workspace) Keys() ([]string, error) {
	names, err := listRecords(w.path(schedulesDir))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// Monitor and WriteMonitor are the same for observations.
func (w *Workspace) Monitor(key string) (*MonitorRecord, error) {
	return readNamed(w, monitorsDir, key, &MonitorRecord{})
}

// WriteMonitor replaces a monitor's observation durably.
func (w *Workspace) WriteMonitor(key string, rec *MonitorRecord) error {
	path, err := w.recordPath("key", monitorsDir, key)
	if err != nil {
		return err
	}
	out := *rec
	out.Version = 1
	return w.save(w.writer(), path, &out)
}

// readNamed reads the record of a key into an empty one; nil where there is none.
func readNamed[T any, R interface {
	*T
	record
}](w *Workspace, dir, key string, into R) (R, error) {
	path, err := w.recordPath("key", dir, key)
	if err != nil {
		return nil, err
	}
	return orNone(into, readRecord(path, into))
}

// orNone makes a missing file no record and no error.
func orNone[R any](rec *R, err error) (*R, error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return rec, nil
}

const heartbeatFile = "heartbeat.json"

// Heartbeat reads heartbeat.json; nil where missing.
func (w *Workspace) Heartbeat() (*Heartbeat, error) {
	var h Heartbeat
	return orNone(&h, readRecord(w.path(heartbeatFile), &h))
}

// Owner is the process a heartbeat names.
func (h *Heartbeat) Owner() Process {
	return Process{PID: h.PID, BootID: h.BootID, StartTicks: h.StartTicks}
}

// WriteHeartbeat writes heartbeat.json for this process.
func (w *Workspace) WriteHeartbeat(config *string, started time.Time) error {
	self := Self()
	return w.save(w.writer(), w.path(heartbeatFile), &Heartbeat{
		PID: self.PID, StartedAt: Stamp{started}, Config: config, Version: 1,
		BootID: self.BootID, StartTicks: self.StartTicks,
	})
}

// RemoveHeartbeat removes heartbeat.json while it still names this process.
func (w *Workspace) RemoveHeartbeat() error {
	h, err := w.Heartbeat()
	if err != nil || h == nil || h.Owner() != Self() {
		return err
	}
	err = w.files().remove(w.path(heartbeatFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove %s: %w", w.path(heartbeatFile), bare(err))
	}
	return nil
}

// listRecords lists the names of the records in a directory, unsorted; none where
// it is missing.
func listRecords(dir string) ([]string, error) {
	names, err := readNames(dir, recordExt)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", dir, bare(err))
	}
	return names, nil
}
