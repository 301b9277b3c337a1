package dial

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

// Close closes connections that the test has not taken, too.
func (e *connEnd) Close() {
	for _, r := range e.Connector.Close() {
		discard(&r)
	}
}

func discard(r *Result) {
	if cl, ok := r.Upgraded.(io.Closer); ok {
		_ = cl.Close()
	}
	if r.Conn != nil {
		_ = r.Conn.Close()
	}
}

// TestConnectorClose closes in all stages of connecting.
func TestConnectorClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	for range 300 {
		a, b := newConnEnd(t, 0, byte(rand.Uint32())), newConnEnd(t, 1, byte(rand.Uint32()))
		a.Connect(b.self)
		b.Connect(a.self)
		for range rand.IntN(300) {
			runtime.Gosched()
		}
		wiretest.Within(t, "close", func() { a.Close(); b.Close() })
		a.Connect(b.self)
		require.False(t, a.Pending())
	}
}

// TestClosedWhenMade: a connection that is finished after Close has begun, and that the peer has
// already, is left to the caller.
func TestClosedWhenMade(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, closed := newConnEnd(t, 0, 1), 0
	begun := make(chan struct{})
	b := newConnEnd(t, 1, 2, func(c *Config) {
		c.Upgrade = func(conn net.Conn, _ any) (any, error) {
			close(begun)
			_, err := conn.Read(make([]byte, 1)) // until Close
			require.ErrorIs(t, err, net.ErrClosed)
			return closeCounter{&closed}, nil
		}
	})
	a.Connect(b.self)
	require.NoError(t, a.next(t).Err)
	<-begun
	left := b.Connector.Close()
	require.Len(t, left, 1)
	require.NoError(t, left[0].Err)
	require.Equal(t, a.self, left[0].Peer)
	discard(&left[0])
	require.Equal(t, 1, closed)
	require.False(t, b.Pending())
	a.Close()
}

// TestClosedWhenReady: who is closed while it waits for the other's word has given its own, by
// which the other may have the connection.
func TestClosedWhenReady(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	for _, own := range []bool{true, false} {
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		other, err := ln.Accept()
		require.NoError(t, err)
		ready := make(chan error, 1)
		go func() { ready <- Ready(&wire.Address{}, conn, nil) }()
		_, err = readMsg(other, msgReady)
		require.NoError(t, err)
		if own {
			require.NoError(t, conn.Close())
			require.NoError(t, <-ready)
		} else {
			require.NoError(t, other.Close())
			require.ErrorIs(t, <-ready, io.EOF)
		}
		_, _ = conn.Close(), other.Close()
	}
}
