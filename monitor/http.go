package monitor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"marbles/state"
)

const (
	defaultHTTPTimeout = 30 * time.Second
	defaultMaxBody     = 10 << 20
	maxHeader          = 1 << 20 // bytes of a response's header
)

// httpSource is what an HTTP monitor watches.
type httpSource struct {
	url     *url.URL
	o       HTTPOptions // with its defaults filled in
	filter  string      // the canonical text of o.Select; "" for none
	memory  httpMemory
	exposed noted // secret files that everybody may read
}

func newHTTP(text string, o HTTPOptions) (*httpSource, error) {
	u, err := url.Parse(text)
	if err != nil {
		// The parser's own words can quote a password.
		return nil, errors.New("cannot watch this URL: it is not a valid one")
	}
	if err := checkURL(u); err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", redact(u), err)
	}
	u.Fragment, u.RawFragment = "", ""
	if o.Method == "" {
		o.Method = http.MethodGet
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", redact(u), err)
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.UserAgent == "" {
		o.UserAgent = "marbles/" + version()
	}
	if o.Hosts == nil {
		o.Hosts = NewHostLimit(0)
	}
	s := &httpSource{url: u, o: o}
	if o.Select != nil {
		s.filter = o.Select.String()
	}
	return s, nil
}

// checkURL is what holds for the first URL and for every one redirected to.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("only http and https can be watched")
	case u.User != nil:
		return errors.New("user information in a URL is refused")
	case u.Hostname() == "":
		return errors.New("the host is missing")
	}
	return nil
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// redact is a URL without what may be secret in it.
func redact(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.RawQuery != "" {
		return shown.String() + "?…"
	}
	return shown.String()
}

// recorded is a URL for records: the same for the same URL only, but with a digest in place of a query.
func recorded(u *url.URL) string {
	if u.RawQuery == "" {
		return u.String()
	}
	sum := sha256.Sum256([]byte(u.String()))
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, RawQuery: "sha256=" + hex.EncodeToString(sum[:])}
	return shown.String()
}

// look fetches and compares. Only the digest is compared: neither the status, as long
// as it is a success, nor a header, nor the charset makes a change.
func (s *httpSource) look(ctx context.Context, prev Committed, o LookOptions) (*Observation, error) {
	ctx, cancel := within(ctx, o.Timeout)
	defer cancel()
	was, rec, err := s.committed(prev)
	if err != nil {
		return nil, err
	}
	sent := s.condition(was, o.Unconditional)
	a, err := s.fetch(ctx, sent, o.Log)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", redact(s.url), err)
	}
	seen := &Observation{First: was.hash == "", Body: a.body, CertExpires: a.certExpires, Summary: a.summary()}
	same := a.notModified || !o.Unconditional && s.memory.isSame(was, a.body)
	if !same {
		if rec == nil { // what was remembered is not enough now, and may have been replaced since
			if was, rec, err = s.load(prev); err != nil {
				return nil, err
			}
			seen.First = was.hash == ""
		}
		if err := s.compare(ctx, seen, a, rec); err != nil {
			return nil, fmt.Errorf("cannot compare the body of %s: %w", redact(s.url), err)
		}
	}
	s.memory.fetched(was, a, !seen.Changed && was.filter == s.filter)
	o.Log.Debug("fetched a URL", "source", redact(s.url), "status", a.status, "bytes", len(a.body), "changed", seen.Changed)
	return seen, nil
}

// compare fills in what an answer says beside the committed observation, nil for none.
func (s *httpSource) compare(ctx context.Context, seen *Observation, a *answer, rec *state.MonitorRecord) error {
	now, err := contentOf(a.body)
	if err != nil {
		return err
	}
	picked, err := s.pick(ctx, a.body, a.contentType, now)
	if err != nil {
		return err
	}
	seen.Selection = picked.bytes
	var old previous
	if seen.First {
		seen.Changed = true
	} else if seen.Changed, old, err = s.differs(ctx, now, picked, a.contentType, rec); err != nil {
		return err
	}
	if !seen.Changed && rec.Filter == s.filter {
		return nil
	}
	seen.Record = &state.MonitorRecord{
		Version: 1, Current: now.value, CurrentBase64: now.base64, Hash: picked.hash, Status: a.status,
		Filter: s.filter, Selection: picked.value, Validators: a.validators,
	}
	if rec != nil {
		seen.Record.Unknown = rec.Unknown
	}
	if !seen.Changed {
		return nil // another selection of the same: known from now on, and no event
	}
	seen.Previous = old.body
	seen.Change, err = httpChange(a.status, now, picked.value, old)
	return err
}
