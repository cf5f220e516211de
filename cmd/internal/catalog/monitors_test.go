package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"marbles/runner"
)

const idleYAML = "workflows: {idle: {run: \"true\"}}\n"

func TestMonitorErrors(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{name: "every key of files", text: `
- watch: docs/**/*.md
  exclude: [docs/_build/**]
  ignore: none
  settle: {quiet: 2s, max_wait: 1m}
  live: true
  reread: 1d
  fail_after: 3
  recover_after: 2
  on_down: echo down
  on_up: [echo, up]
  start: idle
  input: '{changed: [.added[].path, .modified[].path]}'
- {watch: b, do: x, settle: 2s, live: false}
- {watch: c, do: x, settle: {quiet: 2s}}
`},
		{name: "every key of a URL", text: `
- watch: https://example.test/a
  method: POST
  headers: {X-A: b, X-Number: 5, X-File: {file: /run/x}, X-Credential: {credential: x}}
  body: '{"a":1}'
  auth: {basic: {user: u, password: ""}}
  ca: a.yaml
  cert: c.pem
  cert_key: /etc/k.pem
  proxy: none
  user_agent: us/1
  max_body: 1MiB
  allow_private: false
  cert_days: 0
  select: {jq: .tag}
  do: x
- {watch: "https://example.test/b", do: x, auth: {bearer: {file: t}}, proxy: "http://proxy.test:3128", allow_private: true, select: {css: "a.x", attribute: href}}
- {watch: "https://example.test/c", do: x, auth: {bearer: {credential: t}}, select: {drop: ["[0-9]+ ms", "x"]}}
`},

		{name: "keys of the other kind", text: `
- {watch: a, do: x, method: GET, headers: {}, body: x, auth: {}, ca: x, cert: x, cert_key: x, proxy: x, user_agent: x, max_body: x, allow_private: x, cert_days: x, select: x}
- {watch: "http://x/", do: x, exclude: x, ignore: x, settle: x, live: x, reread: x}
`, want: []string{
			"monitors[0].method: method is for a URL, and this monitor watches files",
			"monitors[0].headers: headers is for a URL, and this monitor watches files",
			"monitors[0].body: body is for a URL, and this monitor watches files",
			"monitors[0].auth: auth is for a URL, and this monitor watches files",
			"monitors[0].ca: ca is for a URL, and this monitor watches files",
			"monitors[0].cert: cert is for a URL, and this monitor watches files",
			"monitors[0].cert_key: cert_key is for a URL, and this monitor watches files",
			"monitors[0].proxy: proxy is for a URL, and this monitor watches files",
			"monitors[0].user_agent: user_agent is for a URL, and this monitor watches files",
			"monitors[0].max_body: max_body is for a URL, and this monitor watches files",
			"monitors[0].allow_private: allow_private is for a URL, and this monitor watches files",
			"monitors[0].cert_days: cert_days is for a URL, and this monitor watches files",
			"monitors[0].select: select is for a URL, and this monitor watches files",
			"monitors[1].exclude: exclude is for files, and this monitor watches a URL",
			"monitors[1].ignore: ignore is for files, and this monitor watches a URL",
			"monitors[1].settle: settle is for files, and this monitor watches a URL",
			"monitors[1].live: live is for files, and this monitor watches a URL",
			"monitors[1].reread: reread is for files, and this monitor watches a URL"}},
		{name: "misspelt", text: `
- {watch: a, do: x, setle: 2s, recoverafter: 1, on_dwn: x, settle: {quiet: 2s, maxwait: 3s}}
- {watch: "http://x/", do: x, header: {}, auth: {basc: {}, basic: {user: u, password: p, pass: q}}, select: {jqq: x, jq: .}}
`, want: []string{
			`monitors[0].setle: unknown key "setle" (did you mean "settle"?)`,
			`monitors[0].recoverafter: unknown key "recoverafter" (did you mean "recover_after"?)`,
			`monitors[0].on_dwn: unknown key "on_dwn" (did you mean "on_down"?)`,
			`monitors[0].settle.maxwait: unknown key "maxwait" (did you mean "max_wait"?)`,
			`monitors[1].header: unknown key "header" (did you mean "headers"?)`,
			`monitors[1].auth.basc: unknown key "basc" (did you mean "basic"?)`,
			`monitors[1].auth.basic.pass: unknown key "pass"`,
			`monitors[1].select.jqq: unknown key "jqq" (did you mean "jq"?)`}},
		{name: "health", text: `
- {watch: a, do: x, fail_after: 0, recover_after: 1.5, on_down: {run: "while", tmeout: 1s}, on_up: 5}
- {watch: b, do: x, fail_after: "3", on_down: "", on_up: []}
`, want: []string{
			"monitors[0].fail_after: want a whole number from 1 to 1000000, got the number 0",
			"monitors[0].recover_after: want a whole number from 1 to 1000000, got the number 1.5",
			"monitors[0].on_down.run: bad shell syntax: `while` must be followed by a statement list",
			`monitors[0].on_down.tmeout: unknown key "tmeout" (did you mean "timeout"?)`,
			"monitors[0].on_up: want a command: a text for the shell, or a list of texts, got the number 5; quote it",
			`monitors[1].fail_after: want a whole number from 1 to 1000000, got the text "3"`,
			"monitors[1].on_down: command is empty",
			"monitors[1].on_up: list is empty"}},
		{name: "files", text: `
- {watch: a, do: x, ignore: all, live: 1, reread: 7}
- {watch: b, do: x, settle: 2}
- {watch: c, do: x, settle: 2 s}
- {watch: d, do: x, settle: {max_wait: 1m}}
- {watch: e, do: x, settle: {quiet: 2m, max_wait: 1m}}
- {watch: f, do: x, settle: {quiet: 0s}}
- {watch: "a/**.txt", do: x}
- {watch: /etc/passwd, do: x}
- {watch: ../x, do: x}
- {watch: "a[", do: x, exclude: x}
`, want: []string{
			`monitors[0].ignore: want one of none, got "all"`,
			"monitors[0].live: want true or false, got the number 1",
			"monitors[0].reread: want a duration such as 30s, 10m, 6h or 1d, got the number 7",
			"monitors[1].settle: want a duration such as 2s as a text, or a mapping such as {quiet: 2s, max_wait: 1m}, got the number 2; quote it",
			`monitors[2].settle: cannot read duration "2 s": want a positive duration such as 30s, 10m, 6h or 1d`,
			"monitors[3].settle: give quiet, how long what changed must have kept still",
			"monitors[4].settle.max_wait: max_wait 1m is shorter than quiet, 2m",
			`monitors[5].settle.quiet: duration "0s" is zero: want a positive duration such as 30s, 10m, 6h or 1d`,
			`monitors[6].watch: bad pattern "a/**.txt": "**" must be a whole segment, not part of "**.txt"`,
			`monitors[7].watch: bad pattern "/etc/passwd": an absolute path can match nothing: patterns are relative to the workspace`,
			`monitors[8].watch: bad pattern "../x": the segment ".." leaves the workspace`,
			`monitors[9].watch: bad pattern "a[": syntax error: "[" without "]"; write \[ for the character`,
			`monitors[9].exclude: want a list of globs, got the text "x"`}},
		{name: "requests", text: `
- {watch: "http://x/0", do: x, method: HEAD}
- {watch: "http://x/1", do: x, method: 5, body: {json: 1}, user_agent: "a\nb"}
- {watch: "http://x/2", do: x, body: b}
- {watch: "http://x/3", do: x, headers: {"X A": b, X-B: "c\nd", x-b: d, Range: e, X-C: [f], X-D: {}}}
- {watch: "http://x/4", do: x, headers: {"X A": b}}
- {watch: "http://x/5", do: x, headers: {X-B: "sec\nret"}}
- {watch: "http://x/6", do: x, headers: {Range: e}}
- {watch: "http://x/7", do: x, headers: {Authorization: y}, auth: {bearer: z}}
- {watch: "http://x/8", do: x, max_body: 10, cert_days: -1}
- {watch: "http://x/9", do: x, max_body: 10MB}
- {watch: "http://x/10", do: x, max_body: 2GiB, allow_private: no}
- {watch: "http://x/11", do: x, user_agent: "a\nb"}
`, want: []string{
			"monitors[0].method: cannot watch http://x/0: method HEAD: its answer has no body to compare",
			"monitors[1].method: want an HTTP method such as POST as a text, got the number 5; quote it",
			"monitors[1].body: want a text, got a mapping",
			"monitors[1].user_agent: cannot watch http://x/1: user agent: it has a control character (0x0a) at byte 2",
			"monitors[2].body: cannot watch http://x/2: a body needs another method than GET",
			"monitors[3].headers.x-b: header x-b is given twice, first as X-B",
			"monitors[3].headers.X-C: want a secret: a text (quote a number), {file: /path} or {credential: name}",
			"monitors[3].headers.X-D: give one of file and credential",
			`monitors[4].headers."X A": cannot watch http://x/4: header "X A": that is not a header's name`,
			"monitors[5].headers.X-B: cannot watch http://x/5: header X-B: it has a control character (0x0a) at byte 4",
			"monitors[6].headers.Range: cannot watch http://x/6: header Range cannot be set: the whole is fetched",
			"monitors[7].auth: cannot watch http://x/7: there are both a header Authorization and auth",
			"monitors[8].max_body: want a size such as 10MiB as a text, got the number 10; quote it",
			"monitors[8].cert_days: want a whole number from 0 to 3650, got the number -1",
			`monitors[9].max_body: cannot read size "10MB": want a whole number and one of B, KiB, MiB, GiB, as 10MiB`,
			"monitors[10].max_body: size 2GiB is more than 1GiB",
			`monitors[10].allow_private: want true or false, got the text "no"`,
			"monitors[11].user_agent: cannot watch http://x/11: user agent: it has a control character (0x0a) at byte 2"}},
		{name: "connections", text: `
- {watch: "http://x/0", do: x, cert: c}
- {watch: "http://x/1", do: x, cert_key: c}
- {watch: "http://x/2", do: x, proxy: "ftp://x"}
- {watch: "http://x/3", do: x, proxy: ""}
- {watch: "http://x/4", do: x, proxy: "http://u:hunter2@p/"}
- {watch: "http://x/5", do: x, proxy: "http://p/", allow_private: false}
- {watch: "http://x/6", do: x, ca: "", cert: "a\0b", cert_key: ~/k}
- {watch: "http://x:port/?hunter2", do: x, method: HEAD}
`, want: []string{
			"monitors[0].cert: cannot watch http://x/0: a certificate and its key must be given together",
			"monitors[1].cert_key: cannot watch http://x/1: a certificate and its key must be given together",
			"monitors[2].proxy: cannot watch http://x/2: the proxy is neither none nor an http, https or socks5 URL",
			"monitors[3].proxy: proxy is empty; none is no proxy at all",
			"monitors[4].proxy: cannot watch http://x/4: user information in the proxy's URL is refused",
			"monitors[5].allow_private: cannot watch http://x/5: allow_private: false cannot be kept through a proxy, which resolves and connects out of sight",
			"monitors[6].ca: file name is empty",
			"monitors[6].cert: file name contains a NUL",
			"monitors[6].cert_key: a file name is no shell text: ~ is not expanded; write the whole path",
			"monitors[7].watch: cannot watch this URL: it is not a valid one",
			"monitors[7].method: method HEAD: its answer has no body to compare"}},
		{name: "what stands behind other errors", text: `
- {watch: "http://x/0", do: x, max_body: 5, body: x, headers: {"a b": c}}
- {watch: "http://x:port/1", do: x, timeout: 5, body: x, proxy: "ftp://x"}
- {watch: "http://x/2", do: x, method: GTE, ca: nope.pem, body: x, user_agent: "\0"}
- {watch: "http://x/3", do: x, ca: "."}
- {watch: "[", do: x, exclude: ["[", 5], settle: 5}
`, want: []string{
			"monitors[0].max_body: want a size such as 10MiB as a text, got the number 5; quote it",
			"monitors[0].body: cannot watch http://x/0: a body needs another method than GET",
			"monitors[0].headers.\"a b\": cannot watch http://x/0: header \"a b\": that is not a header's name",
			"monitors[1].watch: cannot watch this URL: it is not a valid one",
			"monitors[1].timeout: want a duration such as 30s, 10m, 6h or 1d, got the number 5",
			"monitors[1].body: a body needs another method than GET",
			"monitors[1].proxy: the proxy is neither none nor an http, https or socks5 URL",
			"monitors[2].method: no HTTP method \"GTE\" is known (did you mean \"GET\"?)",
			"monitors[2].ca: there is no file WORKSPACE/nope.pem",
			"monitors[2].user_agent: cannot watch http://x/2: user agent: it has a control character (0x00) at byte 1",
			"monitors[3].ca: WORKSPACE is no regular file",
			`monitors[4].watch: bad pattern "[": syntax error: "[" without "]"; write \[ for the character`,
			`monitors[4].exclude[0]: exclude: bad pattern "[": syntax error: "[" without "]"; write \[ for the character`,
			"monitors[4].exclude[1]: want a glob as a text, got the number 5; quote it",
			"monitors[4].settle: want a duration such as 2s as a text, or a mapping such as {quiet: 2s, max_wait: 1m}, got the number 5; quote it"}},
		{name: "secrets are not shown", text: `
- {watch: "http://x/0", do: x, auth: hunter2}
- {watch: "http://x/1", do: x, auth: {}}
- {watch: "http://x/2", do: x, auth: {basic: hunter2}}
- {watch: "http://x/3", do: x, auth: {basic: {user: u}, bearer: 12345}}
- {watch: "http://x/4", do: x, auth: {basic: {user: "u:v", password: hunter2}}}
- {watch: "http://x/5", do: x, auth: {bearer: "hun\nter2"}}
- {watch: "http://x/6", do: x, auth: {bearer: ""}}
- {watch: "http://x/7", do: x, auth: {bearer: [hunter2]}}
- {watch: "http://x/8", do: x, auth: {bearer: {file: a, credential: b}}}
- {watch: "http://x/9", do: x, auth: {bearer: {credential: ../b}}}
- {watch: "http://x/10", do: x, auth: {bearer: {credential: ""}}, headers: hunter2}
- {watch: "http://x/11", do: x, auth: {basic: {user: "", password: hunter2}}}
- {watch: "http://x/12", do: x, auth: {bearer: {text: hunter2}}}
`, want: []string{
			"monitors[0].auth: want one of basic: {user: …, password: …} and bearer",
			"monitors[1].auth: give one of basic: {user: …, password: …} and bearer",
			"monitors[2].auth.basic: want a mapping with user and password",
			"monitors[3].auth: give one of basic: {user: …, password: …} and bearer",
			"monitors[3].auth.basic: give user and password",
			"monitors[3].auth.bearer: want a secret: a text (quote a number), {file: /path} or {credential: name}",
			"monitors[4].auth: cannot watch http://x/4: auth basic: a user has no colon",
			"monitors[5].auth: cannot watch http://x/5: auth: it has a control character (0x0a) at byte 4",
			"monitors[6].auth.bearer: bearer is empty",
			"monitors[7].auth.bearer: want a secret: a text (quote a number), {file: /path} or {credential: name}",
			"monitors[8].auth.bearer: give one of file and credential",
			`monitors[9].auth: cannot watch http://x/9: auth: a credential must be named by a plain file name, not "../b"`,
			"monitors[10].auth.bearer.credential: credential is empty",
			"monitors[10].headers: want a mapping of headers",
			"monitors[11].auth: cannot watch http://x/11: auth basic: the user is missing",
			"monitors[12].auth.bearer: give one of file and credential",
			`monitors[12].auth.bearer.text: unknown key "text"`}},
		{name: "selections", text: `
- {watch: "http://x/0", do: x, select: .a}
- {watch: "http://x/1", do: x, select: {}}
- {watch: "http://x/2", do: x, select: {jq: ., css: a}}
- {watch: "http://x/3", do: x, select: {jq: ., attribute: a}}
- {watch: "http://x/4", do: x, select: {jq: " "}}
- {watch: "http://x/5", do: x, select: {drop: []}}
- {watch: "http://x/6", do: x, select: {drop: x}}
- {watch: "http://x/7", do: x, select: {drop: ["", 5]}}
`, want: []string{
			`monitors[0].select: want a mapping with one of jq: PROGRAM, css: SELECTOR and drop: [REGEXP, …], got the text ".a"`,
			"monitors[1].select: give one of jq: PROGRAM, css: SELECTOR and drop: [REGEXP, …]",
			"monitors[2].select: give one of jq: PROGRAM, css: SELECTOR and drop: [REGEXP, …]",
			"monitors[3].select.attribute: attribute goes with css",
			"monitors[4].select.jq: want a jq program as a text, got nothing but spaces",
			"monitors[5].select.drop: list is empty",
			`monitors[6].select.drop: want a list of regular expressions, got the text "x"`,
			"monitors[7].select.drop[0]: regular expression is empty",
			"monitors[7].select.drop[1]: want a regular expression as a text, got the number 5; quote it"}},
		{name: "input", text: `
- {watch: a, start: idle, input: 5}
- {watch: b, start: idle, input: " "}
- {watch: c, do: x, input: .}
`, want: []string{
			"monitors[0].input: want a mapping, or a jq program over the change as a text, got the number 5; quote it",
			"monitors[1].input: jq program is empty; . is the change as it is",
			"monitors[2].input: input is for the workflow that start names, and there is no start"}},
		{name: "no source, no words about its keys", text: `
- {do: x, settle: 2s, method: GET}
- {watch: 5, do: x, settle: 2s, method: GET}
`, want: []string{
			"monitors[0]: give watch, a glob or an http or https URL",
			"monitors[1].watch: want a glob or an http or https URL as a text, got the number 5; quote it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := write(t, map[string]string{"a.yaml": idleYAML + "monitors:" + tt.text})
			got := problemsOf(t, source)
			for i, line := range got { // places are tested elsewhere; here every line has one
				var at, column int
				if n, _ := fmt.Sscanf(line, "a.yaml:%d:%d: ", &at, &column); n != 2 || at < 3 {
					t.Errorf("no place: %s", line)
					continue
				}
				line = strings.TrimPrefix(line, fmt.Sprintf("a.yaml:%d:%d: ", at, column))
				got[i] = strings.ReplaceAll(line, source.Workspace, "WORKSPACE")
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if text := strings.Join(got, "\n"); strings.Contains(text, "hunter") || strings.Contains(text, "12345") {
				t.Errorf("a secret is shown:\n%s", text)
			}
		})
	}
}

// What the languages say of a bad program, at the program.
func TestProgramErrors(t *testing.T) {
	got := problems(t, map[string]string{"a.yaml": idleYAML + `monitors:
- {watch: a, start: idle, input: "{a: .b"}
- {watch: "http://x/1", do: x, select: {jq: ".a | nosuch"}}
- {watch: "http://x/2", do: x, select: {css: "a["}}
- {watch: "http://x/3", do: x, select: {drop: [a, "b("]}}
`})
	for i, want := range []string{
		"a.yaml:3:34: monitors[0].input: ",
		"a.yaml:4:45: monitors[1].select.jq: ",
		"a.yaml:5:46: monitors[2].select.css: ",
		"a.yaml:6:51: monitors[3].select.drop[1]: column 1: ",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("line %d: got %q, want it to begin %q", i, got, want)
		}
	}
	if len(got) != 4 {
		t.Errorf("got %d errors, want 4: %q", len(got), got)
	}
}

func TestMonitorHealthHandlers(t *testing.T) {
	c := load(t, map[string]string{"a.yaml": idleYAML + `monitors:
- {watch: a, key: k, start: idle, input: "{n: 1}", fail_after: 3, recover_after: 2, live: true,
   on_down: {run: ./down.sh, timeout: 5s}, on_up: {name: up, run: [./up, "1"]}}
- {watch: "https://x.test/", key: u, do: x, cert_days: 30}
`})
	k, u := c.Monitor("k"), c.Monitor("u")
	if k.FailAfter != 3 || k.RecoverAfter != 2 || !k.Live || k.CertDays != 0 || k.Handler != nil || k.Input != nil {
		t.Errorf("got %+v", k)
	}
	down := &runner.Workflow{Name: "k", Steps: []runner.Step{
		{Name: "on_down", Command: runner.Command{Shell: "./down.sh"}, Timeout: 5 * time.Second}}}
	up := &runner.Workflow{Name: "k", Steps: []runner.Step{{Name: "up", Command: runner.Command{Argv: []string{"./up", "1"}}}}}
	if diff := cmp.Diff([]*runner.Workflow{down, up}, []*runner.Workflow{k.OnDown, k.OnUp}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err := k.InputProgram.Run(t.Context(), []byte(`{}`))
	if diff := cmp.Diff([]jsontext.Value{jsontext.Value(`{"n":1}`)}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if u.FailAfter != 1 || u.RecoverAfter != 1 || u.CertDays != 30 || u.InputProgram != nil || u.OnDown != nil || u.OnUp != nil || u.Live {
		t.Errorf("got %+v", u)
	}
}

// A secret in a file that everybody may read is warned of, in a private one it is not.
func TestExposedSecrets(t *testing.T) {
	const text = `monitors:
- {watch: "http://x/0", do: x, key: a, auth: {bearer: hunter2}}
- {watch: "http://x/1", do: x, key: b, auth: {basic: {user: u, password: hunter2}}}
- {watch: "http://x/2", do: x, key: c, headers: {Cookie: hunter2, Accept: text/html}}
- {watch: "http://x/3", do: x, key: d, auth: {bearer: {file: hunter2}}, headers: {X-Api-Key: {credential: k}}}
`
	s := write(t, map[string]string{"a.yaml": text})
	warnings := func(mode os.FileMode) (lines []string) {
		t.Helper()
		if err := os.Chmod(filepath.Join(s.Path, "a.yaml"), mode); err != nil {
			t.Fatal(err)
		}
		c, err := Load([]Source{s}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.Warnings {
			lines = append(lines, w.String())
		}
		return lines
	}
	for _, mode := range []os.FileMode{0o600, 0o640} {
		if got := warnings(mode); got != nil {
			t.Errorf("mode %04o: got %q", mode, got)
		}
	}
	const rest = " stands in a file that every user may read; give {file: …} or {credential: …}, or chmod o-r the file"
	want := []string{
		"a.yaml:2:55: monitors[0].auth.bearer: the bearer token" + rest,
		"a.yaml:3:74: monitors[1].auth.basic.password: the password" + rest,
		"a.yaml:4:58: monitors[2].headers.Cookie: the header Cookie" + rest,
	}
	if diff := cmp.Diff(want, warnings(0o644)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Records and lists show the label. The key is made from the whole URL, as ever.
func TestMonitorLabels(t *testing.T) {
	c := load(t, map[string]string{"a.yaml": "monitors:\n- {watch: \"https://x.test/a?k=hunter2\", do: x}\n- {watch: \"a/*?.txt\", do: x}\n"})
	for i, want := range []string{"https://x.test/a?…", "a/*?.txt"} {
		if got := c.Monitors[i].Label; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got, want := c.Monitors[0].Key, monitorKey("https://x.test/a?k=hunter2"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// What sources share outlives a load, and is one a workspace.
func TestShared(t *testing.T) {
	var shared Shared
	if first := shared.filesOf("/a"); shared.filesOf("/a") != first || shared.filesOf("/b") == first {
		t.Error("files are not shared by workspace")
	}
	s := write(t, map[string]string{"a.yaml": "monitors:\n- {watch: a, do: x}\n- {watch: \"http://x/\", do: x}\n"})
	for range 2 {
		if _, err := Load([]Source{s}, Options{Shared: &shared}); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(shared.files); got != 3 {
		t.Errorf("got %d workspaces, want 3", got)
	}
}
