package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"marbles/cmd/internal/strict"
	"marbles/monitor"
	"marbles/runner"
	"marbles/state"
)

var secretPlaceKeys = []string{"credential", "file", "env"}

// secrets reads the variables whose values stand elsewhere: their names, or each with its place.
func (d *decoder) secrets(n *strict.Node) (list []runner.Secret) {
	const want = "a list of names, or a mapping such as {TOKEN: {credential: token}}"
	switch strict.KindOf(n) {
	case strict.List:
		seen := make(map[string]bool)
		for _, item := range d.Items(n) {
			if strict.KindOf(item) != strict.String {
				d.secretly(item, strict.String, "want a variable's name as a text")
				continue
			}
			name := item.Value
			if !d.secretName(item, name) {
				continue
			}
			if seen[name] {
				d.Errorf(item, "secret %s is given twice", name)
				continue
			}
			seen[name] = true
			list = append(list, d.anySecret(name))
		}
	case strict.Map:
		for k, v := range d.Pairs(n) {
			s, ok := d.secretPlace(k.Value, v)
			if d.secretName(k, k.Value) && ok {
				list = append(list, s)
			}
		}
	default:
		if strict.KindOf(n) != strict.Bad {
			d.Errorf(n, "want %s", want)
		}
	}
	return list
}

func (d *decoder) secretName(n *strict.Node, name string) bool {
	switch {
	case !isVariable(name):
		d.Errorf(n, "a secret is named as its variable: letters, digits and _, not beginning with a digit")
	case strings.HasPrefix(name, "MARBLES_"):
		d.Errorf(n, "variables that begin with MARBLES_ are set by marbles itself")
	default:
		return true
	}
	return false
}

// anySecret is a secret that is only named: the credential of that name, else the variable of the service.
func (d *decoder) anySecret(name string) runner.Secret {
	from, credentials, env := monitor.Secret{Credential: name}, d.credentials, d.environment
	return runner.Secret{Name: name, From: "credential or variable " + name, Read: func() (string, error) {
		value, ok := lookup(env, name)
		if credentials == "" {
			if !ok {
				return "", fmt.Errorf("the service has neither a credential nor a variable %s", name)
			}
			return usable("variable "+name, value)
		}
		held, err := readSecret(from, credentials)
		if !ok || !errors.Is(err, fs.ErrNotExist) {
			return held, err
		}
		return usable("variable "+name, value)
	}}
}

// secretPlace reads where one secret is kept.
func (d *decoder) secretPlace(name string, n *strict.Node) (s runner.Secret, ok bool) {
	const want = "one of {credential: name}, {file: /path} and {env: VARIABLE}"
	if !d.secretly(n, strict.Map, "want "+want+"; a value does not stand in this file") {
		return s, false
	}
	s.Name = name
	before, given := len(d.Errors), 0
	credentials, env := d.credentials, d.environment
	for k, v := range d.Pairs(n) {
		switch k.Value {
		case "credential":
			given++
			text, _ := d.String(v, "a credential's name as a text")
			if err := state.PlainName("credential", text); err != nil {
				d.Errorf(v, "a credential must be named by a plain file name, not %q", text)
			}
			s.From = "credential " + text
			s.Read = func() (string, error) { return readSecret(monitor.Secret{Credential: text}, credentials) }
		case "file":
			given++
			text, _ := d.String(v, "a file's name as a text")
			if !filepath.IsAbs(text) || strings.Contains(text, "\x00") {
				d.Errorf(v, "a secret's file has an absolute name, not %q", text)
			}
			s.From = "file " + text
			s.Read = func() (string, error) { return readSecret(monitor.Secret{File: filepath.Clean(text)}, "") }
		case "env":
			given++
			text, _ := d.String(v, "a variable's name as a text")
			if !isVariable(text) {
				d.Errorf(v, "%q is no variable's name", text)
			}
			s.From = "variable " + text
			s.Read = func() (string, error) {
				value, ok := lookup(env, text)
				if !ok {
					return "", fmt.Errorf("the service has no variable %s", text)
				}
				return usable("variable "+text, value)
			}
		default:
			d.Unknown(k, secretPlaceKeys)
		}
	}
	if given != 1 {
		d.Errorf(n, "give %s", want)
	}
	return s, len(d.Errors) == before
}

// readSecret reads a secret as it is now.
func readSecret(s monitor.Secret, credentials string) (string, error) {
	value, err := s.Read(credentials)
	if err != nil {
		return "", err
	}
	return usable(s.String(), value)
}

// usable reports a value that no variable can have.
func usable(what, value string) (string, error) {
	switch {
	case value == "":
		return "", fmt.Errorf("cannot use %s: it is empty", what)
	case strings.Contains(value, "\x00"):
		return "", fmt.Errorf("cannot use %s: it contains a NUL", what)
	}
	return value, nil
}

// lookup finds a variable in a list of NAME=value; the last of a name counts, as it does for a process.
func lookup(env []string, name string) (value string, ok bool) {
	for _, e := range env {
		if v, has := strings.CutPrefix(e, name+"="); has {
			value, ok = v, true
		}
	}
	return value, ok
}

// notTwice reports secrets that are variables already. k is the key they stand under.
func (d *decoder) notTwice(k *strict.Node, secrets []runner.Secret, env []string) {
	for _, s := range secrets {
		if _, ok := lookup(env, s.Name); ok {
			d.Errorf(k, "%s is given by env, too", s.Name)
		}
	}
}
