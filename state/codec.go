package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrVersion is wrapped where a file has a format version this marbles does not
// know. Such a file is not damaged: it must be neither overwritten nor set aside.
var ErrVersion = errors.New("its version is not known to this marbles")

// DamagedError says that a file cannot be read as what it should be.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("cannot read %s: %v", e.Path, e.Err) }
func (e *DamagedError) Unwrap() error { return e.Err }

// SetAside renames the damaged file to <path>.damaged, or .damaged-2 and so on, so
// that its place can be written again, and returns the new path.
func (e *DamagedError) SetAside() (string, error) {
	const most = 100
	for n := 1; n <= most; n++ {
		to := e.Path + ".damaged"
		if n > 1 {
			to += "-" + strconv.Itoa(n)
		}
		err := renameNew(e.Path, to)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cannot set %s aside: %w", e.Path, bare(err))
		}
		return to, nil
	}
	return "", fmt.Errorf("cannot set %s aside: there are %d damaged ones already", e.Path, most)
}

// encode is the form of every snapshot: two-space indented, no trailing newline.
// Text that is not UTF-8 (an error message of a step) must not keep a record from
// being saved, so its bad bytes become U+FFFD.
func encode(v any) ([]byte, error) {
	return json.Marshal(v,
		jsontext.WithIndent("  "),
		jsontext.AllowInvalidUTF8(true),
		jsontext.PreserveRawStrings(true),
		json.Deterministic(true))
}

// encodeLine is the form of one line of a ledger or journal.
func encodeLine(v any) ([]byte, error) {
	b, err := json.Marshal(v,
		jsontext.AllowInvalidUTF8(true),
		jsontext.PreserveRawStrings(true),
		json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// decode reads one JSON value. Lone surrogates, which the first format may write,
// are let through.
func decode(data []byte, v any) error {
	return json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true))
}

// record is a snapshot with a format version.
type record interface {
	// format is the version the file names (0 for none), and the newest we know.
	format() (got, newest int)
}

// readRecord reads a snapshot into v, an empty record. A missing file is
// [fs.ErrNotExist]; otherwise the error names the file, and is a *DamagedError or
// wraps [ErrVersion] where its content is at fault.
func readRecord(path string, v record) error {
	data, err := readFile(path)
	if errors.Is(err, errNotRegular) {
		return &DamagedError{path, errNotRegular}
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, bare(err))
	}
	return decodeRecord(path, data, v)
}

func decodeRecord(path string, data []byte, v record) error {
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return &DamagedError{path, errors.New("the file is empty")}
	case trimmed[0] != '{':
		return &DamagedError{path, errors.New("not a JSON object")}
	}
	err := decode(data, v)
	got, newest := v.format()
	if err != nil {
		// A later format may give a field another type: then the version is the news.
		var peek struct {
			Version int `json:"version"`
		}
		if decode(data, &peek) != nil {
			return &DamagedError{path, err}
		}
		got = peek.Version
	}
	// Files of the first format may lack a version.
	if got < 0 || got > newest {
		return fmt.Errorf("cannot read %s: version %d: %w", path, got, ErrVersion)
	}
	if err != nil {
		return &DamagedError{path, err}
	}
	return nil
}

func (r *WorkspaceRecord) format() (got, newest int) { return r.Version, 1 }
func (h *Heartbeat) format() (got, newest int)       { return h.Version, 1 }
func (r *KeyRecord) format() (got, newest int)       { return r.Version, 1 }
func (r *MonitorRecord) format() (got, newest int)   { return r.Version, 1 }
func (f *RunFile) format() (got, newest int)         { return f.Version, 2 }
