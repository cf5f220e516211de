package monitor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.issue("root", nil, time.Now().Add(100*24*time.Hour))
	a.file = file(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	return a
}

// issue makes a certificate for loopback; an issuer of nil makes an authority's: the root's, or one below it.
func (a *authority) issue(name string, issuer *authority, end time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: end,
		BasicConstraintsValid: true, IsCA: issuer == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(a.t, err)
	cert, err := x509.ParseCertificate(raw)
	must(a.t, err)
	return cert, key
}

// pair is a server's certificate that ends then, behind an intermediate one that ends after.
func (a *authority) pair(name string, end, after time.Time) tls.Certificate {
	between := &authority{t: a.t}
	between.cert, between.key = a.issue("between", nil, after)
	cert, key := between.issue(name, a, end)
	return tls.Certificate{Certificate: [][]byte{cert.Raw, between.cert.Raw}, PrivateKey: key}
}

// files are a certificate and its key as PEM files.
func pairFiles(t testing.TB, pair tls.Certificate, cert, key string) {
	var text []byte
	for _, raw := range pair.Certificate {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})...)
	}
	must(t, os.WriteFile(cert, text, 0o600))
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(t, err)
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

func serveTLS(t testing.TB, h http.HandlerFunc, config *tls.Config) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.TLS = config
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func days(n float64) time.Time {
	return time.Now().Add(time.Duration(n * 24 * float64(time.Hour))).Truncate(time.Second).UTC()
}

func TestCertificates(t *testing.T) {
	root := newAuthority(t)
	var protocols []string
	page := func(w http.ResponseWriter, r *http.Request) {
		protocols = append(protocols, r.Proto)
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") != "" {
			w.WriteHeader(http.StatusNotModified)
		}
	}
	for _, tt := range []struct{ leaf, between, want time.Time }{
		{days(5), days(90), days(5)},
		{days(90), days(7), days(7)},
	} {
		s := serveTLS(t, page, &tls.Config{Certificates: []tls.Certificate{root.pair("s", tt.leaf, tt.between)}})
		w := watchURL(t, s.URL, HTTPOptions{CA: root.file})
		first, second := w.poll(), w.poll()
		if first.CertExpires.Sub(tt.want).Abs() > time.Minute || !second.CertExpires.Equal(first.CertExpires) {
			t.Errorf("ends: got %s and %s, want %s", first.CertExpires, second.CertExpires, tt.want)
		}
		if !strings.HasPrefix(second.Summary, "304") {
			t.Errorf("second look: %s", second.Summary)
		}
		redirecting := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, s.URL, http.StatusFound)
		}, &tls.Config{Certificates: []tls.Certificate{root.pair("s", days(3), days(90))}})
		if o := watchURL(t, redirecting.URL, HTTPOptions{CA: root.file}).poll(); o.CertExpires.Sub(days(3)).Abs() > time.Minute {
			t.Errorf("the first to end on the way: got %s", o.CertExpires)
		}
	}
	if protocols[0] != "HTTP/1.1" {
		t.Errorf("got %s", protocols[0])
	}
	if o := watchURL(t, serve(t, body("x")), HTTPOptions{}).poll(); !o.CertExpires.IsZero() {
		t.Errorf("plain HTTP: %s", o.CertExpires)
	}
	for _, tt := range []struct {
		what string
		pair tls.Certificate
		ca   string
	}{
		{"expired", root.pair("s", days(-1), days(90)), root.file},
		{"expired between", root.pair("s", days(90), days(-1)), root.file},
		{"another authority", root.pair("s", days(90), days(90)), newAuthority(t).file},
		{"the system's authorities", root.pair("s", days(90), days(90)), ""},
	} {
		s := serveTLS(t, page, &tls.Config{Certificates: []tls.Certificate{tt.pair}})
		if o, err := watchURL(t, s.URL, HTTPOptions{CA: tt.ca}).look(); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: got %+v, %v", tt.what, o, err)
		}
	}
}

func TestClientCertificate(t *testing.T) {
	root := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(root.cert)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	names := func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			io.WriteString(w, "nobody")
			return
		}
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}
	config := func(auth tls.ClientAuthType) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{root.pair("s", days(90), days(90))}, ClientAuth: auth, ClientCAs: pool}
	}
	s := serveTLS(t, names, config(tls.RequireAndVerifyClientCert))
	w := watchURL(t, s.URL, HTTPOptions{CA: root.file, Cert: cert, CertKey: key})
	expectError(t, w, "cannot read "+cert+": no such file or directory")
	pairFiles(t, root.pair("one", days(90), days(90)), cert, key)
	if o := w.poll(); string(o.Body) != "one" {
		t.Errorf("got %q", o.Body)
	}
	pairFiles(t, root.pair("two, which is renewed", days(90), days(90)), cert, key)
	if o := w.poll(); string(o.Body) != "two, which is renewed" {
		t.Errorf("renewed: got %q", o.Body)
	}
	if o, err := watchURL(t, s.URL, HTTPOptions{CA: root.file}).look(); err == nil {
		t.Errorf("without a certificate: got %q", o.Body)
	}

	// It is not shown to another host.
	away := serveTLS(t, names, config(tls.RequestClientCert))
	home := serveTLS(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, away.URL, http.StatusFound)
	}, config(tls.RequireAndVerifyClientCert))
	if o := watchURL(t, home.URL, HTTPOptions{CA: root.file, Cert: cert, CertKey: key}).poll(); string(o.Body) != "nobody" {
		t.Errorf("another host was shown the certificate of %q", o.Body)
	}

	must(t, os.WriteFile(key, []byte("no key"), 0o600))
	if _, err := w.look(); err == nil || !strings.Contains(err.Error(), "cannot use the certificate "+cert+" with the key "+key+": ") {
		t.Errorf("got %v", err)
	}
	expectError(t, watchURL(t, s.URL, HTTPOptions{CA: key}), "cannot use "+key+": there is no certificate in it")
}

// tunnel is a proxy that says what it was asked for.
func tunnel(t *testing.T, asked chan<- string) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.RequestURI
		if r.Method != http.MethodConnect {
			io.WriteString(w, "by proxy")
			return
		}
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprint(from, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { // ends with either connection
			defer from.Close()
			io.Copy(to, from)
		}()
		defer to.Close()
		io.Copy(from, to)
	})
}

func TestProxy(t *testing.T) {
	asked := make(chan string, 10)
	proxy := tunnel(t, asked)
	limit := NewHostLimit(0)
	t.Cleanup(limit.CloseIdle)
	w := watchURL(t, "http://example.test/x?y", HTTPOptions{Proxy: proxy, Hosts: limit})
	if o := w.poll(); string(o.Body) != "by proxy" {
		t.Errorf("got %q", o.Body)
	}
	if got := <-asked; got != "GET http://example.test/x?y" {
		t.Errorf("got %s", got)
	}
	root := newAuthority(t)
	s := serveTLS(t, body("secret"), &tls.Config{Certificates: []tls.Certificate{root.pair("s", days(9), days(90))}})
	o := watchURL(t, s.URL, HTTPOptions{Proxy: proxy, CA: root.file, Hosts: limit}).poll()
	if string(o.Body) != "secret" || o.CertExpires.Sub(days(9)).Abs() > time.Minute {
		t.Errorf("got %q, %s", o.Body, o.CertExpires)
	}
	if got, want := <-asked, "CONNECT "+strings.TrimPrefix(s.URL, "https://"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A look leaves nothing behind but connections that are kept, and those go when they are told to.
func TestNothingIsLeftBehind(t *testing.T) {
	root := newAuthority(t)
	s := serveTLS(t, body("x"), &tls.Config{Certificates: []tls.Certificate{root.pair("s", days(9), days(90))}})
	hung := hanging(t, "")
	before := goleak.IgnoreCurrent()
	limit := NewHostLimit(0)
	for _, o := range []HTTPOptions{{CA: root.file}, {CA: root.file, Method: "POST"}, {CA: root.file, MaxBody: 1}, {}} {
		o.Hosts = limit
		for range 3 {
			watchURL(t, s.URL, o).look()
		}
	}
	for _, url := range []string{"http://" + hung, "https://" + hung} {
		w := watchURL(t, url, HTTPOptions{Hosts: limit})
		if _, err := w.source.Look(t.Context(), Committed{}, LookOptions{Timeout: 50 * time.Millisecond}); err == nil {
			t.Error("a server that hangs was looked at")
		}
	}
	limit.CloseIdle()
	s.Close()
	goleak.VerifyNone(t, before)
}
