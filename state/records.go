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

// Skipped is the state of a step whose condition did not hold, or that was not needed. No run is skipped.
const Skipped Status = "skipped"

// Settled reports whether a run in this state has ended for good.
func (s Status) Settled() bool { return s == Complete || s == Failed || s == Cancelled }

// RunError is why a run or step did not complete. Name is one of a closed set:
// ExitError, SignalError, TimeoutError, OutOfMemoryError, SpawnError, InterruptedError, CancelledError, RejectedError,
// ConditionError, LimitError, Error.
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
	TriggerID string `json:"triggerId,omitempty"` // the key, when a tick or a monitor's launch started it
	// Trigger is schedule | monitor | manual | launch | start (a step of another run) | restart (on_interrupt) | hook |
	// health (a monitor's on_down or on_up).
	Trigger string `json:"trigger,omitempty"`
	Kind    string `json:"kind,omitempty"` // workflow | handler | hook | ping
	Slot    Stamp  `json:"slot,omitzero"`
	// Restarted is the run that was launched in place of this one, which was interrupted (on_interrupt: restart);
	// RestartOf is the other way round, as RetryOf is for a retry of the whole run.
	Restarted string         `json:"restarted,omitempty"`
	RestartOf string         `json:"restartOf,omitempty"`
	RetryOf   string         `json:"retryOf,omitempty"`
	Unknown   jsontext.Value `json:",embed"`
}

// StepRecord is how one step of a run went; a step over a list has one for itself, and one for each item.
type StepRecord struct {
	Name string `json:"name"`
	// Item is the place in its list of what the step was done for; nil for the step itself.
	Item *int `json:"item,omitzero"`
	// Attempts is how often it was tried, where that is more than once; the rest of the record is of the last time.
	Attempts   int            `json:"attempts,omitzero"`
	Status     Status         `json:"status"`
	StartedAt  Millis         `json:"startedAt"`
	FinishedAt Millis         `json:"finishedAt"`
	ExitCode   *int           `json:"exitCode,omitzero"`
	Signal     string         `json:"signal,omitempty"`
	Cause      string         `json:"cause,omitempty"` // what ended it: code | signal | timeout | oom | cancel | spawn
	Child      string         `json:"child,omitempty"` // the run that it started
	Error      *RunError      `json:"error,omitempty"`
	Result     jsontext.Value `json:"result,omitzero"`
	Leftover   []string       `json:"leftover,omitempty"` // processes it left behind and we ended: "pid 12 sleep"
	UserMS     int64          `json:"userMs,omitzero"`
	SystemMS   int64          `json:"systemMs,omitzero"`
	CPUMS      int64          `json:"cpuMs,omitzero"` // of a unit, which does not tell user and system apart
	MaxRSS     int64          `json:"maxRssBytes,omitzero"`
	Unit       string         `json:"unit,omitempty"` // of the init system, that its process ran in
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
	Links      *RunLinks         `json:"links,omitzero"`
	Unknown    jsontext.Value    `json:",embed"`
}

// RunLinks says what else a run belongs to. ParentRunID is the run whose step started it.
type RunLinks struct {
	InvocationID string         `json:"invocationId,omitempty"`
	JobID        string         `json:"jobId,omitempty"`
	ParentRunID  string         `json:"parentRunId,omitempty"`
	PrincipalID  string         `json:"principalId,omitempty"`
	SessionID    string         `json:"sessionId,omitempty"`
	SubjectID    string         `json:"subjectId,omitempty"`
	Unknown      jsontext.Value `json:",embed"`
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

// RunFile is runs/<run>.json, version 2. Version 1 files load: they are the same without Marbles.
type RunFile struct {
	Version     int            `json:"version"`
	PID         int            `json:"pid"`
	BootID      string         `json:"bootId,omitempty"`
	StartTicks  uint64         `json:"startTicks,omitzero"`
	Run         Run            `json:"run"`
	Frames      []RunFrame     `json:"frames"`
	Jobs        []JobRecord    `json:"jobs"`
	Queue       RunQueue       `json:"queue"`
	Suspensions []Suspension   `json:"suspensions"`
	Steps       []StepRecord   `json:"steps,omitempty"`
	Marbles     *RunMarbles    `json:"marbles,omitzero"`
	Unknown     jsontext.Value `json:",embed"`
}

// RunFrame is one event of a run. Cursors count from 0 without a gap.
type RunFrame struct {
	RunID   string         `json:"runId"`
	Cursor  int            `json:"cursor"`
	At      Millis         `json:"at"`
	Payload FramePayload   `json:"payload"`
	Unknown jsontext.Value `json:",embed"`
}

// FramePayload is what happened: Kind is output, progress, log, lifecycle or suspension.
type FramePayload struct {
	Kind    string         `json:"kind"`
	Value   jsontext.Value `json:"value"`
	Unknown jsontext.Value `json:",embed"`
}

// JobRecord is the job that a run does. marbles writes none and keeps what another program wrote.
type JobRecord struct {
	ID         string         `json:"id"`
	Definition jsontext.Value `json:"definition"`
	Input      jsontext.Value `json:"input"`
	Links      jsontext.Value `json:"links,omitzero"`
	Status     string         `json:"status"` // pending | active | waiting | complete | failed | cancelled
	Timestamps jsontext.Value `json:"timestamps"`
	Unknown    jsontext.Value `json:",embed"`
}

// RunMarbles is what a run keeps for its replay.
type RunMarbles struct {
	// Ledger has what the calls of a step's process were answered, by "marbles:<step path>|<kind>|<n>", n from 0.
	Ledger map[string]jsontext.Value `json:"ledger,omitzero"`
	// Literals has what each step was when the run started, by its dotted path (runner: literals), and under the
	// workflow's name the workflow without its steps.
	Literals map[string]jsontext.Value `json:"literals,omitzero"`
	Session  jsontext.Value            `json:"session,omitzero"`
	// Waits are the suspensions that were open when the run parked: it goes on once one of them is not any more, and no
	// pause is open.
	Waits []string `json:"waits,omitempty"`
	// Attempt counts the retries of a settled run.
	Attempt int `json:"attempt,omitzero"`
	// ElapsedMS is how long the run was at work before it parked, in all, in milliseconds.
	ElapsedMS int64 `json:"elapsedMs,omitzero"`
	// LeftAt is when the run was left to its units: it has been at work since then, too.
	LeftAt  Stamp          `json:"leftAt,omitzero"`
	Unknown jsontext.Value `json:",embed"`
}

// SuspensionStatus is how far a suspension is.
type SuspensionStatus string

// The states of a suspension.
const (
	Pending      SuspensionStatus = "pending"
	Resolved     SuspensionStatus = "resolved"
	NoLongerOpen SuspensionStatus = "cancelled"
)

// Kinds of a suspension.
const (
	SuspendInput = "marbles.feed.input" // a question: Request is a Question, Resolution an Answer
	SuspendPause = "marbles.pause"      // somebody paused the run: Request is {"reason"}
	SuspendWait  = "marbles.wait"       // an instant: Request is {"until": a stamp}
	SuspendChild = "marbles.child"      // a child run that is parked itself: Request is {"run"}
	SuspendUnit  = "marbles.unit"       // a step in a unit of the init system, which outlives us: Request is a UnitRef
)

// UnitRef is a unit of the init system that does a step: the request of a SuspendUnit, and what a journal says of its start.
type UnitRef struct {
	Unit    string   `json:"unit"`
	Dir     string   `json:"dir"`  // private to it: its input, its result, its output as it comes
	Path    []string `json:"path"` // as StepPath
	Attempt int      `json:"attempt"`
	Since   Stamp    `json:"since"` // when the step began
	At      Stamp    `json:"at"`    // when this attempt did
}

// Suspension is what a parked run waits for, or has waited for.
type Suspension struct {
	ID         string           `json:"id"` // su-…
	RunID      string           `json:"runId"`
	Kind       string           `json:"kind"`
	Name       string           `json:"name"`       // the step's
	Occurrence int              `json:"occurrence"` // which of the step's suspensions of this kind it is, from 0
	Reason     string           `json:"reason"`
	Request    jsontext.Value   `json:"request"`
	Resolution jsontext.Value   `json:"resolution"` // null while pending
	Revision   int              `json:"revision"`   // counts the changes of this record
	Status     SuspensionStatus `json:"status"`
	StepPath   []string         `json:"stepPath"` // the workflow's name, the step's, and the place in the list where it has one
	Timestamps SuspensionTimes  `json:"timestamps"`
	Unknown    jsontext.Value   `json:",embed"`
}

// SuspensionTimes are the timestamps of a suspension.
type SuspensionTimes struct {
	CreatedAt   Millis         `json:"createdAt"`
	ResolvedAt  Millis         `json:"resolvedAt"`
	CancelledAt Millis         `json:"cancelledAt,omitzero"`
	Unknown     jsontext.Value `json:",embed"`
}

// Modes of a question.
const (
	ModeQuestion = "question" // one of Choices, or any text where there are none
	ModeApproval = "approval" // approve or reject
)

// Answers of an approval.
const (
	Approve = "approve"
	Reject  = "reject"
)

// Question is the request of a SuspendInput.
type Question struct {
	Title   string         `json:"title"`
	Body    string         `json:"body,omitempty"`
	Choices []string       `json:"choices"` // at most 9
	Mode    string         `json:"mode"`
	Key     string         `json:"key,omitempty"`
	Until   Stamp          `json:"deadline,omitzero"` // when Default answers it, or, without one, it fails
	Default *string        `json:"default,omitzero"`
	Unknown jsontext.Value `json:",embed"`
}

// Answer is the resolution of a SuspendInput.
type Answer struct {
	Answer  string         `json:"answer"` // approve, reject, a choice or a text
	Note    string         `json:"note,omitempty"`
	At      Stamp          `json:"at"`
	By      string         `json:"by,omitempty"` // the user who answered, or "default" or "deadline"
	Unknown jsontext.Value `json:",embed"`
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
	SlotMissed  Outcome = "missed"  // asleep, off or paused: Reason says which
	SlotParked  Outcome = "parked"  // Run waits for an answer or a time; a further line says how it ended
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
