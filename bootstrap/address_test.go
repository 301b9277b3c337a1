package bootstrap

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLocalIPOfSeveralHosts has rank 1 come from "another host" and rank 2 from beside rank 0:
// ranks 0 and 2 must not name loopback to rank 1.
func TestLocalIPOfSeveralHosts(t *testing.T) {
	ip := outsideIP(t)
	// The address listens already: a refused rank 1 of this host would try loopback.
	env := jobEnvAt(t, 3, "0.0.0.0")
	list := make([]Bootstrap, 3)
	each(t, 3, func(r int) (err error) {
		v := env(r).with(EnvListen, "0.0.0.0")
		if r == 1 {
			v = v.with("MASTER_ADDR", ip.String())
		}
		list[r], err = Detect(timeout(t), options(v))
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
	each(t, 2, func(r int) (err error) {
		list[r], err = Detect(timeout(t), options(envOf(r, 2, port).with("MASTER_ADDR", ip.String())))
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

// TestManyRanks is about as large as one host's job gets.
func TestManyRanks(t *testing.T) {
	const n = 128
	list := startJob(t, n, EnvSecret, hexSecret)
	ctx := timeout(t)
	each(t, n, func(r int) error { return exchangeRound(ctx, list[r], 0) })
}

// BenchmarkStore has 1,024 ranks, all in this process, join a job and hand each other a value of
// 600 bytes, as their cards are.
func BenchmarkStore(b *testing.B) {
	const n = 1024
	for b.Loop() {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		require.NoError(b, ln.Close())
		list, value := make([]Bootstrap, n), make([]byte, 600)
		start := time.Now()
		for r, err := range outcomes(n, func(r int) (err error) {
			list[r], err = Detect(b.Context(), options(envOf(r, n, port).with(EnvSecret, hexSecret)))
			return err
		}) {
			require.NoError(b, err, "rank %d", r)
		}
		joined := time.Now()
		for r, err := range outcomes(n, func(r int) error {
			if err := list[r].Put(b.Context(), "card", value); err != nil {
				return err
			}
			return list[r].Fence(b.Context())
		}) {
			require.NoError(b, err, "rank %d", r)
		}
		b.ReportMetric(joined.Sub(start).Seconds(), "s/join")
		b.ReportMetric(time.Since(joined).Seconds(), "s/exchange")
		for _, err := range outcomes(n, func(r int) error { return list[r].Close() }) {
			require.NoError(b, err)
		}
	}
}
