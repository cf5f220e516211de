package monitor

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// journey is two hosts: the first redirects by "/to?code=…&url=…", both say what they were sent.
type journey struct {
	home, away string
	met        []string // "home POST hi X-Api-Key Cookie" of each request
}

func newJourney(t *testing.T) *journey {
	j := &journey{}
	visit := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			sent, _ := io.ReadAll(r.Body)
			line := name + " " + r.Method
			for _, text := range []string{string(sent), r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get("X-Api-Key"),
				r.Header.Get("Accept"), r.Header.Get("Content-Type"), r.Header.Get("Referer")} {
				if text != "" {
					line += " " + text
				}
			}
			j.met = append(j.met, line)
			if to := r.URL.Query().Get("url"); to != "" {
				code := 302
				fmt.Sscan(r.URL.Query().Get("code"), &code)
				w.Header().Set("Location", to)
				w.WriteHeader(code)
			}
		}
	}
	j.home, j.away = serve(t, visit("home")), serve(t, visit("away"))
	return j
}

func redirectTo(base, to string, code int) string {
	return fmt.Sprintf("%s/to?code=%d&url=%s", base, code, url.QueryEscape(to))
}

func (j *journey) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, j.met); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
	j.met = nil
}

func TestCredentialsStayHome(t *testing.T) {
	j := newJourney(t)
	o := HTTPOptions{Bearer: Secret{Text: "b"}, Headers: []Header{
		{"X-Api-Key", Secret{Text: "k"}}, {"cookie", Secret{File: file(t, []byte("c\n"))}}, {"Accept", Secret{Text: "a/b"}},
	}}
	watchURL(t, redirectTo(j.home, "/there", 302), o).poll()
	j.expect(t, "same host", "home GET Bearer b c k a/b", "home GET Bearer b c k a/b")
	watchURL(t, redirectTo(j.home, j.away, 302), o).poll()
	j.expect(t, "another host", "home GET Bearer b c k a/b", "away GET a/b")
	watchURL(t, redirectTo(j.home, redirectTo(j.away, j.home+"/there", 307), 308), o).poll()
	j.expect(t, "and back", "home GET Bearer b c k a/b", "away GET a/b", "home GET a/b")
	_, port, _ := strings.Cut(strings.TrimPrefix(j.home, "http://"), ":")
	watchURL(t, redirectTo(j.home, "http://localhost:"+port+"/there", 302), o).poll()
	j.expect(t, "the same server by another name", "home GET Bearer b c k a/b", "home GET a/b")
	o = HTTPOptions{BasicUser: "u", Password: Secret{Text: "p"}}
	watchURL(t, redirectTo(j.home, j.away, 301), o).poll()
	j.expect(t, "basic", "home GET Basic dTpw", "away GET")
}

func TestMethodsOfRedirects(t *testing.T) {
	j := newJourney(t)
	for _, tt := range []struct {
		method string
		code   int
		want   string
	}{
		{"POST", 301, "home GET"}, {"POST", 302, "home GET"}, {"POST", 303, "home GET"},
		{"POST", 307, "home POST hi t/p"}, {"POST", 308, "home POST hi t/p"},
		{"PUT", 302, "home PUT hi t/p"}, {"PUT", 303, "home GET"}, {"REPORT", 307, "home REPORT hi t/p"},
	} {
		o := HTTPOptions{Method: tt.method, Body: "hi", Headers: []Header{{"Content-Type", Secret{Text: "t/p"}}}}
		watchURL(t, redirectTo(j.home, "/there", tt.code), o).poll()
		j.expect(t, fmt.Sprint(tt.code), "home "+tt.method+" hi t/p", tt.want)
	}
	watchURL(t, redirectTo(j.home, j.away, 307), HTTPOptions{Method: "POST", Body: "hi", Bearer: Secret{Text: "b"}}).poll()
	j.expect(t, "307 to another host", "home POST hi Bearer b", "away POST hi")
}

func TestSameHost(t *testing.T) {
	for _, tt := range []struct {
		from, to string
		want     bool
	}{
		{"http://h/a", "http://h/b", true},
		{"http://h/a", "http://H:80/b", true},
		{"https://h/", "https://h:443/", true},
		{"http://h/", "https://h/", true},
		{"http://h:80/", "https://h:443/", true},
		{"https://h/", "http://h/", false},
		{"http://h/", "https://h:8443/", false},
		{"http://h:8080/", "https://h/", false},
		{"http://h/", "http://h:81/", false},
		{"http://h/", "http://www.h/", false},
		{"http://h/", "http://h.evil/", false},
		{"http://[::1]/", "http://[::1]:80/", true},
		{"http://h:443/", "https://h/", false},
		{"http://h/", "https://evil/", false},
	} {
		from, err := url.Parse(tt.from)
		must(t, err)
		to, err := url.Parse(tt.to)
		must(t, err)
		if got := sameHost(from, to); got != tt.want {
			t.Errorf("%s to %s: got %v", tt.from, tt.to, got)
		}
	}
}

func TestHostHeader(t *testing.T) {
	var hosts []string
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hosts = append(hosts, r.Host) }))
	t.Cleanup(away.Close)
	home := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host)
		http.Redirect(w, r, away.URL, http.StatusFound)
	})
	watchURL(t, home, HTTPOptions{Headers: []Header{{"host", Secret{Text: "example.test"}}}}).poll()
	if diff := cmp.Diff([]string{"example.test", strings.TrimPrefix(away.URL, "http://")}, hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
}
