package ports

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Range{"": {}, "4000-4010": {4000, 4010}, "1-65535": {1, 65535}, "7": {7, 7}} {
		r, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r, text)
	}
	for _, text := range []string{"-", "0-1", "2-1", "1-65536", "a-b", "4000-", "-4000", "1-2-3", " 1-2"} {
		_, err := Parse(text)
		require.ErrorContains(t, err, "LOW-HIGH", text)
	}
	require.Equal(t, "4000-4010", Range{4000, 4010}.String())
	require.Empty(t, Range{}.String())
}

func TestPick(t *testing.T) {
	require.Equal(t, 99, Range{}.Pick(5, 99))
	require.Equal(t, 4002, Range{4000, 4002}.Pick(5, 99))
	require.Equal(t, 4000, Range{4000, 4000}.Pick(1<<63, 99))
}

// TestListen: each listener has a port of its own in the range, until there is none.
func TestListen(t *testing.T) {
	ln, err := Range{}.Listen(t.Context(), "127.0.0.1")
	require.NoError(t, err)
	first := ln.Addr().(*net.TCPAddr).Port
	require.NoError(t, ln.Close())
	r := Range{max(first-20, 1), first}
	seen := map[int]bool{}
	for {
		ln, err := r.Listen(t.Context(), "127.0.0.1")
		if err != nil {
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			require.ErrorContains(t, err, "is free on this host")
			break
		}
		defer ln.Close()
		port := ln.Addr().(*net.TCPAddr).Port
		require.False(t, seen[port])
		require.True(t, port >= r[0] && port <= r[1])
		seen[port] = true
	}
	require.NotEmpty(t, seen)
	_, err = r.Listen(t.Context(), "192.0.2.1") // no host's
	require.NotErrorIs(t, err, syscall.EADDRINUSE)
	require.Error(t, err)
}
