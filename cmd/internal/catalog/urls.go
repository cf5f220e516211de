package catalog

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
	"marbles/monitor/filter"
)

// certDays is how many days ahead the end of a server's certificate is noticed where cert_days is not given.
const certDays = 14

// maxBody bounds max_body: a body is held in memory, and its text is kept in the monitor's record.
const maxBody = 1 << 30

// The keys of the mappings that only a URL has.
var (
	authKeys   = []string{"basic", "bearer"}
	basicKeys  = []string{"user", "password"}
	secretKeys = []string{"file", "credential"}
	selectKeys = []string{"jq", "css", "attribute", "drop"}
)

// url reads a source that is fetched.
func (d *decoder) url(m *Monitor, watch *strict.Node, own []pair) {
	o := monitor.HTTPOptions{Credentials: d.credentials, Hosts: &d.shared.hosts}
	m.CertDays = certDays
	failed := make(map[string]bool) // keys that have been reported
	for _, p := range own {
		before := len(d.Errors)
		if p.key.Value == "cert_days" {
			m.CertDays, _ = d.Int(p.value, 0, 3650)
		} else if !d.urlKey(&o, p.key.Value, p.value) {
			d.Errorf(p.key, "%s is for files, and this monitor watches a URL", p.key.Value)
		}
		failed[p.key.Value] = len(d.Errors) > before
	}
	var err error
	if m.Source, err = monitor.NewHTTP(watch.Value, o); err != nil {
		d.blame(watch, own, o, failed)
	}
}

// urlKey reads a value if its key is one that says how a URL is fetched and compared.
func (d *decoder) urlKey(o *monitor.HTTPOptions, key string, v *strict.Node) bool {
	switch key {
	case "method":
		o.Method = d.method(v)
	case "headers":
		o.Headers = d.headers(v)
	case "body":
		o.Body, _ = d.String(v, "a text")
	case "auth":
		d.auth(o, v)
	case "ca":
		o.CA = d.fileName(v)
		d.exists(v, o.CA)
	case "cert":
		o.Cert = d.fileName(v)
	case "cert_key":
		o.CertKey = d.fileName(v)
	case "proxy":
		if o.Proxy, _ = d.String(v, "a proxy's URL, or none, as a text"); v.Value == "" {
			d.Errorf(v, "proxy is empty; none is no proxy at all")
		}
	case "user_agent":
		o.UserAgent, _ = d.String(v, "a text")
	case "max_body":
		o.MaxBody = d.size(v)
	case "allow_private":
		allow, ok := d.Bool(v)
		o.DenyPrivate = ok && !allow
	case "select":
		o.Select = d.selection(v)
	default:
		return false
	}
	return true
}

// methods are those that some server knows. HEAD, CONNECT and TRACE are refused with their reasons, by the monitor.
var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "PROPFIND", "REPORT", "SEARCH", "HEAD", "CONNECT", "TRACE"}

// method reads an HTTP method.
func (d *decoder) method(n *strict.Node) string {
	text, ok := d.String(n, "an HTTP method such as POST as a text")
	if ok && text != "" && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && !slices.Contains(methods, text) {
		d.Near(n, text, methods, "no HTTP method %q is known", text)
		return ""
	}
	return text
}

// exists reports a file that is not there. One that this process may not see is left to the one that reads it.
func (d *decoder) exists(n *strict.Node, path string) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || isNotDir(err):
		d.Errorf(n, "there is no file %s", path)
	case err == nil && !info.Mode().IsRegular():
		d.Errorf(n, "%s is no regular file", path)
	}
}

func (d *decoder) size(n *strict.Node) int64 {
	text, ok := d.String(n, "a size such as 10MiB as a text")
	if !ok {
		return 0
	}
	size, err := strict.Size(text)
	switch {
	case err != nil:
		d.Errorf(n, "%v", err)
	case size > maxBody:
		d.Errorf(n, "size %s is more than 1GiB", text)
	default:
		return size
	}
	return 0
}

// fileName reads a file's name, relative to the workspace.
func (d *decoder) fileName(n *strict.Node) string {
	text, ok := d.String(n, "a file's name as a text")
	switch {
	case !ok:
		return ""
	case text == "":
		d.Errorf(n, "file name is empty")
		return ""
	}
	return d.path(n, "file name", "a file name")
}

// headers reads the headers to send, in the order they were written.
func (d *decoder) headers(n *strict.Node) (headers []monitor.Header) {
	if !d.secretly(n, strict.Map, "want a mapping of headers") {
		return nil
	}
	seen := make(map[string]string, len(n.Content)/2)
	for k, v := range d.Pairs(n) {
		name := strings.ToLower(k.Value)
		if first, ok := seen[name]; ok && first != k.Value {
			d.Errorf(k, "header %s is given twice, first as %s", k.Value, first)
			continue
		}
		seen[name] = k.Value
		h := monitor.Header{Name: k.Value}
		switch strict.KindOf(v) {
		case strict.String, strict.Int, strict.Float, strict.Bool:
			h.Value.Text = v.Value
			if secretHeader(name) {
				d.warnExposed(v, "the header "+k.Value)
			}
		default:
			h.Value = d.secret(v)
		}
		headers = append(headers, h)
	}
	return headers
}

// secretHeader reports whether a header, in lower case, is there to hold a secret.
func secretHeader(name string) bool {
	switch name {
	case "authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token":
		return true
	}
	return false
}

// auth reads who to be.
func (d *decoder) auth(o *monitor.HTTPOptions, n *strict.Node) {
	const want = "one of basic: {user: …, password: …} and bearer"
	if !d.secretly(n, strict.Map, "want "+want) {
		return
	}
	given := 0
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "basic":
			given++
			d.basic(o, v)
		case "bearer":
			given++
			if o.Bearer = d.secret(v); o.Bearer.Text != "" {
				d.warnExposed(v, "the bearer token")
			} else if strict.KindOf(v) == strict.String {
				d.Errorf(v, "bearer is empty")
			}
		default:
			d.Unknown(k, authKeys)
		}
	}
	if given != 1 {
		d.Errorf(n, "give %s", want)
	}
}

func (d *decoder) basic(o *monitor.HTTPOptions, n *strict.Node) {
	if !d.secretly(n, strict.Map, "want a mapping with user and password") {
		return
	}
	user, password := false, false
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "user":
			user = true
			o.BasicUser, _ = d.String(v, "a user's name as a text")
		case "password":
			password = true
			if o.Password = d.secret(v); o.Password.Text != "" {
				d.warnExposed(v, "the password")
			}
		default:
			d.Unknown(k, basicKeys)
		}
	}
	if !user || !password {
		d.Errorf(n, "give user and password")
	}
}

// secretly checks a value's kind as [strict.Document.Want] does, but shows nothing of it.
func (d *decoder) secretly(n *strict.Node, kind strict.Kind, want string) bool {
	if strict.KindOf(n) == kind {
		return true
	}
	if strict.KindOf(n) != strict.Bad {
		d.Errorf(n, "%s", want)
	}
	return false
}

// secret reads a secret: a text, or where to read it. No message shows the text.
func (d *decoder) secret(n *strict.Node) (s monitor.Secret) {
	const want = "want a secret: a text (quote a number), {file: /path} or {credential: name}"
	if strict.KindOf(n) == strict.String {
		return monitor.Secret{Text: n.Value}
	}
	if !d.secretly(n, strict.Map, want) {
		return s
	}
	given := 0
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "file":
			given++
			s.File = d.fileName(v)
		case "credential":
			given++
			if s.Credential, _ = d.String(v, "a credential's name as a text"); v.Value == "" {
				d.Errorf(v, "credential is empty")
			}
		default:
			d.Unknown(k, secretKeys)
		}
	}
	if given != 1 {
		d.Errorf(n, "give one of file and credential")
	}
	return s
}

// warnExposed warns of a secret that stands in a file that others may read.
func (d *decoder) warnExposed(n *strict.Node, what string) {
	if d.exposed {
		d.Warnf(n, "%s stands in a file that every user may read; give {file: …} or {credential: …}, or chmod o-r the file", what)
	}
}

// selection reads what of a body counts.
func (d *decoder) selection(n *strict.Node) *filter.Filter {
	const want = "one of jq: PROGRAM, css: SELECTOR and drop: [REGEXP, …]"
	if !d.Map(n, "a mapping with "+want) {
		return nil
	}
	var spec filter.Spec
	var attribute, drop *strict.Node
	var given []*strict.Node
	before := len(d.Errors)
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "jq":
			given = append(given, v)
			spec.JQ = d.text(v, "a jq program as a text")
		case "css":
			given = append(given, v)
			spec.CSS = d.text(v, "a CSS selector as a text")
		case "attribute":
			attribute = v
			spec.Attribute = d.text(v, "an attribute's name as a text")
		case "drop":
			given, drop = append(given, v), v
			spec.Drop = d.expressions(v)
		default:
			d.Unknown(k, selectKeys)
		}
	}
	switch {
	case len(given) != 1:
		d.Errorf(n, "give %s", want)
	case attribute != nil && spec.CSS == "":
		d.Errorf(attribute, "attribute goes with css")
	}
	if len(d.Errors) > before {
		return nil
	}
	f, err := filter.Compile(spec)
	if err == nil {
		return f
	}
	if drop != nil { // which of them
		for _, item := range d.Items(drop) {
			if _, err := filter.Compile(filter.Spec{Drop: []string{item.Value}}); err != nil {
				d.Errorf(item, "%s", strings.TrimPrefix(err.Error(), "expression 1: "))
			}
		}
	}
	if len(d.Errors) == before {
		d.Errorf(given[0], "%v", err)
	}
	return nil
}

// text reads a text that says something.
func (d *decoder) text(n *strict.Node, want string) string {
	text, ok := d.String(n, want)
	if ok && strings.TrimSpace(text) == "" {
		d.Errorf(n, "want %s, got nothing but spaces", want)
		return ""
	}
	return text
}

// expressions reads a list of at least one regular expression.
func (d *decoder) expressions(n *strict.Node) (list []string) {
	if !d.List(n, "a list of regular expressions") {
		return nil
	}
	for _, item := range d.Items(n) {
		text, ok := d.String(item, "a regular expression as a text")
		if ok && text == "" {
			d.Errorf(item, "regular expression is empty")
		}
		list = append(list, text)
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "list is empty")
	}
	return list
}
