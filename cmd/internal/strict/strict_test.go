package strict

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func messages(d *Document) []string {
	var all []string
	d.Errors.Sort()
	for _, e := range d.Errors {
		all = append(all, e.String())
	}
	return all
}

func TestParseReports(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
		broken     bool
	}{
		{name: "nothing", text: ""},
		{name: "a comment", text: "# x\n"},
		{name: "an empty document", text: "---\n...\n"},
		{name: "byte order mark", text: "\ufeffa: 1"},
		{name: "core tags", text: "{a: !!str 5, b: !!int 5, c: !!float 5, d: !!bool true, e: !!null ~, f: !!seq [], g: !!map {}, h: ! 5}"},
		{name: "dates and times are texts", text: "{a: 2026-03-01, b: 2026-03-01T00:00:00Z, c: 02:30, d: 1.2.3, e: 0x, f: 0b12, g: 0755a, h: 10_years}"},
		{name: "alias", text: "{a: &x [1], b: *x}"},

		{name: "syntax", text: "a: [1\nb: 2\n", broken: true,
			want: []string{"f:2:2: cannot parse: did not find expected ',' or ']' while parsing a flow sequence that begins in line 1"}},
		{name: "bytes that are not UTF-8", text: "a: 1\nb: \"\xff\"", broken: true, want: []string{"f:2:5: text is not valid UTF-8"}},
		{name: "UTF-16", text: "\xff\xfea\x00", broken: true, want: []string{"f:1:1: text is not valid UTF-8"}},
		{name: "control character", text: "a: 1\nbé: \x01", broken: true,
			want: []string{"f:2:5: cannot parse: control characters are not allowed (value: 1)"}},
		{name: "further document", text: "a: 1\n---\nb: 2\n", broken: true,
			want: []string{"f:2:1: a file is one document; further ones are not read"}},
		{name: "further document that does not parse", text: "a: 1\n---\nb: [\n", broken: true,
			want: []string{"f:4:1: cannot parse: did not find expected node content while parsing a flow node"}},
		{name: "unknown alias", text: "a: *x", broken: true, want: []string{"f:1:4: cannot parse: unknown anchor 'x' referenced"}},
		{name: "alias in itself", text: "a: &x [*x, *x]", broken: true, want: []string{"f:1:8: a[0]: alias *x stands inside of what it names"}},
		{name: "too deep", text: strings.Repeat("[", 10_001), broken: true,
			want: []string{"f:1:10001: cannot parse: exceeded max depth of 10000 while increasing flow level"}},

		{name: "repeated key", text: "a: 1\nb: {x: 1, x: 2}\n\"a\": 2", want: []string{
			`f:2:11: b.x: key "x" is given twice, first in line 2`,
			`f:3:1: a: key "a" is given twice, first in line 1`}},
		{name: "keys", text: "? [a]\n: 1\n<<: {b: 1}\n~: 1\n*x : 2\n&x !foo k: 3", broken: true,
			want: []string{"f:5:1: cannot parse: unknown anchor 'x' referenced"}},
		{name: "keys that are no texts", text: "? [a]\n: 1\n<<: {b: 1}\n~: 1\n!foo k: 3", want: []string{
			`f:1:3: "": a key must be a text`,
			`f:3:1: "<<": merge keys are not supported`,
			`f:4:1: "~": a key must be a text; quote it`,
			`f:5:1: k: tag !foo is not supported`}},
		{name: "tags", text: "{a: !!binary aGk=, b: !x [1], c: !!int x, d: !!set {}, e: !!bool \"true\", f: !!timestamp 2026-01-01}", want: []string{
			"f:1:5: a: tag !!binary is not supported",
			"f:1:23: b: tag !x is not supported",
			"f:1:34: c: tag !!int is not supported",
			"f:1:46: d: tag !!set is not supported",
			"f:1:59: e: tag !!bool is not supported",
			"f:1:77: f: tag !!timestamp is not supported"}},
		{name: "numbers", text: "a: [0755, 0o17, -07, 1_000, 1_0.5, 0x_1, 0b101, 08, 00.5, +0_1]", want: []string{
			"f:1:5: a[0]: number 0755 has a leading zero, which some read as octal; leave it out, or quote it",
			"f:1:11: a[1]: number 0o17 is octal or binary; write it as a decimal, or quote it",
			"f:1:17: a[2]: number -07 has a leading zero, which some read as octal; leave it out, or quote it",
			"f:1:22: a[3]: number 1_000 has underscores; leave them out, or quote it",
			"f:1:29: a[4]: number 1_0.5 has underscores; leave them out, or quote it",
			"f:1:36: a[5]: number 0x_1 has underscores; leave them out, or quote it",
			"f:1:42: a[6]: number 0b101 is octal or binary; write it as a decimal, or quote it",
			"f:1:49: a[7]: number 08 has a leading zero, which some read as octal; leave it out, or quote it",
			"f:1:53: a[8]: number 00.5 has a leading zero, which some read as octal; leave it out, or quote it",
			"f:1:59: a[9]: number +0_1 has underscores; leave them out, or quote it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := Parse("f", []byte(tt.text))
			if diff := cmp.Diff(tt.want, messages(d)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if d.Broken != tt.broken {
				t.Errorf("got broken %v, want %v", d.Broken, tt.broken)
			}
		})
	}
}

// An alias bomb: each level is ten of the one below, 10^9 values from a few hundred bytes.
func TestParseBoundsAliases(t *testing.T) {
	var b strings.Builder
	b.WriteString("l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d, ", i-1), 10), ", "))
	}
	d := Parse("f", []byte(b.String()))
	if got := messages(d); len(got) != 1 || !strings.Contains(got[0], "aliases stand for more than 1048576 values") {
		t.Errorf("got %q", got)
	}
	if d.Root != nil {
		t.Error("the root is still there to be walked")
	}
}

func TestKindOf(t *testing.T) {
	tests := map[string]Kind{
		"~": Null, "null": Null, "NULL": Null, "nUll": String, "": Null,
		"true": Bool, "False": Bool, "yes": String, "on": String, "tRue": String,
		"5": Int, "-5": Int, "+5": Int, "0": Int, "0x1F": Int, "12345678901234567890": Int, "-0x1": String,
		"1.5": Float, ".5": Float, "5.": Float, "1e3": Float, "1.e-3": Float, ".inf": Float, "-.Inf": Float, ".nan": Float, "-.nan": String,
		"1e": String, ".": String, "+": String, "1.2.3": String, "e3": String, ".e3": String, "2026-01-01": String,
		"'5'": String, "\"true\"": String, "!!str 5": String, "! true": String, "[]": List, "{}": Map, "!!float 5": Float,
		"0755": Bad, "!x 5": Bad,
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			d := Parse("f", []byte("a: "+text))
			if d.Root == nil {
				t.Fatalf("not parsed: %v", d.Errors)
			}
			for _, v := range d.Pairs(d.Root) {
				if got := KindOf(v); got != want {
					t.Errorf("got %v, want %v", got, want)
				}
			}
		})
	}
}

func TestJSON(t *testing.T) {
	tests := []struct{ name, text, want, wrong string }{
		{name: "order and number texts stay", text: "{b: 1.0, a: 12345678901234567890, c: 1e3, d: -0.50}", want: `{"b":1.0,"a":12345678901234567890,"c":1e3,"d":-0.50}`},
		{name: "numbers JSON writes otherwise", text: "[+1, .5, 5., -.5, 1.e3, 0x1F, -0]", want: "[1,0.5,5,-0.5,1e3,31,-0]"},
		{name: "words", text: "[~, True, FALSE, yes, 2026-01-02, ]", want: `[null,true,false,"yes","2026-01-02"]`},
		{name: "strings are not escaped for HTML", text: `["<&>", "\u2028", "\0", "a\"\\\n", é]`, want: `["<&>","` + "\u2028" + `","\u0000","a\"\\\n","é"]`},
		{name: "keys are their texts", text: "{1: a, true: b, 'x.y': c}", want: `{"1":"a","true":"b","x.y":"c"}`},
		{name: "aliases", text: "{a: &x {b: [1]}, c: *x}", want: `{"a":{"b":[1]},"c":{"b":[1]}}`},
		{name: "block text", text: "a: |\n  x\n  y\n", want: `{"a":"x\ny\n"}`},
		{name: "infinity", text: "a: [1, -.inf]", wrong: "f:1:8: a[1]: number -.inf cannot be said in JSON"},
		{name: "not a number", text: "a: .nan", wrong: "f:1:4: a: number .nan cannot be said in JSON"},
		{name: "too large", text: "a: 1e999", wrong: "f:1:4: a: number 1e999 cannot be said in JSON"},
		{name: "too large in hexadecimal", text: "a: 0x" + strings.Repeat("f", 300), wrong: "f:1:4: a: number 0x" + strings.Repeat("f", 300) + " cannot be said in JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := Parse("f", []byte(tt.text))
			got, ok := d.JSON(d.Root)
			if ok != (tt.wrong == "") || ok && string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, ok, tt.want)
			}
			if ok && !got.IsValid() {
				t.Errorf("%s is no JSON", got)
			}
			if diff := cmp.Diff(tt.wrong, strings.Join(messages(d), "\n")); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWantDescribes(t *testing.T) {
	d := Parse("f", []byte("a: 5\nb: true\nc:\nd: [1]\ne: {}\nf: 0755\ng: "+strings.Repeat("é", 30)))
	d.Errors = nil
	for k, v := range d.Pairs(d.Root) {
		if k.Value == "g" {
			d.Bool(v)
			continue
		}
		d.String(v, "a text")
	}
	want := []string{
		"f:1:4: a: want a text, got the number 5; quote it",
		"f:2:4: b: want a text, got the boolean true; quote it",
		"f:3:3: c: want a text, got nothing",
		"f:4:4: d: want a text, got a list",
		"f:5:4: e: want a text, got a mapping",
		`f:7:4: g: want true or false, got the text "` + strings.Repeat("é", 20) + `…"`,
	}
	if diff := cmp.Diff(want, messages(d)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPath(t *testing.T) {
	d := Parse("f", []byte("workflows: {a.b: {steps: [{run: 5}]}, \"\": {x: 1}, sp ace: {y: 1}}"))
	var got []string
	var walk func(n *Node)
	walk = func(n *Node) {
		switch KindOf(n) {
		case List:
			for _, v := range d.Items(n) {
				walk(v)
			}
		case Map:
			for _, v := range d.Pairs(n) {
				walk(v)
			}
		default:
			got = append(got, d.Path(n))
		}
	}
	walk(d.Root)
	want := []string{`workflows."a.b".steps[0].run`, `workflows."".x`, `workflows."sp ace".y`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInside(t *testing.T) {
	const text = "lit: |\n\n    one\n      two\nplain: echo hi\nquoted: 'echo hi'\nescaped: \"a\\nb\"\nfolded: >\n  a\n  b\n"
	d := Parse("f", []byte(text))
	tests := []struct {
		key          string
		line, column int
		want         string
	}{
		{"lit", 2, 1, "f:3:5"}, {"lit", 3, 3, "f:4:7"}, {"lit", 99, 1, "f:1:6"},
		{"plain", 1, 6, "f:5:13"}, {"quoted", 1, 6, "f:6:15"},
		{"escaped", 2, 1, "f:7:10"}, {"folded", 2, 1, "f:8:9"},
	}
	for _, tt := range tests {
		for k, v := range d.Pairs(d.Root) {
			if k.Value != tt.key {
				continue
			}
			if got := d.Inside(v, tt.line, tt.column).String(); got != tt.want {
				t.Errorf("%s %d:%d: got %s, want %s", tt.key, tt.line, tt.column, got, tt.want)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"run", "key", "every", "at", "cron", "timezone", "catch_up", "enabled", "überwachen"}
	tests := map[string]string{
		"evry": "every", "veery": "every", "Every": "every", "catchUp": "catch_up", "catch-up": "catch_up", "timezoen": "timezone",
		"tz": "", "rn": "run", "corn": "cron", "needs": "", "xyz": "", "": "", "enalbed": "enabled", "uberwachen": "überwachen", "time_zones": "timezone",
	}
	for text, want := range tests {
		if got := Nearest(text, slices.Values(names)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	good := map[string]time.Duration{"1s": time.Second, "90s": 90 * time.Second, "30m": 30 * time.Minute, "6h": 6 * time.Hour, "1d": 24 * time.Hour,
		"007m": 7 * time.Minute, "106751d": 106751 * 24 * time.Hour}
	for text, want := range good {
		if got, err := Duration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "s", "0s", "000m", "-1m", "+1m", "1.5h", "1h30m", "1w", "1ms", "1 s", " 1s", "1ss", "smhd", "١s",
		"106752d", "9223372036854775807s", "99999999999999999999999d"} {
		if got, err := Duration(text); !errors.Is(err, ErrDuration) {
			t.Errorf("%q: got %v, %v, want an error", text, got, err)
		}
	}
}

type info struct {
	fs.FileInfo
	mode fs.FileMode
	uid  uint32
}

func (i info) Mode() fs.FileMode { return i.mode }
func (i info) Sys() any          { return &syscall.Stat_t{Uid: i.uid} }

func TestTrust(t *testing.T) {
	tests := []struct {
		name string
		info info
		euid int
		want string
	}{
		{"root's own", info{mode: 0o644}, 0, ""},
		{"others may write, but we are not root", info{mode: 0o666, uid: 5}, 1000, ""},
		{"group may write", info{mode: 0o664}, 0, "has mode 0664, and root acts only on what nobody else may write (chmod go-w /p)"},
		{"world may write, sticky", info{mode: fs.ModeDir | fs.ModeSticky | 0o777}, 0, "has mode 0777, and root acts only on what nobody else may write (chmod go-w /p)"},
		{"another owner", info{mode: 0o600, uid: 5}, 0, "belongs to uid 5, and root acts only on what root owns (chown root /p)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := Trust("/p", tt.info, tt.euid); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzParse: whatever the bytes, there is no panic, every error has a place in the file, and what was read can be said
// in JSON or is refused.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: 1", "&a [*a]", "{a: !x 1, <<: *b}", "a: |\n x", "? [a]\n: b", "a: \"\\ud800\"", "- &x {a: [.5, 0x1]}\n- *x\n", "%YAML 1.2\n---\na"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := Parse("f", data)
		lines := 1 + strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + strings.Count(string(data), "\u0085") +
			strings.Count(string(data), "\u2028") + strings.Count(string(data), "\u2029")
		if d.Root != nil {
			if got, ok := d.JSON(d.Root); ok && len(d.Errors) == 0 && !got.IsValid() {
				t.Errorf("%q is no JSON", got)
			}
		}
		for _, e := range d.Errors {
			if e.Line < 1 || e.Column < 1 || e.Line > lines+1 || e.Message == "" {
				t.Errorf("bad place: %+v of %d lines", e, lines)
			}
		}
	})
}

func TestOneLine(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", ""},
		{`plain "text" with \ and é 日本語 👩‍🚒`, `plain "text" with \ and é 日本語 👩‍🚒`},
		{"x\x1b[31m.yaml", `x\x1b[31m.yaml`},
		{"a\nb\r\tc\x00\x7f", `a\nb\r\tc\x00\x7f`},
		{"\u009b31m \u2028 \u202egnp.exe", `\u009b31m \u2028 \u202egnp.exe`},
		{"\xff\x9bmé\xc3", `\xff\x9bmé\xc3`},
		{"\ufffd", "\ufffd"},
	}
	for _, tt := range tests {
		if got := OneLine(tt.text); got != tt.want {
			t.Errorf("OneLine(%q): got %q, want %q", tt.text, got, tt.want)
		}
	}
	for path, want := range map[string]string{"a/b.yaml": "a/b.yaml", "b\xff\xfe.yaml\x1b": `b\xff\xfe.yaml` + "\x1b", "\ufffd": "\ufffd"} {
		if got := UTF8(path); got != want {
			t.Errorf("UTF8(%q): got %q, want %q", path, got, want)
		}
	}
}

// No part of a diagnostic can do anything to a terminal, and its texts are valid UTF-8.
func TestDiagnosticIsSafe(t *testing.T) {
	const bad = "x\x1b[31m\n\xff"
	d := Diagnostic{Position: Position{File: bad, Line: 1, Column: 2}, Path: bad, Message: bad, Nearest: bad}
	const safe = `x\x1b[31m\n\xff`
	if got, want := d.String(), safe+":1:2: "+safe+": "+safe+` (did you mean "`+safe+`"?)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Position{File: bad}).String(); got != safe {
		t.Errorf("position: got %q", got)
	}
	if got := (Diagnostics{d, d}).Error(); strings.Count(got, "\n") != 1 {
		t.Errorf("two diagnostics are not two lines: %q", got)
	}
	const valid = "x\x1b[31m\n" + `\xff`
	doc := Parse(bad, []byte("a: 1\na: 2"))
	broken := Parse(bad, []byte("["))
	doc.Errorf(doc.Root, "of %s", bad)
	for _, d := range append(slices.Concat(doc.Errors, broken.Errors), Whole(bad, bad)) {
		if d.File != valid || !utf8.ValidString(d.Message) {
			t.Errorf("file %q, message %q", d.File, d.Message)
		}
	}
	if len(doc.Errors) != 2 || len(broken.Errors) != 1 {
		t.Errorf("got %v, %v", doc.Errors, broken.Errors)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(path("file"), []byte("x"), 0o600), os.Symlink("file", path("link")), os.Mkdir(path("folder"), 0o700),
		syscall.Mkfifo(path("pipe"), 0o600), os.Symlink("/dev/null", path("device")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file": "", "link": "", "folder": "it is no regular file", "pipe": "it is no regular file",
		"device": "it is no regular file", "missing": "no such file or directory"} {
		f, info, err := Open(path(name))
		if want == "" {
			if data, rerr := io.ReadAll(f); err != nil || rerr != nil || string(data) != "x" || info.Size() != 1 {
				t.Errorf("%s: %q, %v, %v", name, data, err, rerr)
			}
			_ = f.Close()
			continue
		}
		if err == nil || !strings.Contains(err.Error(), path(name)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
	for name, want := range map[string]bool{"folder": true, "file": false, "pipe": false, "device": false, "missing": false} {
		f, err := OpenDir(path(name))
		if (err == nil) != want {
			t.Errorf("folder %s: %v", name, err)
		}
		if err == nil {
			if names, err := f.Readdirnames(-1); err != nil || len(names) != 0 {
				t.Errorf("names %v, %v", names, err)
			}
			_ = f.Close()
		}
	}
}
