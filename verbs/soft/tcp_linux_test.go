package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// fakeDevice is a receiver that records, refuses, borrows and names destinations as its test likes.
type fakeDevice struct {
	w       *tcpWire
	self    *address
	n       *epollNotifier
	onRecv  func(l link, h *header, payload []byte) (ok, lent bool)
	onPlace func(l link, h *header) []byte
	down    []error
	downOf  []link
	roomy   int
}

func (d *fakeDevice) receive(l link, h *header, payload []byte) (ok, lent bool) {
	if d.onRecv == nil {
		return true, false
	}
	return d.onRecv(l, h, payload)
}

func (d *fakeDevice) place(l link, h *header) []byte {
	if d.onPlace == nil {
		return nil
	}
	return d.onPlace(l, h)
}
func (d *fakeDevice) writable(link) { d.roomy++ }
func (d *fakeDevice) linkDown(l link, err error) {
	d.down, d.downOf = append(d.down, err), append(d.downOf, l)
}

func newFakeDevice(t testing.TB, rank uint32, change ...func(*Config)) *fakeDevice {
	cfg := &Config{Secret: []byte("secret"), Rank: int(rank), TCPListen: "127.0.0.1:0"}
	for _, f := range change {
		f(cfg)
	}
	n, err := newNotifier()
	require.NoError(t, err)
	d := &fakeDevice{self: &address{id: randomID(), rank: rank, pid: uint32(os.Getpid())}, n: n}
	w, err := newTCPWire(wireEnv{cfg: cfg, self: d.self, rx: d, notif: n})
	require.NoError(t, err)
	d.w = w.(*tcpWire)
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDevice) stop() {
	if d.w != nil {
		d.w.close()
		_ = d.n.close()
		d.w = nil
	}
}

func (d *fakeDevice) poll(budget int) int {
	d.w.release()
	k := d.w.poll(budget)
	d.w.flush()
	return k
}

// link returns the link to another device.
func (d *fakeDevice) link(t testing.TB, to *fakeDevice) *tcpLink {
	l, err := d.w.connect(to.self)
	require.NoError(t, err)
	return l.(*tcpLink)
}

// until polls all devices until cond holds.
func until(t testing.TB, what string, cond func() bool, devices ...*fakeDevice) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !cond() {
		for _, d := range devices {
			d.poll(16)
		}
		if time.Now().After(end) {
			t.Fatalf("%s: does not happen", what)
		}
	}
}

// joined makes two devices with a connection between them.
func joined(t testing.TB) (a, b *fakeDevice, ab, ba *tcpLink) {
	a, b = newFakeDevice(t, 0), newFakeDevice(t, 1)
	ab, ba = a.link(t, b), b.link(t, a)
	require.False(t, ab.send(&header{op: opAck}, nil, nil), "the first send connects")
	until(t, "connection", func() bool { return ab.up && ba.up }, a, b)
	require.Positive(t, a.roomy)
	return a, b, ab, ba
}

func openDescriptors(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}

func TestTCPConnectAndLeaks(t *testing.T) {
	defer goleak.VerifyNone(t)
	newFakeDevice(t, 0).stop() // the netpoller's own descriptors
	before := openDescriptors(t)
	a, b, ab, ba := joined(t)
	got := 0
	b.onRecv = func(l link, h *header, payload []byte) (bool, bool) {
		require.Equal(t, link(ba), l)
		require.Equal(t, header{op: opSend, flags: flagLast, length: 5, qpn: 77, psn: 3, total: 5}, *h)
		require.Equal(t, "hello", string(payload))
		got++
		return true, false
	}
	until(t, "drained", ab.drained, a)
	require.True(t, ab.send(&header{op: opSend, flags: flagLast, length: 5, qpn: 77, psn: 3, total: 5}, []byte("he"), []byte("llo")))
	require.False(t, ab.drained())
	until(t, "packet", func() bool { return got == 1 }, a, b)
	until(t, "drained", ab.drained, a)
	require.Equal(t, ab, a.link(t, b), "the same link every time")
	a.stop()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "rank 0")
	require.ErrorContains(t, b.down[0], "closed the connection")
	require.Equal(t, link(ba), b.downOf[0])
	ba.close()
	ba.close()
	b.stop()
	require.Equal(t, before, openDescriptors(t))
}

// TestTCPStream sends random packets both ways with everything that can go wrong without an error going wrong.
func TestTCPStream(t *testing.T) {
	for _, c := range []struct {
		name   string
		tiny   bool
		refuse int // one in so many offers
		place  bool
		lend   bool
	}{
		{name: "plain"},
		{name: "placed", place: true},
		{name: "refused and lent", refuse: 5, lend: true, place: true},
		{name: "tiny buffers", tiny: true, refuse: 20, lend: true, place: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			a, b, ab, ba := joined(t)
			if c.tiny {
				// Not the receive buffers: a window below loopback's huge segments moves at the speed of its probe timer.
				for _, l := range []*tcpLink{ab, ba} {
					require.NoError(t, unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
				}
			}
			count := 3000
			if testing.Short() || c.tiny {
				count = 500
			}
			to := newStream(t, seed, count, a, ab, b, ba)
			fro := newStream(t, seed+1, count, b, ba, a, ab)
			for _, s := range []*stream{to, fro} {
				s.refuse, s.lend, s.place = c.refuse, c.lend, c.place
			}
			r := rand.New(rand.NewPCG(seed, 9))
			end := time.Now().Add(60 * time.Second)
			for !to.done() || !fro.done() {
				to.step(r)
				fro.step(r)
				require.True(t, time.Now().Before(end), "stuck: %d and %d of %d", to.got, fro.got, count)
				require.Empty(t, append(a.down, b.down...))
			}
			until(t, "drained", func() bool { return ab.drained() && ba.drained() }, a, b)
		})
	}
}

// stream is one direction of TestTCPStream. Packet i is the same function of the seed on both sides.
type stream struct {
	t           testing.TB
	seed        uint64
	count       int
	from, to    *fakeDevice
	out         *tcpLink
	sent, got   int
	refuse      int
	lend, place bool
	r           *rand.Rand
	borrowed    [][]byte
	copies      [][]byte
	dst         []byte
	placed      int
}

func newStream(t testing.TB, seed uint64, count int, from *fakeDevice, out *tcpLink, to *fakeDevice, in *tcpLink) *stream {
	s := &stream{t: t, seed: seed, count: count, from: from, to: to, out: out, r: rand.New(rand.NewPCG(seed, 5))}
	to.onRecv = func(l link, h *header, payload []byte) (bool, bool) {
		require.Equal(t, link(in), l)
		return s.receive(h, payload)
	}
	to.onPlace = func(_ link, h *header) []byte {
		want, _ := s.packet(s.got)
		require.Equal(t, want, *h)
		if !s.place || h.op != opReadResp {
			return nil
		}
		if s.dst == nil {
			s.dst = make([]byte, h.length)
		}
		s.placed++
		return s.dst
	}
	return s
}

func (s *stream) packet(i int) (header, []byte) {
	r := rand.New(rand.NewPCG(s.seed, uint64(i)))
	h := randomHeader(r)
	switch r.IntN(4) {
	case 0, 1:
		h.length = uint32(r.IntN(200))
	case 2:
		h.length = uint32(r.IntN(5000))
	}
	p := make([]byte, h.length)
	for k := 0; k+8 <= len(p); k += 8 {
		binary.LittleEndian.PutUint64(p[k:], r.Uint64())
	}
	return h, p
}

func (s *stream) receive(h *header, payload []byte) (ok, lent bool) {
	if s.refuse > 0 && s.r.IntN(s.refuse) == 0 {
		return false, false
	}
	want, p := s.packet(s.got)
	require.Equal(s.t, want, *h, "packet %d", s.got)
	require.True(s.t, bytes.Equal(p, payload), "packet %d", s.got)
	s.got++
	s.dst = nil
	if s.lend && s.r.IntN(2) == 0 {
		s.borrowed = append(s.borrowed, payload)
		s.copies = append(s.copies, p)
		return true, true
	}
	return true, false
}

func (s *stream) step(r *rand.Rand) {
	for range r.IntN(20) {
		if s.sent == s.count {
			break
		}
		h, p := s.packet(s.sent)
		cut := r.IntN(min(len(p), 64) + 1)
		if !s.out.send(&h, p[:cut], p[cut:]) {
			break
		}
		clear(p) // the link must not look at it any more
		s.sent++
	}
	if r.IntN(3) == 0 {
		s.from.w.flush()
	}
	if r.IntN(2) == 0 {
		for i, b := range s.borrowed {
			require.True(s.t, bytes.Equal(s.copies[i], b), "a lent payload has changed")
		}
		s.borrowed, s.copies = nil, nil
		s.to.w.release()
	}
	s.to.w.poll(1 + r.IntN(12))
}

func (s *stream) done() bool { return s.got == s.count }

// TestTCPPlaceWithdrawn takes a destination back in the middle of a payload: its memory must not be touched any more.
func TestTCPPlaceWithdrawn(t *testing.T) {
	a, b, ab, _ := joined(t)
	h := header{op: opReadResp, length: 60_000, total: 60_000, psn: 5}
	payload := bytes.Repeat([]byte{7}, 60_000)
	frame := append(appendFrameHeader(nil, &h), payload...)
	dst := make([]byte, 60_000)
	given, received := 0, 0
	b.onPlace = func(link, *header) []byte {
		given++
		return dst
	}
	b.onRecv = func(_ link, h *header, payload []byte) (bool, bool) {
		received++
		require.Len(t, payload, 60_000)
		return true, false
	}
	_, err := unix.Write(ab.fd, frame[:30_000])
	require.NoError(t, err)
	until(t, "half of it", func() bool { return dst[29_000] == 7 }, b)
	clear(dst)
	b.onPlace = func(link, *header) []byte { return nil }
	_, err = unix.Write(ab.fd, frame[30_000:])
	require.NoError(t, err)
	until(t, "packet", func() bool { return received == 1 }, a, b)
	require.Positive(t, given)
	require.Equal(t, make([]byte, 60_000), dst)
}

// TestTCPRefusedStays checks that nothing overtakes a refused packet, that the sender is held up in the end, and that
// everything comes once it is taken.
func TestTCPRefusedStays(t *testing.T) {
	a, b, ab, _ := joined(t)
	b.onRecv = func(_ link, h *header, _ []byte) (bool, bool) {
		require.Zero(t, h.psn)
		return false, false
	}
	sent := uint32(0)
	body := make([]byte, 32<<10)
	until(t, "sender held up", func() bool {
		if ab.send(&header{op: opSend, psn: sent, length: uint32(len(body))}, nil, body) {
			sent++
			return false
		}
		return ab.out.blocked && sent > 0
	}, a, b)
	var next uint32
	b.onRecv = func(_ link, h *header, _ []byte) (bool, bool) {
		require.Equal(t, next, h.psn)
		next++
		return true, false
	}
	until(t, "all of them", func() bool { return next == sent }, a, b)
	require.Greater(t, a.roomy, 1)
}

func TestTCPViolations(t *testing.T) {
	for name, frame := range map[string][]byte{
		"payload of 1048576 bytes": {1, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"header fields 0xff":       {1, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		_, b, ab, _ := joined(t)
		_, err := unix.Write(ab.fd, frame)
		require.NoError(t, err)
		until(t, "violation", func() bool { return len(b.down) == 1 }, b)
		require.ErrorContains(t, b.down[0], "protocol violation")
		require.ErrorContains(t, b.down[0], name)
	}
}

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
			require.True(t, ba.drained())
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

// TestTCPLastWords checks that what a peer sent before it went is received although sending to it fails already.
func TestTCPLastWords(t *testing.T) {
	_, b, ab, ba := joined(t)
	for i := range uint32(50) {
		require.True(t, ab.send(&header{op: opSend, psn: i, length: 8}, make([]byte, 8), nil))
	}
	ab.write()
	until(t, "drained", ab.drained)
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

// TestTCPSleep has a receiver that sleeps in the notifier between packets, with more links than are kept hot.
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

// TestTCPSleepBlocked: room on a link that was full wakes a sleeper, and a refused packet does not keep it awake.
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
	require.Zero(t, b.n.ready(ev[:]), "a refused packet keeps its receiver awake")
	require.Zero(t, a.n.ready(ev[:]), "a full socket keeps its sender awake")
	b.onRecv = nil
	woken := make(chan error, 1)
	go func() { woken <- a.n.wait() }()
	until(t, "all taken", func() bool { return b.poll(16) == 0 && !b.w.links[a.self.id].in.stalled })
	within(t, "room", func() { require.NoError(t, <-woken) })
	room := a.roomy
	until(t, "writable", func() bool { return a.roomy > room }, a, b)
}
