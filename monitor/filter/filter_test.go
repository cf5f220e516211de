package filter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func apply(t *testing.T, spec Spec, body, contentType string) (string, error) {
	t.Helper()
	f, err := Compile(spec)
	if err != nil {
		t.Fatalf("Compile(%v): %v", spec, err)
	}
	got, err := f.Apply(t.Context(), []byte(body), contentType)
	if got.IsJSON {
		return string(got.JSON), err
	}
	return got.Text, err
}

func TestJQ(t *testing.T) {
	for _, tt := range []struct{ name, jq, body, want string }{
		{"member", ".tag_name", `{"tag_name":"v2","download_count":812}`, `"v2"`},
		{"canonical", ".", "\uFEFF{ \"b\": 1.50, \"a\": [1e0, -0] }\n", `{"a":[1,0],"b":1.5}`},
		{"a time is left out", "del(.generated_at)", `{"generated_at":"2026-11-30T02:30:00Z","ok":true}`, `{"ok":true}`},
		{"times anywhere", `walk(if type == "object" then del(.ts) else . end)`, `{"ts":1,"a":[{"ts":2,"v":3}]}`, `{"a":[{"v":3}]}`},
		{"order of a feed", "[.items[].id] | sort", `{"items":[{"id":"b"},{"id":"a"}]}`, `["a","b"]`},
		{"several results", ".items[].id", `{"items":[{"id":2},{"id":1}]}`, `[2,1]`},
		{"an empty array is a result", ".items", `{"items":[]}`, `[]`},
		{"null is a result", ".missing", `{}`, `null`},
		{"integers beyond 2^53", ".a, .b", `{"a":9007199254740993,"b":999999999999999999999999}`, `[9007199254740993,9.99999999999999999999999e+23]`},
		{"counting beyond 2^53", ".a + 1, .b + 1", `{"a":9007199254740993,"b":99999999999999999999}`, `[9007199254740994,100000000000000000000]`},
		{"comparing beyond 2^53", ".a == .b", `{"a":9007199254740993,"b":9007199254740992}`, `false`},
		{"decimals keep their digits", ".a", `{"a":0.10000000000000000001}`, `0.10000000000000000001`},
		{"decimals are compared as floating point", ".a == 0.1", `{"a":0.10000000000000000001}`, `true`},
		{"huge exponent", ".", `1e1000000000`, `1e+1000000000`},
		{"no HTML escapes", ".", `"\u003c\u00e9"`, `"<é"`},
		{"halt ends", "1, halt, 2", `0`, `1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := apply(t, Spec{JQ: tt.jq}, tt.body, "text/html")
			if err != nil || got != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestJQFails(t *testing.T) {
	deep := strings.Repeat("[", 20_000)
	for _, tt := range []struct{ name, jq, body, want string }{
		{"nothing", ".items[]", `{"items":[]}`, "the jq program selects nothing"},
		{"empty", `.a // empty`, `{}`, "the jq program selects nothing"},
		{"shape changed", ".a.b", `{"a":"x"}`, `the jq program fails: expected an object but got: string ("x")`},
		{"said by the program", `error("no data")`, `0`, "the jq program fails: error: no data"},
		{"halted with an error", `"gone" | halt_error`, `0`, "the jq program fails: halt error: gone"},
		{"a page instead", ".", "<html>", "not JSON: invalid character '<' at start of value at byte 0"},
		{"empty body", ".", "", "not JSON: it ends too early"},
		{"cut off", ".", `{"a":`, "not JSON: it ends too early"},
		{"two values", ".", `{} {}`, "not JSON: more than one value: the second begins before byte 4"},
		{"repeated member", ".", `{"a":1,"\u0061":2}`, `not JSON: duplicate object member name at byte 7`},
		{"not UTF-8", ".", "\"\xff\"", "not JSON: invalid UTF-8 at byte 1"},
		{"too deep", ".", deep, "not JSON: exceeded max depth at byte 10000"},
		{"too long a number", ".", strings.Repeat("1", 5000), "not JSON: a number of 5000 characters"},
		{"infinite", ". * 10", `1e308`, "the jq program's result has a number that is infinite, or none"},
		{"no number", "nan", `0`, "the jq program's result has a number that is infinite, or none"},
		{"bytes", "@base64d", `"/w=="`, "the jq program's result has a text that is not UTF-8"},
		{"a result too deep", "reduce range(20000) as $i (0; [.])", `0`, "the jq program's result is nested deeper than 10000"},
		{"too long a text", `"0123456789abcdef" * 2000000`, `0`, "selects more than 16 MiB"},
		{"too many results", `"0123456789abcdef" * 100000 | repeat(.)`, `0`, "selects more than 16 MiB"},
		{"a number too long to write", "reduce range(20) as $i (7; . * .)", `0`, "the jq program's result has a number of more than 4096 digits"},
		{"modules", `"x" | modulemeta`, `0`, `the jq program fails: cannot load module: "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := apply(t, Spec{JQ: tt.jq}, tt.body, "")
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %.100q, error\n%v, want\n%s", got, err, tt.want)
			}
		})
	}
}

func TestCompileErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		spec Spec
		want string
	}{
		{"nothing", Spec{}, "want exactly one of jq, css and drop"},
		{"two", Spec{JQ: ".", CSS: "p"}, "want exactly one of jq, css and drop"},
		{"attribute alone", Spec{JQ: ".", Attribute: "href"}, "an attribute is taken from what a css selector matches"},

		{"jq: blank", Spec{JQ: " "}, `missing query (try ".")`},
		{"jq: ends", Spec{JQ: ".a["}, "column 4: the jq program ends too early"},
		{"jq: token", Spec{JQ: ".a | }"}, `column 6: unexpected token "}"`},
		{"jq: second line", Spec{JQ: ".a #é\n| \"é\" c"}, `line 2, column 7: unexpected token "c"`},
		{"jq: quotes", Spec{JQ: ".a == 'x'"}, `column 7: unexpected token "'"; texts are in double quotes: "…"`},
		{"jq: dash", Spec{JQ: ".last-modified"}, `column 7: function not defined: modified/0; a name with - in it is quoted: ."last-modified"`},
		{"jq: no dot", Spec{JQ: "tag_name"}, `column 1: function not defined: tag_name/0; is the member .tag_name meant?`},
		{"jq: arguments", Spec{JQ: `split(",") | split(1;2;3)`}, `column 14: function not defined: split/3; split takes 1 or 2 arguments, with ; between them`},
		{"jq: typo", Spec{JQ: ".select | selct(.a)"}, `column 11: function not defined: selct/1; is select meant, or the member .selct?`},
		{"jq: in a text", Spec{JQ: `"foo \(foo)"`}, `column 8: function not defined: foo/0; is the member .foo meant?`},
		{"jq: variable", Spec{JQ: `"$x" | $x`}, `column 8: variable not defined: $x`},
		{"jq: label", Spec{JQ: `break $x`}, `column 7: label not defined: $x`},
		{"jq: env", Spec{JQ: ".a, env.HOME"}, "column 5: the environment is out of a program's reach"},
		{"jq: $ENV", Spec{JQ: "$ENV.HOME"}, "column 1: the environment is out of a program's reach"},
		{"jq: input", Spec{JQ: "[., input]"}, "column 5: input(s)/0 is not allowed; the one value a program sees is `.`"},
		{"jq: inputs", Spec{JQ: "[inputs]"}, "column 2: input(s)/0 is not allowed; the one value a program sees is `.`"},
		{"jq: debug", Spec{JQ: ". | debug"}, "column 5: function not defined: debug/0; a program sees its input and nothing else"},
		{"jq: debug with text", Spec{JQ: `debug("x")`}, "column 1: function not defined: debug/1; a program sees its input and nothing else"},
		{"jq: stderr", Spec{JQ: "stderr"}, "column 1: function not defined: stderr/0; a program sees its input and nothing else"},
		{"jq: file name", Spec{JQ: "input_filename"}, "column 1: function not defined: input_filename/0; a program sees its input and nothing else"},
		{"jq: import", Spec{JQ: `import "/etc/x" as x; .`}, `column 1: cannot load module: "/etc/x"; modules are out of a program's reach`},
		{"jq: include", Spec{JQ: `include "x"; .`}, `column 1: cannot load module: "x"; modules are out of a program's reach`},
		{"jq: format", Spec{JQ: ".a | @yaml"}, "column 6: there is no format @yaml; they are @text, @json, @html, @uri, @urid, @csv, @tsv, @sh, @base64, @base64d"},
		{"jq: bytes", Spec{JQ: ".a == \"\xff\""}, "column 8: not UTF-8"},
		{"jq: long", Spec{JQ: strings.Repeat("(", 1<<20)}, "the jq program is longer than 64 KiB"},

		{"css: blank", Spec{CSS: " "}, "column 1: expected selector, found EOF instead"},
		{"css: ends", Spec{CSS: "div > "}, "column 5: expected selector, found EOF instead"},
		{"css: attribute", Spec{CSS: "a[href"}, "column 3: unexpected EOF in attribute selector"},
		{"css: pseudo-class", Spec{CSS: "p, a:hoover"}, "column 11: unknown pseudoclass or pseudoelement :hoover"},
		{"css: left over", Spec{CSS: "div }"}, "column 5: expected identifier, found } instead"},
		{"css: nested", Spec{CSS: "a:has(a:has(a:has(b)))"}, "more than 2 of :has(), :contains() and :matches() take too long"},
		{"css: nested in capitals", Spec{CSS: "a:HAS(a:Has(a:matches(b)))"}, "more than 2 of :has(), :contains() and :matches() take too long"},
		{"css: name of the attribute", Spec{CSS: "a", Attribute: "data id"}, `"data id" is not the name of an attribute`},

		{"drop: parenthesis", Spec{Drop: []string{"a", "x(b"}}, "expression 2: column 1: missing closing )"},
		{"drop: class", Spec{Drop: []string{`é[z-a]`}}, "expression 1: column 3: invalid character class range: z-a"},
		{"drop: look-ahead", Spec{Drop: []string{`a(?=b)`}}, "expression 1: column 2: invalid or unsupported Perl syntax: (?=; expressions are RE2's, without look-around: https://golang.org/s/re2syntax"},
		{"drop: empty", Spec{Drop: []string{""}}, "expression 1: is empty, which drops nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(tt.spec)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got\n%v, want\n%s", err, tt.want)
			}
		})
	}
}

const page = `<!doctype html><html><head><title>Down&shy;loads</title><style>p{}</style>
<meta name="csrf-token" content="8f3a"></head><body>
<form><input type="hidden" name="csrf" value="Zm9v"></form>
<h1 id=v>Version   <b>2</b>.1<sup>a</sup></h1>
<ul class="files"><li><a href="/a.tgz?sig=1">a.tgz</a> 12&nbsp;MB</li><li><a href=" /b.tgz ">b.tgz</a><br>13 MB</li><li><a>none</a></li></ul>
<script>var nonce = "r4nd0m";</script><noscript>Please enable</noscript>
<template>hidden</template><svg><use xlink:href="#i"/></svg>
<p>Page made at <time>12:00:01</time></p></body></html>`

func TestCSS(t *testing.T) {
	for _, tt := range []struct{ name, css, attribute, want string }{
		{"text", "#v", "", "Version 2.1a"},
		{"a line for each", ".files li", "", "a.tgz 12 MB\nb.tgz 13 MB\nnone"},
		{"blocks are apart", ".files", "", "a.tgz 12 MB b.tgz 13 MB none"},
		{"attribute", ".files a", "href", "/a.tgz?sig=1\n/b.tgz"},
		{"attribute in capitals", ".files a", "HREF", "/a.tgz?sig=1\n/b.tgz"},
		{"attribute of another namespace", "use", "xlink:href", "#i"},
		{"group in the page's order", "p, h1", "", "Version 2.1a\nPage made at 12:00:01"},
		{"no script or style", "body > :not(p):not(ul)", "", "\nVersion 2.1a\nvar nonce = \"r4nd0m\";\nPlease enable\nhidden\n"},
		{"the whole page", "body", "", "Version 2.1a a.tgz 12 MB b.tgz 13 MB none Please enable Page made at 12:00:01"},
		{"has", "li:has(br)", "", "b.tgz 13 MB"},
		{"an empty text is one", "form", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := apply(t, Spec{CSS: tt.css, Attribute: tt.attribute}, page, "text/html; charset=utf-8")
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestCSSFails(t *testing.T) {
	for _, tt := range []struct{ name, css, attribute, body, want string }{
		{"nothing", ".gone", "", page, "the selector matches nothing"},
		{"empty body", "p", "", "", "the selector matches nothing"},
		{"no attribute", "li", "href", page, "nothing that the selector matches has the attribute href"},
		{"depth", "p", "", strings.Repeat("<div>", 100_000), "the page cannot be read: html: open stack of elements exceeds 512 nodes"},
		{"text over and over", "*", "", strings.Repeat("<i>", 300) + strings.Repeat("0123456789", 20_000), "selects more than 16 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := apply(t, Spec{CSS: tt.css, Attribute: tt.attribute}, tt.body, "")
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %.100q, error\n%v, want\n%s", got, err, tt.want)
			}
		})
	}
}

func TestCharset(t *testing.T) {
	for _, tt := range []struct{ name, body, contentType, want string }{
		{"named by the header", "<p>caf\xe9", "text/html; charset=iso-8859-1", "café"},
		{"named by the page", `<meta charset="windows-1251"><p>` + "\xcf\xf0", "text/html", "Пр"},
		{"not named", "<p>caf\xe9", "", "café"},
		{"UTF-8 not named", "<p>café", "", "café"},
		{"UTF-8 named wrong", "<p>café", "text/html; charset=iso-8859-1", "café"},
		{"UTF-8 with a mark", "\uFEFF<p>café", "", "café"},
		{"UTF-16", "\xff\xfe<\x00p\x00>\x00\xe9\x00", "", "é"},
		{"UTF-16 of ASCII", "<\x00p\x00>\x00a\x00", "text/html; charset=utf-16le", "a"},
		{"Shift JIS", "<p>\x93\xfa\x96\x7b", "text/html; charset=Shift_JIS", "日本"},
		{"ISO-2022-JP", "<p>\x1b$BF|K\\\x1b(B", "text/html; charset=ISO-2022-JP", "日本"},
		{"unknown name", "<p>caf\xe9", "text/html; charset=klingon", "café"},
		{"broken header", "<p>a", ";;;", "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := apply(t, Spec{CSS: "p"}, tt.body, tt.contentType)
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestDrop(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop []string
		body string
		want string
	}{
		{"a line", []string{`^Generated at .*\n`}, "v1\nGenerated at 12:00\nv2\n", "v1\nv2\n"},
		{"a token", []string{`name="csrf" value="[^"]*"`}, page[:0] + `<input name="csrf" value="Zm9v">`, "<input >"},
		{"over lines", []string{`(?s)<!--.*?-->`}, "a<!-- x\ny -->b<!-- z -->c", "abc"},
		{"one after the other", []string{"b", "ac"}, "abc", ""},
		{"anchors see what was there", []string{`^a`}, "aab\naa", "ab\na"},
		{"nothing to drop", []string{"zzz"}, "abc", "abc"},
		{"bytes stay", []string{"b"}, "\xffb\x00\xfe", "\xff\x00\xfe"},
		{"empty matches", []string{"x*"}, "axxb", "ab"},
		{"date of a feed", []string{`<lastBuildDate>[^<]*</lastBuildDate>`}, "<rss><lastBuildDate>Mon</lastBuildDate><item/></rss>", "<rss><item/></rss>"},
		{"empty body", []string{"a"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte(tt.body)
			got, err := apply(t, Spec{Drop: tt.drop}, tt.body, "")
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
			if string(body) != tt.body {
				t.Error("the body was changed")
			}
		})
	}
}

// TestNoise: two looks at a page that differ in noise alone are equal through the filter, and unequal without.
func TestNoise(t *testing.T) {
	feed := func(ids ...string) string {
		return `{"updated":"` + ids[0] + `","items":[{"id":"` + strings.Join(ids, `"},{"id":"`) + `"}]}`
	}
	for _, tt := range []struct {
		name   string
		spec   Spec
		a, b   string
		differ bool
	}{
		{"time of an API", Spec{JQ: "del(.time)"}, `{"time":1,"v":2}`, `{"v":2.0,"time":9}`, false},
		{"an API's change", Spec{JQ: "del(.time)"}, `{"time":1,"v":2}`, `{"v":3,"time":9}`, true},
		{"order of a feed", Spec{JQ: "[.items[].id]|sort"}, feed("a", "b"), feed("b", "a"), false},
		{"a new item", Spec{JQ: "[.items[].id]|sort"}, feed("a", "b"), feed("b", "a", "c"), true},
		{"token of a form", Spec{CSS: "#v"}, page, strings.ReplaceAll(page, "Zm9v", "YmFy"), false},
		{"a new version", Spec{CSS: "#v"}, page, strings.ReplaceAll(page, "2</b>.1", "2</b>.2"), true},
		{"mark-up", Spec{CSS: ".files li"}, page, strings.ReplaceAll(page, "<li>", "<li class=x>\n\t"), false},
		{"nonce", Spec{Drop: []string{`nonce = "[^"]*"`, `<time>[^<]*</time>`}}, page,
			strings.ReplaceAll(strings.ReplaceAll(page, "r4nd0m", "m0dn4r"), "12:00:01", "12:00:02"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, errA := apply(t, tt.spec, tt.a, "text/html")
			b, errB := apply(t, tt.spec, tt.b, "text/html")
			if errA != nil || errB != nil || (a != b) != tt.differ {
				t.Errorf("got %q, %v and %q, %v", a, errA, b, errB)
			}
		})
	}
}

func TestString(t *testing.T) {
	for want, spec := range map[string]Spec{
		`{"jq":".a"}`:                          {JQ: " .a\n"},
		`{"css":"a > b"}`:                      {CSS: "a > b "},
		`{"css":"a","attribute":"href"}`:       {CSS: "a", Attribute: "HREF"},
		`{"drop":["a\\d"," b"]}`:               {Drop: []string{`a\d`, " b"}},
		`{"jq":"\"<\\u00e9>\" | @text \"é\""}`: {JQ: `"<\u00e9>" | @text "é"`},
	} {
		f, err := Compile(spec)
		if err != nil {
			t.Errorf("Compile(%v): %v", spec, err)
		} else if diff := cmp.Diff(want, f.String()); diff != "" {
			t.Error(diff)
		}
	}
}

// endless does what never ends, or needs more memory than there is.
func TestEndless(t *testing.T) {
	fonts := ""
	for i := range 400 {
		fonts += fmt.Sprintf("<font size=%d>", i)
	}
	for _, tt := range []struct {
		name string
		spec Spec
		body string
		want string // "" for the deadline
	}{
		{"loop", Spec{JQ: "def f: f; f"}, "0", ""},
		{"no results", Spec{JQ: "last(repeat(1))"}, "0", ""},
		{"recursion", Spec{JQ: "def f: 1 + f; f"}, "0", "the jq program was stopped: needs more than 16 MiB of memory"},
		{"array", Spec{JQ: "[repeat(1)]"}, "0", "the jq program was stopped: needs more than 16 MiB of memory"},
		{"doubled text", Spec{JQ: `"a" | def f: . + . | f; f`}, "0", "the jq program was stopped: needs more than 16 MiB of memory"},
		{"doubled array", Spec{JQ: `[1] | def f: . + . | f; f`}, "0", "the jq program was stopped: needs more than 16 MiB of memory"},
		{"formatting elements", Spec{CSS: "p"}, "<p>" + fonts + "</p>" + strings.Repeat("<p>x</p>", 20_000), "the page cannot be read: needs more than 26 MiB of memory"},
		{"matches in matches", Spec{CSS: "*:has(*:has(zz))"}, strings.Repeat("<i><b></b>", 250) + strings.Repeat("<u></u>", 20_000), ""},
		{"search after search", Spec{Drop: []string{`(?s)a.*b|a`}}, strings.Repeat("a", 1<<18), ""},
		{"one long search", Spec{Drop: []string{"[a-z]{1,1000}9"}}, strings.Repeat("a", 10<<20), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Compile(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			const little = 16 << 20
			switch {
			case f.jq != nil:
				f.jq.memory = little
			case f.css != nil:
				f.css.memory = little
			}
			limit := time.Minute
			if tt.want == "" {
				limit = 50 * time.Millisecond
			}
			cause := errors.New("took too long")
			ctx, cancel := context.WithTimeoutCause(t.Context(), limit, cause)
			defer cancel()
			start := time.Now()
			_, err = f.Apply(ctx, []byte(tt.body), "")
			t.Logf("%v after %v", err, time.Since(start))
			if tt.want == "" && !errors.Is(err, cause) || tt.want != "" && (err == nil || err.Error() != tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestEndedBefore(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopping")
	cancel(cause)
	for _, spec := range []Spec{{JQ: "."}, {CSS: "p"}, {Drop: []string{"a"}}} {
		f, err := Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Apply(ctx, []byte("0"), ""); !errors.Is(err, cause) {
			t.Errorf("%v: got %v, want %v", spec, err, cause)
		}
	}
}

func TestProgram(t *testing.T) {
	change := `{"kind":"files","added":[{"path":"a.md","checksum":"01"}],"modified":[{"path":"b.md","checksum":"02"}],"removed":[]}`
	for _, tt := range []struct {
		name, src string
		want      []string
	}{
		{"paths", "{changed: [.added[].path, .modified[].path]}", []string{`{"changed":["a.md","b.md"]}`}},
		{"none", ".removed[]", nil},
		{"several", ".added[].path, .kind", []string{`"a.md"`, `"files"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := CompileProgram(tt.src)
			if err != nil {
				t.Fatal(err)
			}
			results, err := p.Run(t.Context(), []byte(change))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range results {
				got = append(got, string(r))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProgramGivesTooMuch(t *testing.T) {
	p, err := CompileProgram("range(1e9)")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Run(t.Context(), []byte("0")); !errors.Is(err, errSelection) {
		t.Errorf("got %d results, %v, want %v", len(got), err, errSelection)
	}
}

// TestProgramIsShared: programs run side by side do not meet.
func TestProgramIsShared(t *testing.T) {
	p, err := CompileProgram(`reduce range(1000) as $i (.; . + 1)`)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	for i := range 8 {
		go func() { // ends with its send
			r, err := p.Run(t.Context(), fmt.Append(nil, i))
			got <- fmt.Sprint(string(r[0]) == fmt.Sprint(i+1000), err)
		}()
	}
	for range 8 {
		if g := <-got; g != "true <nil>" {
			t.Error(g)
		}
	}
}

// TestDropLong: the two ways to drop are one.
func TestDropLong(t *testing.T) {
	patterns := []string{"a", "a*", "a*?", "^a", "a$", `\Aa`, `a\z`, `\ba`, `a\b`, `\Ba`, "(a)(b)?", "a|ab|", "(?s)a.*b|a", `\Qa`, `(?i)A\Q`, ".", "^", "$", `\n`, "[^a]", "é"}
	rapid.Check(t, func(t *rapid.T) {
		e, err := compileExpression(rapid.SampledFrom(patterns).Draw(t, "pattern"))
		if err != nil {
			t.Fatal(err)
		}
		text := []byte(strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", " ", "\n", "é", "\xff", "A"})).Draw(t, "text"), ""))
		want, _ := e.drop(t.Context(), text)
		got, err := e.dropLong(t.Context(), text)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s over %q: got %q, %v, want %q", e.re, text, got, err, want)
		}
	})
}
