package soft

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

var tcpSeed = flag.Uint64("tcpseed", 0, "TestTCPStream: play this seed")

// fakeDevice is a receiver that records, refuses, borrows and names destinations as its test likes.
type fakeDevice struct {
	w       *tcpWire
	self    *address
	n       *epollNotifier
	onRecv  func(l link, h *header, payload []byte) (ok, lent bool)
	onPlace func(l link, h *header) []byte
	down    []error
	downOf  []link
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
func (d *fakeDevice) linkUp(link, *address)             {}
func (d *fakeDevice) linkYielded(link, *address, error) {}
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
	require.True(t, ab.send(&header{op: opSend, flags: flagLast, length: 5, qpn: 77, psn: 3, total: 5}, []byte("he"), []byte("llo")))
	until(t, "packet", func() bool { return got == 1 }, a, b)
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

// TestTCPStream sends random packets both ways with everything that can go wrong without an error
// going wrong.
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
			seed := *tcpSeed
			if seed == 0 {
				seed = rand.Uint64()
			}
			t.Logf("replay with -tcpseed %d", seed)
			a, b, ab, ba := joined(t)
			if c.tiny {
				// Not the receive buffers: a window below loopback's huge segments moves at the
				// speed of its probe timer.
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
		})
	}
}

// stream is one direction of TestTCPStream. Packet i is the same function of the seed on both
// sides.
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

// TestTCPPlaceWithdrawn takes a destination back in the middle of a payload: its memory must not be
// touched any more.
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

// TestTCPRefusedStays checks that nothing overtakes a refused packet, that the sender is held up in
// the end, and that everything comes once it is taken.
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
}

// TestTCPFilledWhileArmed fills the socket between arm and sleep, as a device does whose last poll
// found room: the wire must wake its owner when there is room again.
func TestTCPFilledWhileArmed(t *testing.T) {
	a, b, ab, _ := joined(t)
	taken := 0
	b.onRecv = func(link, *header, []byte) (bool, bool) { taken++; return true, false }
	body := make([]byte, 32<<10)
	sent := 0
	fill := func() bool {
		for ab.send(&header{op: opSend, length: uint32(len(body))}, nil, body) {
			sent++
		}
		return ab.out.blocked
	}
	until(t, "a full socket", fill, a)
	ab.w.arm()
	require.NotZero(t, ab.events&unix.EPOLLOUT)
	until(t, "room", func() bool { return !ab.out.blocked }, a, b)
	require.Zero(t, ab.events&unix.EPOLLOUT)
	until(t, "a full socket again", fill, a)
	require.NotZero(t, ab.events&unix.EPOLLOUT, "nobody would tell of room")
	ab.w.disarm()
	until(t, "everything", func() bool { return taken == sent }, a, b)
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
