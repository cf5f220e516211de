package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The error of the very last run must not pass for a rate.
func TestSkeletonReportsTheLastError(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "locks"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "locks", "0"), nil, 0o600); err != nil { // run 0 finds its lock taken
		t.Fatal(err)
	}
	if err := skeleton([]string{"-n", "1", "-p", "1", dir}); !os.IsExist(err) {
		t.Errorf("got %v, want an error: the lock is taken", err)
	}
}
