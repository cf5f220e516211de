package catalog

import (
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
)

// anyURL stands for a URL that cannot be watched, while the other keys are looked at.
const anyURL = "http://marbles.invalid/"

// blame finds what an error of NewHTTP is about, which names no place: the URL, and the keys that fail by themselves. Keys
// that have been reported are left out, and those that cannot be judged without them.
func (d *decoder) blame(watch *strict.Node, own []pair, o monitor.HTTPOptions, failed map[string]bool) {
	before := len(d.Errors)
	url := watch.Value
	if _, err := monitor.NewHTTP(url, monitor.HTTPOptions{}); err != nil {
		d.Errorf(watch, "%v", err)
		url = anyURL
	}
	try := func(n *strict.Node, alone monitor.HTTPOptions) {
		if _, err := monitor.NewHTTP(url, alone); err != nil {
			d.Errorf(n, "%s", strings.TrimPrefix(err.Error(), "cannot watch "+anyURL+": "))
		}
	}
	found := false // something was reported, now or before
	for _, p := range own {
		key := p.key.Value
		found = found || failed[key]
		switch {
		case failed[key] || failed[partner(key)]:
		case key != "headers":
			try(p.value, only(o, key))
		default:
			i := 0
			for k := range d.Pairs(p.value) {
				if i < len(o.Headers) {
					try(k, monitor.HTTPOptions{Headers: o.Headers[i : i+1]})
				}
				i++
			}
		}
	}
	if !found && len(d.Errors) == before {
		_, err := monitor.NewHTTP(watch.Value, o)
		d.Errorf(watch, "%v", err)
	}
}

// partner is the key that one cannot do without or stand beside, "" for none.
func partner(key string) string {
	switch key {
	case "body":
		return "method"
	case "auth":
		return "headers"
	case "cert":
		return "cert_key"
	case "cert_key":
		return "cert"
	case "allow_private":
		return "proxy"
	}
	return ""
}

// only is options that say nothing but what one key gave, and what that cannot do without or stand beside.
func only(o monitor.HTTPOptions, key string) (alone monitor.HTTPOptions) {
	switch key {
	case "method":
		alone.Method = o.Method
	case "body":
		alone.Method, alone.Body = o.Method, o.Body
	case "auth":
		alone.BasicUser, alone.Password, alone.Bearer = o.BasicUser, o.Password, o.Bearer
		for _, h := range o.Headers {
			if strings.EqualFold(h.Name, "Authorization") {
				alone.Headers = []monitor.Header{h}
			}
		}
	case "cert", "cert_key":
		alone.Cert, alone.CertKey = o.Cert, o.CertKey
	case "proxy":
		alone.Proxy = o.Proxy
	case "allow_private":
		alone.DenyPrivate, alone.Proxy = o.DenyPrivate, o.Proxy
	case "user_agent":
		alone.UserAgent = o.UserAgent
	}
	return alone
}
