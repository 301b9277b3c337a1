package rendezvous

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/ports/portstest"
)

func TestPortsNeeded(t *testing.T) {
	require.Equal(t, "a host with 4 ranks needs 5 ports (TAGMATCH_PORTS): one for the data of each rank, one for the rendezvous at rank 0",
		PortsNeeded(4, 7))
	require.Equal(t, "a host with 100 ranks needs 117 ports (TAGMATCH_PORTS): one for the data of each rank, one for the rendezvous at rank 0, "+
		"and 16 for ranks that pass on what others have put", PortsNeeded(-1, 100))
	for size := range 200 { // who passes on is who listens for it
		n := 0
		for r := range size {
			if (tree{size, fanOut}).passes(r) {
				n++
			}
		}
		require.Equal(t, n, relays(size), "%d ranks", size)
	}
}

// TestPorts: ranks that pass on what others have put listen within the range.
func TestPorts(t *testing.T) {
	within := portstest.Free(t, 2) // for ranks 1 and 2
	list := startWith(t, 7, func(c candidate) candidate {
		c.fanOut, c.Ports = 2, within
		return c
	})
	for _, r := range []int{1, 2} {
		port := list[r].children.ln.Addr().(*net.TCPAddr).Port
		require.True(t, port >= within[0] && port <= within[1], "%d is not in %v", port, within)
	}
}
