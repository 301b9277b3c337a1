package dial

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// TestLimit: a limit counts looks, however much time lies between them.
func TestLimit(t *testing.T) {
	ended := 0
	l := newLimit(time.Hour, func() { ended++ })
	for n := range looks {
		require.Zero(t, ended)
		require.Equal(t, n, l.count)
		l.look()
	}
	require.Equal(t, 1, ended)
	l.look()
	require.Equal(t, 1, ended)
	require.Equal(t, time.Hour, l.stop())
	l = newLimit(time.Hour, func() { ended++ })
	l.look()
	require.Equal(t, time.Hour/looks, l.stop())
	l.look()
	require.Equal(t, 1, l.count)
	over := make(chan struct{})
	newLimit(looks*time.Millisecond, func() { close(over) })
	<-over
}

// TestSlowIsNotLost: an end that is slow, or stopped, after it was authenticated gets its
// connection.
func TestSlowIsNotLost(t *testing.T) {
	t.Parallel()
	const slowness = handshakeTime + time.Second
	prepare := func(c *Config) {
		c.Prepare = func(net.Conn, *wire.Address) (any, error) { time.Sleep(slowness); return nil, nil }
	}
	upgrade := func(pause time.Duration) func(*Config) {
		return func(c *Config) {
			c.Upgrade = func(conn net.Conn, _ any) (any, error) { time.Sleep(pause); return nil, Ready(c.Self, conn, nil) }
		}
	}
	for side := range 2 {
		for name, change := range map[string][2]func(*Config){
			"prepare": {prepare, short(0, nil, new(atomic.Int64))}, "upgrade": {upgrade(slowness), upgrade(0)},
		} {
			t.Run(fmt.Sprint(name, side), func(t *testing.T) {
				t.Parallel()
				impatient := func(c *Config) { c.Retry, c.Refused = time.Millisecond, time.Millisecond }
				a, b := newConnEnd(t, 3, 1, change[side], impatient), newConnEnd(t, 5, 2, change[1-side], impatient)
				a.Connect(b.self)
				requireJoined(t, a.next(t), b.next(t))
			})
		}
	}
}

// TestSilentIsNotLost has a peer that lets its kernel accept, and says nothing for as long as
// strangers may: it is stopped, perhaps. Once it listens no more it is lost.
func TestSilentIsNotLost(t *testing.T) {
	t.Parallel()
	ln := silent(t)
	a := newConnEnd(t, 0, 1, func(c *Config) { c.Retry = 100 * time.Millisecond })
	a.Connect(&wire.Address{ID: wire.DeviceID{9}, Rank: 3, TCP: []string{ln.Addr().String()}})
	conn, err := ln.Accept()
	require.NoError(t, err)
	_, _, err = readHello(conn)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(handshakeTime+time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the dial has ended")
	require.False(t, a.Pending())
	require.NoError(t, ln.Close())
	require.NoError(t, conn.Close())
	require.ErrorContains(t, a.next(t).Err, "refused")
}

// silent listens and says nothing.
func silent(t *testing.T) net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// TestOtherAddress: where somebody else is silent at one address of a peer, the next one is tried.
func TestOtherAddress(t *testing.T) {
	t.Parallel()
	a, b := newConnEnd(t, 0, 1, func(c *Config) {
		var n atomic.Int64
		c.Dial = func(ctx context.Context, a *wire.Address) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", a.TCP[(n.Add(1)-1)%2])
		}
	}), newConnEnd(t, 1, 2)
	to := *b.self
	to.TCP = []string{silent(t).Addr().String(), b.self.TCP[0]}
	a.Connect(&to)
	requireJoined(t, a.next(t), b.next(t))
}

// TestReachableFromThere: a dial that has no answer does not keep the peer's own out.
func TestReachableFromThere(t *testing.T) {
	t.Parallel()
	a, b := newConnEnd(t, 0, 1), newConnEnd(t, 1, 2, func(c *Config) { c.Retry = 100 * time.Millisecond })
	to := *b.self
	to.TCP = []string{silent(t).Addr().String()}
	a.Connect(&to)
	b.Connect(a.self)
	requireJoined(t, a.next(t), b.next(t))
}

// TestSilentHost: a host that does not answer dials is given up after Retry of looks.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	a := newConnEnd(t, 0, 1, func(c *Config) {
		c.Retry = time.Second
		c.Dial = func(ctx context.Context, _ *wire.Address) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
	})
	a.Connect(&wire.Address{ID: wire.DeviceID{9}, Rank: 3})
	err := a.next(t).Err
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	require.NotErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "its host does not answer")
}

// TestGuardEndsDial: what Config.Guard ends was silent for Retry, and is not dialled again.
func TestGuardEndsDial(t *testing.T) {
	var dials atomic.Int64
	a := newConnEnd(t, 0, 1, func(c *Config) {
		c.Retry = time.Hour
		c.Dial = func(context.Context, *wire.Address) (net.Conn, error) { dials.Add(1); return timedOut{}, nil }
	})
	a.Connect(&wire.Address{ID: wire.DeviceID{9}, Rank: 3})
	require.ErrorIs(t, a.next(t).Err, syscall.ETIMEDOUT)
	require.EqualValues(t, 1, dials.Load())
}

// timedOut is a connection that the kernel has ended.
type timedOut struct{ net.Conn }

func (timedOut) Write([]byte) (int, error) { return 0, syscall.ETIMEDOUT }
func (timedOut) Read([]byte) (int, error)  { return 0, syscall.ETIMEDOUT }
func (timedOut) Close() error              { return nil }

func TestConnectorRetriesForATime(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := ln.Addr().String()
	require.NoError(t, ln.Close())
	a := newConnEnd(t, 0, 1, func(c *Config) { c.Retry = 50 * time.Millisecond })
	a.Connect(&wire.Address{ID: wire.DeviceID{9}, Rank: 3, TCP: []string{at}})
	r := a.next(t)
	require.ErrorContains(t, r.Err, "rank 3")
	require.ErrorContains(t, r.Err, at)
	require.ErrorContains(t, r.Err, "refused")
	require.ErrorContains(t, r.Err, "tried for ")
	a.Expect(r.Peer.ID)
	require.Empty(t, a.peers)
}

// TestYieldedDialIsNoStranger: a dial that is given up once it is connected, as one that crosses
// the peer's own, leaves a connection without a word. It is not told as one that was turned away.
func TestYieldedDialIsNoStranger(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := newConnEnd(t, 1, 2)
	conn, err := net.Dial("tcp", b.self.TCP[0])
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	_, err = conn.Read(make([]byte, 1)) // until it is served
	require.Error(t, err)
	require.NoError(t, conn.Close())
	b.Close() // which tells of those that were turned away
	require.Zero(t, b.door.Turned())
	require.NotContains(t, b.logs.String(), "turned away")
}
