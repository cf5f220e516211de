package monitor

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestIsPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "172.32.0.1": true, "100.128.0.1": true, "2606:4700::1111": true, "2a00::1": true,
		"64:ff9b::1.1.1.1": true, "2002:101:101::1": true, "::ffff:1.1.1.1": true,
		"0.0.0.0": false, "0.1.2.3": false, "127.0.0.1": false, "127.255.255.254": false, "10.0.0.1": false, "172.16.0.1": false,
		"172.31.255.255": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false, "100.127.255.255": false,
		"224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false, "192.0.0.8": false, "198.18.0.1": false,
		"::": false, "::1": false, "::127.0.0.1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false,
		"fe80::1": false, "fe80::1%lo": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false, "fec0::1": false,
		"64:ff9b::127.0.0.1": false, "64:ff9b::10.1.2.3": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::1.1.1.1": false,
		"2002:7f00:1::1": false, "2002:a00:1::": false, "2001:0:1::1": false, "2001:db8::1": false, "100::1": false,
	} {
		if got := isPublic(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v", text, got)
		}
	}
}

func TestInternalAddressesAreRefused(t *testing.T) {
	requests := 0
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { requests++ })
	_, port, _ := strings.Cut(strings.TrimPrefix(server, "http://"), ":")
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"} {
		w := watchURL(t, "http://"+host+":"+port+"/", HTTPOptions{DenyPrivate: true})
		o, err := w.look()
		if err == nil {
			t.Errorf("%s: got %+v", host, o)
		} else if !strings.Contains(err.Error(), "is not a public address (allow_private: false)") {
			t.Errorf("%s: got %v", host, err)
		}
	}
	if requests != 0 {
		t.Errorf("%d requests came through", requests)
	}
	// No proxy of the environment gets around it.
	t.Setenv("HTTP_PROXY", server)
	if transport, err := newTransport(clientOptions{public: true}); err != nil || transport.Proxy != nil {
		t.Errorf("got a proxy, %v", err)
	}
	// What is allowed by one source shares no connection with what refuses it.
	limit := NewHostLimit(0)
	t.Cleanup(limit.CloseIdle)
	watchURL(t, server, HTTPOptions{Hosts: limit}).poll()
	if _, err := watchURL(t, server, HTTPOptions{Hosts: limit, DenyPrivate: true}).look(); err == nil {
		t.Error("a connection that another source had made was used")
	}
}
