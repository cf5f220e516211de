package packaging

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
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

// tree lays out the least of a machine on which a unit and its drop-ins can be checked.
func tree(t *testing.T, name, binary string, unit []byte, dropIns ...string) string {
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
	put("/etc/systemd/system/"+name, unit, 0o644)
	for _, file := range dropIns {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put("/etc/systemd/system/"+name+".d/"+filepath.Base(file), data, 0o644)
	}
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
			if err := verify(t, "--root="+tree(t, "marbles.service", binary, unit), "marbles.service"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestVerifyFails shows that the check above can fail.
func TestVerifyFails(t *testing.T) {
	unit := []byte(render(t, System, Values{}))
	if verify(t, "--root="+tree(t, "marbles.service", "/usr/bin/other", unit), "marbles.service") == nil {
		t.Error("verify accepts a unit whose program is missing")
	}
	unit = append(unit, "Wantedly=x\n"...)
	if verify(t, "--root="+tree(t, "marbles.service", "/usr/bin/marbles", unit), "marbles.service") == nil {
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

// analyzeVersion is the version of systemd that the tool belongs to.
func analyzeVersion(t *testing.T) int {
	t.Helper()
	out, err := systemdAnalyze(t, "--version")
	if err != nil {
		t.Fatalf("systemd-analyze --version: %v\n%s", err, out)
	}
	var version int
	if _, err := fmt.Sscanf(string(out), "systemd %d", &version); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return version
}

// glob lists files that must be there.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	return files
}

// TestDropIns holds every drop-in for both system units to systemd's own check, alone and together with those that the
// packages link for the installed version, and to the exposure that its first lines promise.
func TestDropIns(t *testing.T) {
	since := []string{}
	for _, file := range glob(t, "systemd/since/*.conf") {
		if n, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(file), ".conf")); err != nil {
			t.Errorf("%s: the name is no version: %v", file, err)
		} else if n <= analyzeVersion(t) {
			since = append(since, file)
		}
	}
	limits := map[string]float64{"": 2.9} // under 3.0 as shipped
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	promise := regexp.MustCompile(`(?m)^#.* Exposure: (\d+\.\d)$`)
	for _, file := range glob(t, "systemd/marbles.service.d/*.conf") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said := promise.FindSubmatch(data)
		if said == nil {
			t.Errorf("%s does not say its exposure", file)
			continue
		}
		limits[file], _ = strconv.ParseFloat(string(said[1]), 64)
		if row := regexp.MustCompile(`(?m)^\| \[` + regexp.QuoteMeta(filepath.Base(file)) + `\].*\| ` + string(said[1]) + ` \|$`); !row.Match(readme) {
			t.Errorf("README.md has no row of %s with its exposure", file)
		}
		if !strings.Contains(string(data), "install -D -m 644 "+filepath.Base(file)+" ") {
			t.Errorf("%s does not say how to install it", file)
		}
	}
	for _, unit := range []struct{ target, file, name string }{
		{System, "marbles.service", "marbles.service"},
		{Template, "marbles@.service", "marbles@srv-a\\x20b.service"},
	} {
		for dropIn, limit := range limits {
			name := cmp.Or(strings.TrimSuffix(filepath.Base(dropIn), ".conf"), "none")
			t.Run(unit.target+"/"+name, func(t *testing.T) {
				text := []byte(render(t, unit.target, Values{}))
				var chosen []string
				if dropIn != "" {
					chosen = []string{dropIn}
				}
				for _, files := range [][]string{chosen, append(chosen, since...)} {
					root := tree(t, unit.file, "/usr/bin/marbles", text, files...)
					if err := verify(t, "--root="+root, unit.name); err != nil {
						t.Errorf("with %q: %v", files, err)
					}
				}
				root := tree(t, unit.file, "/usr/bin/marbles", text, chosen...)
				out, err := systemdAnalyze(t, "security", "--root="+root, "--offline=true", "--no-pager", unit.name)
				found := regexp.MustCompile(`Overall exposure level for .*: (\d+\.\d)`).FindSubmatch(out)
				if err != nil || found == nil {
					t.Fatalf("systemd-analyze security: %v\n%s", err, out)
				}
				exposure, _ := strconv.ParseFloat(string(found[1]), 64)
				t.Logf("exposure %.1f", exposure)
				if exposure > limit {
					t.Errorf("the exposure is %.1f, more than %.1f", exposure, limit)
				}
			})
		}
	}
}

// TestNewerSystemd: what Render puts in for a version is what the drop-ins of that version would.
func TestNewerSystemd(t *testing.T) {
	for _, target := range []string{System, Template, User} {
		old := render(t, target, Values{})
		if diff := gocmp.Diff(old, render(t, target, Values{Systemd: 252})); diff != "" {
			t.Errorf("%s: for 252 it is not the file:\n%s", target, diff)
		}
		for version, want := range map[int][]string{
			253: {"Type=notify-reload", "ExecReload="},
			254: {"Type=notify-reload", "ExecReload=", "RestartSteps=6", "RestartMaxDelaySec=1min"},
			260: {"Type=notify-reload", "ExecReload=", "RestartSteps=6", "RestartMaxDelaySec=1min"},
		} {
			var got []string
			before := strings.Split(old, "\n")
			for l := range strings.SplitSeq(render(t, target, Values{Systemd: version}), "\n") {
				if len(before) > 0 && l == before[0] {
					before = before[1:]
				} else if l != "" && l != "[Service]" && !strings.HasPrefix(l, "#") {
					got = append(got, l)
				}
			}
			if diff := gocmp.Diff(want, got); diff != "" || len(before) > 0 {
				t.Errorf("%s for %d adds (-want +got):\n%s\nand lacks %q", target, version, diff, before)
			}
		}
	}
	version := analyzeVersion(t)
	unit := []byte(render(t, System, Values{Systemd: version}))
	if err := verify(t, "--root="+tree(t, "marbles.service", "/usr/bin/marbles", unit), "marbles.service"); err != nil {
		t.Errorf("for %d: %v", version, err)
	}
}

// TestTemplateIsTheService: an instance differs from the service of the machine in what is named here, and nothing else.
func TestTemplateIsTheService(t *testing.T) {
	lines := func(target string) (found []string) {
		for l := range strings.Lines(render(t, target, Values{})) {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
				found = append(found, l)
			}
		}
		return found
	}
	differs := []string{"Description", "AssertPathIsDirectory", "RequiresMountsFor", "ExecStartPre", "ExecStart", "StateDirectory",
		"CacheDirectory", "LogsDirectory", "RuntimeDirectory", "WorkingDirectory", "Environment", "ProtectHome", "BindPaths"}
	same := func(lines []string) []string {
		return slices.DeleteFunc(lines, func(l string) bool {
			key, value, _ := strings.Cut(l, "=")
			return slices.Contains(differs, key) && !strings.HasPrefix(value, "GOTRACEBACK")
		})
	}
	if diff := gocmp.Diff(same(lines(System)), same(lines(Template))); diff != "" {
		t.Errorf("-marbles.service +marbles@.service:\n%s", diff)
	}
}

// TestFit runs the script that the packages run, with a systemd of several versions.
func TestFit(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS != "linux" {
		t.Skip("the script is for Linux")
	}
	script, err := filepath.Abs("systemd/fit")
	if err != nil {
		t.Fatal(err)
	}
	root, bin := t.TempDir(), t.TempDir()
	lib := filepath.Join(root, "usr/lib")
	if err := os.CopyFS(filepath.Join(lib, "marbles/systemd/since"), os.DirFS("systemd/since")); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(lib, "systemd/system/marbles.service.d/50-own.conf")
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(own, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	units := []string{"system/marbles.service", "system/marbles@.service", "user/marbles.service"}
	for _, step := range []struct {
		version string
		args    []string
		want    []string
	}{
		{"252 (252.39-1~deb12u1)", nil, nil},
		{"257 (257.13)", nil, []string{"10-since-253.conf", "10-since-254.conf"}},
		{"257 (257.13)", nil, []string{"10-since-253.conf", "10-since-254.conf"}},
		{"253 (253)", nil, []string{"10-since-253.conf"}},
		{"257~rc1 (257)", nil, []string{"10-since-253.conf", "10-since-254.conf"}},
		{"", nil, nil},
		{"260 (260)", nil, []string{"10-since-253.conf", "10-since-254.conf"}},
		{"260 (260)", []string{"remove"}, nil},
	} {
		tool := "#!/bin/sh\necho 'systemd " + step.version + "'\necho '+PAM +AUDIT'\n"
		if err := os.WriteFile(filepath.Join(bin, "systemctl"), []byte(tool), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", append([]string{script}, step.args...)...)
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "MARBLES_FIT_ROOT=" + root}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%q: %v\n%s", step.version, err, out)
		}
		for _, unit := range units {
			var got []string
			links, _ := filepath.Glob(filepath.Join(lib, "systemd", unit+".d/10-*"))
			for _, l := range links {
				if _, err := os.Stat(l); err != nil {
					t.Errorf("a link leads nowhere: %v", err)
				}
				got = append(got, filepath.Base(l))
			}
			if diff := gocmp.Diff(step.want, got); diff != "" {
				t.Errorf("%q %q %s (-want +got):\n%s", step.version, step.args, unit, diff)
			}
		}
	}
	if _, err := os.Stat(own); err != nil {
		t.Error("somebody else's drop-in is gone")
	}
	if _, err := os.Stat(filepath.Join(lib, "systemd/user/marbles.service.d")); err == nil {
		t.Error("an empty folder is left")
	}
}
