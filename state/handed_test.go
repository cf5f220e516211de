package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHanded(t *testing.T) {
	ws := requestWorkspace(t)
	if h, err := ws.Handed("k"); h != nil || err != nil {
		t.Fatal(h, err)
	}
	before, err := ws.HandedStamp()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "marbles-k.timer")
	want := &Handed{
		Version: 1, Key: "k", Manager: "systemd", Scope: "user", Unit: "marbles-k.timer", Cadence: "every 1h",
		Files: []HandedFile{{Path: file, SHA256: "ab"}}, At: Stamp{time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		Link: filepath.Join(t.TempDir(), "marbles-k.timer"),
	}
	if err := ws.WriteHanded(want); err != nil {
		t.Fatal(err)
	}
	got, err := ws.Handed("k")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if after, err := ws.HandedStamp(); err != nil || after == before {
		t.Error("the stamp did not change", err)
	}
	off := func(want string) {
		t.Helper()
		if off := got.Off(); off != want {
			t.Errorf("it is %q, want %q", off, want)
		}
	}
	off("gone")
	for _, path := range []string{file, got.Link} {
		off(map[string]string{file: "gone", got.Link: "disabled"}[path])
		if err := os.WriteFile(path, []byte("[Timer]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	off("")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.DevNull, file); err != nil {
		t.Fatal(err)
	}
	off("masked")
	if got.String() != "systemd's marbles-k.timer" {
		t.Error(got)
	}
	if err := ws.WriteHanded(&Handed{Key: "../k"}); err == nil {
		t.Error("a key that leads elsewhere is written")
	}
	for range 2 { // none is no error
		if err := ws.RemoveHanded("k"); err != nil {
			t.Fatal(err)
		}
	}
	if keys, err := ws.HandedKeys(); err != nil || len(keys) > 0 {
		t.Error(keys, err)
	}
}

// TestAsOwner: what root writes into a state root of another user belongs to that user, though the way there is closed to
// it, and a trap that the user has laid there leads root nowhere that the user could not go itself.
func TestAsOwner(t *testing.T) {
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("it takes root on Linux to act as somebody else")
	}
	const uid = 12345
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, project := filepath.Join(closed, "state"), t.TempDir()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	record := func(ws *Workspace) error { return ws.WriteHanded(&Handed{Key: "k"}) }
	if err := AsOwner(dir, project, nil, time.Now(), record); err != nil {
		t.Fatal(err)
	}
	id := WorkspaceID(project)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != uid {
			t.Errorf("%s belongs to root", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	root, err := OpenReader(dir)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := root.Workspace(project)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := ws.Handed("k"); err != nil || h == nil {
		t.Error(h, err)
	}

	trap := filepath.Join(dir, id, handedDir)
	if err := os.RemoveAll(trap); err != nil {
		t.Fatal(err)
	}
	secret := t.TempDir()
	if err := os.Chmod(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, trap); err != nil {
		t.Fatal(err)
	}
	if err := AsOwner(dir, project, nil, time.Now(), record); err == nil {
		t.Error("root follows the link of another user")
	}
	if _, err := os.Stat(filepath.Join(secret, "k.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("root wrote through the link of another user")
	}
	if os.Geteuid() != 0 {
		t.Error("this process is not root any more")
	}
}
