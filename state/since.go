package state

import (
	"errors"
	"io/fs"

	"github.com/go-json-experiment/json/jsontext"
)

const sinceFile = "since.json"

// sinceRecord is since.json, version 1.
type sinceRecord struct {
	Version int              `json:"version"`
	Keys    map[string]Since `json:"keys"`
	Unknown jsontext.Value   `json:",embed"`
}

func (r *sinceRecord) format() (got, newest int) { return r.Version, 1 }

// Since reads since.json: an empty map where missing.
func (w *Workspace) Since() (map[string]Since, error) {
	var rec sinceRecord
	err := readRecord(w.path(sinceFile), &rec)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if rec.Keys == nil {
		rec.Keys = make(map[string]Since)
	}
	return rec.Keys, nil
}

// WriteSince replaces since.json in one durable write. A file that is damaged, or of
// a version we do not know, is an error and stays.
func (w *Workspace) WriteSince(m map[string]Since) error {
	var old sinceRest
	err := readRecord(w.path(sinceFile), &old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return w.save(w.writer(), w.path(sinceFile), &sinceRecord{Version: 1, Keys: m, Unknown: old.Unknown})
}

// sinceRest is since.json without its keys.
type sinceRest struct {
	Version int            `json:"version"`
	Keys    jsontext.Value `json:"keys"`
	Unknown jsontext.Value `json:",embed"`
}

func (r *sinceRest) format() (got, newest int) { return (&sinceRecord{Version: r.Version}).format() }
