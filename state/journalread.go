package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"
)

const (
	// followPoll is how often a followed journal is looked at. Polling works alike on
	// every system and file system.
	followPoll = 40 * time.Millisecond
	// readRoom is how much is read at once.
	readRoom = 256 << 10
	// maxRecord is the longest line that is read; a longer one is damaged. The longest
	// text record is six times maxPiece.
	maxRecord = 64 << 20
)

// Entry is one record of a journal as read back.
type Entry struct {
	Kind    string // start | text | spawn | process | step | dropped | end
	At      time.Time
	Run     string // start
	Name    string // start
	Process Process
	Step    string
	Stream  string
	Text    []byte // decoded; the callee may keep it
	Partial bool
	Status  Status
	Result  jsontext.Value
	Error   *RunError
	Record  *StepRecord // step
	Bytes   int64       // dropped
	Cgroup  string      // process
	Unit    *UnitRef    // spawn
	Offset  int64       // text; see [Journal.TextTo]
}

// ReadJournal calls fn for each complete record there is now. Unknown kinds and
// damaged lines are passed over; a torn last line is not seen. A journal that does not
// exist is [fs.ErrNotExist], a start record of a version we do not know [ErrVersion];
// an error of fn ends the reading and is returned as it is.
func (w *Workspace) ReadJournal(run string, fn func(Entry) error) error {
	r, err := w.openJournalReader(run)
	if err != nil {
		return err
	}
	defer r.file.Close()
	_, err = r.deliver(context.Background(), fn)
	return err
}

// FollowJournal calls fn for each record, then waits for more (seen within 100 ms),
// until done, called when nothing new came, says to stop, or ctx ends. After done
// said stop, what was appended meanwhile is still delivered. A journal that does not exist
// yet is waited for; one that was deleted or cut short while followed is an error.
func (w *Workspace) FollowJournal(ctx context.Context, run string, fn func(Entry) error, done func() (bool, error)) error {
	var r *journalReader
	defer func() {
		if r != nil {
			r.file.Close()
		}
	}()
	tick := time.NewTimer(followPoll)
	defer tick.Stop()
	for stop := false; ; {
		var more bool
		var err error
		if r == nil {
			r, err = w.openJournalReader(run)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if r != nil && err == nil {
			more, err = r.deliver(ctx, fn)
			if err == nil {
				err = r.verify()
			}
		}
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case stop:
			return nil // what came while done was asked has been delivered
		case more:
			continue
		}
		if stop, err = done(); err != nil {
			return err
		}
		if stop {
			continue
		}
		tick.Reset(followPoll)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// journalReader reads a growing file of lines. It keeps one line, and what was read
// with it.
type journalReader struct {
	run  string
	path string
	file *os.File
	info fs.FileInfo // of the opened file
	off  int64       // bytes read

	limit   int // maxRecord, less in tests
	buf     []byte
	start   int  // of the line that is being read
	scanned int  // no line ends before
	ended   bool // the latest record ends the run
	long    bool // the line is over the limit, and is dropped to its end
	last    Entry
}

func (w *Workspace) openJournalReader(run string) (*journalReader, error) {
	path, err := w.journalPath(run)
	if err != nil {
		return nil, err
	}
	f, info, err := openRegular(path, os.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("cannot open the output of run %s: %w", run, err)
	}
	return &journalReader{run: run, path: path, file: f, info: info, limit: maxRecord}, nil
}

// deliver calls fn for every complete record up to the present end of the file, and
// says whether there was anything new to read.
func (r *journalReader) deliver(ctx context.Context, fn func(Entry) error) (more bool, err error) {
	before := r.off
	for ctx.Err() == nil {
		line, err := r.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, fmt.Errorf("cannot read the output of run %s: %w", r.run, err)
		}
		e, ok, err := parseEntry(line, &r.last)
		if err != nil {
			return false, fmt.Errorf("cannot read the output of run %s: %w", r.run, err)
		}
		if !ok {
			continue
		}
		if e.Kind == "text" {
			r.last.Step, r.last.Stream = e.Step, e.Stream
		}
		if err := fn(e); err != nil {
			return false, err
		}
		r.ended = e.Kind == "end"
	}
	return r.off > before, nil
}

// next returns the next complete line without its end, valid until the next call, or
// [io.EOF]; a torn line waits for its rest.
func (r *journalReader) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.scanned:], '\n'); i >= 0 {
			end := r.scanned + i
			line := r.buf[r.start:end]
			r.start, r.scanned = end+1, end+1
			if r.long {
				r.long = false
				continue
			}
			return line, nil
		}
		r.scanned = len(r.buf)
		if r.long || r.scanned-r.start > r.limit {
			r.long = true
			r.start = r.scanned
		}
		r.makeRoom()
		n, err := r.file.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+n]
		r.off += int64(n)
		if n == 0 && err == nil {
			err = io.EOF
		}
		if n == 0 {
			return nil, err
		}
	}
}

// makeRoom moves the line that is being read to the front of a buffer with room for
// as much again; a buffer that a long line blew up is let go.
func (r *journalReader) makeRoom() {
	pending := len(r.buf) - r.start
	if cap(r.buf)-len(r.buf) >= readRoom/2 {
		return
	}
	room := max(2*pending, readRoom)
	buf := r.buf[:0]
	if cap(r.buf) < room || cap(r.buf) > 4*room {
		buf = make([]byte, 0, room)
	}
	r.buf = append(buf, r.buf[r.start:]...)
	r.scanned -= r.start
	r.start = 0
}

// verify checks that the file which is followed is still there and no shorter than
// what was read of it.
func (r *journalReader) verify() error {
	open, err := r.file.Stat()
	if err != nil {
		return fmt.Errorf("cannot follow the output of run %s: %w", r.run, err)
	}
	if open.Size() < r.off {
		return fmt.Errorf("cannot follow the output of run %s: %s was cut short", r.run, r.path)
	}
	there, err := os.Lstat(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.ended: // by retention, and nothing more would come
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("cannot follow the output of run %s: %s was deleted", r.run, r.path)
	case err != nil:
		return fmt.Errorf("cannot follow the output of run %s: %w", r.run, err)
	case !os.SameFile(r.info, there):
		return fmt.Errorf("cannot follow the output of run %s: %s was replaced", r.run, r.path)
	}
	return nil
}

// parseEntry reads one line. ok is false for a kind we do not know and for what is no
// record at all.
func parseEntry(line []byte, last *Entry) (e Entry, ok bool, err error) {
	if e, ok := parseText(line, last); ok {
		return e, true, nil
	}
	var rec struct {
		Kind       string         `json:"kind"`
		Version    *int           `json:"version"`
		At         Stamp          `json:"at"`
		Run        string         `json:"run"`
		Name       string         `json:"name"`
		PID        int            `json:"pid"`
		BootID     string         `json:"bootId"`
		StartTicks uint64         `json:"startTicks"`
		Step       string         `json:"step"`
		Stream     string         `json:"stream"`
		Text       string         `json:"text"`
		Base64     []byte         `json:"base64"`
		Partial    bool           `json:"partial"`
		Status     Status         `json:"status"`
		Result     jsontext.Value `json:"result"`
		Error      *RunError      `json:"error"`
		Record     *StepRecord    `json:"record"`
		Bytes      int64          `json:"bytes"`
		Cgroup     string         `json:"cgroup"`
		Unit       *UnitRef       `json:"unit"`
		Offset     int64          `json:"offset"`
	}
	// What another program wrote is read as far as it can be.
	if json.Unmarshal(line, &rec, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return Entry{}, false, nil
	}
	e = Entry{Kind: rec.Kind, At: rec.At.Time}
	switch rec.Kind {
	case "start":
		if rec.Version != nil && *rec.Version != journalVersion {
			return Entry{}, false, fmt.Errorf("version %d: %w", *rec.Version, ErrVersion)
		}
		e.Run, e.Name = rec.Run, rec.Name
		e.Process = Process{PID: rec.PID, BootID: rec.BootID, StartTicks: rec.StartTicks}
	case "text":
		e.Step, e.Stream, e.Partial, e.Offset = rec.Step, rec.Stream, rec.Partial, rec.Offset
		if e.Text = rec.Base64; e.Text == nil {
			e.Text = []byte(rec.Text)
		}
	case "spawn":
		e.Step, e.Unit = rec.Step, rec.Unit
	case "process":
		e.Step, e.Cgroup = rec.Step, rec.Cgroup
		e.Process = Process{PID: rec.PID, BootID: rec.BootID, StartTicks: rec.StartTicks}
	case "step":
		if rec.Record == nil {
			return Entry{}, false, nil
		}
		e.Step, e.Record = rec.Record.Name, rec.Record
	case "dropped":
		e.Step, e.Stream, e.Bytes = rec.Step, rec.Stream, rec.Bytes
	case "end":
		e.Status, e.Result, e.Error = rec.Status, rec.Result, rec.Error
	default:
		return Entry{}, false, nil
	}
	return e, true, nil
}
