package runner

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"marbles/state"
)

// keeping is a workflow with one step that makes artifacts.
func keeping(text string, paths ...string) *Workflow {
	wf := shell("make", text)
	for i, p := range paths {
		wf.Steps[0].Artifacts = append(wf.Steps[0].Artifacts, Artifact{Name: string(rune('a' + i)), Type: "text/plain", Path: p})
	}
	return wf
}

func TestArtifacts(t *testing.T) {
	ws := newWorkspace(t)
	store := state.OpenArtifacts(filepath.Join(t.TempDir(), "artifacts"))
	w := newWorker(t, Options{Artifacts: store})
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	wf := keeping("mkdir -p out; printf one > out/r.txt; ln -sf out/r.txt inside; printf far > "+elsewhere, "out/r.txt", "inside", elsewhere)
	wf.Steps[0].Each = &Each{List: []byte(`[1]`)}
	res := run(t, w, ws, wf)
	if res.Status != state.Complete {
		t.Fatal(res.Error)
	}
	list, err := store.List()
	must(t, err)
	if len(list) != 3 {
		t.Fatalf("list %+v", list)
	}
	for i, want := range []string{"one", "one", "far"} {
		v := list[i].Versions[0]
		r, err := store.Read(v.ID)
		must(t, err)
		data, err := io.ReadAll(r)
		must(t, err)
		must(t, r.Close())
		if string(data) != want || v.Run != res.RunID || v.Step != "make[0]" || v.Project != ws.Project() || v.Path != wf.Steps[0].Artifacts[i].Path {
			t.Errorf("%q, %+v", data, v)
		}
	}
	if got := strings.Join(lines(t, ws, res.RunID), "\n"); !strings.Contains(got, "artifact a kept: version ") {
		t.Errorf("journal: %s", got)
	}
}

// What cannot be kept fails the step, by name, and nothing outside of its directory is read.
func TestArtifactsRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	tests := map[string]struct{ text, path, want string }{
		"missing":          {"true", "r.txt", "cannot keep artifact a: r.txt: the step did not make it"},
		"link out":         {"ln -sf " + outside + " r.txt", "r.txt", "cannot keep artifact a: r.txt: path escapes from parent"},
		"directory out":    {"ln -sfn " + filepath.Dir(outside) + " d", "d/secret", "cannot keep artifact a: d/secret: path escapes from parent"},
		"above":            {"true", "../../secret", "cannot keep artifact a: ../../secret: path escapes from parent"},
		"absolute link":    {"ln -sf " + outside + " " + outside + ".link", outside + ".link", "it is a symbolic link"},
		"a directory":      {"mkdir r", "r", "it is not a regular file"},
		"pipe":             {"mkfifo r", "r", "it is not a regular file"},
		"it failed itself": {"echo > r.txt; exit 3", "r.txt", "exited with code 3"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ws := newWorkspace(t)
			store := state.OpenArtifacts(filepath.Join(t.TempDir(), "artifacts"))
			res := run(t, newWorker(t, Options{Artifacts: store}), ws, keeping(tt.text, tt.path))
			if res.Status != state.Failed || !strings.Contains(res.Error.Message, tt.want) {
				t.Errorf("%s %+v, want %s", res.Status, res.Error, tt.want)
			}
			if list, err := store.List(); err != nil || len(list) != 0 {
				t.Errorf("kept %v, %v", list, err)
			}
		})
	}
	ws := newWorkspace(t)
	res := run(t, newWorker(t, Options{}), ws, keeping("echo > r", "r"))
	if want := `step "make" cannot keep artifact a: there is no artifact store`; res.Error == nil || res.Error.Message != want {
		t.Errorf("%+v, want %s", res.Error, want)
	}
}

// A step of another user cannot have the service keep what that user cannot read.
func TestArtifactsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(path, []byte("x"), 0o600))
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	id := &identity{uid: 65534}
	if err := id.mayKeep(f); err == nil {
		t.Error("root's file may be kept")
	}
	must(t, unix.Chown(path, 65534, 65534))
	if err := id.mayKeep(f); err != nil {
		t.Error(err)
	}
	must(t, os.Link(path, path+"2"))
	if err := id.mayKeep(f); err == nil {
		t.Error("a file with two names may be kept")
	}
}
