// Package settings holds the service's settings: flag, then MARBLES_*, then file, then default.
//
// viper decides which layer wins, scalars only (it folds the case of keys and splits them on dots), plus the one list,
// sources. Every value is read and checked by us before viper gets it: a settings file is strict YAML, and an unknown
// key or a mistyped value is an error with its place, in a layer that is overridden, too.
package settings

import (
	"time"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"marbles/cmd/internal/strict"
)

// Settings are what the service and the commands run by. Each field's key is documented at its
// declaration in keys.go, which is the only list of them.
type Settings struct {
	File      string   // the settings file that was read, absolute, "" for none
	Sources   []string // absolute; none: the caller looks for a project's folder
	State     string   // state root, absolute; "" where none is given and there is no home directory
	Artifacts string   // artifact root, absolute; "" likewise
	LogLevel  string   // debug | info | warn | error
	LogFormat string   // auto | journal | text | json
	// JournalOutput sends the output of the service's runs to the systemd journal too.
	JournalOutput bool
	Concurrency   int
	Grace         time.Duration
	Drain         time.Duration

	// Retention, see state.Keep; 0 does not limit.
	KeepRuns  int
	KeepAge   time.Duration
	KeepBytes int64
	// OutputLimit is how many bytes of output a run's journal takes; 0: no limit.
	OutputLimit int64
	Cgroups     string // auto | on | off
	// Commands for the shell that are told of every workflow that says nothing of its own; "" for none.
	OnFailure, OnRecovery, OnMissed string
}

// Options are where settings come from.
type Options struct {
	Flags *pflag.FlagSet // the persistent flags as AddFlags declared them
	Env   []string       // the environment, NAME=value
	Home  string         // the user's home directory
	Cwd   string         // absolute; "" where it was removed: then a relative path is an error
	// Service is true for `run`: $STATE_DIRECTORY and $CONFIGURATION_DIRECTORY count then (their first entries).
	Service bool
	// Reader is true for commands that only read: without --state they fall back to the system service's root
	// where the user has none.
	Reader bool
	// SystemState is the system service's root; default /var/lib/marbles.
	SystemState string
	// Euid is the effective user id; as root a settings file that others may write is refused when Service.
	Euid int
}

// AddFlags declares --config and a flag for each setting.
func AddFlags(fs *pflag.FlagSet) {
	for _, k := range keys {
		switch {
		case k.flag == "":
		case k.kind == paths:
			fs.StringArray(k.flag, nil, k.usage())
		default:
			fs.String(k.flag, "", k.usage())
		}
	}
	fs.String(configFlag, "", "`file` with the settings")
}

// Load reads the settings. An unknown or mistyped key, flag value or variable's value is an error that names the
// place (strict.Diagnostics, all of them); unknown MARBLES_* variables are ignored, and so are empty ones.
func Load(o Options) (*Settings, error) {
	l := loader{Options: o, env: environment(o.Env), v: viper.New()}
	file := l.file()
	l.layers(file)
	s := &Settings{
		File:          file,
		Sources:       l.v.GetStringSlice("sources"),
		LogLevel:      l.v.GetString("log_level"),
		LogFormat:     l.v.GetString("log_format"),
		JournalOutput: l.v.GetBool("journal_output"),
		Concurrency:   l.v.GetInt("concurrency"),
		Grace:         l.v.GetDuration("grace"),
		Drain:         l.v.GetDuration("drain"),
		KeepRuns:      l.v.GetInt("keep_runs"),
		KeepAge:       l.v.GetDuration("keep_age"),
		KeepBytes:     l.v.GetInt64("keep_bytes"),
		OutputLimit:   l.v.GetInt64("output_limit"),
		Cgroups:       l.v.GetString("cgroups"),
		OnFailure:     l.v.GetString("on_failure"),
		OnRecovery:    l.v.GetString("on_recovery"),
		OnMissed:      l.v.GetString("on_missed"),
	}
	for i, source := range s.Sources {
		s.Sources[i] = l.absolute(source, o.Cwd) // flags; the other layers are absolute already
	}
	if len(s.Sources) == 0 {
		s.Sources = defaultSources(file)
	}
	l.roots(s)
	if len(l.errors) > 0 {
		return nil, l.errors
	}
	return s, nil
}

// defaultSources are the sources where none are given: the packaged system service has its own folder.
func defaultSources(file string) []string {
	if file == SystemFile {
		return []string{SystemSources}
	}
	return nil
}

// loader reads the layers.
type loader struct {
	Options
	env    map[string]string
	v      *viper.Viper
	errors strict.Diagnostics
}

func (l *loader) fail(place, message string) {
	l.errors = append(l.errors, strict.Whole(place, message))
}
