package monitor

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"marbles/monitor/filter"
)

// HTTPOptions say how a URL is fetched and what of its body counts. Zero values are the defaults.
type HTTPOptions struct {
	// Method is GET by default. HEAD has no body to compare, and CONNECT and TRACE are not for fetching; any other may
	// be used, but only a GET is made conditional, follows on a kept connection, or is sent again by itself where a
	// server closed the connection before it answered.
	Method    string
	Body      string // sent with each request, but not with a GET
	UserAgent string // marbles/<version>
	// Proxy is a URL (http, https, socks5 or socks5h, without user information) or "none"; else HTTP_PROXY, HTTPS_PROXY
	// and NO_PROXY count, as net/http reads them once per process.
	Proxy string

	Headers   []Header
	BasicUser string // with Password; one of this and Bearer
	Password  Secret
	Bearer    Secret

	// CA, Cert and CertKey are absolute names of PEM files: the authorities that count instead of the system's, and
	// the certificate to show. They are read when they are first needed and when they have changed.
	CA, Cert, CertKey string

	MaxBody int64 // decompressed bytes; 10 MiB
	// DenyPrivate refuses every address that is not public. It is checked where the connection is made, after names
	// were resolved and for each redirect. A proxy would resolve and connect out of sight: none is used then, and one
	// that is set is an error.
	DenyPrivate bool
	Select      *filter.Filter // what of the body counts; nil for all of it
	Credentials string         // the directory of systemd credentials; "" for none
	Hosts       *HostLimit     // shared between sources; nil for one of its own
}

// Header is a header to send. Its value may be a secret.
type Header struct {
	Name  string
	Value Secret
}

// ours are headers that are set from elsewhere, or that would change what an answer is.
var ours = map[string]string{
	"Accept-Encoding":     "compression is seen to",
	"Connection":          "it belongs to the connection",
	"Content-Encoding":    "the body is sent as it is written",
	"Content-Length":      "it is counted",
	"Expect":              "nothing waits for it",
	"If-Match":            "conditions are made from what was committed",
	"If-Modified-Since":   "conditions are made from what was committed",
	"If-None-Match":       "conditions are made from what was committed",
	"If-Range":            "the whole is fetched",
	"If-Unmodified-Since": "conditions are made from what was committed",
	"Keep-Alive":          "it belongs to the connection",
	"Proxy-Authorization": "it is not for the server",
	"Proxy-Connection":    "it belongs to the connection",
	"Range":               "the whole is fetched",
	"Te":                  "it belongs to the connection",
	"Trailer":             "it belongs to the connection",
	"Transfer-Encoding":   "it belongs to the connection",
	"Upgrade":             "it belongs to the connection",
	"User-Agent":          "it has an option of its own",
}

func (o *HTTPOptions) check() error {
	if o.MaxBody < 0 {
		return fmt.Errorf("the largest body is %d bytes", o.MaxBody)
	}
	if err := checkValue(o.UserAgent); err != nil {
		return fmt.Errorf("user agent: %w", err)
	}
	for _, f := range []struct{ what, name string }{{"ca", o.CA}, {"cert", o.Cert}, {"cert key", o.CertKey}} {
		if f.name != "" && !filepath.IsAbs(f.name) {
			return fmt.Errorf("%s file %s: its name must be absolute", f.what, f.name)
		}
	}
	if (o.Cert == "") != (o.CertKey == "") {
		return errors.New("a certificate and its key must be given together")
	}
	if err := o.checkMethod(); err != nil {
		return err
	}
	if err := o.checkHeaders(); err != nil {
		return err
	}
	if err := o.checkAuth(); err != nil {
		return err
	}
	return o.checkProxy()
}

func (o *HTTPOptions) checkMethod() error {
	switch {
	case !isToken(o.Method):
		return fmt.Errorf("method %q is not one", o.Method)
	case o.Method != strings.ToUpper(o.Method):
		return fmt.Errorf("method %s: methods are written in capitals", o.Method)
	case o.Method == http.MethodHead:
		return errors.New("method HEAD: its answer has no body to compare")
	case o.Method == http.MethodConnect || o.Method == http.MethodTrace:
		return fmt.Errorf("method %s cannot be used to fetch", o.Method)
	case o.Method == http.MethodGet && o.Body != "":
		return errors.New("a body needs another method than GET")
	}
	return nil
}

func (o *HTTPOptions) checkHeaders() error {
	var seen []string
	for _, h := range o.Headers {
		name := http.CanonicalHeaderKey(h.Name)
		switch why, refused := ours[name]; {
		case !isToken(h.Name):
			return fmt.Errorf("header %q: that is not a header's name", h.Name)
		case refused:
			return fmt.Errorf("header %s cannot be set: %s", h.Name, why)
		case slices.Contains(seen, name):
			return fmt.Errorf("header %s is set twice", h.Name)
		case name == "Authorization" && (o.BasicUser != "" || !o.Bearer.isZero()):
			return errors.New("there are both a header Authorization and auth")
		}
		if err := h.Value.check(); err != nil {
			return fmt.Errorf("header %s: %w", h.Name, err)
		}
		seen = append(seen, name)
	}
	return nil
}

func (o *HTTPOptions) checkAuth() error {
	switch {
	case o.BasicUser != "" && !o.Bearer.isZero():
		return errors.New("auth is either basic or bearer")
	case strings.Contains(o.BasicUser, ":"):
		return errors.New("auth basic: a user has no colon")
	case o.BasicUser == "" && !o.Password.isZero():
		return errors.New("auth basic: the user is missing")
	}
	for _, check := range []error{checkValue(o.BasicUser), o.Password.check(), o.Bearer.check()} {
		if check != nil {
			return fmt.Errorf("auth: %w", check)
		}
	}
	return nil
}

func (o *HTTPOptions) checkProxy() error {
	if o.Proxy == "" || o.Proxy == noProxy {
		return nil
	}
	u, err := url.Parse(o.Proxy)
	switch {
	case err != nil: // the parser's own words can quote a password
		return errors.New("the proxy is not a valid URL")
	case !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) || u.Hostname() == "":
		return errors.New("the proxy is neither none nor an http, https or socks5 URL")
	case u.User != nil:
		return errors.New("user information in the proxy's URL is refused")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return errors.New("the proxy's URL has more than a host and a port")
	case o.DenyPrivate:
		return errors.New("allow_private: false cannot be kept through a proxy, which resolves and connects out of sight")
	}
	return nil
}

// isToken reports whether a text can name a method or a header (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
