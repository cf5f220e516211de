package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"marbles/state"
)

const (
	defaultHTTPTimeout = 30 * time.Second
	defaultMaxBody     = 10 << 20
	maxRedirects       = 10
	maxHeader          = 1 << 20 // bytes of a response's header
)

// httpSource is what an HTTP monitor watches.
type httpSource struct {
	text      string
	url       *url.URL
	maxBody   int64
	userAgent string
	transport http.RoundTripper
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
	if o.MaxBody < 0 {
		return nil, fmt.Errorf("cannot watch %s: the largest body is %d bytes", redact(u), o.MaxBody)
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.UserAgent == "" {
		o.UserAgent = "marbles/" + version()
	}
	return &httpSource{text: text, url: u, maxBody: o.MaxBody, userAgent: o.UserAgent, transport: newTransport()}, nil
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

// newTransport makes connections that end with their answer: polls are far apart, and
// thousands of idle connections would cost more than a handshake does. The context
// bounds everything; the transport's own timeouts only see to it that what it does
// behind the context's back ends too.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: time.Minute}).DialContext,
		TLSHandshakeTimeout:    time.Minute,
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
	}
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

// look fetches and compares. Only the digest is compared: neither the status, as long
// as it is a success, nor a header, nor the charset makes a change.
func (s *httpSource) look(ctx context.Context, prev *state.MonitorRecord, log *slog.Logger) (*Observation, error) {
	status, body, err := s.fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", redact(s.url), err)
	}
	c, err := contentOf(body)
	if err != nil {
		return nil, fmt.Errorf("cannot keep the body of %s: %w", redact(s.url), err)
	}
	o := &Observation{
		First:   prev == nil || prev.Hash == "",
		Body:    body,
		Summary: fmt.Sprintf("%d, %s", status, bytesText(int64(len(body)))),
	}
	o.Changed = o.First || prev.Hash != c.hash
	log.Debug("fetched a URL", "source", redact(s.url), "status", status, "bytes", len(body), "changed", o.Changed)
	if !o.Changed {
		return o, nil
	}
	o.Record = &state.MonitorRecord{
		Version: 1, Current: c.value, CurrentBase64: c.base64, Hash: c.hash, Status: status,
	}
	if prev != nil {
		o.Record.Unknown = prev.Unknown
	}
	if o.Change, err = httpChange(status, c, prev, o.First); err != nil {
		return nil, fmt.Errorf("cannot write the change of %s: %w", redact(s.url), err)
	}
	return o, nil
}

// fetch gets the URL and follows redirects itself, so that no credential, cookie or
// Referer goes along and no error quotes a URL whole.
func (s *httpSource) fetch(ctx context.Context) (status int, body []byte, err error) {
	at := s.url
	for range maxRedirects + 1 {
		status, body, next, err := s.get(ctx, at)
		if err != nil {
			if ctx.Err() != nil {
				err = stopped(ctx)
			}
			if at != s.url {
				err = fmt.Errorf("redirected to %s: %w", redact(at), err)
			}
			return 0, nil, err
		}
		if next == nil {
			return status, body, nil
		}
		at = next
	}
	return 0, nil, fmt.Errorf("more than %d redirects", maxRedirects)
}

// get makes one request. next is set for a redirect.
func (s *httpSource) get(ctx context.Context, u *url.URL) (status int, body []byte, next *url.URL, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "", nil)
	if err != nil {
		return 0, nil, nil, err
	}
	req.URL, req.Host = u, u.Host
	req.Header.Set("User-Agent", s.userAgent)
	// No Accept-Encoding: the transport then asks for gzip and undoes it.
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		next, err := redirect(u, resp)
		return 0, nil, next, err
	}
	if err := checkResponse(resp); err != nil {
		return 0, nil, nil, err
	}
	body, err = s.read(resp)
	return resp.StatusCode, body, nil, err
}

func redirect(from *url.URL, resp *http.Response) (*url.URL, error) {
	location := resp.Header.Get("Location")
	if location == "" {
		return nil, fmt.Errorf("HTTP %d without a Location", resp.StatusCode)
	}
	to, err := from.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("HTTP %d with a Location that is not a URL", resp.StatusCode)
	}
	if err := checkURL(to); err != nil {
		return nil, fmt.Errorf("HTTP %d to %s: %w", resp.StatusCode, redact(to), err)
	}
	if from.Scheme == "https" && to.Scheme == "http" {
		return nil, fmt.Errorf("HTTP %d to %s: a redirect from https to http is refused", resp.StatusCode, redact(to))
	}
	to.Fragment, to.RawFragment = "", ""
	return to, nil
}

// checkResponse lets pass only an answer that is the content, whole and as it is.
func checkResponse(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusNotModified:
		return errors.New("HTTP 304, though no validators were sent")
	case code == http.StatusPartialContent:
		return errors.New("HTTP 206, though the whole was asked for")
	case code < 200 || code > 299:
		return fmt.Errorf("HTTP %d", code)
	}
	for _, value := range resp.Header.Values("Content-Encoding") {
		for encoding := range strings.SplitSeq(value, ",") {
			if e := strings.ToLower(strings.TrimSpace(encoding)); e != "" && e != "identity" {
				return fmt.Errorf("content encoding %q was not asked for", e)
			}
		}
	}
	return nil
}

// read reads the body whole: one that ends early is an error of the transport. Only a
// body without a length whose connection ends cannot be told from one that is whole.
func (s *httpSource) read(resp *http.Response) ([]byte, error) {
	if resp.ContentLength > s.maxBody {
		return nil, s.tooBig()
	}
	body := make([]byte, 0, min(4<<10, s.maxBody+1))
	for {
		n, err := resp.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > s.maxBody:
			return nil, s.tooBig()
		case err == io.EOF:
			return body, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("the body ended early, after %s", bytesText(int64(len(body))))
		case err != nil:
			return nil, fmt.Errorf("cannot read the body: %w", err)
		}
		if len(body) == cap(body) { // doubled, but never beyond the limit and the one byte that breaks it
			grown := make([]byte, len(body), min(2*int64(cap(body)), s.maxBody+1))
			copy(grown, body)
			body = grown
		}
	}
}

func (s *httpSource) tooBig() error {
	return fmt.Errorf("body over %s", limitText(s.maxBody))
}

// limitText is a limit in the unit it was surely given in: "1 MiB", "1500 bytes".
func limitText(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// bytesText is a size for people: "12 B", "1.2 kB", "3.4 MB".
func bytesText(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1000, "kB"
	for _, next := range []string{"MB", "GB"} {
		if value < 999.95 {
			break
		}
		value, unit = value/1000, next
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
