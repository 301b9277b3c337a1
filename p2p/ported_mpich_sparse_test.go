//go:build linux

package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHLargeMessage has messages above 2 and 4 GiB. Their sender maps them, but has no
// memory for them.
func TestPortedMPICHLargeMessage(t *testing.T) {
	portedRows(t, 2, p2p.Config{}, portedRow{"large_message", largeMessage})
}

// largeMessage (large_message): the length is told as it is, and the send completes. To keep the
// test short the buffer takes only the first bytes, of several chunks, posted before or not.
func largeMessage(t *testing.T, ws []*p2p.World) {
	const size = 4<<30 + 300<<10 + 5
	message, first := sparse(t, size), pattern(600_000, 1)
	copy(message, first)
	for _, test := range []struct {
		length   int
		expected bool
	}{{2<<30 + 5, true}, {2<<30 + 5, false}, {size, true}, {size, false}} {
		if invariant.Enabled { // each message is hashed three times
			test.length %= 1 << 30
			test.length += 32 << 20
		}
		xfer{expected: test.expected}.into(t, ws, message[:test.length], fresh(len(first)))
	}
}

// sparse maps n bytes of zeros, of which those pages that are written take memory.
func sparse(t *testing.T, n int) []byte {
	m, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m
}
