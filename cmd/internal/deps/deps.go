// Package deps keeps the module's requirements until every package imports its own.
package deps

import (
	_ "github.com/bmatcuk/doublestar/v4"
	_ "github.com/coreos/go-systemd/v22/daemon"
	_ "github.com/go-json-experiment/json"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/lmittmann/tint"
	_ "github.com/oklog/ulid/v2"
	_ "github.com/robfig/cron/v3"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/viper"
	_ "github.com/systemd/slog-journal"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v4"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "mvdan.cc/sh/v3/syntax"
	_ "pgregory.net/rapid"
)
