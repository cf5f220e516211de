package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// defaultPath is a step's PATH where the service has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited are the variables of the service's own environment that a step gets (design §10), besides LC_*. The last two
// are where systemd lets the unit's processes write, besides the state, which is not for steps.
var inherited = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LOGS_DIRECTORY", "CACHE_DIRECTORY"}

// maxDepth bounds the nesting of inputs and results. A run's record holds them some levels down, and what reads JSON
// commonly ends at 10,000 levels or well before.
const maxDepth = 1000

// deep reports whether a JSON text is nested more than maxDepth levels.
func deep(v jsontext.Value) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return false // at its end, or for its reader to complain about
		}
		if dec.StackDepth() > maxDepth {
			return true
		}
	}
}

// baseEnv is what every step's environment begins with. Where the service has no PATH, HOME, USER or LOGNAME, as under
// an init system, they get their usual values.
func baseEnv(service []string) []string {
	var env []string
	for _, e := range service {
		name, _, ok := strings.Cut(e, "=")
		if ok && (slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_")) {
			env = append(env, e)
		}
	}
	env = mergeEnv(env)
	missing := func(name, value string) {
		if _, ok := lookupEnv(env, name); !ok && value != "" {
			env = append(env, name+"="+value)
		}
	}
	missing("PATH", defaultPath)
	_, hasHome := lookupEnv(env, "HOME")
	_, hasUser := lookupEnv(env, "USER")
	if !hasHome || !hasUser {
		if u, err := user.Current(); err == nil {
			missing("HOME", u.HomeDir)
			missing("USER", u.Username)
		}
	}
	name, _ := lookupEnv(env, "USER")
	missing("LOGNAME", name)
	return env
}

// mergeEnv joins lists of NAME=value; a later value replaces an earlier one in its place.
func mergeEnv(lists ...[]string) []string {
	n := 0
	for _, l := range lists {
		n += len(l)
	}
	env := make([]string, 0, n)
	at := make(map[string]int, n)
	for _, l := range lists {
		for _, e := range l {
			name, _, ok := strings.Cut(e, "=")
			if !ok || name == "" {
				continue
			}
			if i, ok := at[name]; ok {
				env[i] = e
				continue
			}
			at[name] = len(env)
			env = append(env, e)
		}
	}
	return env
}

// lookupEnv is the value of a name in a list of NAME=value.
func lookupEnv(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// ownEnv is what marbles itself tells every step of a run.
func (r *Run) ownEnv() []string {
	env := append(inputEnv(r.input),
		"MARBLES_RUN_ID="+r.id,
		"MARBLES_WORKSPACE="+r.ws.Project(),
		"MARBLES_STATE="+filepath.Dir(r.ws.Dir()),
	)
	if r.launch.Key != "" {
		env = append(env, "MARBLES_KEY="+r.launch.Key)
	}
	return env
}

// member is one member of a JSON object.
type member struct {
	name  string
	value jsontext.Value
}

// members are the members of a JSON object in their order; none for nil and null.
func members(v jsontext.Value) ([]member, error) {
	if len(v) == 0 {
		return nil, nil
	}
	if deep(v) {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	switch v.Kind() {
	case 'n':
		return nil, nil
	case '{':
	default:
		return nil, fmt.Errorf("it must be a JSON object, not %s", kindName(v.Kind()))
	}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var list []member
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		m := member{name: name.String()}
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		m.value = value.Clone()
		list = append(list, m)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return nil, errors.New("there is something after the object")
	}
	return list, nil
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't', 'f':
		return "a boolean"
	}
	return "invalid"
}

// object is the JSON object of its members.
func object(list []member) jsontext.Value {
	b := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, m.name) // bad UTF-8 becomes U+FFFD
		b = append(append(b, ':'), m.value...)
	}
	return append(b, '}')
}

// overlay lays the members of over over those of base, by name.
func overlay(base, over []member) []member {
	list := slices.Clone(base)
	for _, m := range over {
		i := slices.IndexFunc(list, func(b member) bool { return b.name == m.name })
		if i < 0 {
			list = append(list, m)
		} else {
			list[i].value = m.value
		}
	}
	return list
}

// InputName is the environment variable of an input: ASCII letters upper-cased, one _ for each other character.
func InputName(name string) string {
	return "INPUT_" + strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
			return c
		}
		return '_'
	}, name)
}

// maxInputEnv is the longest input that goes into the environment, in bytes; the input file has all of them.
const maxInputEnv = 64 << 10

// inputEnv is INPUT_* for each scalar input. It is unset for null, for objects and arrays, for a value with a NUL (which
// an environment cannot hold) and for one above 64 KiB.
func inputEnv(input []member) []string {
	var env []string
	for _, m := range input {
		var value string
		switch m.value.Kind() {
		case '"':
			b, err := jsontext.AppendUnquote(nil, m.value)
			if err != nil {
				continue
			}
			value = string(b)
		case '0', 't', 'f':
			value = string(bytes.TrimSpace(m.value))
		default:
			continue
		}
		if len(value) <= maxInputEnv && !strings.Contains(value, "\x00") {
			env = append(env, InputName(m.name)+"="+value)
		}
	}
	return env
}

// MergeInput lays an input over another by key. Both are JSON objects, or null or nil for none; none laid over none is
// nil. Two members that would have one environment variable are an error.
func MergeInput(base, over jsontext.Value) (jsontext.Value, error) {
	list, err := launchInput(base, over)
	if err != nil {
		return nil, err
	}
	none := func(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }
	if none(base) && none(over) {
		return nil, nil
	}
	return object(list), nil
}

// launchInput is a launch's input laid over the workflow's defaults.
func launchInput(defaults, given jsontext.Value) ([]member, error) {
	base, err := members(defaults)
	if err != nil {
		return nil, fmt.Errorf("cannot read the default input: %w", err)
	}
	over, err := members(given)
	if err != nil {
		return nil, fmt.Errorf("cannot read the input: %w", err)
	}
	list := overlay(base, over)
	seen := make(map[string]string, len(list))
	for _, m := range list {
		name := InputName(m.name)
		if other, ok := seen[name]; ok {
			return nil, fmt.Errorf("inputs %q and %q are both %s", other, m.name, name)
		}
		seen[name] = m.name
	}
	return list, nil
}

// stepText is a line of the journal's step stream.
func stepText(step, what string) []byte { return []byte("[step] " + step + " " + what + "\n") }

// runName is what a run is called: the workflow's name, or the key of the monitor whose handler it is.
func runName(l Launch) string {
	if l.Kind == kindHandler && l.Key != "" {
		return l.Key
	}
	return l.Workflow.Name
}

const (
	kindWorkflow = "workflow"
	kindHandler  = "handler"
)
