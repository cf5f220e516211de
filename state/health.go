package state

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"
)

// Health is health/<key>.json, version 1: how a monitor gets on with its source. It is no content: losing it costs an
// early look, or a notice that comes early or once more.
type Health struct {
	Version int `json:"version"`

	// Failures counts the looks that failed in a row, and while the source is down all of that outage. Since is when
	// the first of them ended.
	Failures  int    `json:"failures,omitzero"`
	Since     Stamp  `json:"since,omitzero"`
	LastError string `json:"lastError,omitempty"` // the latest of them

	Down      bool  `json:"down,omitzero"`
	DownSince Stamp `json:"downSince,omitzero"` // when it was found to be down
	// Successes counts the good looks in a row while it is down; UpSince is when the first of them ended.
	Successes int   `json:"successes,omitzero"`
	UpSince   Stamp `json:"upSince,omitzero"`
	// Pending is the notice whose handler has not succeeded yet. What the notice says (Failures, Since, DownSince,
	// UpSince, LastError) is kept until then.
	Pending Notice `json:"pending,omitempty"`
	// RetryAt is when the source is to be looked at again, where that is not its cadence's to say.
	RetryAt Stamp `json:"retryAt,omitzero"`

	Degraded      []string `json:"degraded,omitempty"` // what could not be seen, or is about to fail
	DegradedSince Stamp    `json:"degradedSince,omitzero"`
	CertExpires   Stamp    `json:"certExpires,omitzero"` // of an https source
	LastLook      Stamp    `json:"lastLook,omitzero"`    // as of this record, which is not written at each look

	Handler *HandlerLoop   `json:"handler,omitzero"`
	Unknown jsontext.Value `json:",embed"`
}

// Notice is what the handlers of a source's health are told.
type Notice string

// The notices; the zero Notice is none.
const (
	NoticeDown Notice = "down"
	NoticeUp   Notice = "up"
)

// HandlerLoop tells a change that a handler made itself from one that came from outside.
type HandlerLoop struct {
	// The latest run of the handler.
	Start Stamp `json:"start"`
	End   Stamp `json:"end"`
	// Count is how many runs followed one another, each but the first for a change that the one before had made.
	Count   int            `json:"count"`
	Unknown jsontext.Value `json:",embed"`
}

func (h *Health) format() (got, newest int) { return h.Version, 1 }

// Health reads how a monitor gets on; nil where there is nothing to say. A damaged record is a *[DamagedError].
func (w *Workspace) Health(key string) (*Health, error) {
	return readNamed(w, healthDir, key, &Health{})
}

// WriteHealth writes it durably.
func (w *Workspace) WriteHealth(key string, h *Health) error {
	return w.writeHealth(w.writer(), key, h)
}

// WriteHealthLazily writes it atomically but without any fsync: it survives the process, not the machine.
func (w *Workspace) WriteHealthLazily(key string, h *Health) error {
	return w.writeHealth(w.lazily(), key, h)
}

func (w *Workspace) writeHealth(how writer, key string, h *Health) error {
	path, err := w.recordPath("key", healthDir, key)
	if err != nil {
		return err
	}
	out := *h
	out.Version = 1
	return w.save(how, path, &out)
}

// HealthKeys lists the keys whose health is on record, in no order.
func (w *Workspace) HealthKeys() ([]string, error) { return listRecords(w.path(healthDir)) }

// ReadCache reads what a monitor keeps to be quicker the next time; nil where it kept nothing. What it holds is the
// monitor's to check: the file may be old, torn or another's.
func (w *Workspace) ReadCache(key string) ([]byte, error) {
	if err := PlainName("key", key); err != nil {
		return nil, err
	}
	path := w.path(cacheDir, key)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	return data, nil
}

// WriteCache keeps it, without any fsync: it may be lost at any time.
func (w *Workspace) WriteCache(key string, data []byte) error {
	if err := PlainName("key", key); err != nil {
		return err
	}
	return w.put(w.lazily(), w.path(cacheDir, key), data)
}

// FileStamp tells one state of a file from another without reading it. It is comparable; the zero one stands for no file.
// Records are replaced, never written over, so that each has an inode of its own while the one before it is still there.
type FileStamp struct {
	Size          int64
	Mtime, Ctime  time.Duration // since the epoch
	Inode, Device uint64
}

// IsZero reports whether there is no file.
func (s FileStamp) IsZero() bool { return s == FileStamp{} }

// MonitorStamp is the stamp of a monitor's observation: it is another one whenever the record is.
func (w *Workspace) MonitorStamp(key string) (FileStamp, error) {
	return w.stampOf(monitorsDir, key)
}

// HealthStamp is the same for its health.
func (w *Workspace) HealthStamp(key string) (FileStamp, error) {
	return w.stampOf(healthDir, key)
}

func (w *Workspace) stampOf(dir, key string) (FileStamp, error) {
	path, err := w.recordPath("key", dir, key)
	if err != nil {
		return FileStamp{}, err
	}
	return stampOfFile(path)
}

func stampOfFile(path string) (FileStamp, error) {
	var st unix.Stat_t
	_, err := uninterrupted(func() (int, error) { return 0, unix.Stat(path, &st) })
	if errors.Is(err, fs.ErrNotExist) {
		return FileStamp{}, nil
	}
	if err != nil {
		return FileStamp{}, fmt.Errorf("cannot look at %s: %w", path, err)
	}
	return FileStamp{
		Size:   st.Size,
		Mtime:  time.Duration(st.Mtim.Nano()),
		Ctime:  time.Duration(st.Ctim.Nano()),
		Inode:  st.Ino,
		Device: uint64(st.Dev), // int32 on some systems
	}, nil
}
