package settings

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"marbles/cmd/internal/strict"
)

// house is a home and a working directory to load settings in.
type house struct {
	t         *testing.T
	home, cwd string
}

func newHouse(t *testing.T) house {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := house{t: t, home: filepath.Join(dir, "home"), cwd: filepath.Join(dir, "cwd")}
	for _, d := range []string{h.home, h.cwd} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// write writes a file below the home directory and returns its path.
func (h house) write(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h house) options(env []string, args ...string) Options {
	h.t.Helper()
	fs := pflag.NewFlagSet("marbles", pflag.ContinueOnError)
	AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		h.t.Fatal(err)
	}
	return Options{Flags: fs, Env: env, Home: h.home, Cwd: h.cwd, Euid: 1000, SystemState: filepath.Join(h.home, "no-system")}
}

func (h house) load(o Options) *Settings {
	h.t.Helper()
	s, err := Load(o)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func TestDefaults(t *testing.T) {
	h := newHouse(t)
	want := &Settings{State: h.home + "/.foundry/marbles", Artifacts: h.home + "/.foundry/artifacts", LogLevel: "info", LogFormat: "auto",
		Concurrency: 16, Grace: 10 * time.Second, Drain: 30 * time.Second, KeepRuns: 1000, KeepAge: 90 * 24 * time.Hour, KeepBytes: 2 << 30, OutputLimit: 64 << 20, Cgroups: "auto"}
	if diff := cmp.Diff(want, h.load(h.options(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	o := h.options(nil)
	o.Flags = nil
	if diff := cmp.Diff(want, h.load(o)); diff != "" {
		t.Errorf("without flags (-want +got):\n%s", diff)
	}
}

const whole = `sources: [jobs, /abs, ~/mine]
state: st
artifacts: ../art
log_level: warn
log_format: json
concurrency: 2
grace: 0s
drain: 1m
`

// Flag, then variable, then file: every key, one layer on top of the other.
func TestLayers(t *testing.T) {
	h := newHouse(t)
	file := h.write(".config/marbles/marbles.yaml", whole)
	dir := filepath.Dir(file)
	want := &Settings{File: file, Sources: []string{dir + "/jobs", "/abs", h.home + "/mine"}, State: dir + "/st", Artifacts: filepath.Dir(dir) + "/art",
		LogLevel: "warn", LogFormat: "json", Concurrency: 2, Drain: time.Minute, KeepRuns: 1000, KeepAge: 90 * 24 * time.Hour, KeepBytes: 2 << 30, OutputLimit: 64 << 20, Cgroups: "auto"}
	if diff := cmp.Diff(want, h.load(h.options(nil))); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}

	env := []string{"MARBLES_SOURCES=x:/y:~/z", "MARBLES_STATE=s", "MARBLES_ARTIFACTS=/a", "MARBLES_LOG_LEVEL=error", "MARBLES_LOG_FORMAT=text",
		"MARBLES_CONCURRENCY=3", "MARBLES_GRACE=1s", "MARBLES_DRAIN=2h", "MARBLES_RUN_ID=rn-1", "MARBLES_UNHEARD_OF=!", "marbles_grace=5s"}
	want = &Settings{File: file, Sources: []string{h.cwd + "/x", "/y", h.home + "/z"}, State: h.cwd + "/s", Artifacts: "/a",
		LogLevel: "error", LogFormat: "text", Concurrency: 3, Grace: time.Second, Drain: 2 * time.Hour, KeepRuns: 1000, KeepAge: 90 * 24 * time.Hour, KeepBytes: 2 << 30, OutputLimit: 64 << 20, Cgroups: "auto"}
	if diff := cmp.Diff(want, h.load(h.options(env))); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}

	args := []string{"--source", "p,q", "--source=/r]", "--state=~/f", "--artifacts", "g", "--log-level", "debug", "--log-format", "journal"}
	want.Sources, want.State, want.Artifacts, want.LogLevel, want.LogFormat =
		[]string{h.cwd + "/p,q", "/r]"}, h.home+"/f", h.cwd+"/g", "debug", "journal"
	if diff := cmp.Diff(want, h.load(h.options(env, args...))); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

func TestEmptyVariablesAreNone(t *testing.T) {
	h := newHouse(t)
	got := h.load(h.options([]string{"MARBLES_STATE=/x", "MARBLES_STATE=", "MARBLES_SOURCES=", "MARBLES_CONFIG=", "MARBLES_GRACE=", "XDG_CONFIG_HOME="}))
	if got.State != h.home+"/.foundry/marbles" || got.Sources != nil || got.Grace != 10*time.Second {
		t.Errorf("got %+v", got)
	}
}

func TestWhichFile(t *testing.T) {
	h := newHouse(t)
	own := h.write(".config/marbles/marbles.yaml", "concurrency: 1")
	xdg := h.write("xdg/marbles/marbles.yaml", "concurrency: 2")
	env := h.write("env.yaml", "concurrency: 3")
	flag := h.write("flag.yaml", "concurrency: 4")
	systemd := h.write("etc/marbles.yaml", "concurrency: 5")
	etc := "CONFIGURATION_DIRECTORY=" + h.home + "/etc:" + h.home + "/more"
	tests := []struct {
		name    string
		service bool
		env     []string
		args    []string
		want    string
	}{
		{"own", false, nil, nil, own},
		{"XDG", false, []string{"XDG_CONFIG_HOME=" + h.home + "/xdg"}, nil, xdg},
		{"XDG without a file", false, []string{"XDG_CONFIG_HOME=" + h.home + "/none"}, nil, ""},
		{"relative XDG is ignored", false, []string{"XDG_CONFIG_HOME=xdg"}, nil, own},
		{"systemd's directory", true, []string{etc, "XDG_CONFIG_HOME=" + h.home + "/xdg"}, nil, systemd},
		{"systemd's directory without a file", true, []string{"CONFIGURATION_DIRECTORY=" + h.home + "/more"}, nil, own},
		{"systemd's directory is the service's alone", false, []string{etc}, nil, own},
		{"variable", true, []string{etc, "XDG_CONFIG_HOME=" + h.home + "/xdg", "MARBLES_CONFIG=../home/env.yaml"}, nil, env},
		{"flag", true, []string{etc, "MARBLES_CONFIG=../nowhere"}, []string{"--config", "../home/flag.yaml"}, flag},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			use := h.options(tt.env, tt.args...)
			use.Service = tt.service
			got := h.load(use)
			if got.File != tt.want {
				t.Errorf("got %q, want %q", got.File, tt.want)
			}
			if n := map[string]int{own: 1, xdg: 2, env: 3, flag: 4, systemd: 5, "": 16}[tt.want]; got.Concurrency != n {
				t.Errorf("%d: got concurrency %d, want %d", i, got.Concurrency, n)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name string
		file string
		env  []string
		args []string
		want []string // "F" stands for the file
	}{
		{name: "file", file: "source: x\nLog_Level: info\nlog.level: info\nsources: a\nstate: 5\nartifacts: \"\"\nlog_level: wran\nlog_format: on\nconcurrency: 0\ngrace: 10\ndrain: 1h30m\ngrace: 0\n", want: []string{
			`F:1:1: source: unknown key "source" (did you mean "sources"?)`,
			`F:2:1: Log_Level: unknown key "Log_Level" (did you mean "log_level"?)`,
			`F:3:1: "log.level": unknown key "log.level" (did you mean "log_level"?)`,
			`F:4:10: sources: want a list of paths, got the text "a"`,
			"F:5:8: state: want a text, got the number 5; quote it",
			"F:6:12: artifacts: path is empty",
			`F:7:12: log_level: want one of debug, info, warn, error, got "wran" (did you mean "warn"?)`,
			`F:8:13: log_format: want one of auto, journal, text, json, got "on"`,
			"F:9:14: concurrency: want a whole number from 1 to 10000, got the number 0",
			"F:10:8: grace: want a duration such as 30s or 5m, got the number 10",
			`F:11:8: drain: cannot read duration "1h30m": want a positive duration such as 30s, 10m, 6h or 1d`,
			`F:12:1: grace: key "grace" is given twice, first in line 10`,
			"F:12:8: grace: want a duration such as 30s or 5m, got the number 0"}},
		{name: "a list in place of settings", file: "- a", want: []string{"F:1:1: want a mapping of settings, got a list"}},
		{name: "no YAML", file: "a: [", want: []string{"F:2:1: cannot parse: did not find expected node content while parsing a flow node"}},
		{name: "sources", file: "sources: [1, '', a]", want: []string{
			"F:1:11: sources[0]: want a path as a text, got the number 1; quote it", "F:1:14: sources[1]: path is empty"}},
		{name: "empty file", file: "# nothing\n"},
		{name: "variables", env: []string{"MARBLES_SOURCES=a::b", "MARBLES_LOG_LEVEL=x", "MARBLES_CONCURRENCY=10001", "MARBLES_GRACE=5", "MARBLES_DRAIN=200000d"}, want: []string{
			"MARBLES_SOURCES: path is empty",
			`MARBLES_LOG_LEVEL: want one of debug, info, warn, error, got "x"`,
			`MARBLES_CONCURRENCY: want a whole number from 1 to 10000, got "10001"`,
			`MARBLES_GRACE: cannot read duration "5": want a positive duration such as 30s, 10m, 6h or 1d`,
			`MARBLES_DRAIN: duration "200000d" is too long: want a positive duration such as 30s, 10m, 6h or 1d`}},
		{name: "flags", args: []string{"--source=", "--source=a", "--state=", "--artifacts=", "--log-level=INFO", "--log-format="}, want: []string{
			"--source: path is empty", "--state: path is empty", "--artifacts: path is empty",
			`--log-level: want one of debug, info, warn, error, got "INFO"`,
			`--log-format: want one of auto, journal, text, json, got ""`}},
		{name: "an empty --config", args: []string{"--config="}, want: []string{"--config: path is empty"}},
		{name: "a bad value is an error even where it is overridden", file: "log_level: x", env: []string{"MARBLES_LOG_LEVEL=y"}, args: []string{"--log-level=info"}, want: []string{
			`F:1:12: log_level: want one of debug, info, warn, error, got "x"`, `MARBLES_LOG_LEVEL: want one of debug, info, warn, error, got "y"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t)
			file := filepath.Join(h.home, "F")
			if tt.file != "" {
				file = h.write(".config/marbles/marbles.yaml", tt.file)
			}
			_, err := Load(h.options(tt.env, tt.args...))
			var got []string
			if err != nil {
				var all strict.Diagnostics
				if !errors.As(err, &all) {
					t.Errorf("got a %T", err)
				}
				got = strings.Split(strings.ReplaceAll(err.Error(), file, "F"), "\n")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	h := newHouse(t)
	for name, make := range map[string]func(path string) error{
		"missing":   func(string) error { return nil },
		"a folder":  func(path string) error { return os.Mkdir(path, 0o700) },
		"too large": func(path string) error { h.write("too large", ""); return os.Truncate(path, maxFile+1) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(h.home, name)
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"missing": "cannot read settings: no such file or directory", "a folder": "cannot read settings: it is no regular file",
				"too large": "settings file is larger than 1024 KiB"}[name]
			if _, err := Load(h.options(nil, "--config", path)); fmt.Sprint(err) != path+": "+want {
				t.Errorf("got %v, want %s: %s", err, path, want)
			}
		})
	}
}

func TestRoots(t *testing.T) {
	h := newHouse(t)
	file := h.write("f.yaml", "state: /file/st")
	both := h.write("g.yaml", "state: /file/st\nartifacts: /file/art")
	home := h.home + "/.foundry/"
	const systemd = "STATE_DIRECTORY=/var/lib/m:/var/lib/n"
	tests := []struct {
		name             string
		service          bool
		env, args        []string
		state, artifacts string
	}{
		{"default", true, nil, nil, home + "marbles", home + "artifacts"},
		{"systemd's", true, []string{systemd}, nil, "/var/lib/m", "/var/lib/m/artifacts"},
		{"systemd's, but no service", false, []string{systemd}, nil, home + "marbles", home + "artifacts"},
		{"systemd's before the file's", true, []string{systemd, "MARBLES_CONFIG=" + file}, nil, "/var/lib/m", "/var/lib/m/artifacts"},
		{"the file's artifacts stay", true, []string{systemd, "MARBLES_CONFIG=" + both}, nil, "/var/lib/m", "/file/art"},
		{"the file's", false, []string{systemd, "MARBLES_CONFIG=" + file}, nil, "/file/st", "/file/artifacts"},
		{"the variable before systemd's", true, []string{systemd, "MARBLES_STATE=/env/st"}, nil, "/env/st", "/env/artifacts"},
		{"the flag before all", true, []string{systemd, "MARBLES_STATE=/env/st"}, []string{"--state", "fl"}, h.cwd + "/fl", h.cwd + "/artifacts"},
		{"artifacts apart", true, []string{systemd, "MARBLES_ARTIFACTS=/env/art"}, nil, "/var/lib/m", "/env/art"},
		{"a relative $STATE_DIRECTORY is none", true, []string{"STATE_DIRECTORY=x"}, nil, home + "marbles", home + "artifacts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := h.options(tt.env, tt.args...)
			o.Service = tt.service
			got := h.load(o)
			if got.State != tt.state || got.Artifacts != tt.artifacts {
				t.Errorf("got %s and %s, want %s and %s", got.State, got.Artifacts, tt.state, tt.artifacts)
			}
		})
	}
	o := h.options(nil)
	o.Home = ""
	if got := h.load(o); got.State != "" || got.Artifacts != "" { // only what needs a root has to mind
		t.Errorf("without a home: got %+v", got)
	}
	o = h.options(nil, "--state=/x")
	if o.Home = ""; h.load(o).State != "/x" {
		t.Error("--state needs no home")
	}
}

func TestReadersFallBack(t *testing.T) {
	h := newHouse(t)
	system := filepath.Join(h.home, "system")
	own := h.home + "/.foundry/marbles"
	state := func(reader bool, args ...string) string {
		o := h.options(nil, args...)
		o.Reader, o.SystemState = reader, system
		return h.load(o).State
	}
	if got := state(true); got != own {
		t.Errorf("no system service: got %s", got)
	}
	if err := os.MkdirAll(filepath.Join(system, "0123456789ab"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := state(true); got != system {
		t.Errorf("a reader: got %s", got)
	}
	if got := state(false); got != own {
		t.Errorf("a writer: got %s", got)
	}
	if got := state(true, "--state=/x"); got != "/x" {
		t.Errorf("with --state: got %s", got)
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := state(true); got != own {
		t.Errorf("with a root of one's own: got %s", got)
	}
}

func TestSystemServiceHasItsOwnSources(t *testing.T) {
	if got := defaultSources("/etc/marbles/marbles.yaml"); !cmp.Equal(got, []string{"/etc/marbles/jobs"}) {
		t.Errorf("got %q", got)
	}
	if got := defaultSources("/home/x/.config/marbles/marbles.yaml"); got != nil {
		t.Errorf("got %q", got)
	}
}

// What is done by hand with the packaged service's settings is about that one's state.
func TestSystemServiceHasItsOwnState(t *testing.T) {
	for file, want := range map[string][2]string{
		"/etc/marbles/marbles.yaml":            {"/var/lib/marbles", "/var/lib/marbles/artifacts"},
		"/home/x/.config/marbles/marbles.yaml": {"/home/x/.foundry/marbles", "/home/x/.foundry/artifacts"},
	} {
		l, s := loader{Options: Options{Home: "/home/x"}, v: viper.New()}, &Settings{File: file}
		l.roots(s)
		if got := [2]string{s.State, s.Artifacts}; got != want {
			t.Errorf("%s: got %q, want %q", file, got, want)
		}
	}
}

// The service, as root, must not be told what to do by others; a reader may look.
func TestSettingsOthersMayWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs files that root owns")
	}
	h := newHouse(t)
	file := h.write("d/f.yaml", "grace: 1s")
	load := func(service bool) error {
		o := h.options(nil, "--config", file)
		o.Euid, o.Service = 0, service
		_, err := Load(o)
		return err
	}
	if err := load(true); err != nil {
		t.Errorf("root's own: %v", err)
	}
	if err := os.Chmod(file, 0o664); err != nil {
		t.Fatal(err)
	}
	if err := load(true); err == nil || !strings.Contains(err.Error(), "mode 0664") || !strings.Contains(err.Error(), "chmod go-w "+file) {
		t.Errorf("got %v", err)
	}
	if err := load(false); err != nil {
		t.Errorf("a reader: %v", err)
	}
	if err := errors.Join(os.Chmod(file, 0o600), os.Chmod(filepath.Dir(file), 0o777)); err != nil {
		t.Fatal(err)
	}
	if err := load(true); err == nil || !strings.Contains(err.Error(), "its folder has mode 0777") {
		t.Errorf("got %v", err)
	}
}

// docs/settings.md must say what the code does.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n\n"+Document()+"\n") {
		t.Errorf("docs/settings.md does not hold this table:\n%s", Document())
	}
	if _, _, ok := strings.Cut(string(page), "```yaml\n"); !ok {
		t.Fatal("docs/settings.md has no example")
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	h := newHouse(t)
	got := h.load(h.options(nil, "--config", h.write("example.yaml", example)))
	if got.Concurrency != 4 {
		t.Errorf("the example reads as %+v", got)
	}
}

// BenchmarkLoad: every roll pays this once.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	file := filepath.Join(dir, "f.yaml")
	if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		fs := pflag.NewFlagSet("marbles", pflag.ContinueOnError)
		AddFlags(fs)
		if err := fs.Parse([]string{"--config", file}); err != nil {
			b.Fatal(err)
		}
		if _, err := Load(Options{Flags: fs, Env: os.Environ(), Home: dir, Cwd: dir}); err != nil {
			b.Fatal(err)
		}
	}
}

// An unset variable in a script must not silently mean the default.
func TestEmptyFlags(t *testing.T) {
	h := newHouse(t)
	for _, k := range keys {
		if k.flag == "" {
			continue
		}
		t.Run(k.flag, func(t *testing.T) {
			_, err := Load(h.options(nil, "--"+k.flag, ""))
			var all strict.Diagnostics
			if !errors.As(err, &all) || len(all) != 1 || all[0].File != "--"+k.flag {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Load(h.options(nil, "--source", "a", "--source", "")); fmt.Sprint(err) != "--source: path is empty" {
		t.Errorf("one of two: got %v", err)
	}
	got := h.load(h.options(nil, "--source", "a\nb", "--source", `"c",d`))
	if diff := cmp.Diff([]string{h.cwd + "/a\nb", h.cwd + `/"c",d`}, got.Sources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where the working directory was removed, a relative path leads nowhere.
func TestNoWorkingDirectory(t *testing.T) {
	h := newHouse(t)
	h.cwd = ""
	if got := h.load(h.options(nil)); got.State != h.home+"/.foundry/marbles" {
		t.Errorf("state %s", got.State)
	}
	h.load(h.options([]string{"MARBLES_ARTIFACTS=/a"}, "--state", "/s", "--source", "~/d"))
	for _, o := range []Options{h.options(nil, "--state", "x"), h.options(nil, "--artifacts", "x"), h.options(nil, "--source", "x"),
		h.options([]string{"MARBLES_STATE=x"}), h.options([]string{"MARBLES_SOURCES=x"}), h.options(nil, "--config", "x")} {
		_, err := Load(o)
		if want := "x: path is relative, and the working directory cannot be found"; !strings.HasPrefix(fmt.Sprint(err), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A pipe in the file's place is not waited for, and a name that is not UTF-8 costs no path in the file.
func TestHostileFiles(t *testing.T) {
	h := newHouse(t)
	pipe := filepath.Join(h.home, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(h.options(nil, "--config", pipe)); fmt.Sprint(err) != pipe+": cannot read settings: it is no regular file" {
		t.Errorf("a pipe: got %v", err)
	}
	o := h.options(nil)
	o.Reader, o.SystemState = true, pipe
	if got := h.load(o); got.State != h.home+"/.foundry/marbles" {
		t.Errorf("a pipe as the system's root: state %s", got.State)
	}
	dir := filepath.Join(h.home, "b\xff")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Skip("no such name here:", err) // macOS
	}
	file := h.write("b\xff/m.yaml", "sources: [jobs]\n")
	if got := h.load(h.options(nil, "--config", file)); got.File != file || got.Sources[0] != dir+"/jobs" {
		t.Errorf("got %+v", got)
	}
	file = h.write("b\xff/bad.yaml", "sorces: [jobs]\n")
	_, err := Load(h.options(nil, "--config", file))
	if want := h.home + `/b\xff/bad.yaml:1:1: `; !strings.HasPrefix(fmt.Sprint(err), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
}
