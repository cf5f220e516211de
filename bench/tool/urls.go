package main

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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// urls serves N URLs, each on a host of its own (an address of loopback, as Linux has them all), by http or https. It
// writes monitors of all of them into DIR and then says that it is ready. /count is how many requests came.
func urls(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	scheme, dir := args[1], args[2]
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	var requests atomic.Int64
	page := []byte(`{"items":[` + strings.Repeat(`{"name":"a","version":"1.2.3","size":1024},`, 50) + `{}]}`)
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/count" {
			fmt.Fprintln(w, requests.Load())
			return
		}
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.Write(page)
	})}
	ca := filepath.Join(dir, "_ca.pem")
	var text strings.Builder
	text.WriteString("monitors:\n")
	for i := range n {
		fmt.Fprintf(&text, "  - {watch: '%s://127.1.%d.%d:%d/%d', every: 10s, do: 'true', baseline: silent", scheme, i/250, i%250+1, port, i)
		if scheme == "https" {
			fmt.Fprintf(&text, ", ca: '%s'", ca)
		}
		text.WriteString("}\n")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if scheme == "https" {
		if server.TLSConfig, err = certificates(ca); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "jobs.yaml"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	fmt.Println("ready", port)
	if scheme == "https" {
		return server.ServeTLS(l, "", "")
	}
	return server.Serve(l)
}

// certificates makes one for each address, small as a real one is, and writes down who issued them.
func certificates(ca string) (*tls.Config, error) {
	root, err := certificate(&x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate[0]})
	if err := os.WriteFile(ca, text, 0o644); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	made := map[string]*tls.Certificate{}
	return &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		ip := hello.Conn.LocalAddr().(*net.TCPAddr).IP
		if c := made[ip.String()]; c != nil {
			return c, nil
		}
		c, err := certificate(&x509.Certificate{IPAddresses: []net.IP{ip}, KeyUsage: x509.KeyUsageDigitalSignature}, root)
		made[ip.String()] = c
		return c, err
	}}, nil
}

func certificate(template *x509.Certificate, issuer *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: "bench"}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(90*24*time.Hour)
	template.BasicConstraintsValid = true
	parent, signer := template, any(key)
	if issuer != nil {
		if parent, err = x509.ParseCertificate(issuer.Certificate[0]); err != nil {
			return nil, err
		}
		signer = issuer.PrivateKey
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, nil
}

// count prints how many requests a server of urls has answered.
func count(args []string) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
