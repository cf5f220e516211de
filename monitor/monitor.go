package monitor

import (
	"context"
	"log/slog"
	"time"

	"marbles/state"
)

// Source is what a monitor watches. Make it with NewFiles or NewHTTP, which check it.
type Source struct{} // fields of your choosing

// Kinds of a source.
const (
	KindFiles = "files"
	KindHTTP  = "http"
)

// NewFiles checks a glob under a directory, and the patterns to leave out (design §8, "Globs").
// A glob that can match nothing by its form (`**` glued to text, a leading `!`, an absolute path, a `..`,
// a syntax error) is an error.
func NewFiles(dir, glob string, exclude []string) (*Source, error) { panic("todo") }

// HTTPOptions are the limits of an HTTP source. Zero values are the defaults.
type HTTPOptions struct {
	MaxBody   int64  // decompressed bytes; default 10 MiB
	UserAgent string // default marbles/<version>
}

// NewHTTP checks an http or https URL; user information in it is refused.
func NewHTTP(url string, o HTTPOptions) (*Source, error) { panic("todo") }

// Kind is KindFiles or KindHTTP; String the glob or URL.
func (s *Source) Kind() string   { panic("todo") }
func (s *Source) String() string { panic("todo") }

// File is a path with the digest of its bytes.
type File struct {
	Path     string `json:"path"`            // bytes that are not UTF-8 as \xNN, and then \ doubled
	Bytes    string `json:"bytes,omitempty"` // base64 of the path's bytes, where Path is escaped
	Checksum string `json:"checksum"`
}

// FilesChange is the change of a files monitor. Its arrays are never null and are sorted by path.
type FilesChange struct {
	Kind     string `json:"kind"` // "files"
	Added    []File `json:"added"`
	Modified []File `json:"modified"`
	Removed  []File `json:"removed"` // with the last seen checksum
}

// Observation is the outcome of one look.
type Observation struct {
	Changed bool
	First   bool                 // there was no committed observation
	Change  []byte               // the change as JSON, as the handler gets it; nil where nothing changed
	Body    []byte               // an HTTP body as received; nil for files
	Paths   []byte               // every changed path, NUL-terminated bytes, for files
	Record  *state.MonitorRecord // to commit after the handler succeeded; carries no Pending
	// Degraded says what could not be seen ("t/secret: permission denied"), at most ten.
	Degraded []string
	Summary  string // for people: "2 added, 1 modified", "200, 1.2 kB"
}

// Look looks once. prev is the committed observation, nil for none. An error means that nothing
// could be learnt: it is a failed poll. timeout bounds the whole look (0: the kind's default, 30 s
// for HTTP, none for files).
func (s *Source) Look(ctx context.Context, prev *state.MonitorRecord, timeout time.Duration, log *slog.Logger) (*Observation, error) {
	panic("todo")
}
