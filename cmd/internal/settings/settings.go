// Package settings holds the service's settings: flag, then MARBLES_*, then file, then default.
//
// viper reads them, scalars only (it folds the case of keys and splits them on dots), plus the one list, sources.
package settings

import (
	"time"

	"github.com/spf13/pflag"
)

// Settings are what the service and the commands run by. Each field's key is documented at its
// declaration in keys.go, which is the only list of them.
type Settings struct {
	File        string // the settings file that was read, "" for none
	Sources     []string
	State       string // state root, absolute
	Artifacts   string // artifact root, absolute
	LogLevel    string // debug | info | warn | error
	LogFormat   string // auto | journal | text | json
	Concurrency int
	Grace       time.Duration
	Drain       time.Duration
}

// Options are where settings come from.
type Options struct {
	Flags *pflag.FlagSet // the persistent flags as AddFlags declared them
	Env   []string       // the environment, NAME=value
	Home  string         // the user's home directory
	Cwd   string
	// Service is true for `run`: $STATE_DIRECTORY counts then (its first entry).
	Service bool
	// Reader is true for commands that only read: without --state they fall back to the system service's root
	// where the user has none.
	Reader bool
	// SystemState is the system service's root; default /var/lib/marbles.
	SystemState string
	// Euid is the effective user id; as root a settings file that others may write is refused when Service.
	Euid int
}

// AddFlags declares --source, --state, --artifacts, --config, --log-level, --log-format and the settings that have a flag.
func AddFlags(fs *pflag.FlagSet) { panic("todo") }

// Load reads the settings. An unknown or mistyped key, flag value or variable's value is an error that names the
// place; unknown MARBLES_* variables are ignored.
func Load(o Options) (*Settings, error) { panic("todo") }

// Document is the reference of all keys, as a Markdown table; docs/settings.md holds it and a test compares.
func Document() string { panic("todo") }
