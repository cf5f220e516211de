package catalog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"marbles/runner"
)

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	credentials := filepath.Join(dir, "credentials")
	if err := os.Mkdir(credentials, 0o700); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("credentials/BOTH", "from the credential\n")
	put("credentials/pem", "-----BEGIN\nabc\n-----END\n")
	put("credentials/EMPTY", "\n")
	file := put("token", "old\r\n")
	nul := put("nul", "a\x00b")
	source := write(t, map[string]string{"a.yaml": fmt.Sprintf(`workflows:
  w:
    secrets: [BOTH, ONLY_ENV, NEITHER, EMPTY]
    steps:
      - name: s
        run: x
        secrets: {PEM: {credential: pem}, FILE: {file: %q}, VARIABLE: {env: ONLY_ENV}, GONE: {file: /nowhere/x}, NUL: {file: %q}, MISSING: {env: NO_SUCH}, LOST: {credential: lost}}
`, file, nul)})
	env := []string{"BOTH=from the environment", "ONLY_ENV=first", "ONLY_ENV=value", "EMPTY=never"}
	read := func(o Options) (got []string) {
		t.Helper()
		c, err := Load([]Source{source}, o)
		if err != nil {
			t.Fatal(err)
		}
		w := c.Workflow("w")
		put("token", "new\r\n") // what is read is what is there then
		for _, s := range append(append([]runner.Secret{}, w.Secrets...), w.Steps[0].Secrets...) {
			value, err := s.Read()
			got = append(got, fmt.Sprintf("%s (%s): %q %v", s.Name, strings.ReplaceAll(s.From, dir, "DIR"), value, err))
		}
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], dir, "DIR")
		}
		return got
	}
	want := []string{
		`BOTH (credential or variable BOTH): "from the credential" <nil>`,
		`ONLY_ENV (credential or variable ONLY_ENV): "value" <nil>`,
		`NEITHER (credential or variable NEITHER): "" cannot read credential NEITHER: no such file or directory`,
		`EMPTY (credential or variable EMPTY): "" cannot use credential EMPTY: it is empty`,
		`PEM (credential pem): "-----BEGIN\nabc\n-----END" <nil>`,
		`FILE (file DIR/token): "new" <nil>`,
		`VARIABLE (variable ONLY_ENV): "value" <nil>`,
		`GONE (file /nowhere/x): "" cannot read secret file /nowhere/x: no such file or directory`,
		`NUL (file DIR/nul): "" cannot use secret from a file: it contains a NUL`,
		`MISSING (variable NO_SUCH): "" the service has no variable NO_SUCH`,
		`LOST (credential lost): "" cannot read credential lost: no such file or directory`,
	}
	if diff := cmp.Diff(want, read(Options{Credentials: credentials, Env: env})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got := read(Options{Env: env})
	for i, want := range []string{
		`BOTH (credential or variable BOTH): "from the environment" <nil>`,
		`ONLY_ENV (credential or variable ONLY_ENV): "value" <nil>`,
		`NEITHER (credential or variable NEITHER): "" the service has neither a credential nor a variable NEITHER`,
	} {
		if got[i] != want {
			t.Errorf("without credentials: got %s, want %s", got[i], want)
		}
	}
}

func TestSecretErrors(t *testing.T) {
	got := stepProblems(t, `
{name: a, run: x, secrets: hunter2},
{name: b, run: x, secrets: [A, A, 1B, MARBLES_X, 5, {A: b}, "hunter2 x"]},
{name: c, run: x, secrets: {A: hunter2, 2B: {env: X}, C: {}, D: {env: X, file: /x}, E: {file: x}, F: {credential: a/b}, G: {env: "1"}, H: {fiel: /x}, I: 12345}}`)
	want := []string{
		"steps[0].secrets: want a list of names, or a mapping such as {TOKEN: {credential: token}}",
		"steps[1].secrets[1]: secret A is given twice",
		"steps[1].secrets[2]: a secret is named as its variable: letters, digits and _, not beginning with a digit",
		"steps[1].secrets[3]: variables that begin with MARBLES_ are set by marbles itself",
		"steps[1].secrets[4]: want a variable's name as a text",
		"steps[1].secrets[5]: want a variable's name as a text",
		"steps[1].secrets[6]: a secret is named as its variable: letters, digits and _, not beginning with a digit",
		"steps[2].secrets.A: want one of {credential: name}, {file: /path} and {env: VARIABLE}; a value does not stand in this file",
		"steps[2].secrets.2B: a secret is named as its variable: letters, digits and _, not beginning with a digit",
		"steps[2].secrets.C: give one of {credential: name}, {file: /path} and {env: VARIABLE}",
		"steps[2].secrets.D: give one of {credential: name}, {file: /path} and {env: VARIABLE}",
		`steps[2].secrets.E.file: a secret's file has an absolute name, not "x"`,
		`steps[2].secrets.F.credential: a credential must be named by a plain file name, not "a/b"`,
		`steps[2].secrets.G.env: "1" is no variable's name`,
		"steps[2].secrets.H: give one of {credential: name}, {file: /path} and {env: VARIABLE}",
		`steps[2].secrets.H.fiel: unknown key "fiel" (did you mean "file"?)`,
		"steps[2].secrets.I: want one of {credential: name}, {file: /path} and {env: VARIABLE}; a value does not stand in this file",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPings(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "url")
	if err := os.WriteFile(secret, []byte("https://hc.test/s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load([]Source{write(t, map[string]string{"a.yaml": fmt.Sprintf(`workflows: {w: {run: x}}
schedules:
- {key: a, run: w, every: 1h, ping: "https://hc.test/a/?x=1"}
- {key: b, run: w, every: 1h, ping: {fail: "https://hc.test/b"}}
- {key: c, run: w, every: 1h, ping: {file: %q}}
- {key: d, run: w, every: 1h, ping: {start: {credential: gone}, success: {file: %q}}}
- {key: e, run: w, every: 1h}
monitors: [{key: m, watch: x, do: x, ping: {file: %[1]q}}]
`, secret, secret)})}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"https://hc.test/a/start?x=1 https://hc.test/a/?x=1 https://hc.test/a/fail?x=1 false",
		"  https://hc.test/b false",
		"https://hc.test/s3cret/start https://hc.test/s3cret https://hc.test/s3cret/fail false",
		"cannot tell where to ping: cannot read credential gone: the service was given no credentials (see LoadCredential= in systemd.exec) https://hc.test/s3cret  false",
		"   true",
		"https://hc.test/s3cret/start https://hc.test/s3cret https://hc.test/s3cret/fail false",
	} {
		p := c.Monitors[0].Ping
		if i < len(c.Schedules) {
			p = c.Schedules[i].Ping
		}
		var got []string
		for _, event := range []string{PingStart, PingSuccess, PingFail} {
			url, err := p.URL(event)
			if err != nil {
				url = err.Error()
			}
			got = append(got, url)
		}
		if got := fmt.Sprint(strings.Join(got, " "), " ", p.IsZero()); got != want {
			t.Errorf("%d: got %s, want %s", i, got, want)
		}
	}
}
