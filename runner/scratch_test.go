package runner

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"marbles/state"
)

// A step may do to its input what it likes: the next run gets its own, and nothing outside is written.
func TestInputFileIsReused(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(t *testing.T, path, outside string)
		reused bool
	}{
		{"left alone", func(*testing.T, string, string) {}, true},
		{"written to", func(t *testing.T, path, _ string) { write(t, path, "more and more than there was") }, true},
		{"removed", func(t *testing.T, path, _ string) { remove(t, path) }, false},
		{"a link", func(t *testing.T, path, outside string) {
			remove(t, path)
			if err := os.Symlink(outside, path); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a second name", func(t *testing.T, path, outside string) {
			remove(t, path)
			if err := os.Link(outside, path); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a pipe", func(t *testing.T, path, _ string) {
			remove(t, path)
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"open to others", func(t *testing.T, path, _ string) {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			parent := t.TempDir()
			outside := filepath.Join(parent, "outside")
			write(t, outside, "not yours")
			s := newScratch(parent, state.Self())
			dir, err := s.take(nil)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "0"+inputSuffix)
			file, err := putInput(path, []byte(`{"secret":1}`))
			if err != nil {
				t.Fatal(err)
			}
			before := inode(t, path)
			test.spoil(t, path, outside)
			clearInput(file)
			if err := s.give(dir, nil); err != nil {
				t.Fatal(err)
			}
			if again, err := s.take(nil); err != nil || again != dir {
				t.Fatalf("got %s, %v", again, err)
			}
			file, err = putInput(path, []byte(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			defer clearInput(file)
			if got, err := os.ReadFile(path); err != nil || string(got) != `{}` {
				t.Errorf("the next run reads %q, %v", got, err)
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
				t.Errorf("got %v, %v", info, err)
			}
			if got := inode(t, path) == before; test.reused && !got {
				t.Error("the file was made anew")
			}
			if got, err := os.ReadFile(outside); err != nil || string(got) != "not yours" {
				t.Errorf("a file outside reads %q, %v", got, err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
