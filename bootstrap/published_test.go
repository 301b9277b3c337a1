package bootstrap

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
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
	f.Add(notice{Addrs: []netip.Addr{rendezvous.Loopback}, Port: 7077, Secret: make([]byte, SecretSize)}.encode())
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

// notices gets what a rank says while it waits.
type notices chan string

func (n notices) Write(b []byte) (int, error) {
	select {
	case n <- string(b):
	default:
	}
	return len(b), nil
}

// TestNoticeOfAnAddressAwaited: a rank says that rank 0 has published nothing.
func TestNoticeOfAnAddressAwaited(t *testing.T) {
	dir := t.TempDir()
	opt := options(vars{EnvRank: "1", EnvWorldSize: "2", EnvStore: dir, EnvJobID: "j"})
	said := make(notices, 1)
	opt.cfg.FirstNotice, opt.cfg.Notices = 10*time.Millisecond, said
	ctx, cancel := context.WithCancel(ranktest.Timeout(t))
	defer cancel()
	end := make(chan error, 1)
	go func() {
		_, err := Detect(ctx, opt)
		end <- err
	}()
	require.Contains(t, <-said, "for rank 0 to publish its address (directory "+dir+")")
	cancel()
	require.ErrorIs(t, <-end, context.Canceled)
}
