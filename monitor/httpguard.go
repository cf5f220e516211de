package monitor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// inner are the blocks that are not the public internet, beside those that netip knows itself
// (IANA's special-purpose registries).
var inner = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and the broadcast
	netip.MustParsePrefix("::/96"),           // IPv4-compatible, with the loopback in it
	netip.MustParsePrefix("64:ff9b:1::/48"),  // local NAT64, in whatever form
	netip.MustParsePrefix("100::/64"),        // discard
	netip.MustParsePrefix("2001::/23"),       // protocol assignments, Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("3fff::/20"),       // documentation
	netip.MustParsePrefix("5f00::/16"),       // segment routing
	netip.MustParsePrefix("fec0::/10"),       // site-local, as it was
}

// nat64 and sixToFour carry an IPv4 address, from the byte given on.
var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// isPublic reports whether an address belongs to the public internet, and so does the IPv4 address that it may carry.
func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case !a.IsGlobalUnicast() || a.IsPrivate() || slices.ContainsFunc(inner, in):
		return false
	case in(nat64):
		b := a.As16()
		return isPublic(netip.AddrFrom4([4]byte(b[12:16])))
	case in(sixToFour):
		b := a.As16()
		return isPublic(netip.AddrFrom4([4]byte(b[2:6])))
	}
	return true
}

// guard stands between the resolver and the connection: what it is given is the address that is dialled, so that
// neither a name that resolves anew nor a redirect gets around it.
func guard(_ context.Context, _, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	if !isPublic(a) {
		return fmt.Errorf("%s is not a public address (allow_private: false)", a)
	}
	return nil
}
