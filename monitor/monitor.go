package monitor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"marbles/state"
)

// Source is what a monitor watches. Make it with NewFiles or NewHTTP, which check it.
// It may be used by several goroutines.
type Source struct {
	files *filesSource // one of the two is set
	http  *httpSource
}

// Kinds of a source.
const (
	KindFiles = "files"
	KindHTTP  = "http"
)

// NewFiles checks a glob under a directory, and the patterns to leave out (design §8, "Globs").
// A glob that can match nothing by its form (`**` glued to text, a leading `!`, an absolute path, a `..`,
// a syntax error) is an error that names the pattern and the reason.
//
// A pattern to leave out is a glob too. Where its last segment is a plain name, or `**`, a directory
// is left out with all below it and not entered. `.git/`, `.foundry/`, `.turbo/`, `node_modules/`,
// `.DS_Store` and `Thumbs.db` are never seen.
func NewFiles(dir, glob string, exclude []string) (*Source, error) {
	f, err := newFiles(dir, glob, exclude)
	if err != nil {
		return nil, err
	}
	return &Source{files: f}, nil
}

// HTTPOptions are the limits of an HTTP source. Zero values are the defaults.
type HTTPOptions struct {
	MaxBody   int64  // decompressed bytes; default 10 MiB
	UserAgent string // default marbles/<version>
}

// NewHTTP checks an http or https URL; user information in it is refused. The source
// honours HTTP_PROXY, HTTPS_PROXY and NO_PROXY as net/http does, which reads them once
// per process. Its errors never show a URL's query, which may hold secrets.
func NewHTTP(url string, o HTTPOptions) (*Source, error) {
	h, err := newHTTP(url, o)
	if err != nil {
		return nil, err
	}
	return &Source{http: h}, nil
}

// Kind is KindFiles or KindHTTP; String the glob or URL.
func (s *Source) Kind() string {
	if s.http != nil {
		return KindHTTP
	}
	return KindFiles
}

func (s *Source) String() string {
	if s.http != nil {
		return s.http.text
	}
	return s.files.glob.text
}

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
	First   bool   // there was no committed observation
	Change  []byte // the change as JSON, as the handler gets it; nil where nothing changed
	Body    []byte // an HTTP body as received; nil for files
	Paths   []byte // every changed path, NUL-terminated bytes, for files
	// Record is to be committed after the handler succeeded; it carries no Pending. Where nothing
	// changed it is nil, or may be committed without a handler: at a first look it says that nothing
	// was there, and later it says the same of every file and only knows better which directories are
	// mounts, or forgets files no longer watched.
	Record *state.MonitorRecord
	// Degraded says what could not be seen ("t/secret: permission denied"), at most ten.
	Degraded []string
	Summary  string // for people: "2 added, 1 modified", "200, 1.2 kB"
}

// Look looks once. prev is the committed observation, nil for none; it is not changed. An error means
// that nothing could be learnt: it is a failed poll. timeout bounds the whole look (0: the kind's
// default, 30 s for HTTP, none for files).
func (s *Source) Look(ctx context.Context, prev *state.MonitorRecord, timeout time.Duration, log *slog.Logger) (*Observation, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if timeout == 0 && s.http != nil {
		timeout = defaultHTTPTimeout
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("took longer than %s: %w", timeout, context.DeadlineExceeded))
		defer cancel()
	}
	if s.http != nil {
		return s.http.look(ctx, prev, log)
	}
	return s.files.look(ctx, prev, log)
}

// stopped is why a context ended: a deadline's own text, or context.Canceled.
func stopped(ctx context.Context) error {
	if err := context.Cause(ctx); ctx.Err() == context.DeadlineExceeded {
		return err
	}
	return ctx.Err()
}
