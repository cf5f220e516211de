package catalog

import (
	"net/url"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
	"marbles/state"
)

var (
	hookStartKeys = []string{"start"}
	pingKeys      = []string{"start", "success", "fail"}
	keepKeys      = []string{"runs", "age"}
)

// hookKey reads a value if its key is one of the hooks'. The owner's path is for errors that the linker finds.
func (d *decoder) hookKey(h *Hooks, starts *[]*startRef, k, v *strict.Node, owner func() string) bool {
	var into **Hook
	switch k.Value {
	case "on_failure":
		into = &h.OnFailure
	case "on_recovery":
		into = &h.OnRecovery
	case "on_missed":
		into = &h.OnMissed
	default:
		return false
	}
	hook := new(Hook)
	*into = hook
	if strict.KindOf(v) != strict.Map || !hasKey(v, "start") {
		hook.Workflow = d.handler(v)
		return true
	}
	name := k.Value
	for key, value := range d.Pairs(v) {
		if key.Value != "start" {
			d.Near(key, key.Value, hookStartKeys, "a hook that starts a workflow has no key %q", key.Value)
			continue
		}
		r := &startRef{hook: hook, path: func() string { return owner() + "." + name + ".start" }}
		hook.Start, r.mark = d.target(value)
		r.name = hook.Start
		*starts = append(*starts, r)
	}
	return true
}

// keep reads how much of a workflow's history is kept.
func (d *decoder) keep(n *strict.Node) (k state.Keep) {
	if !d.Map(n, "a mapping such as {runs: 50, age: 90d}") {
		return k
	}
	const most = 10_000_000
	for key, v := range d.Pairs(n) {
		switch key.Value {
		case "runs":
			k.Runs, _ = d.Int(v, 1, most)
		case "age":
			k.Age, _ = d.Duration(v)
		default:
			d.Unknown(key, keepKeys)
		}
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "give one of runs and age")
	}
	return k
}

// ping reads where the runs of a key are announced: one URL from which the three are made, or each of them.
func (d *decoder) ping(n *strict.Node) (p Ping) {
	kept := KeptPing{Credentials: d.credentials}
	if strict.KindOf(n) == strict.String {
		if base, ok := d.pingURL(n); ok {
			p.Start, p.Success, p.Fail = below(base, "start"), base, below(base, "fail")
		}
		return p
	}
	if !d.secretly(n, strict.Map, "want a URL as a text, {file: /path}, {credential: name}, or a mapping with start, success and fail") {
		return p
	}
	if hasKey(n, "file") || hasKey(n, "credential") {
		kept.Base = d.secret(n)
		p.Kept = &kept
		return p
	}
	for k, v := range d.Pairs(n) {
		i := 0
		switch k.Value {
		case "start":
			p.Start, kept.Events[i] = d.pingEvent(v)
		case "success":
			i = 1
			p.Success, kept.Events[i] = d.pingEvent(v)
		case "fail":
			i = 2
			p.Fail, kept.Events[i] = d.pingEvent(v)
		default:
			d.Unknown(k, pingKeys)
		}
	}
	if len(n.Content) == 0 {
		d.Errorf(n, "give one of start, success and fail")
	}
	if kept.Events != [3]monitor.Secret{} {
		p.Kept = &kept
	}
	return p
}

// pingEvent reads one URL, or where it is kept.
func (d *decoder) pingEvent(n *strict.Node) (text string, s monitor.Secret) {
	if strict.KindOf(n) == strict.String {
		text, _ = d.pingURL(n)
		return text, s
	}
	return "", d.secret(n)
}

// pingURL reads a URL. What is in it is shown by no message: it may be a secret.
func (d *decoder) pingURL(n *strict.Node) (string, bool) {
	if err := checkPing(n.Value); err != nil {
		d.Errorf(n, "%v", err)
		return "", false
	}
	return n.Value, true
}

func checkPing(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errPing
	}
	return nil
}

// below is a URL with a further part of its path.
func below(base, part string) string {
	u, err := url.Parse(base)
	if err != nil { // it was parsed before
		return strings.TrimSuffix(base, "/") + "/" + part
	}
	return u.JoinPath(part).String()
}
