package monitor

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const maxRedirects = 10

// hop is a request of a look: its first one, or one that a redirect led to.
type hop struct {
	url     *url.URL
	method  string
	body    string
	headers http.Header
	// trusted holds for as long as every redirect stayed with the first URL's host. Once it does not hold, nothing
	// brings it back: a host that is not trusted chose where the look goes on.
	trusted bool
}

func isRedirect(code int) bool {
	switch code {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// redirect is where an answer leads. 303 makes a GET without a body of every method, 301 and 302 of a POST, as
// browsers do (RFC 9110, 15.4); 307 and 308 keep both.
func (h *hop) redirect(resp *http.Response) (*hop, error) {
	code := resp.StatusCode
	location := resp.Header.Get("Location")
	if location == "" {
		return nil, fmt.Errorf("HTTP %d without a Location", code)
	}
	to, err := h.url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("HTTP %d with a Location that is not a URL", code)
	}
	if err := checkURL(to); err != nil {
		return nil, fmt.Errorf("HTTP %d to %s: %w", code, redact(to), err)
	}
	if h.url.Scheme == "https" && to.Scheme == "http" {
		return nil, fmt.Errorf("HTTP %d to %s: a redirect from https to http is refused", code, redact(to))
	}
	to.Fragment, to.RawFragment = "", ""
	next := &hop{url: to, method: h.method, body: h.body, headers: h.headers, trusted: h.trusted && sameHost(h.url, to)}
	if code == http.StatusSeeOther || code != http.StatusTemporaryRedirect && code != http.StatusPermanentRedirect && h.method == http.MethodPost {
		next.method, next.body = http.MethodGet, ""
		next.headers = next.headers.Clone()
		next.headers.Del("Content-Type")
	}
	if h.trusted && !next.trusted {
		next.headers = forStrangers(next.headers)
	}
	return next, nil
}

// forStrangers are the headers that go with a redirect to another host: any that was configured may be a secret,
// whatever its name, but for those that say in what form an answer is wanted or a body sent.
func forStrangers(headers http.Header) http.Header {
	kept := http.Header{}
	for _, name := range []string{"Accept", "Accept-Language", "Content-Type"} {
		if values, ok := headers[name]; ok {
			kept[name] = values
		}
	}
	return kept
}

// sameHost reports whether two URLs lead to the same server: the same host and port, or the same host by https
// where it was http, both at their own ports.
func sameHost(from, to *url.URL) bool {
	if from.Scheme == to.Scheme {
		return hostPort(from) == hostPort(to)
	}
	return strings.EqualFold(from.Hostname(), to.Hostname()) &&
		from.Scheme == "http" && strings.HasSuffix(hostPort(from), ":80") && strings.HasSuffix(hostPort(to), ":443")
}
