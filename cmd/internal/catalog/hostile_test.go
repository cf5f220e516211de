package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// soon fails the test where f hangs.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { // a hang ends with the test process
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("it hangs")
	}
}

// What became a pipe since the folder was listed is not waited for.
func TestPipes(t *testing.T) {
	s := write(t, map[string]string{"sub/x.yaml": ""})
	pipe := filepath.Join(s.Path, "a.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	soon(t, func() {
		if f := loadFile(pipe, s, newLoading(Options{})); fmt.Sprint(f.errors) != "a.yaml: cannot read: it is no regular file" {
			t.Errorf("a file: got %v", f.errors)
		}
		l := lister{euid: -1}
		if l.walk(s, pipe); fmt.Sprint(l.errors) != "a.yaml: cannot read: not a directory" {
			t.Errorf("a folder: got %v", l.errors)
		}
		if _, err := Load([]Source{s}, Options{}); fmt.Sprint(err) != "a.yaml: cannot read: it is no regular file" {
			t.Errorf("listed: got %v", err)
		}
		if _, err := Locate(pipe, "/"); !errors.Is(err, ErrSource) {
			t.Errorf("as a source: got %v", err)
		}
	})
}

// Names of any bytes: messages are safe for a terminal, and every text is valid UTF-8.
func TestHostileNames(t *testing.T) {
	s := write(t, map[string]string{
		"x\x1b[31m\n.yaml": "workflows: {a: {run: x}, b: 1}\n",
		"y.yaml":           "workflows: {a: {run: x}}\n", // names the other file
	})
	_, err := Load([]Source{s}, Options{})
	var all Diagnostics
	if !errors.As(err, &all) || len(all) != 2 {
		t.Fatalf("got %v", err)
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' }) || !strings.Contains(line, `x\x1b[31m\n.yaml:1:`) {
			t.Errorf("line %q", line)
		}
	}

	bad := filepath.Join(s.Path, "b\xff\xfe.yaml")
	if err := os.WriteFile(bad, []byte("workflows: {c: {run: x, y: 1}}"), 0o600); err != nil {
		t.Skip("no such name here:", err) // macOS
	}
	for _, o := range []Options{{}, {Running: true}} {
		if o.Running {
			if err := os.Chmod(bad, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		_, err = Load([]Source{s}, o)
		if !errors.As(err, &all) || all[0].File != `b\xff\xfe.yaml` {
			t.Fatalf("got %v", err)
		}
		for _, d := range all {
			if !utf8.ValidString(d.File + d.Message + d.Path + d.Nearest) {
				t.Errorf("%q", d)
			}
		}
	}
	if err := errors.Join(os.Chmod(bad, 0o600), os.WriteFile(bad, []byte("workflows: {c: {run: x}}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Load([]Source{{Workspace: s.Workspace, Path: bad}}, Options{})
	if err != nil || c.Workflows[0].Position.File != `b\xff\xfe.yaml` || c.Files[0] != bad {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := Locate(bad+"\x1b", "/"); !utf8.ValidString(err.Error()) || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("Locate: %q", err)
	}
}

// What was named, or found and cannot be read, is an error and not "nothing is defined".
func TestLocateRefuses(t *testing.T) {
	s := write(t, map[string]string{"p/in/x": "", "p/.foundry/marbles/a.yaml": "", "q/in/x": "", "r/.foundry/x": ""})
	root := s.Workspace
	for link, target := range map[string]string{"q/.foundry": "gone", "r/.foundry/marbles": "../gone", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct{ name, path, cwd, want string }{
		{"missing", "nowhere", root, "cannot find source " + root + "/nowhere: file does not exist"},
		{"a device", "/dev/null", root, "cannot use source /dev/null: it is neither a folder nor a file"},
		{"a loop", "loop", root, "cannot find source " + root + "/loop: "},
		{"below a file", "p/in/x/y", root, "cannot find source " + root + "/p/in/x/y: not a directory"},
		{"a NUL", "a\x00b", root, `cannot find source ` + root + `/a\x00b: `},
		{"the working directory was removed", "", root + "/nowhere", "cannot find the working directory: "},
		{"there is no working directory", "", "", "cannot find the working directory: "},
		{"a relative path without one", "p", "", "cannot find the working directory: "},
		{"a linked .foundry that is gone", "", root + "/q/in", "cannot read source " + root + "/q/.foundry: it is a link to nothing"},
		{"a linked folder that is gone", "", root + "/r", "cannot read source " + root + "/r/.foundry/marbles: it is a link to nothing"},
		{"the same, named by the project", "r", root, "cannot read source " + root + "/r/.foundry/marbles: it is a link to nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Locate(tt.path, tt.cwd)
			if !errors.Is(err, ErrSource) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := LocateAll([]string{root, ""}, root); !errors.Is(err, ErrSource) {
		t.Errorf("an empty path: got %v", err)
	}
	if got, err := LocateAll(nil, root+"/p/in"); err != nil || len(got) != 1 || got[0].Workspace != root+"/p" {
		t.Errorf("none: got %v, %v", got, err)
	}
	if _, err := Locate(root+"/p", ""); err != nil {
		t.Errorf("an absolute path needs no working directory: %v", err)
	}
}

func TestLocateWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root is refused nothing")
	}
	for _, closed := range []string{"p/.foundry", "p/.foundry/marbles"} {
		s := write(t, map[string]string{".foundry/marbles/above.yaml": "", "p/.foundry/marbles/a.yaml": "", "p/in/x": ""})
		path := filepath.Join(s.Path, closed)
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(path, 0o700) })
		for _, from := range []struct{ path, cwd string }{{"", "p/in"}, {"", "p"}, {"p", ""}} {
			got, err := Locate(from.path, filepath.Join(s.Path, from.cwd))
			want := "cannot read source " + s.Path + "/p/.foundry/marbles: permission denied"
			if fmt.Sprint(err) != want || !errors.Is(err, ErrSource) || !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s, from %+v: got %+v, %v, want %s", closed, from, got, err, want)
			}
		}
		if got, err := Locate("p/.foundry/marbles/a.yaml", s.Path); !errors.Is(err, fs.ErrPermission) || !errors.Is(err, ErrSource) {
			t.Errorf("%s, a file in it: got %+v, %v", closed, got, err)
		}
	}
}
