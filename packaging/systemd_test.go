package packaging

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// systemdAnalyze skips where the tool is missing; an automated build must have it (CI=true).
func systemdAnalyze(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("systemd-analyze is not installed, and CI=true")
		}
		t.Skip("systemd-analyze is not installed")
	}
	cmd := exec.Command(tool, args...)
	// A user's manager is not asked, but the tool wants to know where it would be.
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	return cmd.CombinedOutput()
}

// tree lays out the least of a machine on which the units can be checked.
func tree(t *testing.T, binary string, unit []byte) string {
	t.Helper()
	root := t.TempDir()
	put := func(name string, data []byte, mode os.FileMode) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
	}
	put(binary, []byte("#!/bin/sh\n"), 0o755)
	put("/bin/sh", []byte("#!/bin/sh\n"), 0o755)
	for _, target := range []string{"sysinit", "basic", "shutdown", "network-online", "time-sync", "nss-user-lookup", "multi-user"} {
		put("/etc/systemd/system/"+target+".target", []byte("[Unit]\nDescription="+target+"\n"), 0o644)
	}
	put("/etc/systemd/system/marbles.service", unit, 0o644)
	return root
}

// verify runs systemd's own check. It fails for bad values and missing programs, and only warns of unknown keys: a unit
// of ours passes when there is nothing to say.
func verify(t *testing.T, args ...string) error {
	t.Helper()
	out, err := systemdAnalyze(t, append([]string{"verify", "--man=no"}, args...)...)
	if err != nil || len(out) > 0 {
		return fmt.Errorf("systemd-analyze verify: %w\n%s", cmp.Or(err, errors.New("warnings")), out)
	}
	return nil
}

func TestSystemUnitVerifies(t *testing.T) {
	for name, binary := range map[string]string{
		"the file":  "/usr/bin/marbles",
		"space":     "/opt/a b/marbles",
		"specifier": "/opt/%h/marbles",
		"variable":  "/opt/${HOME}/$x/marbles",
		"unicode":   "/opt/mårbles;#/marbles",
	} {
		t.Run(name, func(t *testing.T) {
			unit := []byte(render(t, System, Values{Binary: binary, Config: `/etc/"a"'\ $b %c/` + name}))
			if err := verify(t, "--root="+tree(t, binary, unit), "marbles.service"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVerifyFails shows that the check above can fail.
func TestVerifyFails(t *testing.T) {
	unit := []byte(render(t, System, Values{}))
	if verify(t, "--root="+tree(t, "/usr/bin/other", unit), "marbles.service") == nil {
		t.Error("verify accepts a unit whose program is missing")
	}
	unit = append(unit, "Wantedly=x\n"...)
	if verify(t, "--root="+tree(t, "/usr/bin/marbles", unit), "marbles.service") == nil {
		t.Error("verify accepts an unknown key")
	}
}

func TestUserUnitVerifies(t *testing.T) {
	program := filepath.Join(t.TempDir(), "a b", "marbles")
	if err := os.Mkdir(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "marbles.service")
	if err := os.WriteFile(file, []byte(render(t, User, Values{Binary: program})), 0o644); err != nil {
		t.Fatal(err)
	}
	// --user knows no --root, so the program is where the unit says.
	if err := verify(t, "--user", file); err != nil {
		t.Error(err)
	}
}

func TestSystemUnitExposure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marbles.service")
	if err := os.WriteFile(path, []byte(render(t, System, Values{})), 0o644); err != nil {
		t.Fatal(err)
	}
	// The threshold is the exposure times ten.
	if out, err := systemdAnalyze(t, "security", "--offline=true", "--threshold=30", "--no-pager", path); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, out)
	}
}
