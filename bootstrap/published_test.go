package bootstrap

import (
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// TestPublishedIsShown: what is published has nothing that a terminal obeys where it is shown.
func TestPublishedIsShown(t *testing.T) {
	_, err := readNotice(notice{Failure: "no\x1b[31m port"}.encode())
	require.ErrorContains(t, err, `"no\x1b[31m port"`)
	for _, addr := range []string{`fe80::1%a\u001b[31m`, ""} {
		_, err := readNotice([]byte(`{"addrs":["` + addr + `"],"port":1}`))
		require.ErrorIs(t, err, ErrProtocol, addr)
	}
}

// FuzzPublished reads what the launcher's key-value space may hold in place of what rank 0 has
// published. What is shown to people has nothing that a terminal obeys.
func FuzzPublished(f *testing.F) {
	f.Add(notice{Addrs: []netip.Addr{loopback}, Port: 7077, Secret: make([]byte, SecretSize)}.encode())
	f.Add(notice{Failure: "no\x1b[31m port"}.encode())
	f.Add([]byte(`{"addrs":["fe80::1%a\u001b[31m"],"port":1}`))
	f.Add([]byte(`{"addrs":["\u001b"],"port":65536}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := readNotice(b)
		shown := n.addresses()
		if err != nil {
			shown = []string{err.Error()}
		}
		require.NotEmpty(t, shown)
		for _, s := range shown {
			require.Equal(t, -1, strings.IndexFunc(s, unicode.IsControl), "%q", s)
		}
		if err == nil {
			again, err := readNotice(n.encode())
			require.NoError(t, err)
			require.Equal(t, n, again)
		}
	})
}
