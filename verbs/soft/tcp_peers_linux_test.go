package soft

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestTCPPeerGone(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kill       func(t *testing.T, l *tcpLink)
	}{
		{"end", "closed the connection", func(t *testing.T, l *tcpLink) { l.close() }},
		{"inside a packet", "in the middle of a packet", func(t *testing.T, l *tcpLink) {
			_, err := unix.Write(l.fd, make([]byte, 20)) // an operation with number 0, and 4 bytes more
			require.NoError(t, err)
			l.close()
		}},
		{"reset", "connection reset", func(t *testing.T, l *tcpLink) {
			require.NoError(t, unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
			delete(l.w.byFD, int32(l.fd))
			_ = unix.Close(l.fd)
			l.fd = -1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b, ab, ba := joined(t)
			ba.send(&header{op: opAck, psn: 9}, nil, nil)
			c.kill(t, ab)
			until(t, "end", func() bool { return len(b.down) == 1 }, b)
			require.ErrorContains(t, b.down[0], c.want)
			require.ErrorContains(t, b.down[0], "rank 0")
			require.False(t, ba.send(&header{op: opAck}, nil, nil))
			b.poll(1)
			require.Len(t, b.down, 1, "once")
			require.Empty(t, a.down, "who closes is not told")
			// A new link can be made.
			if c.name == "end" {
				fresh := b.link(t, a)
				require.NotEqual(t, ba, fresh)
				fresh.send(&header{op: opAck}, nil, nil)
				until(t, "connection", func() bool { return fresh.up }, a, b)
			}
		})
	}
}

// TestTCPKilled kills the process of a peer.
func TestTCPKilled(t *testing.T) {
	d, l, child := benchPeer(t)
	got := 0
	d.onRecv = func(link, *header, []byte) (bool, bool) { got++; return true, false }
	require.True(t, l.send(&header{op: opSend, qpn: 1}, nil, nil))
	until(t, "answer", func() bool { return got == 1 }, d)
	require.NoError(t, child.Kill())
	until(t, "end", func() bool { return len(d.down) == 1 }, d)
	require.ErrorContains(t, d.down[0], "rank 1")
	require.ErrorContains(t, d.down[0], l.peer.tcp[0])
}

// TestTCPLastWords checks that what a peer sent before it went is received although sending to it
// fails already.
func TestTCPLastWords(t *testing.T) {
	_, b, ab, ba := joined(t)
	for i := range uint32(50) {
		require.True(t, ab.send(&header{op: opSend, psn: i, length: 8}, make([]byte, 8), nil))
	}
	ab.write()
	require.Zero(t, ab.out.pending())
	ab.close()
	var got uint32
	b.onRecv = func(_ link, h *header, _ []byte) (bool, bool) {
		require.Equal(t, got, h.psn)
		got++
		return true, false
	}
	end := time.Now().Add(10 * time.Second)
	for ba.lost == nil && time.Now().Before(end) {
		ba.send(&header{op: opAck}, nil, nil)
		b.w.flush()
	}
	require.Error(t, ba.lost)
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.Equal(t, uint32(50), got)
}

// TestTCPStalledPeerGone: the end of a peer is told though a packet of it waits to be taken.
func TestTCPStalledPeerGone(t *testing.T) {
	_, b, ab, _ := joined(t)
	b.onRecv = func(link, *header, []byte) (bool, bool) { return false, false }
	require.True(t, ab.send(&header{op: opSend}, nil, nil))
	ab.close()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "could not take")
}

func TestTCPDialFailure(t *testing.T) {
	a := newFakeDevice(t, 0)
	b := newFakeDevice(t, 1, func(c *Config) { c.Secret = []byte("another") })
	l := a.link(t, b)
	l.send(&header{op: opAck}, nil, nil)
	until(t, "failure", func() bool { return len(a.down) == 1 }, a, b)
	require.ErrorContains(t, a.down[0], "secret")
	require.ErrorContains(t, a.down[0], b.self.tcp[0])
	_, err := a.w.connect(&address{rank: 4})
	require.ErrorContains(t, err, "rank 4 has no tcp address")
	_, err = a.w.connect(a.self)
	require.ErrorContains(t, err, "itself")
}

func TestTCPListen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	n := openNotifier(t)
	_, err = newTCPWire(wireEnv{cfg: &Config{TCPListen: ln.Addr().String()}, self: &address{}, rx: &fakeDevice{}, notif: n})
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, ln.Addr().String())
	d := newFakeDevice(t, 0, func(c *Config) { c.TCPListen = "0.0.0.0:0" })
	require.NotEmpty(t, d.self.tcp)
	for _, c := range d.self.tcp {
		require.False(t, strings.HasPrefix(c, "0.0.0.0"), c)
	}
	a := newFakeDevice(t, 1)
	l := a.link(t, d)
	l.send(&header{op: opAck}, nil, nil)
	until(t, "connection", func() bool { return l.up }, a, d)
	_, err = newTCPWire(wireEnv{cfg: &Config{}, self: &address{}, rx: &fakeDevice{}, notif: newChanNotifier()})
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestTCPSleep has a receiver that sleeps in the notifier between packets, with more links than are
// kept hot.
func TestTCPSleep(t *testing.T) {
	const peers = 7
	b := newFakeDevice(t, 100)
	var from [peers]*fakeDevice
	for i := range from {
		from[i] = newFakeDevice(t, uint32(i))
		l := from[i].link(t, b)
		l.send(&header{op: opAck}, nil, nil)
		until(t, "connection", func() bool { return l.up }, from[i], b)
	}
	until(t, "all links", func() bool { return len(b.w.byFD) == peers }, b)
	got := make(chan uint32, 1)
	b.onRecv = func(_ link, h *header, _ []byte) (bool, bool) {
		got <- h.psn
		return true, false
	}
	ended := make(chan error, 1)
	go func() {
		for {
			b.w.arm()
			if b.poll(8) > 0 {
				b.w.disarm()
				continue
			}
			if err := b.n.wait(); err != nil {
				ended <- err
				return
			}
			b.w.disarm()
		}
	}()
	within(t, "packets to a sleeper", func() {
		for i := range uint32(2000) {
			d := from[rand.IntN(peers)]
			require.True(t, d.link(t, b).send(&header{op: opSend, psn: i}, nil, nil))
			d.w.flush()
			if psn := <-got; psn != i {
				panic(fmt.Sprintf("packet %d instead of %d", psn, i))
			}
		}
	})
	require.NoError(t, b.n.close())
	within(t, "end", func() { require.ErrorIs(t, <-ended, errNotifierClosed) })
	b.w.close()
	b.w = nil
}

// TestTCPSleepBlocked: room on a link that was full wakes a sleeper, and a refused packet does not
// keep it awake.
func TestTCPSleepBlocked(t *testing.T) {
	a, b, ab, _ := joined(t)
	body := make([]byte, 32<<10)
	b.onRecv = func(link, *header, []byte) (bool, bool) { return false, false }
	ab.send(&header{op: opSend, length: uint32(len(body))}, nil, body)
	until(t, "stall", func() bool { return len(b.w.backlog) == 1 }, b)
	for full := 0; full < 100; { // the kernel's buffers may still grow for a moment
		if ab.send(&header{op: opSend, length: uint32(len(body))}, nil, body) {
			full = 0
		}
		full++
		a.poll(1)
	}
	for _, d := range []*fakeDevice{a, b} {
		d.n.wake()
		require.NoError(t, d.n.wait()) // takes the wakes of connecting too
	}
	b.w.arm()
	a.w.arm()
	a.poll(1)
	var ev [2]unix.EpollEvent
	require.Zero(t, readyNow(b.n, ev[:]), "a refused packet keeps its receiver awake")
	require.Zero(t, readyNow(a.n, ev[:]), "a full socket keeps its sender awake")
	b.onRecv = nil
	woken := make(chan error, 1)
	go func() { woken <- a.n.wait() }()
	until(t, "all taken", func() bool { return b.poll(16) == 0 && !b.w.links[a.self.id].in.stalled })
	within(t, "room", func() { require.NoError(t, <-woken) })
	until(t, "room for one more", func() bool { return ab.send(&header{op: opSend, length: uint32(len(body))}, nil, body) }, a, b)
}
