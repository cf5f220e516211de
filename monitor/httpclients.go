package monitor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

const (
	noProxy = "none"

	// Connections are kept while looks are close together. Measured for a look at a host of its own over TLS: 0.3 ms
	// of CPU by a connection that is kept, 1.2 ms with a handshake each; by plain HTTP 0.25 and 0.4 ms. A kept one
	// costs about 50 KiB and two goroutines, so it goes after half a minute without use: at the default cadence of a
	// minute a handshake costs less than a thousand connections that wait for it.
	idleTime     = 30 * time.Second
	maxIdle      = 1024
	maxIdleAHost = defaultAtOnce

	// connectionLife bounds how long a connection is used at all, so that a name that now leads elsewhere, a
	// certificate that was replaced and a peer that silently went are noticed.
	connectionLife = 5 * time.Minute

	// clientLife is how long a client is kept that nobody uses, as after a reload.
	clientLife = time.Hour

	maxPEM = 1 << 20
)

// clientOptions are what sources must have in common to use the same connections.
type clientOptions struct {
	ca, cert, key string
	proxy         string
	public        bool // only public addresses
	keep          bool // connections serve more than one request
}

// client is a transport and what it was made from.
type client struct {
	transport *http.Transport
	files     [3]fileMark
	emptied   time.Time // when its idle connections were closed last
	used      time.Time
}

// fileMark tells one state of a file from another; the zero value is no file.
type fileMark struct {
	size     int64
	modified time.Time
	inode    os.FileInfo
}

func markOf(name string) (fileMark, error) {
	if name == "" {
		return fileMark{}, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return fileMark{}, fmt.Errorf("cannot read %s: %w", name, pathless(err))
	}
	return fileMark{info.Size(), info.ModTime(), info}, nil
}

func (m fileMark) same(other fileMark) bool {
	if m.inode == nil || other.inode == nil {
		return m.inode == other.inode
	}
	return m.size == other.size && m.modified.Equal(other.modified) && os.SameFile(m.inode, other.inode)
}

// client is the transport for some options; it is made anew where a certificate's file has changed.
func (l *HostLimit) client(o clientOptions) (*http.Transport, error) {
	var files [3]fileMark
	for i, name := range []string{o.ca, o.cert, o.key} {
		var err error
		if files[i], err = markOf(name); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.clients[o]
	if c != nil && c.files[0].same(files[0]) && c.files[1].same(files[1]) && c.files[2].same(files[2]) {
		c.used = now
		if now.Sub(c.emptied) > connectionLife {
			c.emptied = now
			c.transport.CloseIdleConnections()
		}
		return c.transport, nil
	}
	transport, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	if l.clients == nil {
		l.clients = map[clientOptions]*client{}
	}
	for other, old := range l.clients {
		if other == o || now.Sub(old.used) > clientLife {
			old.transport.CloseIdleConnections()
			delete(l.clients, other)
		}
	}
	l.clients[o] = &client{transport: transport, files: files, emptied: now, used: now}
	return transport, nil
}

// CloseIdle closes the connections that no request uses. More may be made afterwards.
func (l *HostLimit) CloseIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.clients {
		c.transport.CloseIdleConnections()
	}
}

// newTransport makes a transport. A look's context bounds everything; the transport's own timeouts only see to it
// that what it does behind the context's back ends too.
func newTransport(o clientOptions) (*http.Transport, error) {
	config, err := tlsConfig(o)
	if err != nil {
		return nil, err
	}
	// One request at a time has nothing to gain from HTTP/2: it costs more CPU, and its connection is not given up when
	// a request on it times out, so that a peer which went without a word would fail every look for minutes.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	t := &http.Transport{
		DialContext:            dial(o.public),
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    time.Minute,
		DisableKeepAlives:      !o.keep,
		IdleConnTimeout:        idleTime,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdleAHost,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              protocols,
	}
	switch {
	case o.public || o.proxy == noProxy:
	case o.proxy == "":
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			u, err := http.ProxyFromEnvironment(r)
			if err != nil { // its words quote the whole address
				return nil, errors.New("the proxy that the environment names is not a valid URL")
			}
			return u, nil
		}
	default:
		u, err := url.Parse(o.proxy)
		if err != nil {
			return nil, errors.New("the proxy is not a valid URL")
		}
		t.Proxy = http.ProxyURL(u)
	}
	return t, nil
}

// dialingKey is the key of a context's dialing context.
type dialingKey struct{}

// dialing gives a request's context another one that ends with giveUp. The transport goes on with a connection that
// its request no longer waits for, so that a host which hangs would collect some from each look: giveUp ends those
// that were not made whole. It is to be called only where the request got no connection.
func dialing(ctx context.Context) (with context.Context, giveUp context.CancelFunc) {
	d, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	return context.WithValue(ctx, dialingKey{}, d), giveUp
}

func dial(public bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: time.Minute}
	if public {
		dialer.ControlContext = guard
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		asked, ok := ctx.Value(dialingKey{}).(context.Context)
		if !ok {
			return dialer.DialContext(ctx, network, address)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(asked, cancel)()
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			context.AfterFunc(asked, func() { conn.Close() }) // as in a TLS handshake that hangs
		}
		return conn, err
	}
}

func tlsConfig(o clientOptions) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.ca != "" {
		data, _, err := readSmall(o.ca, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", o.ca, pathless(err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("cannot use %s: there is no certificate in it", o.ca)
		}
	}
	if o.cert != "" {
		cert, _, err := readSmall(o.cert, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", o.cert, pathless(err))
		}
		key, _, err := readSmall(o.key, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", o.key, pathless(err))
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cannot use the certificate %s with the key %s: %w", o.cert, o.key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
