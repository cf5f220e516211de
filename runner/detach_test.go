package runner

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBackgroundGoesOn(t *testing.T) {
	dir := t.TempDir()
	b := Background{
		Argv: []string{"/bin/sh", "-c", "echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 60"}, Dir: dir,
		Ready: func() (bool, error) { _, err := os.Stat(filepath.Join(dir, "pid")); return err == nil, nil },
	}
	ended, err := b.Start(context.Background())
	if err != nil || ended != nil {
		t.Fatalf("got %+v, %v", ended, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	defer syscall.Kill(pid, syscall.SIGKILL)
	// A terminal that closes ends what is in its session.
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session %d, %v; want one of its own, %d", sid, err, pid)
	}
}

func TestBackgroundThatEndsFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		script, said string
		code         int
	}{
		"well":   {"echo nothing to do >&2", "nothing to do\n", 0},
		"failed": {"echo cannot >&2; exit 2", "cannot\n", 2},
		"killed": {"kill -9 $$", "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			b := Background{Argv: []string{"/bin/sh", "-c", tt.script}, Ready: func() (bool, error) { return false, nil }}
			ended, err := b.Start(context.Background())
			if err != nil || ended == nil {
				t.Fatalf("got %+v, %v", ended, err)
			}
			if ended.Code != tt.code || ended.Said != tt.said {
				t.Errorf("got %+v, want %d, %q", ended, tt.code, tt.said)
			}
		})
	}
	b := Background{Argv: []string{"/nonexistent"}, Ready: func() (bool, error) { return false, nil }}
	if _, err := b.Start(context.Background()); err == nil || !strings.Contains(err.Error(), "cannot start a background process") {
		t.Errorf("got %v", err)
	}
}
