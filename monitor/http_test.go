package monitor

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func watchURL(t testing.TB, url string, o HTTPOptions) *watcher {
	t.Helper()
	s, err := NewHTTP(url, o)
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{t: t, source: s}
}

func serve(t testing.TB, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// scripted serves what *answer says at the time.
func scripted(t testing.TB, answer *http.HandlerFunc) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) { (*answer)(w, r) })
}

func body(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, text) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }
}

// raw answers each connection with a text and closes it.
func raw(t testing.TB, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, text)
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}

// caFile is a file with the certificate of a server, for HTTPOptions.CA.
func caFile(t testing.TB, s *httptest.Server) string {
	return file(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// file is a file of its own with some content.
func file(t testing.TB, content []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, content, 0o600))
	return name
}

func expectError(t *testing.T, w *watcher, want string) {
	t.Helper()
	o, err := w.look()
	if err == nil {
		t.Fatalf("got %s, want an error", o.Summary)
	}
	if got := err.Error(); got != "cannot fetch "+redact(w.source.http.url)+": "+want {
		t.Fatalf("got %q, want it to end in %q", got, want)
	}
}

func TestNewHTTPErrors(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"ftp://h/x", "cannot watch ftp://h/x: only http and https can be watched"},
		{"h/x", "cannot watch h/x: only http and https can be watched"},
		{"http:///x", "cannot watch http:///x: the host is missing"},
		{"http://:80/x", "cannot watch http://:80/x: the host is missing"},
		{"http://u:secret@h/x?k=secret", "cannot watch http://h/x?…: user information in a URL is refused"},
		{"http://secret@h/", "cannot watch http://h/: user information in a URL is refused"},
		{"http://u:sec/ret@h/", "cannot watch this URL: it is not a valid one"},
		{"http://h/%zz", "cannot watch this URL: it is not a valid one"},
	} {
		_, err := NewHTTP(tt.url, HTTPOptions{})
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %q", tt.url, err, tt.want)
		}
	}
	s, err := NewHTTP("HTTPS://h/x?k=v#part", HTTPOptions{})
	if err != nil || s.Kind() != KindHTTP || s.String() != "https://h/x?…" {
		t.Errorf("got %v, %v", s, err)
	}
}

func TestHTTPChanges(t *testing.T) {
	answer := body(`{"b": 1.0, "a": "x"}`)
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	check := func(wantChange string) *Observation {
		t.Helper()
		o := w.poll()
		if diff := cmp.Diff(wantChange, string(o.Change)); diff != "" || o.Changed != (wantChange != "") {
			t.Fatalf("change (-want +got):\n%s", diff)
		}
		return o
	}
	o := check(`{"kind":"http","status":200,"current":{"b":1.0,"a":"x"}}`)
	if !o.First || o.Summary != "200, 20 B" || string(o.Body) != `{"b": 1.0, "a": "x"}` || o.Paths != nil {
		t.Errorf("first look: %+v", o)
	}
	if w.record.Hash != "cdab067e9f3beb32d1252cfd63e492592fecbf591b0d08cadb24bb17f3864246" {
		t.Errorf("hash: got %s", w.record.Hash)
	}
	answer = body(`{"a":"\u0078","b":1}`)
	if o := check(""); o.First || o.Record != nil {
		t.Errorf("the same in other words: %+v", o)
	}
	answer = body("plain\n")
	check(`{"kind":"http","status":200,"current":"plain\n","previous":{"b":1.0,"a":"x"}}`)
	answer = body("Vi\xedctor")
	check(`{"kind":"http","status":200,"current":"VmntY3Rvcg==","currentBase64":true,"previous":"plain\n"}`)
	answer = body("null")
	check(`{"kind":"http","status":200,"current":null,"previous":"VmntY3Rvcg==","previousBase64":true}`)
	answer = body("")
	check(`{"kind":"http","status":200,"current":"","previous":null}`)
	answer = status(http.StatusNoContent)
	if o := check(""); o.Body == nil {
		t.Error("204 has no body at all")
	}
	answer = body(`{"n":9007199254740993}`)
	check(`{"kind":"http","status":200,"current":{"n":9007199254740993},"previous":""}`)
	answer = func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(203)
		io.WriteString(w, `{"n":9007199254740992}`)
	}
	check(`{"kind":"http","status":203,"current":{"n":9007199254740992},"previous":{"n":9007199254740993}}`)
}

func TestHTTPStates(t *testing.T) {
	var answer http.HandlerFunc
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	polls := func(bodies ...string) (changes int) {
		for _, text := range bodies {
			answer = body(text)
			if w.poll().Changed {
				changes++
			}
		}
		return changes
	}
	polls("v1")
	for _, code := range []int{429, 503, 404, 410, 500, 300, 305, 400} {
		answer = status(code)
		expectError(t, w, fmt.Sprintf("HTTP %d", code))
	}
	if got := polls("v1"); got != 0 {
		t.Errorf("v1 again after failures: got %d changes", got)
	}
	if got := polls("A", "B", "A", "B", "B"); got != 4 {
		t.Errorf("A, B, A, B, B: got %d changes, want 4", got)
	}
	if got := polls("", ""); got != 1 {
		t.Errorf("empty twice: got %d changes, want 1", got)
	}
	for _, kind := range []string{"text/plain; charset=utf-8", "text/plain; charset=iso-8859-1", ""} {
		answer = func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			io.WriteString(w, "V\xedctor")
		}
		if o := w.poll(); o.Changed != strings.HasSuffix(kind, "utf-8") {
			t.Errorf("content type %q: changed is %v", kind, o.Changed)
		}
	}
	answer = status(http.StatusNotModified)
	expectError(t, w, "HTTP 304, though no validators were sent")
	answer = status(http.StatusPartialContent)
	expectError(t, w, "HTTP 206, though the whole was asked for")
}

func TestDigests(t *testing.T) {
	hash := func(text string) string {
		c, err := contentOf([]byte(text))
		must(t, err)
		return c.hash
	}
	for _, same := range [][]string{
		{`{"a":1,"b":2}`, "{ \"b\": 2,\r\n \"a\": 1 }", "\ufeff{\"a\":1,\"b\":2}"},
		{`{"a":"A"}`, `{"a":"\u0041"}`},
		{`{"a":"<"}`, `{"a":"\u003c"}`},
		{"1", "1.0", "1e0", "10e-1"},
		{"0.1", "0.1000"},
		{"-0", "0"},
	} {
		for _, text := range same[1:] {
			if hash(text) != hash(same[0]) {
				t.Errorf("%s and %s differ", same[0], text)
			}
		}
	}
	different := []string{
		"[1,2]", "[2,1]", "9007199254740993", "9007199254740992", "999999999999999999", "1000000000000000000",
		"0.1", "0.10000000000000000001", "1e400", "1e401", "1", `"1"`, "1e1000000000", "1e1000000001",
		`{"a":1,"a":2}`, `{"a":2}`, `{"a":3,"a":2}`, `{"a":1,"\u0061":2}`, "abc", `"abc"`, "", `""`, "\ufeff", "{} {}", "{}", "nul", "\xff", "\xfe",
	}
	seen := map[string]string{}
	for _, text := range different {
		if other, ok := seen[hash(text)]; ok {
			t.Errorf("%q and %q are equal", text, other)
		}
		seen[hash(text)] = text
	}
	for text, want := range map[string]string{
		`{"a":"x","b":1}`: "cdab067e9f3beb32d1252cfd63e492592fecbf591b0d08cadb24bb17f3864246",
		`"abc"`:           "6cc43f858fbb763301637b5af970e2a46b46f461f27e5a0f41e009c59b827b25",
		"abc":             "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	} {
		if got := hash(text); got != want {
			t.Errorf("hash of %s: got %s, want %s", text, got, want)
		}
	}
}

// What a record cannot hold as JSON it holds as text; every body survives its commit.
func TestBodiesSurviveTheRecord(t *testing.T) {
	var answer http.HandlerFunc
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	before := ""
	for _, text := range []string{
		`{"a":1,"a":2}`, `"\ud800"`, `{"\ud800":1,"\ud801":2}`, "{}", "[]", `""`, "null", "0", "false", "",
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat("[", 20000),
		"\ufeff{}x", "1e1000000000", "<html>\u2028&</html>", "\x00", "\xff\xfe",
	} {
		answer = body(text)
		if o := w.poll(); !o.Changed || string(o.Body) != text {
			t.Errorf("%.20q: got %+v", text, o)
		} else if before != "" && before != string(o.Previous) {
			t.Errorf("%.20q: previous is %.20q, want %.20q", text, o.Previous, before)
		}
		before = text
		if w.record.Current == nil {
			t.Errorf("%.20q: the record lost it", text)
		}
		if o := w.poll(); o.Changed {
			t.Errorf("%.20q: changed without a change: %s", text, o.Change)
		}
	}
}

func TestTruncatedBodies(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	for i := range 12_000 {
		fmt.Fprintf(z, "%x", i*i*7919)
	}
	must(t, z.Close())
	cut := zipped.Bytes()[:zipped.Len()-10]
	for _, tt := range []struct{ name, answer string }{
		{"chunk cut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"},
		{"last chunk missing", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
		{"shorter than its length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"},
		{"gzip cut", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(cut), cut)},
		{"gzip cut to nothing", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := watchURL(t, raw(t, tt.answer), HTTPOptions{}).look()
			if err == nil || !strings.Contains(err.Error(), "the body ended early, after ") {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("no length", func(t *testing.T) { // cannot be told from a whole body
		o := watchURL(t, raw(t, "HTTP/1.1 200 OK\r\n\r\nhel"), HTTPOptions{}).poll()
		if string(o.Body) != "hel" {
			t.Errorf("got %q", o.Body)
		}
	})
	t.Run("not HTTP", func(t *testing.T) {
		for _, answer := range []string{"", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"} {
			if o, err := watchURL(t, raw(t, answer), HTTPOptions{}).look(); err == nil {
				t.Errorf("%q: got %+v, want an error", answer, o)
			}
		}
	})
}

func TestEncodings(t *testing.T) {
	var answer http.HandlerFunc
	encoded := func(encoding, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Accept-Encoding"); got != "gzip" {
				t.Errorf("asked for %q", got)
			}
			w.Header().Set("Content-Encoding", encoding)
			io.WriteString(w, text)
		}
	}
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	for _, encoding := range []string{"br", "deflate", "zstd", "x-gzip", "gzip, br"} {
		answer = encoded(encoding, "x")
		if _, err := w.look(); err == nil || !strings.Contains(err.Error(), "was not asked for") {
			t.Errorf("%s: got %v", encoding, err)
		}
	}
	answer = encoded("identity", "plain")
	w.poll()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	io.WriteString(z, "plain")
	must(t, z.Close())
	answer = encoded("gzip", zipped.String())
	if o := w.poll(); o.Changed || string(o.Body) != "plain" {
		t.Errorf("gzip of the same: %+v", o)
	}
}

func TestBodyCap(t *testing.T) {
	t.Run("exactly", func(t *testing.T) {
		w := watchURL(t, serve(t, body("12345")), HTTPOptions{MaxBody: 5})
		w.poll()
		w = watchURL(t, serve(t, body("123456")), HTTPOptions{MaxBody: 5})
		expectError(t, w, "body over 5 bytes")
	})
	t.Run("endless", func(t *testing.T) {
		w := watchURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}), HTTPOptions{MaxBody: 64 << 10})
		expectError(t, w, "body over 64 KiB")
	})
	t.Run("64 MiB of zeros as gzip", func(t *testing.T) {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		z.Write(make([]byte, 1<<20))
		must(t, z.Close())
		zeros := bytes.Repeat(zipped.Bytes(), 64) // gzip members in a row are one stream
		w := watchURL(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(zeros)
		}), HTTPOptions{MaxBody: 1 << 20})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		expectError(t, w, "body over 1 MiB")
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
			t.Errorf("allocated %d bytes in all", grown)
		}
	})
}

func TestRedirects(t *testing.T) {
	var requests atomic.Int32
	mux := http.NewServeMux()
	to := func(location string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if location != "" {
				w.Header().Set("Location", location)
			}
			w.WriteHeader(http.StatusFound)
		}
	}
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		to("/loop")(w, r)
	})
	mux.HandleFunc("/hop/", func(w http.ResponseWriter, r *http.Request) {
		n := 0
		fmt.Sscanf(r.URL.Path, "/hop/%d", &n)
		if r.Header.Get("Referer") != "" {
			t.Errorf("a Referer went along: %s", r.Header.Get("Referer"))
		}
		if n == 0 {
			io.WriteString(w, "here")
			return
		}
		http.Redirect(w, r, fmt.Sprintf("/hop/%d?token=secret", n-1), http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/nowhere", to(""))
	mux.HandleFunc("/bad", to("http://a b/%zz?token=secret"))
	mux.HandleFunc("/file", to("file:///etc/passwd"))
	mux.HandleFunc("/login", to("http://u:secret@127.0.0.1/x?token=secret"))
	mux.HandleFunc("/down", to("/gone?token=secret"))
	plain := httptest.NewServer(mux)
	t.Cleanup(plain.Close)
	watch := func(path string) *watcher { return watchURL(t, plain.URL+path, HTTPOptions{}) }

	expectError(t, watch("/loop"), "more than 10 redirects")
	if got := requests.Load(); got != 11 {
		t.Errorf("/loop: got %d requests, want 11", got)
	}
	if o := watch("/hop/10?token=secret").poll(); string(o.Body) != "here" {
		t.Errorf("ten redirects: got %q", o.Body)
	}
	expectError(t, watch("/hop/11"), "more than 10 redirects")
	expectError(t, watch("/nowhere"), "HTTP 302 without a Location")
	expectError(t, watch("/bad"), "HTTP 302 with a Location that is not a URL")
	expectError(t, watch("/file"), "HTTP 302 to file:///etc/passwd: only http and https can be watched")
	expectError(t, watch("/login"), "HTTP 302 to http://127.0.0.1/x?…: user information in a URL is refused")
	expectError(t, watch("/down"), "redirected to "+plain.URL+"/gone?…: HTTP 404")

	secure := serveTLS(t, to(plain.URL+"/hop/0"), nil)
	w := watchURL(t, secure.URL, HTTPOptions{CA: caFile(t, secure)})
	expectError(t, w, "HTTP 302 to "+plain.URL+"/hop/0: a redirect from https to http is refused")
	if o, err := watchURL(t, secure.URL, HTTPOptions{}).look(); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown authority: got %+v, %v", o, err)
	}
}

func TestRequest(t *testing.T) {
	var got *http.Request
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r })
	watchURL(t, url+"/a%2Fb?q=1&q=2#part", HTTPOptions{}).poll()
	if got.Method != "GET" || got.RequestURI != "/a%2Fb?q=1&q=2" || got.UserAgent() != "marbles/"+version() {
		t.Errorf("got %s %s %s", got.Method, got.RequestURI, got.UserAgent())
	}
	for _, name := range []string{"If-None-Match", "If-Modified-Since", "Range", "Cookie", "Authorization"} {
		if got.Header.Get(name) != "" {
			t.Errorf("sent %s: %s", name, got.Header.Get(name))
		}
	}
	watchURL(t, url, HTTPOptions{UserAgent: "own/1"}).poll()
	if got.UserAgent() != "own/1" {
		t.Errorf("got %s", got.UserAgent())
	}
}

func TestErrorsShowNoQuery(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close()) // so that nobody listens there
	for _, url := range []string{
		"http://" + l.Addr().String() + "/x?token=secret",
		serve(t, status(500)) + "/x?token=secret",
		raw(t, "nonsense") + "/x?token=secret",
		"https" + strings.TrimPrefix(serve(t, body("x")), "http") + "/x?token=secret",
	} {
		_, err := watchURL(t, url, HTTPOptions{}).look()
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "/x?…: ") {
			t.Errorf("got %v", err)
		}
	}
}

// hanging servers get as far as their name says, and no further.
func hanging(t *testing.T, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var open []net.Conn
	accepted := make(chan struct{})
	go func() { // waited for in the cleanup
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			if answer != "" {
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, answer)
			}
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-accepted
		for _, c := range open {
			c.Close()
		}
	})
	return l.Addr().String()
}

func TestOneDeadlineOverAll(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, tt := range []struct{ name, scheme, answer string }{
		{"before the header", "http", ""},
		{"in the header", "http", "HTTP/1.1 200 OK\r\nX: "},
		{"after the header", "http", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"},
		{"in the body", "http", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"},
		{"in the TLS handshake", "https", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := watchURL(t, tt.scheme+"://"+hanging(t, tt.answer)+"/?token=secret", HTTPOptions{})
			_, err := w.source.Look(t.Context(), Committed{}, LookOptions{Timeout: 50 * time.Millisecond})
			want := "cannot fetch " + redact(w.source.http.url) + ": took longer than 50ms: context deadline exceeded"
			if !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
				t.Errorf("timed out: got %v, want %s", err, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			if _, err := w.source.Look(ctx, Committed{}, LookOptions{}); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: got %v", err)
			}
		})
	}
}

// A source that hangs holds up no other, nor itself.
func TestHangingSourceDelaysNoOther(t *testing.T) {
	slow := watchURL(t, "http://"+hanging(t, ""), HTTPOptions{})
	quick := watchURL(t, serve(t, body("x")), HTTPOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { // waited for below
		_, err := slow.source.Look(ctx, Committed{}, LookOptions{})
		ended <- err
	}()
	for range 20 {
		quick.poll()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRedact(t *testing.T) {
	u, err := url.Parse("https://u:secret@h:1/a%2Fb?token=secret#secret")
	must(t, err)
	if got, want := redact(u), "https://h:1/a%2Fb?…"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1200: "1.2 kB", 999_960: "1.0 MB", 3_400_000: "3.4 MB", 5e12: "5000.0 GB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

// A feed whose items come in another order, the newest not first, is one change and then none (C42f).
func TestReorderedFeed(t *testing.T) {
	answer := body("<rss><item>1</item><item>2</item></rss>")
	w := watchURL(t, scripted(t, &answer), HTTPOptions{})
	w.poll()
	answer = body("<rss><item>1</item><item>3</item><item>2</item></rss>")
	if !w.poll().Changed {
		t.Error("the change was missed")
	}
	for range 3 {
		if w.poll().Changed {
			t.Error("the same feed is a change again")
		}
	}
}

// A number with a huge exponent costs what its text does, and no more (C32).
func TestHugeExponentIsCheap(t *testing.T) {
	text := []byte(`[1e1000000000,1e-1000000000]`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := contentOf(text); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("took %d bytes", used)
	}
}
