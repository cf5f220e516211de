package state

import (
	"errors"
	"time"
)

// ErrRoot is wrapped by every error that says the state root cannot be used
// (exit code 3).
var ErrRoot = errors.New("state root cannot be used")

// Hint attaches the next command to type to an error. errors.As finds it by
// interface{ Hint() string }. Hint of a nil error is nil.
func Hint(err error, hint string) error { panic("todo") }

// Root is a state root.
type Root struct{ dir string }

// Open opens a root for writing: creates it (0700) where missing, refuses one that
// is a file, is writable by others, or, when this process is root, belongs to
// another user. Left-over temporary files whose writer is dead are swept lazily
// by [Workspace.Sweep].
func Open(dir string) (*Root, error) { panic("todo") }

// OpenReader opens a root for reading. It creates nothing; a root that does not
// exist reads as empty.
func OpenReader(dir string) (*Root, error) { panic("todo") }

// OpenTemporary opens a throw-away root for a dry run; close removes it.
func OpenTemporary() (r *Root, close func() error, err error) { panic("todo") }

// Dir is the root's directory.
func (r *Root) Dir() string { return r.dir }

// Workspaces lists the workspaces below the root: the directories that hold a valid
// workspace.json, sorted by project root. Others are ignored.
func (r *Root) Workspaces() ([]*Workspace, error) { panic("todo") }

// Workspace is the workspace of a project directory; the path is made canonical
// (symbolic links resolved). Nothing is written.
func (r *Root) Workspace(project string) (*Workspace, error) { panic("todo") }

// WorkspaceID is the first 12 hex digits of the SHA-256 of a canonical path.
func WorkspaceID(canonical string) string { panic("todo") }

// Workspace is the state of one project directory. It is safe for concurrent use.
type Workspace struct {
	id      string
	project string // canonical path of the project directory
	dir     string // <root>/<id>
}

// ID is the workspace's id, Project its canonical project directory, Dir its
// directory below the root.
func (w *Workspace) ID() string      { return w.id }
func (w *Workspace) Project() string { return w.project }
func (w *Workspace) Dir() string     { return w.dir }

// Register creates the workspace's directories and writes workspace.json: firstSeen
// is kept, lastSeen and config (nil for none) updated. Call it before any other write.
func (w *Workspace) Register(config *string, now time.Time) error { panic("todo") }

// Record reads workspace.json.
func (w *Workspace) Record() (*WorkspaceRecord, error) { panic("todo") }

// Sweep removes temporary files whose writer is dead, and returns their paths.
func (w *Workspace) Sweep() ([]string, error) { panic("todo") }

// Key reads a key's history; a missing record is nil without error, a damaged one
// is an error that names the file.
func (w *Workspace) Key(key string) (*KeyRecord, error) { panic("todo") }

// WriteKey writes a key's history durably. The record's unknown fields are kept.
func (w *Workspace) WriteKey(key string, rec *KeyRecord) error { panic("todo") }

// WriteKeyLazily writes it atomically but without any fsync: losing it costs one
// early poll. For polls that saw nothing only.
func (w *Workspace) WriteKeyLazily(key string, rec *KeyRecord) error { panic("todo") }

// Keys lists the keys that have a history, sorted.
func (w *Workspace) Keys() ([]string, error) { panic("todo") }

// Monitor and WriteMonitor are the same for observations.
func (w *Workspace) Monitor(key string) (*MonitorRecord, error)        { panic("todo") }
func (w *Workspace) WriteMonitor(key string, rec *MonitorRecord) error { panic("todo") }

// Since reads since.json: an empty map where missing.
func (w *Workspace) Since() (map[string]Since, error) { panic("todo") }

// WriteSince replaces since.json in one durable write.
func (w *Workspace) WriteSince(m map[string]Since) error { panic("todo") }

// Heartbeat reads heartbeat.json; nil where missing.
func (w *Workspace) Heartbeat() (*Heartbeat, error) { panic("todo") }

// WriteHeartbeat writes it for this process; RemoveHeartbeat removes it while it
// still names this process.
func (w *Workspace) WriteHeartbeat(config *string, started time.Time) error { panic("todo") }
func (w *Workspace) RemoveHeartbeat() error                                 { panic("todo") }

// AppendSlot appends one line to a key's slot ledger, after ending a torn last
// line. sync makes it durable before it returns.
func (w *Workspace) AppendSlot(key string, e SlotEntry, sync bool) error { panic("todo") }

// Slots reads the newest n entries of a key's ledger, oldest first; n <= 0 is all.
// It reads from the end: its cost does not grow with the ledger. Damaged lines are
// passed over.
func (w *Workspace) Slots(key string, n int) ([]SlotEntry, error) { panic("todo") }
