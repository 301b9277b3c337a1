package tcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wiretest"
)

func TestTCPPeerGone(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kill       func(t *testing.T, l *link)
	}{
		{"end", verbs.ErrPeerClosed.Error(), func(t *testing.T, l *link) { l.Close() }},
		{"end of the process", verbs.ErrPeerEnded.Error(), func(t *testing.T, l *link) { l.drop() }},
		{"inside a packet", "in the middle of a packet", func(t *testing.T, l *link) {
			inject(t, l, make([]byte, 20)) // an operation with number 0, and 4 bytes more
			l.drop()
		}},
		{"reset", "connection reset", func(t *testing.T, l *link) {
			require.NoError(t, unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
			delete(l.w.byFD, int32(l.fd))
			_ = unix.Close(l.fd)
			l.fd = -1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b, ab, ba := joined(t)
			ba.Send(&wire.Header{Op: wire.OpAck, PSN: 9}, nil, nil)
			c.kill(t, ab)
			until(t, "end", func() bool { return len(b.down) == 1 }, b)
			require.ErrorContains(t, b.down[0], c.want)
			require.ErrorContains(t, b.down[0], "rank 0")
			require.False(t, ba.Send(&wire.Header{Op: wire.OpAck}, nil, nil))
			b.poll(1)
			require.Len(t, b.down, 1, "once")
			require.Empty(t, a.down, "who closes is not told")
			// A new link can be made.
			if c.name == "end" {
				fresh := b.link(t, a)
				require.NotEqual(t, ba, fresh)
				fresh.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
				until(t, "connection", func() bool { return fresh.up }, a, b)
			}
		})
	}
}

// TestTCPClosedUnseen: a device that is closed before it has seen a connection says so on it.
func TestTCPClosedUnseen(t *testing.T) {
	a, b := newFakeDevice(t, 0), newFakeDevice(t, 1)
	ab := a.link(t, b)
	require.False(t, ab.Send(&wire.Header{Op: wire.OpAck}, nil, nil))
	until(t, "connection", func() bool { return ab.up && b.w.conn.Pending() }, a)
	b.stop()
	until(t, "end", func() bool { return len(a.down) == 1 }, a)
	require.ErrorIs(t, a.down[0], verbs.ErrPeerClosed)
}

// TestTCPClosedWhileMade: so does one that is closed when its peer has the connection, whatever is
// still to be done for it here.
func TestTCPClosedWhileMade(t *testing.T) {
	for range 20 {
		a, b := newFakeDevice(t, 0), newFakeDevice(t, 1)
		ab := a.link(t, b)
		require.False(t, ab.Send(&wire.Header{Op: wire.OpAck}, nil, nil))
		until(t, "connection", func() bool { return ab.up }, a)
		b.stop()
		until(t, "end", func() bool { return len(a.down) == 1 }, a)
		require.ErrorIs(t, a.down[0], verbs.ErrPeerClosed)
		a.stop()
	}
}

// TestTCPKilled kills the process of a peer.
func TestTCPKilled(t *testing.T) {
	d, l, child := benchPeer(t)
	got := 0
	d.onRecv = func(wire.Link, *wire.Header, []byte) bool { got++; return true }
	require.True(t, l.Send(&wire.Header{Op: wire.OpSend, QPN: 1}, nil, nil))
	until(t, "answer", func() bool { return got == 1 }, d)
	require.NoError(t, child.Kill())
	until(t, "end", func() bool { return len(d.down) == 1 }, d)
	require.ErrorIs(t, d.down[0], verbs.ErrPeerEnded)
	require.ErrorContains(t, d.down[0], "rank 1")
	require.ErrorContains(t, d.down[0], l.peer.TCP[0])
}

// TestTCPLastWords checks that what a peer sent before it went is received although sending to it
// fails already.
func TestTCPLastWords(t *testing.T) {
	_, b, ab, ba := joined(t)
	for i := range uint32(50) {
		require.True(t, ab.Send(&wire.Header{Op: wire.OpSend, PSN: i, Length: 8}, make([]byte, 8), nil))
	}
	ab.write()
	require.Zero(t, ab.out.pending())
	ab.Close()
	var got uint32
	b.onRecv = func(_ wire.Link, h *wire.Header, _ []byte) bool {
		require.Equal(t, got, h.PSN)
		got++
		return true
	}
	end := time.Now().Add(testlevel.Patience(10 * time.Second))
	for ba.lost == nil && time.Now().Before(end) {
		ba.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
		b.w.Flush()
	}
	require.Error(t, ba.lost)
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.Equal(t, uint32(50), got)
}

// TestTCPStalledPeerGone: the end of a peer is told though a packet of it waits to be taken.
func TestTCPStalledPeerGone(t *testing.T) {
	_, b, ab, _ := joined(t)
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { return false }
	require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	ab.Close()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "could not take")
}

func TestTCPDialFailure(t *testing.T) {
	a := newFakeDevice(t, 0)
	b := newFakeDevice(t, 1, func(env *wire.Env, _ *string) { env.Secret = []byte("another") })
	l := a.link(t, b)
	l.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
	until(t, "failure", func() bool { return len(a.down) == 1 }, a, b)
	require.ErrorContains(t, a.down[0], "secret")
	require.ErrorContains(t, a.down[0], b.self.TCP[0])
	_, err := a.w.Connect(&wire.Address{Rank: 4})
	require.ErrorContains(t, err, "rank 4 has no tcp address")
	_, err = a.w.Connect(a.self)
	require.ErrorContains(t, err, "itself")
}

func TestTCPListen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	n, err := notify.NewEpoll()
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	_, err = Open(wire.Env{Self: &wire.Address{}, Receiver: &fakeDevice{}, Notifier: n}, ln.Addr().String(), ports.Range{})
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.ErrorContains(t, err, ln.Addr().String())
	d := newFakeDevice(t, 0, func(_ *wire.Env, listen *string) { *listen = "0.0.0.0:0" })
	require.NotEmpty(t, d.self.TCP)
	for _, c := range d.self.TCP {
		require.False(t, strings.HasPrefix(c, "0.0.0.0"), c)
	}
	a := newFakeDevice(t, 1)
	l := a.link(t, d)
	l.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
	until(t, "connection", func() bool { return l.up }, a, d)
	_, err = Open(wire.Env{Self: &wire.Address{}, Receiver: &fakeDevice{}, Notifier: notify.NewChan()}, "", ports.Range{})
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
		l.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
		until(t, "connection", func() bool { return l.up }, from[i], b)
	}
	until(t, "all links", func() bool { return len(b.w.byFD) == peers }, b)
	got := make(chan uint32, 1)
	b.onRecv = func(_ wire.Link, h *wire.Header, _ []byte) bool {
		got <- h.PSN
		return true
	}
	ended := make(chan error, 1)
	go func() {
		for {
			b.w.Arm(true)
			if b.poll(8) > 0 {
				b.w.Disarm()
				continue
			}
			if err := b.n.Wait(); err != nil {
				ended <- err
				return
			}
			b.w.Disarm()
		}
	}()
	wiretest.Within(t, "packets to a sleeper", func() {
		for i := range uint32(2000) {
			d := from[rand.IntN(peers)]
			require.True(t, d.link(t, b).Send(&wire.Header{Op: wire.OpSend, PSN: i}, nil, nil))
			d.w.Flush()
			if psn := <-got; psn != i {
				panic(fmt.Sprintf("packet %d instead of %d", psn, i))
			}
		}
	})
	require.NoError(t, b.n.Close())
	wiretest.Within(t, "end", func() { require.ErrorIs(t, <-ended, notify.ErrClosed) })
	b.w.Close()
	b.w = nil
}

// TestTCPSleepBlocked: room on a link that was full wakes a sleeper, and a refused packet does not
// keep it awake.
func TestTCPSleepBlocked(t *testing.T) {
	a, b, ab, _ := joined(t)
	body := make([]byte, 32<<10)
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { return false }
	ab.Send(&wire.Header{Op: wire.OpSend, Length: uint32(len(body))}, nil, body)
	until(t, "stall", func() bool { return len(b.w.backlog) == 1 }, b)
	for full := 0; full < 100; { // the kernel's buffers may still grow for a moment
		if ab.Send(&wire.Header{Op: wire.OpSend, Length: uint32(len(body))}, nil, body) {
			full = 0
		}
		full++
		a.poll(1)
	}
	for _, d := range []*fakeDevice{a, b} {
		d.n.Wake()
		require.NoError(t, d.n.Wait()) // takes the wakes of connecting too
	}
	b.w.Arm(true)
	a.w.Arm(true)
	a.poll(1)
	require.False(t, ready(t, b), "a refused packet keeps its receiver awake")
	require.False(t, ready(t, a), "a full socket keeps its sender awake")
	b.onRecv = nil
	woken := make(chan error, 1)
	go func() { woken <- a.n.Wait() }()
	until(t, "all taken", func() bool { return b.poll(16) == 0 && !b.w.links[a.self.ID].in.stalled })
	wiretest.Within(t, "room", func() { require.NoError(t, <-woken) })
	until(t, "room for one more", func() bool { return ab.Send(&wire.Header{Op: wire.OpSend, Length: uint32(len(body))}, nil, body) }, a, b)
}

// TestTCPStaysArmed: who stays armed is woken by a link that has come up meanwhile, and by the end
// of one of which it refuses a packet, which the next poll finds.
func TestTCPStaysArmed(t *testing.T) {
	rarely := func(env *wire.Env, _ *string) { env.PeerTimeout = time.Hour } // nothing else wakes it
	a, b := newFakeDevice(t, 0), newFakeDevice(t, 1, rarely)
	got := 0
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { got++; return true }
	b.w.Arm(true)
	ab := a.link(t, b)
	ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil)
	until(t, "connection", func() bool { return ab.up && len(b.w.byFD) == 1 }, a, b)
	packet := func() {
		require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
		a.w.Flush()
	}
	for n := range 3 {
		b.n.Wake()
		require.NoError(t, b.n.Wait()) // takes the wakes of connecting too
		packet()
		until(t, "a wake-up", func() bool { return ready(t, b) })
		until(t, "a packet", func() bool { return got > n }, b)
		b.w.Arm(true)
	}
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { return false }
	packet()
	until(t, "refusal", func() bool { return len(b.w.backlog) == 1 }, b)
	b.w.Arm(true)
	require.False(t, ready(t, b), "a refused packet keeps its receiver awake")
	ab.Close()
	until(t, "a wake-up by the end", func() bool { return ready(t, b) })
	b.poll(16)
	require.Len(t, b.down, 1)
}

// ready reports whether a Wait on a device's notifier would end now. The notifier is the epoll that
// the wire's own is in.
func ready(t *testing.T, d *fakeDevice) bool {
	list, err := os.ReadDir("/proc/self/fdinfo")
	require.NoError(t, err)
	for _, e := range list {
		info, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		if regexp.MustCompile(fmt.Sprintf(`(?m)^tfd: *%d `, d.w.ep)).Match(info) {
			fd, _ := strconv.Atoi(e.Name())
			k, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			require.NoError(t, err)
			return k > 0
		}
	}
	require.Fail(t, "no epoll has the wire's")
	return false
}

// TestTCPLeavesEpoll: a link through which packets keep coming is in the epoll again where its
// packets must wake a sleeper, when it cools, and while the device refuses one.
func TestTCPLeavesEpoll(t *testing.T) {
	a, b, ab, ba := joined(t)
	got := 0
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { got++; return true }
	packet := func() {
		require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
		a.poll(1)
	}
	leaves := func() {
		for n := got; ba.events != 0; n++ {
			require.Less(t, n-got, 10*leaveAfter, "it stays in the epoll")
			packet()
			until(t, "a packet", func() bool { return got > n }, b)
		}
	}
	for range 3 {
		leaves()
		b.w.Arm(true)
		require.NotZero(t, ba.events)
		packet()
		until(t, "a wake-up", func() bool { return ready(t, b) })
		require.Equal(t, 1, b.poll(16))
		b.w.Disarm()
	}

	leaves()
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { return false }
	packet()
	until(t, "refusal", func() bool { return ba.in.stalled }, b)
	require.NotZero(t, ba.events)
	ab.Close()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "could not take")
}

// TestTCPBusyPeerGone: a link that ends outside of the epoll leaves nothing behind.
func TestTCPBusyPeerGone(t *testing.T) {
	a, b, ab, ba := joined(t)
	c := newFakeDevice(t, 2)
	c.link(t, b).Send(&wire.Header{Op: wire.OpAck}, nil, nil)
	until(t, "another link", func() bool { return len(b.w.hot) == 2 }, b, c)
	until(t, "to leave the epoll", func() bool {
		require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
		return ba.events == 0
	}, a, b)
	ab.Close()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	until(t, "one link is left", func() bool { return len(b.w.hot) == 1 && len(b.w.byFD) == 1 }, b)
}

func TestTCPCongestion(t *testing.T) {
	a, b, ab, ba := joined(t)
	defer a.stop()
	defer b.stop()
	for _, l := range []*link{ab, ba} {
		name, err := unix.GetsockoptString(l.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		require.NoError(t, err)
		require.Equal(t, "reno", name)
	}
	for _, c := range []struct {
		local, remote string
		same          bool
	}{
		{"127.0.0.1:1", "127.0.0.1:2", true},
		{"127.0.0.1:1", "127.0.0.2:1", true},
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"[2001:db8::1]:1", "[2001:db8::1]:2", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"127.0.0.1:1", "192.0.2.2:1", false},
	} {
		local, remote := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.local)), net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.remote))
		require.Equal(t, c.same, sameHost(local, remote), "%v", c)
	}
	require.False(t, sameHost(&net.UnixAddr{}, &net.UnixAddr{}))
}
