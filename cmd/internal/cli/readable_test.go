package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A person who reads the journal as text sees what a record is about.
func TestReadableRecords(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(readable{Handler: slog.NewTextHandler(&out, nil)}).With("workspace", "74daecd45c5b", "key", "backup")
	log.Warn("run failed", "error", errors.New("exited with code 3"), "took", "5s", "none", "")
	if got := out.String(); !strings.Contains(got, `msg="run failed key=backup error=\"exited with code 3\" took=5s" workspace=74daecd45c5b key=backup error="exited with code 3"`) {
		t.Errorf("got %s", got)
	}
}
