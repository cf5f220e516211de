package monitor

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

func TestSecretsNeverShow(t *testing.T) {
	const hidden = "hunter2"
	s := Secret{Text: hidden}
	o := HTTPOptions{Password: s, Headers: []Header{{"X", s}}}
	var shown strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&shown, verb+verb+verb, s, &s, o)
		fmt.Fprintf(&shown, verb, []any{s, o})
	}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("x", "secret", s, "options", fmt.Sprint(o))
	}
	text, err := json.Marshal(map[string]any{"a": s, "b": o.Headers})
	must(t, err)
	all := shown.String() + log.String() + string(text)
	for _, form := range []string{hidden, fmt.Sprintf("%x", hidden)} {
		if strings.Contains(all, form) {
			t.Errorf("%s shows in %s", form, all)
		}
	}
}

// greedy is a server that keeps the headers of the last request.
func greedy(t *testing.T, got *http.Header) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		*got = r.Header
		io.WriteString(w, "x")
	})
}

func TestSecretsAreReadAtEachLook(t *testing.T) {
	credentials := t.TempDir()
	token, password := filepath.Join(t.TempDir(), "token"), filepath.Join(credentials, "password")
	var got http.Header
	url := greedy(t, &got)
	bearer := watchURL(t, url, HTTPOptions{Bearer: Secret{File: token}, Headers: []Header{{"x-key", Secret{Credential: "password"}}}, Credentials: credentials})
	basic := watchURL(t, url, HTTPOptions{BasicUser: "u", Password: Secret{Credential: "password"}, Credentials: credentials})
	for _, value := range []string{"one", "two\n", "three\r\n", strings.Repeat("x", maxSecret-8)} {
		must(t, os.WriteFile(token, []byte(value), 0o600))
		must(t, os.WriteFile(password, []byte(value), 0o600))
		bare := strings.TrimRight(value, "\r\n")
		bearer.poll()
		if got.Get("Authorization") != "Bearer "+bare || got.Get("X-Key") != bare {
			t.Errorf("%.20q: got %.40q, %.40q", value, got.Get("Authorization"), got.Get("X-Key"))
		}
		basic.poll()
		if want := "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+bare)); got.Get("Authorization") != want {
			t.Errorf("%.20q: got %.40q", value, got.Get("Authorization"))
		}
	}
}

func TestSecretsThatCannotBeUsed(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{
		"two lines": "hunter\n2\n", "nul": "hunter\x002", "escape": "hunter\x1b2", "empty": "", "only a newline": "\n",
		"big": strings.Repeat("h", maxSecret+1), "../" + filepath.Base(outside) + "/elsewhere": "hunter2",
	} {
		must(t, os.WriteFile(in(name), []byte(content), 0o600))
	}
	must(t, os.Symlink(filepath.Join(outside, "elsewhere"), in("link")))
	must(t, unix.Mkfifo(in("fifo"), 0o600))
	must(t, os.Mkdir(in("directory"), 0o700))
	for _, tt := range []struct{ name, asFile, asCredential string }{
		{"two lines", "cannot use %s: it has a control character (0x0a) at byte 7", ""},
		{"nul", "cannot use %s: it has a control character (0x00) at byte 7", ""},
		{"escape", "cannot use %s: it has a control character (0x1b) at byte 7", ""},
		{"empty", "cannot use %s: it is empty", ""},
		{"only a newline", "cannot use %s: it is empty", ""},
		{"big", "cannot read %s: it is over 64 KiB", ""},
		{"missing", "cannot read %s: no such file or directory", ""},
		{"fifo", "cannot read %s: not a regular file", ""},
		{"directory", "cannot read %s: not a regular file", ""},
		{"link", "", "cannot read %s: path escapes from parent"},
	} {
		for _, kind := range []string{"file", "credential"} {
			want, name := tt.asFile, "secret file "+in(tt.name)
			secret := Secret{File: in(tt.name)}
			if kind == "credential" {
				name, secret = "credential "+tt.name, Secret{Credential: tt.name}
				if tt.asCredential != "" {
					want = tt.asCredential
				}
			}
			w := watchURL(t, "http://127.0.0.1:1/", HTTPOptions{Bearer: secret, Credentials: dir})
			_, err := w.look()
			if want == "" {
				if err != nil && !strings.Contains(err.Error(), "connect") {
					t.Errorf("%s %s: %v", kind, tt.name, err)
				}
				continue
			}
			want = "cannot fetch http://127.0.0.1:1/: auth bearer: " + fmt.Sprintf(want, name)
			if err == nil || err.Error() != want {
				t.Errorf("%s %s:\ngot  %v\nwant %s", kind, tt.name, err, want)
			}
		}
	}
	w := watchURL(t, "http://127.0.0.1:1/", HTTPOptions{Headers: []Header{{"X-Key", Secret{Credential: "c"}}}})
	expectError(t, w, "header X-Key: cannot read credential c: the service was given no credentials (see LoadCredential= in systemd.exec)")
}

func TestOpenSecretIsWarnedOfOnce(t *testing.T) {
	name := file(t, []byte("x"))
	must(t, os.Chmod(name, 0o644))
	w := watchURL(t, serve(t, body("x")), HTTPOptions{Bearer: Secret{File: name}})
	var log bytes.Buffer
	for range 3 {
		_, err := w.source.Look(t.Context(), w.committed(), LookOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
		must(t, err)
	}
	if got := strings.Count(log.String(), name); got != 1 {
		t.Errorf("said %d times: %s", got, &log)
	}
}

func TestOptionErrors(t *testing.T) {
	text := func(s string) Secret { return Secret{Text: s} }
	for _, tt := range []struct {
		o    HTTPOptions
		want string
	}{
		{HTTPOptions{Method: "HEAD"}, "method HEAD: its answer has no body to compare"},
		{HTTPOptions{Method: "post"}, "method post: methods are written in capitals"},
		{HTTPOptions{Method: "TRACE"}, "method TRACE cannot be used to fetch"},
		{HTTPOptions{Method: "CONNECT"}, "method CONNECT cannot be used to fetch"},
		{HTTPOptions{Method: "GET x"}, `method "GET x" is not one`},
		{HTTPOptions{Body: "x"}, "a body needs another method than GET"},
		{HTTPOptions{MaxBody: -1}, "the largest body is -1 bytes"},
		{HTTPOptions{UserAgent: "a\nb"}, "user agent: it has a control character (0x0a) at byte 2"},
		{HTTPOptions{Headers: []Header{{"X Y", text("")}}}, `header "X Y": that is not a header's name`},
		{HTTPOptions{Headers: []Header{{"", text("")}}}, `header "": that is not a header's name`},
		{HTTPOptions{Headers: []Header{{"X", text("a\r\nB: c")}}}, "header X: it has a control character (0x0d) at byte 2"},
		{HTTPOptions{Headers: []Header{{"x", text("")}, {"X", text("")}}}, "header X is set twice"},
		{HTTPOptions{Headers: []Header{{"if-none-match", text("")}}}, "header if-none-match cannot be set: conditions are made from what was committed"},
		{HTTPOptions{Headers: []Header{{"Accept-Encoding", text("br")}}}, "header Accept-Encoding cannot be set: compression is seen to"},
		{HTTPOptions{Headers: []Header{{"Authorization", text("x")}}, Bearer: text("x")}, "there are both a header Authorization and auth"},
		{HTTPOptions{Headers: []Header{{"X", Secret{File: "relative"}}}}, "header X: secret file relative: its name must be absolute"},
		{HTTPOptions{Headers: []Header{{"X", Secret{Credential: "../x"}}}}, `header X: a credential must be named by a plain file name, not "../x"`},
		{HTTPOptions{Headers: []Header{{"X", Secret{Text: "hunter2", File: "/x"}}}}, "header X: a secret is one of a text, a file and a credential"},
		{HTTPOptions{BasicUser: "a:b"}, "auth basic: a user has no colon"},
		{HTTPOptions{Password: text("hunter2")}, "auth basic: the user is missing"},
		{HTTPOptions{BasicUser: "a", Bearer: text("hunter2")}, "auth is either basic or bearer"},
		{HTTPOptions{BasicUser: "a", Password: text("a\x00hunter2")}, "auth: it has a control character (0x00) at byte 2"},
		{HTTPOptions{CA: "ca.pem"}, "ca file ca.pem: its name must be absolute"},
		{HTTPOptions{Cert: "/c"}, "a certificate and its key must be given together"},
		{HTTPOptions{Proxy: "http://u:hunter2@h"}, "user information in the proxy's URL is refused"},
		{HTTPOptions{Proxy: "http://u:hunt er2@h"}, "the proxy is not a valid URL"},
		{HTTPOptions{Proxy: "ftp://h"}, "the proxy is neither none nor an http, https or socks5 URL"},
		{HTTPOptions{Proxy: "h:80"}, "the proxy is neither none nor an http, https or socks5 URL"},
		{HTTPOptions{Proxy: "http://h/x"}, "the proxy's URL has more than a host and a port"},
		{HTTPOptions{Proxy: "http://h", DenyPrivate: true}, "allow_private: false cannot be kept through a proxy, which resolves and connects out of sight"},
	} {
		_, err := NewHTTP("http://h/", tt.o)
		if err == nil || err.Error() != "cannot watch http://h/: "+tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	for _, o := range []HTTPOptions{
		{Method: "PUT", Body: "x"}, {Method: "REPORT"}, {Proxy: "none", DenyPrivate: true}, {DenyPrivate: true}, {Proxy: "socks5://h:1/"},
		{BasicUser: "u"}, {Headers: []Header{{"X", text("caf\xe9\t")}}},
	} {
		if _, err := NewHTTP("http://h/", o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
