//go:build linux

package shm

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// deaf is a connection on which the peer's verdict is not heard.
type deaf struct{ unixConn }

func (d deaf) Read(b []byte) (int, error) {
	for {
		if n, err := d.unixConn.Read(b); err != nil || len(b) > 1 {
			return n, err
		}
	}
}

// TestSHMClosedWhileMade: a device that is closed when its peer has the connection, and it does not
// know that, says so on it.
func TestSHMClosedWhileMade(t *testing.T) {
	a := newSHMEnd(t, 0)
	b := newSHMEnd(t, 1, func(e *shmEnd) {
		e.cfg.Faults = func(c *dial.Config) {
			upgrade := c.Upgrade
			c.Upgrade = func(conn net.Conn, prepared any) (any, error) { return upgrade(deaf{conn.(unixConn)}, prepared) }
		}
	})
	pollUntil(t, "the connection", func() bool { return a.send(b, wire.Header{Op: wire.OpAck}) }, a)
	b.w.Close()
	pollUntil(t, "the end", func() bool { return len(a.down) == 1 }, a)
	require.ErrorIs(t, a.down[0], verbs.ErrPeerClosed)
}

// TestSHMClosedUnseen: a device that is closed before it has seen a connection says so on it.
func TestSHMClosedUnseen(t *testing.T) {
	a, b := newSHMEnd(t, 0), newSHMEnd(t, 1)
	sent := false // once: the ring of b, which does not poll, has an end
	pollUntil(t, "the connection", func() bool {
		sent = sent || a.send(b, wire.Header{Op: wire.OpAck})
		return sent && b.w.conn.Pending()
	}, a)
	b.w.Close()
	pollUntil(t, "the end", func() bool { return len(a.down) == 1 }, a)
	require.ErrorIs(t, a.down[0], verbs.ErrPeerClosed)
}
