package settings

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"marbles/cmd/internal/strict"
)

const (
	configFlag     = "config"
	configVariable = "MARBLES_CONFIG"
)

// The packaged system service's settings file, its definitions and its state root.
const (
	SystemFile    = "/etc/marbles/marbles.yaml"
	SystemSources = "/etc/marbles/jobs"
	SystemState   = "/var/lib/marbles"
)

// kind is what a key's value is.
type kind int

const (
	path kind = iota
	paths
	choice
	count
	duration
	size
	shellText
	yesNo
)

// key is one setting.
type key struct {
	name     string // in a settings file
	flag     string // "" for none
	kind     kind
	choices  []string // of a choice
	low      int      // of a count
	high     int
	fallback any    // the value where none is given; nil where that depends
	shown    string // fallback, for people
	describe string
}

// keys is the only list of the settings.
var keys = []key{
	{
		name: "sources", flag: "source", kind: paths, shown: "`./.foundry/marbles` here or above; `" + SystemSources + "` with `" + SystemFile + "`",
		describe: "Folders or files with definitions. The flag may be repeated; the variable separates with `:`",
	},
	{
		name: "state", flag: "state", kind: path, shown: "`$STATE_DIRECTORY` for `run` under systemd, `" + SystemState + "` with `" + SystemFile + "`, else `~/.foundry/marbles`",
		describe: "The state root. `$STATE_DIRECTORY` also goes before the file's value",
	},
	{
		name: "artifacts", flag: "artifacts", kind: path, shown: "`artifacts` in `$STATE_DIRECTORY` where that is the state root, else beside the state root",
		describe: "The artifact root",
	},
	{
		name: "log_level", flag: "log-level", kind: choice, choices: []string{"debug", "info", "warn", "error"}, fallback: "info", shown: "`info`",
		describe: "The least severe messages to log",
	},
	{
		name: "log_format", flag: "log-format", kind: choice, choices: []string{"auto", "journal", "text", "json"}, fallback: "auto", shown: "`auto`",
		describe: "Where and how to log; `auto` is the journal under systemd, text with colour on a terminal, JSON elsewhere",
	},
	{
		name: "journal_output", kind: yesNo, fallback: false, shown: "`false`",
		describe: "Whether the output of the service's runs goes to the systemd journal too, a line as an entry; see [operations.md](operations.md#logs)",
	},
	{
		name: "concurrency", flag: "concurrency", kind: count, low: 1, high: 10000, fallback: 16, shown: "`16`",
		describe: "Runs at work at once; more wait",
	},
	{
		name: "grace", flag: "grace", kind: duration, fallback: 10 * time.Second, shown: "`10s`",
		describe: "Time between SIGTERM and SIGKILL for a run that is cancelled or timed out",
	},
	{
		name: "drain", flag: "drain", kind: duration, fallback: 30 * time.Second, shown: "`30s`",
		describe: "Time that running work gets when the service stops, before it is cancelled",
	},
	{
		name: "keep_runs", kind: count, low: 0, high: 10_000_000, fallback: 1000, shown: "`1000`",
		describe: "Settled runs of each workflow that are kept; 0 is no limit. A workflow's own `keep` goes before",
	},
	{
		name: "keep_age", kind: duration, fallback: 90 * 24 * time.Hour, shown: "`90d`",
		describe: "How long settled runs are kept; `0s` is no limit",
	},
	{
		name: "keep_bytes", kind: size, fallback: int64(2 << 30), shown: "`2GiB`",
		describe: "How much all run files and journals of a workspace may take; the oldest go first. 0 is no limit",
	},
	{
		name: "output_limit", kind: size, fallback: int64(64 << 20), shown: "`64MiB`",
		describe: "How much output of one run its journal takes; above that the last 256 KiB of each stream are kept. 0 is no limit",
	},
	{
		name: "cgroups", kind: choice, choices: []string{"auto", "on", "off"}, fallback: "auto", shown: "`auto`",
		describe: "Whether each step gets a cgroup of its own: `auto` where one was delegated to marbles, `on` wherever it may make one",
	},
	{
		name: "on_failure", kind: shellText, fallback: "", shown: "none",
		describe: "A command for the shell that is told when runs begin to fail, for all that has no `on_failure` of its own",
	},
	{
		name: "on_recovery", kind: shellText, fallback: "", shown: "none",
		describe: "Likewise when they succeed again",
	},
	{
		name: "on_missed", kind: shellText, fallback: "", shown: "none",
		describe: "Likewise when a slot was missed",
	},
}

func find(name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

func names() []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return all
}

// variable is the environment variable of a key.
func (k key) variable() string { return "MARBLES_" + strings.ToUpper(k.name) }

// value is what a key takes, for people.
func (k key) value() string {
	switch k.kind {
	case paths:
		return "list of paths"
	case choice:
		return "`" + strings.Join(k.choices, "`, `") + "`"
	case count:
		return fmt.Sprintf("%d to %d", k.low, k.high)
	case duration:
		return "duration (`0s`, `90s`, `5m`, `1h`, `1d`)"
	case size:
		return "size (`0`, `512KiB`, `64MiB`, `2GiB`)"
	case shellText:
		return "shell command"
	case yesNo:
		return "`true`, `false`"
	}
	return "path"
}

// usage is a flag's help; the word in backquotes names its value.
func (k key) usage() string {
	switch {
	case k.kind == paths:
		return "`path` of a folder or file with definitions; may be repeated"
	case k.name == "state":
		return "`folder` of the state root (default ~/.foundry/marbles)"
	case k.name == "artifacts":
		return "`folder` of the artifact root (default beside the state root)"
	case k.name == "concurrency":
		return "at most this `number` of runs at once; more wait (default 16)"
	case k.name == "grace":
		return "`time` between SIGTERM and SIGKILL (default 10s)"
	case k.name == "drain":
		return "`time` that running work gets when the service stops (default 30s)"
	case k.name == "log_format":
		return "`how` to log: " + strings.Join(k.choices, ", ")
	}
	return "least severe `level` to log: " + strings.Join(k.choices, ", ")
}

// parse reads a value out of a flag's or variable's text. Paths stay as they are.
func (k key) parse(text string) (any, error) {
	switch k.kind {
	case choice:
		if !slices.Contains(k.choices, text) {
			return nil, fmt.Errorf("want one of %s, got %q", strings.Join(k.choices, ", "), text)
		}
	case count:
		n, err := strconv.Atoi(text)
		if err != nil || n < k.low || n > k.high {
			return nil, fmt.Errorf("want a whole number from %d to %d, got %q", k.low, k.high, text)
		}
		return n, nil
	case duration:
		return parseDuration(text)
	case size:
		if text == "0" {
			return int64(0), nil
		}
		return strict.Size(text)
	case yesNo:
		if text != "true" && text != "false" {
			return nil, fmt.Errorf("want true or false, got %q", text)
		}
		return text == "true", nil
	case shellText:
		if strings.Contains(text, "\x00") {
			return nil, errors.New("command contains a NUL")
		}
	default:
		if text == "" {
			return nil, errors.New("path is empty")
		}
		if strings.Contains(text, "\x00") {
			return nil, errors.New("path contains a NUL")
		}
	}
	return text, nil
}

// parseDuration reads an interval as cadences have it, or "0s".
func parseDuration(text string) (time.Duration, error) {
	if text == "0s" {
		return 0, nil
	}
	d, err := strict.Duration(text)
	if err == nil && d > math.MaxInt64/4 { // so that sums of a few stay in range
		err = fmt.Errorf("duration %q is too long", text)
	}
	return d, err
}

// Document is the reference of all keys, as a Markdown table; docs/settings.md holds it and a test compares.
func Document() string {
	var b strings.Builder
	b.WriteString("| key | value | flag | variable | default | meaning |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- |\n")
	row := func(name, value, flag, variable, shown, describe string) {
		if flag != "" {
			flag = "`--" + flag + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s | %s. |\n", name, value, flag, variable, shown, describe)
	}
	for _, k := range keys {
		row("`"+k.name+"`", k.value(), k.flag, k.variable(), k.shown, k.describe)
	}
	row("", "path", configFlag, configVariable, "`marbles.yaml` in `$CONFIGURATION_DIRECTORY` for `run` under systemd, else `$XDG_CONFIG_HOME/marbles/marbles.yaml`, else `~/.config/marbles/marbles.yaml`",
		"The settings file. One that is named must exist")
	return b.String()
}
