package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"
)

// Streams of a text record.
const (
	Stdout     = "stdout"
	Stderr     = "stderr"
	StepStream = "step" // step lifecycle lines
)

// journalVersion is the version of a start record.
const journalVersion = 1

const (
	// maxPiece bounds one text record; longer data is cut into several, so that a
	// reader needs no more memory than a few records.
	maxPiece = 4 << 20
	// keepBuffer is how large a buffer may stay with an open journal.
	keepBuffer = 1 << 20
)

// Journal is the append-only output of one run. It is safe for concurrent use.
// Every record is one append of a whole line.
type Journal struct {
	run     string
	path    string
	file    journalFile
	syncDir func() error // makes the directory entry durable

	mu     sync.Mutex // guards what follows
	buf    []byte
	torn   bool // the last append left a line without its end
	listed bool // the directory entry is durable; whoever created it may have died first
	// failed is a failed fsync. What it lost cannot be told, so the journal takes
	// nothing more.
	failed error
}

// journalFile is what a Journal does to its file; *os.File outside tests.
type journalFile interface {
	Write(b []byte) (int, error)
	Sync() error
	Close() error
}

func (w *Workspace) journalPath(run string) (string, error) {
	if err := PlainName("run id", run); err != nil {
		return "", err
	}
	return w.path(outputDir, run+journalExt), nil
}

// OpenJournal creates or continues output/<run>.jsonl and appends a start record.
// It first ends a torn last line. Where the record cannot be written it leaves no
// file behind that it created.
func (w *Workspace) OpenJournal(run, name string, now time.Time) (*Journal, error) {
	path, err := w.journalPath(run)
	if err != nil {
		return nil, err
	}
	file, info, created, err := openJournalFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open the output of run %s: %w", run, err)
	}
	j := &Journal{run: run, path: path, file: file, syncDir: func() error {
		return syncDir(w.files(), filepath.Dir(path))
	}}
	if j.torn, err = isTorn(file); err == nil {
		err = j.start(name, now)
	}
	if err != nil {
		// A full disk would keep an empty file of every tick it refused. Nobody else
		// can have one of this name, unless it replaced ours.
		if there, serr := os.Lstat(path); created && serr == nil && os.SameFile(info, there) {
			_ = os.Remove(path)
		}
		file.Close()
		return nil, fmt.Errorf("cannot open the output of run %s: %w", run, err)
	}
	return j, nil
}

// openJournalFile opens a journal for appending, creating it and its directory where
// missing. It does not write through a link that leads elsewhere.
func openJournalFile(path string) (f *os.File, info fs.FileInfo, created bool, err error) {
	f, info, created, err = openAppend(path, unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeDir(filepath.Dir(path)); err == nil {
			f, info, created, err = openAppend(path, unix.O_NOFOLLOW)
		}
	}
	return f, info, created, err
}

// isTorn reports whether a file ends within a line, as after a crash or a full disk.
func isTorn(f *os.File) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return false, err
	}
	return last[0] != '\n', nil
}

func (j *Journal) start(name string, now time.Time) error {
	me := Self()
	return j.append("start", time.Time{}, func(b []byte) []byte {
		b = append(b, `,"version":`...)
		b = strconv.AppendInt(b, journalVersion, 10)
		b = appendMember(b, "run", j.run)
		b = appendMember(b, "name", name)
		b = append(b, `,"pid":`...)
		b = strconv.AppendInt(b, int64(me.PID), 10)
		b = appendAt(b, now)
		return appendIdentity(b, me)
	})
}

// Text appends what arrived together on one stream of a step. Bytes that are not
// UTF-8 go as base64; joining the texts of one step and stream gives back its bytes.
// partial marks a piece of a longer line.
//
// A piece that was read from a pipe may end within a character, and would then go as
// base64 as a whole: the caller cuts it with [SplitUTF8] and keeps the rest for the
// stream's next piece. More than 4 MiB become several records.
func (j *Journal) Text(at time.Time, step, stream string, data []byte, partial bool) error {
	return j.TextTo(at, step, stream, data, partial, 0)
}

// TextTo is Text for a stream that is kept elsewhere too, up to an offset there in bytes: whoever goes on with it starts
// there. 0 is none.
func (j *Journal) TextTo(at time.Time, step, stream string, data []byte, partial bool, offset int64) error {
	for len(data) > 0 {
		piece := data
		if len(piece) > maxPiece {
			if whole, _ := SplitUTF8(piece[:maxPiece]); len(whole) > 0 {
				piece = whole
			}
		}
		data = data[len(piece):]
		cut := len(data) > 0 && piece[len(piece)-1] != '\n'
		err := j.append("text", at, func(b []byte) []byte {
			b = appendMember(b, "step", step)
			b = appendMember(b, "stream", stream)
			b = appendData(b, piece)
			if cut || partial && len(data) == 0 {
				b = append(b, `,"partial":true`...)
			}
			if offset > 0 && len(data) == 0 {
				b = strconv.AppendInt(append(b, `,"offset":`...), offset, 10)
			}
			return b
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Spawning records that a process is about to be started, Spawned which one it
// became (its process group is its pid). Both kinds are ours; readers ignore them. unit is the unit in which it will be,
// nil for none; one that is taken over is spawning once more.
func (j *Journal) Spawning(at time.Time, step string, unit *UnitRef) error {
	var text []byte
	if unit != nil {
		var err error
		if text, err = encodeLine(unit); err != nil {
			return fmt.Errorf("cannot append to the output of run %s: %w", j.run, err)
		}
	}
	return j.append("spawn", at, func(b []byte) []byte {
		if b = appendMember(b, "step", step); text != nil {
			b = append(append(b, `,"unit":`...), text[:len(text)-1]...)
		}
		return b
	})
}

// Spawned appends which process it became; cgroup is the directory of its control group, "" for none.
func (j *Journal) Spawned(at time.Time, step string, p Process, cgroup string) error {
	return j.append("process", at, func(b []byte) []byte {
		b = appendMember(b, "step", step)
		b = append(b, `,"pid":`...)
		b = strconv.AppendInt(b, int64(p.PID), 10)
		if b = appendIdentity(b, p); cgroup != "" {
			b = appendMember(b, "cgroup", cgroup)
		}
		return b
	})
}

// End appends the end record: result, or err where the run did not complete.
func (j *Journal) End(at time.Time, status Status, result jsontext.Value, err *RunError) error {
	compact := jsontext.Value("null")
	if err == nil && len(result) > 0 {
		compact = result.Clone() // one line, whatever the result was printed like
		if cerr := compact.Compact(jsontext.AllowInvalidUTF8(false)); cerr != nil {
			return fmt.Errorf("cannot write the result of run %s to its output: %w", j.run, cerr)
		}
	}
	return j.append("end", at, func(b []byte) []byte {
		b = appendMember(b, "status", string(status))
		if err == nil {
			return append(append(b, `,"result":`...), compact...)
		}
		b = append(b, `,"error":{"name":`...)
		b = appendQuoted(b, err.Name)
		b = appendMember(b, "message", err.Message)
		return append(b, '}')
	})
}

// Step appends how a step ended. Recovery takes it over into the run file.
func (j *Journal) Step(at time.Time, rec *StepRecord) error {
	text, err := encodeLine(rec)
	if err != nil {
		return fmt.Errorf("cannot append to the output of run %s: %w", j.run, err)
	}
	return j.append("step", at, func(b []byte) []byte {
		return append(append(b, `,"record":`...), text[:len(text)-1]...)
	})
}

// Dropped appends that so many bytes of a stream were not written, because the run's output had grown too large.
func (j *Journal) Dropped(at time.Time, step, stream string, n int64) error {
	return j.append("dropped", at, func(b []byte) []byte {
		b = appendMember(b, "step", step)
		b = appendMember(b, "stream", stream)
		return strconv.AppendInt(append(b, `,"bytes":`...), n, 10)
	})
}

// append writes one record: its kind, the time unless that is zero, and what members
// adds. The whole line is one write, so that records of two writers never mix and a
// reader sees a record whole or not yet.
//
// A write that fails half-way cannot be taken back in a file that is only ever
// appended to: its line is ended before the next record, and readers pass over it.
func (j *Journal) append(kind string, at time.Time, members func([]byte) []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.failed
	}
	b := j.buf[:0]
	if j.torn {
		b = append(b, '\n')
	}
	b = append(b, `{"kind":"`...)
	b = append(b, kind...)
	b = append(b, '"')
	if !at.IsZero() {
		b = appendAt(b, at)
	}
	b = append(members(b), "}\n"...)
	if j.buf = b; cap(b) > keepBuffer {
		j.buf = nil
	}
	n, err := j.file.Write(b)
	if err == nil && n < len(b) {
		err = errors.New("short write")
	}
	if n > 0 {
		j.torn = n <= len(b) && b[n-1] != '\n'
	}
	if err != nil {
		return fmt.Errorf("cannot append to the output of run %s: %w", j.run, err)
	}
	return nil
}

// Sync makes the journal durable, its directory entry included. Output goes on being
// appended meanwhile.
func (j *Journal) Sync() error {
	j.mu.Lock()
	listed, err := j.listed, j.failed
	j.mu.Unlock()
	if err != nil {
		return err
	}
	err = j.file.Sync()
	if err == nil && !listed {
		err = j.syncDir()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.listed = true
		return nil
	}
	err = fmt.Errorf("cannot sync the output of run %s: %w", j.run, err)
	if !errors.Is(err, os.ErrClosed) {
		// The kernel may have dropped the pages, and would call the next fsync a success.
		j.failed = err
	}
	return err
}

// Close closes the file without syncing.
func (j *Journal) Close() error {
	if err := j.file.Close(); err != nil {
		return fmt.Errorf("cannot close the output of run %s: %w", j.run, err)
	}
	return nil
}

// Remove deletes a journal that cannot be trusted as proof of what was spawned
// (see runner: recovery), after an append failed. It closes the journal, and the
// deletion is durable when it returns without error.
func (j *Journal) Remove() error {
	j.file.Close()
	err := os.Remove(j.path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = j.syncDir()
	}
	if err != nil {
		return fmt.Errorf("cannot remove the output of run %s: %w", j.run, err)
	}
	return nil
}
