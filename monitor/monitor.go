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

// FilesOptions say how a glob is watched. Zero values are the defaults.
type FilesOptions struct {
	Exclude  []string // patterns to leave out
	NoIgnore bool     // .gitignore files are not honoured

	// Settle is how long what changed must have kept still before it is reported; 0 reports at once. MaxSettle bounds
	// the wait (0: ten times Settle), so that a file that never keeps still is reported too.
	Settle, MaxSettle time.Duration

	// Reread is after how long a file is read again though nothing says that it changed; 0 is seven days.
	Reread time.Duration

	Shared *Shared // what is read is shared with the other sources that have it; nil for none
}

// NewFiles checks a glob under a directory, and the patterns to leave out (design §8, "Globs").
// A glob that can match nothing by its form (`**` glued to text, a leading `!`, an absolute path, a `..`,
// a syntax error) is an error that names the pattern and the reason.
//
// A pattern to leave out is a glob too. Where its last segment is a plain name, or `**`, a directory
// is left out with all below it and not entered. `.git/`, `.foundry/`, `.turbo/`, `node_modules/`,
// `.DS_Store` and `Thumbs.db` are never seen, nor is what the .gitignore files below dir ignore.
func NewFiles(dir, glob string, o FilesOptions) (*Source, error) {
	f, err := newFiles(dir, glob, o)
	if err != nil {
		return nil, err
	}
	return &Source{files: f}, nil
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

// Kind is KindFiles or KindHTTP; String the glob, or the URL without its query, which may hold secrets.
func (s *Source) Kind() string {
	if s.http != nil {
		return KindHTTP
	}
	return KindFiles
}

func (s *Source) String() string {
	if s.http != nil {
		return redact(s.http.url)
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
	// Selection is what the select options picked, and Previous the body committed before, nil on a first look. For HTTP.
	Selection, Previous []byte
	// Newest is the latest change time among what was added or modified; zero where nothing was. For files.
	Newest time.Time
	// CertExpires is when the server's certificate ends; zero where there is none.
	CertExpires time.Time
	// Degraded says what could not be seen ("t/secret: permission denied"), at most ten.
	Degraded []string
	Summary  string // for people: "2 added, 1 modified", "200, 1.2 kB"
}

// Committed is the committed observation as it lies on disk. The zero value is none.
type Committed struct {
	// Stamp changes whenever the record does. A source that remembers what it compared with that stamp need not
	// load it again; a zero stamp is never remembered.
	Stamp state.FileStamp
	Load  func() (*state.MonitorRecord, error) // nil, or a nil record, for none
}

func (c Committed) load() (*state.MonitorRecord, error) {
	if c.Load == nil {
		return nil, nil
	}
	return c.Load()
}

// LookOptions are of one look. Zero values are the defaults.
type LookOptions struct {
	Timeout       time.Duration // bounds the look, without the time to settle; 0 is the kind's default, 30 s for HTTP, none for files
	Log           *slog.Logger  // nil for none
	Fresh         bool          // something said that there was a change: share nothing that was read before now
	Unconditional bool          // read everything: trust no digest from before, and send no validators
}

// RetryError is a failed look whose server said when to come back.
type RetryError struct {
	After time.Duration // from now
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }

func (e *RetryError) Unwrap() error { return e.Err }

// Look looks once. prev is the committed observation. An error means that nothing could be learnt: it is a failed poll.
func (s *Source) Look(ctx context.Context, prev Committed, o LookOptions) (*Observation, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if s.http != nil {
		if o.Timeout == 0 {
			o.Timeout = defaultHTTPTimeout
		}
		return s.http.look(ctx, prev, o)
	}
	return s.files.look(ctx, prev, o)
}

// Cache is what a files source remembers of the files it read, to be given to RestoreCache in another process. It is nil
// where there is nothing new since the last Cache or RestoreCache. Losing it costs reading everything once more, and
// never an event.
func (s *Source) Cache() []byte {
	if s.files == nil {
		return nil
	}
	return s.files.saveCache()
}

// RestoreCache takes in what Cache returned. What is damaged, or was made for another source, is ignored.
func (s *Source) RestoreCache(data []byte) {
	if s.files != nil {
		s.files.restoreCache(data)
	}
}

// within bounds ctx by a timeout; 0 is none. The cancel function must be called.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("took longer than %s: %w", timeout, context.DeadlineExceeded))
}

// stopped is why a context ended: a deadline's own text, or context.Canceled.
func stopped(ctx context.Context) error {
	if err := context.Cause(ctx); ctx.Err() == context.DeadlineExceeded {
		return err
	}
	return ctx.Err()
}
