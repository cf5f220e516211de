package packaging

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func render(t *testing.T, name string, v Values) string {
	t.Helper()
	got, err := Render(name, v)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// line is the value of a unit's only line with a key.
func line(t *testing.T, unit, key string) string {
	t.Helper()
	var found []string
	for l := range strings.Lines(unit) {
		if v, ok := strings.CutPrefix(l, key+"="); ok {
			found = append(found, strings.TrimSuffix(v, "\n"))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s= stands %d times, want once: %q", key, len(found), found)
	}
	return found[0]
}

func TestRenderZeroValuesIsTheFile(t *testing.T) {
	names := map[string]string{
		System:   "systemd/marbles.service",
		Template: "systemd/marbles@.service",
		User:     "systemd/user/marbles.service",
		Launchd:  "launchd/com.foundry.marbles.plist",
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(names)), slices.Sorted(slices.Values(Names()))); diff != "" {
		t.Fatalf("Names (-want +got):\n%s", diff)
	}
	for name, file := range names {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), render(t, name, Values{})); diff != "" {
			t.Errorf("%s is not its file (-want +got):\n%s", name, diff)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, v := range map[string]Values{
		"relative binary":  {Binary: "bin/marbles"},
		"relative config":  {Config: "marbles.yaml"},
		"relative home":    {Home: "~"},
		"newline":          {Binary: "/opt/a\nExecStartPre=/bin/evil"},
		"carriage return":  {Config: "/etc/a\rb"},
		"NUL":              {Home: "/Users/a\x00"},
		"not UTF-8":        {Binary: "/opt/\xff/marbles"},
		"no XML character": {Binary: "/opt/\uffff/marbles"},
	} {
		for _, target := range Names() {
			if v.Home != "" && target != Launchd { // no use for it
				continue
			}
			if got, err := Render(target, v); err == nil {
				t.Errorf("%s: Render(%s) = %q, want an error", name, target, got)
			}
		}
	}
	for _, binary := range []string{`/opt/a"b`, "/opt/a'b", `/opt/a\b`} {
		if got, err := Render(System, Values{Binary: binary}); err == nil {
			t.Errorf("Render of a program that systemd refuses = %q, want an error", got)
		}
	}
	if _, err := Render("upstart", Values{}); err == nil || !strings.Contains(err.Error(), "system, template, user, launchd") {
		t.Errorf(`Render("upstart") = %v, want an error with the names`, err)
	}
}

func TestUnitCommandLine(t *testing.T) {
	for _, tt := range []struct {
		name, target string
		v            Values
		want         string
	}{
		{"user", User, Values{}, "/usr/bin/marbles run"},
		{"user with settings", User, Values{Config: "/home/a/m.yaml"}, "/usr/bin/marbles run --config /home/a/m.yaml"},
		{"system", System, Values{Binary: "/usr/local/bin/marbles"}, "/usr/local/bin/marbles run --config /etc/marbles/marbles.yaml"},
		{"template", Template, Values{}, "/usr/bin/marbles run --config /etc/marbles/marbles.yaml --source %f"},
		{"space", System, Values{Binary: "/opt/a b/marbles", Config: "/etc/c d"}, `"/opt/a b/marbles" run --config "/etc/c d"`},
		{"specifier", System, Values{Binary: "/opt/%h", Config: "/etc/%i"}, `/opt/%%h run --config /etc/%%i`},
		{"variable", System, Values{Binary: "/opt/$x", Config: "/etc/${HOME}"}, `/opt/$x run --config /etc/$${HOME}`},
		{"quotes", User, Values{Config: `/etc/a"b'c\d`}, `/usr/bin/marbles run --config "/etc/a\"b'c\\d"`},
		{"home is not for units", User, Values{Home: "nowhere"}, "/usr/bin/marbles run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := line(t, render(t, tt.target, tt.v), "ExecStart"); got != tt.want {
				t.Errorf("ExecStart=%s, want %s", got, tt.want)
			}
		})
	}
}

// TestUnitContract keeps what the service itself relies on.
func TestUnitContract(t *testing.T) {
	want := map[string]string{
		"Type": "notify", "NotifyAccess": "main", "Restart": "on-failure", "RestartSec": "2", "KillMode": "mixed",
		"ExecReload": "/bin/sh -c 'kill -HUP $MAINPID'", "RestartPreventExitStatus": "2",
		"StartLimitIntervalSec": "0", "TimeoutStopSec": "75s", "UMask": "0077",
	}
	for _, name := range []string{System, User} {
		unit := render(t, name, Values{})
		for key, value := range want {
			if got := line(t, unit, key); got != value {
				t.Errorf("%s: %s=%s, want %s", name, key, got, value)
			}
		}
	}
	system := render(t, System, Values{})
	for key, value := range map[string]string{
		"DynamicUser": "yes", "StateDirectory": "marbles", "WantedBy": "multi-user.target",
	} {
		if got := line(t, system, key); got != value {
			t.Errorf("system: %s=%s, want %s", key, got, value)
		}
	}
	if got := line(t, render(t, User, Values{}), "WantedBy"); got != "default.target" {
		t.Errorf("user: WantedBy=%s, want default.target", got)
	}
}

func TestAgent(t *testing.T) {
	got := plist(t, render(t, Launchd, Values{}))
	want := map[string]any{
		"Label":                "com.foundry.marbles",
		"ProgramArguments":     []any{"/usr/local/bin/marbles", "run"},
		"WorkingDirectory":     "/Users/USERNAME",
		"EnvironmentVariables": map[string]any{"PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
		"RunAtLoad":            true,
		"KeepAlive":            true,
		"ThrottleInterval":     "5",
		"ExitTimeOut":          "75",
		"ProcessType":          "Background",
		"Umask":                "63", // 0077: a property list has no octal numbers
		"StandardOutPath":      "/Users/USERNAME/Library/Logs/marbles.log",
		"StandardErrorPath":    "/Users/USERNAME/Library/Logs/marbles.log",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAgentValues(t *testing.T) {
	v := Values{
		Binary: `/opt/a <b> & "c"/marbles`,
		Config: "/Users/USERNAME/<string>run</string>",
		Home:   "/Users/o'brien & co",
	}
	got := plist(t, render(t, Launchd, v)).(map[string]any)
	want := map[string]any{
		"ProgramArguments":  []any{v.Binary, "run", "--config", v.Config},
		"WorkingDirectory":  v.Home,
		"StandardOutPath":   v.Home + "/Library/Logs/marbles.log",
		"StandardErrorPath": v.Home + "/Library/Logs/marbles.log",
	}
	for key, value := range want {
		if diff := cmp.Diff(value, got[key]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

func TestPlistReaderRefuses(t *testing.T) {
	for _, text := range []string{
		"<plist><dict><key>a</key></dict></plist>",
		"<plist><dict><string>a</string><string>b</string></dict></plist>",
		"<plist><array><integer>abc</integer></array></plist>",
		"<plist><dict></plist>",
		"<dict></dict>",
	} {
		if v, err := readPlist(strings.NewReader(text)); err == nil {
			t.Errorf("%s reads as %v, want an error", text, v)
		}
	}
}

func plist(t *testing.T, text string) any {
	t.Helper()
	v, err := readPlist(strings.NewReader(text))
	if err != nil {
		t.Fatalf("not a property list: %v\n%s", err, text)
	}
	return v
}

// readPlist reads the part of the format that the file uses; integers stay text.
func readPlist(r io.Reader) (any, error) {
	d := xml.NewDecoder(r)
	root, err := element(d)
	if err != nil {
		return nil, err
	}
	if root == nil || root.Name.Local != "plist" {
		return nil, errors.New("the root is no plist")
	}
	first, err := element(d)
	if err != nil {
		return nil, err
	}
	if first == nil {
		return nil, errors.New("the plist is empty")
	}
	v, err := value(d, first)
	if err != nil {
		return nil, err
	}
	if next, err := element(d); err != nil || next != nil {
		return nil, errors.Join(err, errors.New("the plist holds a second value"))
	}
	if _, err := element(d); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the plist")
	}
	return v, nil
}

// element is the next start element, or nil where the enclosing one ends.
func element(d *xml.Decoder) (*xml.StartElement, error) {
	for {
		tok, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			return &tok, nil
		case xml.EndElement:
			return nil, nil
		case xml.CharData:
			if len(bytes.TrimSpace(tok)) > 0 {
				return nil, errors.New("text between elements: " + string(tok))
			}
		}
	}
}

func value(d *xml.Decoder, start *xml.StartElement) (any, error) {
	switch kind := start.Name.Local; kind {
	case "string", "integer", "true", "false":
		var text string
		if err := d.DecodeElement(&text, start); err != nil {
			return nil, err
		}
		switch {
		case kind == "string":
			return text, nil
		case kind == "integer" && text != "" && strings.Trim(text, "0123456789") == "":
			return text, nil
		case kind != "integer" && text == "":
			return kind == "true", nil
		}
		return nil, errors.New("bad " + kind + ": " + text)
	case "array":
		list := []any{}
		for {
			next, err := element(d)
			if err != nil || next == nil {
				return list, err
			}
			v, err := value(d, next)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
	case "dict":
		dict := map[string]any{}
		for {
			k, err := element(d)
			if err != nil || k == nil {
				return dict, err
			}
			var key string
			if err := d.DecodeElement(&key, k); err != nil || k.Name.Local != "key" {
				return nil, errors.Join(err, errors.New("a dict holds "+k.Name.Local+" where a key belongs"))
			}
			next, err := element(d)
			if err != nil {
				return nil, err
			}
			if next == nil {
				return nil, errors.New("no value for " + key)
			}
			v, err := value(d, next)
			if err != nil {
				return nil, err
			}
			if _, twice := dict[key]; twice {
				return nil, errors.New("twice: " + key)
			}
			dict[key] = v
		}
	default:
		return nil, errors.New("unknown element " + kind)
	}
}
