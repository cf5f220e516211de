package state

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// WorkspaceRecord is workspace.json, version 1.
type WorkspaceRecord struct {
	ID   string `json:"id"`
	Root string `json:"root"`
	// RootBytes is the path where it is not UTF-8, and Root can only show it; in the
	// file it is base64. See [WorkspaceRecord.Project].
	RootBytes []byte         `json:"rootBytes,omitempty"`
	Config    *string        `json:"config"`
	FirstSeen Stamp          `json:"firstSeen"`
	LastSeen  Stamp          `json:"lastSeen"`
	Version   int            `json:"version"`
	Unknown   jsontext.Value `json:",embed"`
}

// Heartbeat is heartbeat.json, version 1: who serves this workspace. It informs
// people; that a second service is refused rests on [Workspace.LockService].
type Heartbeat struct {
	PID        int            `json:"pid"`
	StartedAt  Stamp          `json:"startedAt"`
	Config     *string        `json:"config"`
	Version    int            `json:"version"`
	BootID     string         `json:"bootId,omitempty"`
	StartTicks uint64         `json:"startTicks,omitzero"`
	Unknown    jsontext.Value `json:",embed"`
}

// Kinds of a key.
const (
	KindSchedule = "schedule"
	KindMonitor  = "monitor"
)

// KeyRecord is schedules/<key>.json, version 1: the history of a schedule or
// monitor. The first seven fields are the documented ones; the rest are ours.
type KeyRecord struct {
	Version    int    `json:"version"`
	Kind       string `json:"kind,omitempty"`
	Label      string `json:"label,omitempty"`
	LastStart  Stamp  `json:"lastStart"`
	LastFinish Stamp  `json:"lastFinish"`
	LastStatus string `json:"lastStatus"` // complete | failed; empty while the first tick runs
	NextDue    Stamp  `json:"nextDue"`

	// Slot is the latest slot that was started, written before its process is
	// spawned; SlotLocal is its nominal civil time, "2006-01-02T15:04", in the
	// zone in force then (see design §6: one local slot never runs twice).
	Slot      Stamp  `json:"slot,omitzero"`
	SlotLocal string `json:"slotLocal,omitempty"`
	// Run is the run the latest tick started, "" for a poll that started none.
	Run string `json:"run,omitempty"`
	// Failures counts consecutive failed ticks; LastError is the last one's text.
	Failures  int            `json:"failures,omitzero"`
	LastError string         `json:"lastError,omitempty"`
	Unknown   jsontext.Value `json:",embed"`
}

// Since is when a key was first seen with the cadence it has now.
type Since struct {
	Cadence string         `json:"cadence"` // canonical text, see scheduler.Cadence.String
	At      Stamp          `json:"since"`
	Unknown jsontext.Value `json:",embed"`
}

// PendingLaunch is a launch a monitor asked for and that has not been started.
type PendingLaunch struct {
	Workflow string         `json:"workflow"`
	Input    jsontext.Value `json:"input"`         // null when none; the member is always present
	Run      string         `json:"run,omitempty"` // the run id it will have, so that it starts once
	Unknown  jsontext.Value `json:",embed"`
}

// MonitorRecord is monitors/<key>.json, version 1: the committed observation.
// A files monitor has Files, an HTTP monitor Current and Hash.
type MonitorRecord struct {
	Version int `json:"version"`
	// Files maps a path to the SHA-256 (hex) of its bytes. JSON holds only UTF-8,
	// so a path that is not is kept with its bad bytes as \xNN and \ doubled.
	// An empty map is written, a nil one is not.
	Files map[string]string `json:"files,omitzero"`
	// Mounts are the directories, written as paths are, that were on another device than their parent,
	// "." for the workspace. One that no longer is has vanished, and what was in it is unknown.
	Mounts  []string       `json:"mounts,omitempty"`
	Current jsontext.Value `json:"current,omitzero"` // any JSON value, or the body as a string
	// CurrentBase64 marks a body that is not UTF-8: Current is then its base64.
	CurrentBase64 bool   `json:"currentBase64,omitzero"`
	Hash          string `json:"hash,omitempty"` // of the selection, where there is a Filter, else of the body
	Status        int    `json:"status,omitzero"`
	// Filter is the canonical text of what selected the part that counts, "" for the whole body; Selection is that part:
	// any JSON value, or a string.
	Filter     string         `json:"filter,omitempty"`
	Selection  jsontext.Value `json:"selection,omitzero"`
	Validators Validators     `json:"validators,omitzero"`
	Pending    *PendingLaunch `json:"pending,omitempty"`
	Unknown    jsontext.Value `json:",embed"`
}

// Validators are what a server said this observation can be asked for by, word for word.
type Validators struct {
	URL          string `json:"url"` // the last one, after redirects; of a query only the digest
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
}

// Status is the state of a run.
type Status string

// The states of a run; the last three are settled.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Suspended Status = "suspended"
	Complete  Status = "complete"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Settled reports whether a run in this state has ended for good.
func (s Status) Settled() bool { return s == Complete || s == Failed || s == Cancelled }

// RunError is why a run or step did not complete. Name is one of a closed set:
// ExitError, SignalError, TimeoutError, SpawnError, InterruptedError, CancelledError, Error.
type RunError struct {
	Name    string         `json:"name"`
	Message string         `json:"message"`
	Stack   string         `json:"stack,omitempty"`
	Unknown jsontext.Value `json:",embed"`
}

// RunTimes are the timestamps of a run.
type RunTimes struct {
	CreatedAt   Millis         `json:"createdAt"`
	StartedAt   Millis         `json:"startedAt"`
	CompletedAt Millis         `json:"completedAt"`
	FailedAt    Millis         `json:"failedAt"`
	CancelledAt Millis         `json:"cancelledAt,omitzero"`
	Unknown     jsontext.Value `json:",embed"`
}

// Ended is when the run settled, or zero.
func (t RunTimes) Ended() Millis { return max(t.CompletedAt, t.FailedAt, t.CancelledAt) }

// RunExtensions says what started a run. TriggerID is the documented field.
type RunExtensions struct {
	TriggerID string         `json:"triggerId,omitempty"` // the key, when a tick or a monitor's launch started it
	Trigger   string         `json:"trigger,omitempty"`   // schedule | monitor | manual | launch
	Kind      string         `json:"kind,omitempty"`      // workflow | handler
	Slot      Stamp          `json:"slot,omitzero"`
	Unknown   jsontext.Value `json:",embed"`
}

// StepRecord is how one step of a run went.
type StepRecord struct {
	Name       string         `json:"name"`
	Status     Status         `json:"status"`
	StartedAt  Millis         `json:"startedAt"`
	FinishedAt Millis         `json:"finishedAt"`
	ExitCode   *int           `json:"exitCode,omitzero"`
	Signal     string         `json:"signal,omitempty"`
	Error      *RunError      `json:"error,omitempty"`
	Result     jsontext.Value `json:"result,omitzero"`
	Leftover   []string       `json:"leftover,omitempty"` // processes it left behind and we ended: "pid 12 sleep"
	UserMS     int64          `json:"userMs,omitzero"`
	SystemMS   int64          `json:"systemMs,omitzero"`
	MaxRSS     int64          `json:"maxRssBytes,omitzero"`
	Unknown    jsontext.Value `json:",embed"`
}

// Run is the record of one execution of a workflow or handler.
type Run struct {
	ID         string            `json:"id"`
	Step       string            `json:"step"` // the workflow's name, or the monitor's key for a handler
	QueueID    string            `json:"queueId"`
	Status     Status            `json:"status"`
	Input      jsontext.Value    `json:"input"`
	Output     jsontext.Value    `json:"output"`
	Error      *RunError         `json:"error"`
	Tags       map[string]string `json:"tags"`
	Metadata   jsontext.Value    `json:"metadata"`
	Extensions RunExtensions     `json:"extensions"`
	Snapshot   jsontext.Value    `json:"snapshot"`
	Timestamps RunTimes          `json:"timestamps"`
	Links      jsontext.Value    `json:"links,omitzero"`
	Unknown    jsontext.Value    `json:",embed"`
}

// RunQueue is the queue row every run file carries.
type RunQueue struct {
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	Status     string         `json:"status"` // active
	CreatedAt  Millis         `json:"createdAt"`
	Extensions jsontext.Value `json:"extensions"`
	LastError  jsontext.Value `json:"lastError"`
	Unknown    jsontext.Value `json:",embed"`
}

// RunFile is runs/<run>.json, version 2. Version 1 files load.
type RunFile struct {
	Version     int              `json:"version"`
	PID         int              `json:"pid"`
	BootID      string           `json:"bootId,omitempty"`
	StartTicks  uint64           `json:"startTicks,omitzero"`
	Run         Run              `json:"run"`
	Frames      []jsontext.Value `json:"frames"`
	Jobs        []jsontext.Value `json:"jobs"`
	Queue       RunQueue         `json:"queue"`
	Suspensions []jsontext.Value `json:"suspensions"`
	Steps       []StepRecord     `json:"steps,omitempty"`
	Marbles     jsontext.Value   `json:"marbles,omitzero"`
	Unknown     jsontext.Value   `json:",embed"`
}

// Owner is the process a run file names.
func (f *RunFile) Owner() Process {
	return Process{PID: f.PID, BootID: f.BootID, StartTicks: f.StartTicks}
}

// Outcome is how a due slot ended.
type Outcome string

// How a due slot can end.
const (
	SlotRan     Outcome = "ran"     // Run names the run
	SlotSkipped Outcome = "skipped" // Reason says why, Holder and Run who stood in the way
	SlotMerged  Outcome = "merged"  // a later slot's run stands for it
	SlotMissed  Outcome = "missed"  // asleep, off, catch_up said no
	SlotFailed  Outcome = "failed"  // it could not be started
)

// SlotEntry is one line of slots/<key>.jsonl. A stretch of slots that ended alike
// is one line: From is the oldest, Slot the newest, Count how many (More: at least).
type SlotEntry struct {
	Slot    Stamp          `json:"slot"`
	At      Stamp          `json:"at"` // when this was decided
	Outcome Outcome        `json:"outcome"`
	Run     string         `json:"run,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Holder  string         `json:"holder,omitempty"`
	From    Stamp          `json:"from,omitzero"`
	Count   int            `json:"count,omitzero"`
	More    bool           `json:"more,omitzero"`
	Unknown jsontext.Value `json:",embed"`
}

// RunSummary is what lists show of a run: what the index holds.
type RunSummary struct {
	ID      string
	Name    string
	Key     string
	Status  Status
	Created time.Time
	Started time.Time
	Ended   time.Time
	Trigger string
	Error   string
	Owner   Process // of an unsettled run
}
