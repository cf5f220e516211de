package monitor

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"marbles/state"
)

// maxRetryAfter bounds how far a server can put a monitor off.
const maxRetryAfter = 24 * time.Hour

// answer is what a look fetched.
type answer struct {
	status      int
	notModified bool // what the validators were sent for is unchanged; there is no body
	refused     bool // the server does not understand the condition
	body        []byte
	contentType string
	validators  state.Validators
	certExpires time.Time // the first to end of the certificates met on the way; zero for none
}

func (a *answer) summary() string {
	if a.notModified {
		return "304, not modified"
	}
	return fmt.Sprintf("%d, %s", a.status, bytesText(int64(len(a.body))))
}

// noted are texts that have been said.
type noted struct {
	mu    sync.Mutex // guards texts
	texts map[string]bool
}

// first reports whether a text is said for the first time.
func (n *noted) first(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.texts[text] {
		return false
	}
	if n.texts == nil {
		n.texts = map[string]bool{}
	}
	n.texts[text] = true
	return true
}

// fetch gets the URL and follows redirects itself, so that no credential, cookie or
// Referer goes along and no error quotes a URL whole. The validators of sent go only to its URL.
func (s *httpSource) fetch(ctx context.Context, sent state.Validators, log *slog.Logger) (*answer, error) {
	headers, err := s.headers(log)
	if err != nil {
		return nil, err
	}
	h := &hop{url: s.url, method: s.o.Method, body: s.o.Body, trusted: true, headers: headers}
	var expires time.Time
	for range maxRedirects + 1 {
		a, next, err := s.ask(ctx, h, sent)
		if err == nil && a.refused { // or a failure would be made up every time
			a, next, err = s.ask(ctx, h, state.Validators{})
		}
		if err != nil {
			if ctx.Err() != nil {
				err = stopped(ctx)
			}
			if h.url != s.url {
				err = fmt.Errorf("redirected to %s: %w", redact(h.url), err)
			}
			return nil, err
		}
		expires = earlier(expires, a.certExpires)
		if next == nil {
			a.certExpires = expires
			return a, nil
		}
		h = next
	}
	return nil, fmt.Errorf("more than %d redirects", maxRedirects)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// headers are those to send to the first host, with their secrets as they are now.
func (s *httpSource) headers(log *slog.Logger) (http.Header, error) {
	read := func(secret Secret) (string, error) {
		value, open, err := secret.read(s.o.Credentials)
		if open && s.exposed.first(secret.File) {
			log.Warn("a secret's file can be read by every user", "file", secret.File)
		}
		return value, err
	}
	headers := http.Header{}
	for _, h := range s.o.Headers {
		value, err := read(h.Value)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.Name, err)
		}
		headers[http.CanonicalHeaderKey(h.Name)] = []string{value}
	}
	switch {
	case s.o.BasicUser != "":
		password, err := read(s.o.Password)
		if err != nil {
			return nil, fmt.Errorf("auth basic: %w", err)
		}
		headers.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(s.o.BasicUser+":"+password)))
	case !s.o.Bearer.isZero():
		token, err := read(s.o.Bearer)
		if err != nil {
			return nil, fmt.Errorf("auth bearer: %w", err)
		}
		headers.Set("Authorization", "Bearer "+token)
	}
	return headers, nil
}

// request makes a hop's request. conditional says that the validators went along.
func (s *httpSource) request(ctx context.Context, h *hop, sent state.Validators) (req *http.Request, conditional bool, err error) {
	var body io.Reader
	if h.body != "" {
		body = strings.NewReader(h.body)
	}
	if req, err = http.NewRequestWithContext(ctx, h.method, "", body); err != nil {
		return nil, false, err
	}
	req.URL, req.Host = h.url, h.url.Host
	req.Header = h.headers.Clone() // no Accept-Encoding: the transport then asks for gzip and undoes it
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
		req.Header.Del("Host")
	}
	req.Header.Set("User-Agent", s.o.UserAgent)
	if sent.URL == "" || sent.URL != recorded(h.url) || h.method != http.MethodGet {
		return req, false, nil
	}
	if sent.ETag != "" {
		req.Header["If-None-Match"] = []string{sent.ETag}
	}
	if sent.LastModified != "" {
		req.Header["If-Modified-Since"] = []string{sent.LastModified}
	}
	return req, true, nil
}

// ask makes one request. next is set for a redirect.
func (s *httpSource) ask(ctx context.Context, h *hop, sent state.Validators) (a *answer, next *hop, err error) {
	transport, err := s.o.Hosts.client(s.clientOptions(h))
	if err != nil {
		return nil, nil, err
	}
	leave, err := s.o.Hosts.enter(ctx, hostPort(h.url))
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	req, conditional, err := s.request(ctx, h, sent)
	if err != nil {
		return nil, nil, err
	}
	resp, err := roundTrip(transport, req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	a = &answer{
		status: resp.StatusCode, contentType: resp.Header.Get("Content-Type"),
		validators: validatorsOf(h, resp), certExpires: certificateEnd(resp),
	}
	if isRedirect(resp.StatusCode) {
		next, err = h.redirect(resp)
		return a, next, err
	}
	if conditional {
		switch resp.StatusCode {
		case http.StatusNotModified:
			a.notModified, a.validators = true, sent
			return a, nil, nil
		case http.StatusBadRequest, http.StatusPreconditionFailed, http.StatusRequestHeaderFieldsTooLarge:
			a.refused = true
			return a, nil, nil
		}
	}
	if err := checkResponse(resp); err != nil {
		return nil, nil, err
	}
	a.body, err = s.read(resp)
	return a, nil, err
}

// clientOptions: what was dropped with a redirect to elsewhere is no credential to show there, and so is the
// certificate. Only a GET is sent again by itself where its kept connection turns out to be closed: another method
// would be a failure that is none, and so has a connection of its own.
func (s *httpSource) clientOptions(h *hop) clientOptions {
	o := clientOptions{ca: s.o.CA, proxy: s.o.Proxy, public: s.o.DenyPrivate, keep: h.method == http.MethodGet}
	if h.trusted {
		o.cert, o.key = s.o.Cert, s.o.CertKey
	}
	return o
}

// roundTrip sees to it that no connection goes on being made for a request that failed before it had one.
func roundTrip(t *http.Transport, req *http.Request) (*http.Response, error) {
	got := false // written and read in this goroutine's order: RoundTrip calls GotConn before it returns
	ctx, giveUp := dialing(req.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got = true }})
	resp, err := t.RoundTrip(req.WithContext(ctx))
	if err != nil && !got {
		giveUp()
	}
	return resp, err
}

// hostPort is what requests are counted by.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// checkResponse lets pass only an answer that is the content, whole and as it is.
func checkResponse(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusNotModified:
		return errors.New("HTTP 304, though no validators were sent")
	case code == http.StatusPartialContent:
		return errors.New("HTTP 206, though the whole was asked for")
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		err := fmt.Errorf("HTTP %d", code)
		if after := retryAfter(resp.Header, time.Now()); after > 0 {
			return &RetryError{After: after, Err: err}
		}
		return err
	case code < 200 || code > 299:
		return fmt.Errorf("HTTP %d", code)
	}
	if resp.ContentLength == 0 || resp.StatusCode == http.StatusNoContent {
		return nil // nothing, in whatever encoding
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

// retryAfter is how long a server asks to be left alone (RFC 9110, 10.2.3), 0 for not at all. A date is read by the
// server's own clock where the answer has one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) { // an error: too many digits
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}

// certificateEnd is when the server's certificate ends to be valid: the first to end of a chain, the authority at its
// end left out, and of several chains the one that lasts.
func certificateEnd(resp *http.Response) (end time.Time) {
	if resp.TLS == nil {
		return end
	}
	for _, chain := range resp.TLS.VerifiedChains {
		var first time.Time
		for i, cert := range chain {
			if i == 0 || i < len(chain)-1 {
				first = earlier(first, cert.NotAfter)
			}
		}
		if first.After(end) {
			end = first
		}
	}
	return end
}

// read reads the body whole: one that ends early is an error of the transport. Only a
// body without a length whose connection ends cannot be told from one that is whole.
func (s *httpSource) read(resp *http.Response) ([]byte, error) {
	if resp.ContentLength > s.o.MaxBody {
		return nil, s.tooBig()
	}
	body := make([]byte, 0, min(4<<10, s.o.MaxBody+1))
	for {
		n, err := resp.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > s.o.MaxBody:
			return nil, s.tooBig()
		case err == io.EOF:
			return body, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("the body ended early, after %s", bytesText(int64(len(body))))
		case err != nil:
			return nil, fmt.Errorf("cannot read the body: %w", err)
		}
		if len(body) == cap(body) { // doubled, but never beyond the limit and the one byte that breaks it
			grown := make([]byte, len(body), min(2*int64(cap(body)), s.o.MaxBody+1))
			copy(grown, body)
			body = grown
		}
	}
}

func (s *httpSource) tooBig() error {
	return fmt.Errorf("body over %s", limitText(s.o.MaxBody))
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
