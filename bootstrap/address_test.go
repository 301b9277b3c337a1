package bootstrap

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
)

// TestLocalIPOfSeveralHosts has rank 1 come from "another host" and rank 2 from beside rank 0:
// ranks 0 and 2 must not name loopback to rank 1.
func TestLocalIPOfSeveralHosts(t *testing.T) {
	ip := outsideIP(t)
	// The address listens already: a refused rank 1 of this host would try loopback.
	env := jobEnvAt(t, 3, "0.0.0.0")
	list := make([]Bootstrap, 3)
	ranktest.Each(t, 3, func(r int) (err error) {
		v := env(r).with(EnvListen, "0.0.0.0")
		if r == 1 {
			v = v.with("MASTER_ADDR", ip.String())
		}
		list[r], err = Detect(ranktest.Timeout(t), options(v))
		return err
	})
	for r, b := range list {
		require.Equal(t, ip, b.Info().LocalIP, "rank %d", r)
	}
	closeAll(t, list)
}

// TestLoopbackStoreIsFound dials an address of this host at which, without a secret, nobody
// listens.
func TestLoopbackStoreIsFound(t *testing.T) {
	ip := outsideIP(t)
	port := freePort(t)
	list := make([]Bootstrap, 2)
	ranktest.Each(t, 2, func(r int) (err error) {
		list[r], err = Detect(ranktest.Timeout(t), options(envOf(r, 2, port).with("MASTER_ADDR", ip.String())))
		return err
	})
	require.True(t, list[0].Info().LocalIP.IsLoopback())
	require.True(t, list[1].Info().LocalIP.IsLoopback())
	closeAll(t, list)
}

func outsideIP(t *testing.T) netip.Addr {
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			return p.Addr()
		}
	}
	t.Skip("needs an interface with an IPv4 address other than loopback")
	return netip.Addr{}
}
