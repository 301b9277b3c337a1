package tcp

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

	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/notify"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

var tcpSeed = flag.Uint64("tcpseed", 0, "TestTCPStream: play this seed")

// fakeDevice is a receiver that records, refuses and names destinations as its test likes.
type fakeDevice struct {
	w       *Wire
	self    *wire.Address
	n       *notify.Epoll
	onRecv  func(l wire.Link, h *wire.Header, payload []byte) bool
	onPlace func(l wire.Link, h *wire.Header) []byte
	gone    int // calls of PlaceGone
	down    []error
	downOf  []wire.Link
}

func (d *fakeDevice) Receive(l wire.Link, h *wire.Header, payload []byte) (ok, more bool) {
	return d.onRecv == nil || d.onRecv(l, h, payload), true
}

func (d *fakeDevice) Place(l wire.Link, h *wire.Header) []byte {
	if d.onPlace == nil {
		return nil
	}
	return d.onPlace(l, h)
}
func (d *fakeDevice) PlaceGone(wire.Link, *wire.Header)           { d.gone++ }
func (d *fakeDevice) LinkUp(wire.Link, *wire.Address)             {}
func (d *fakeDevice) LinkYielded(wire.Link, *wire.Address, error) {}
func (d *fakeDevice) LinkDown(l wire.Link, err error) {
	d.down, d.downOf = append(d.down, err), append(d.downOf, l)
}

func newFakeDevice(t testing.TB, rank uint32, change ...func(env *wire.Env, listen *string)) *fakeDevice {
	n, err := notify.NewEpoll()
	require.NoError(t, err)
	d := &fakeDevice{self: &wire.Address{ID: wire.NewDeviceID(), Rank: rank, PID: uint32(os.Getpid())}, n: n}
	env := wire.Env{Self: d.self, Receiver: d, Notifier: n, Secret: []byte("secret"), TLS: testTLS, PeerTimeout: 20 * time.Second}
	listen := "127.0.0.1:0"
	for _, f := range change {
		f(&env, &listen)
	}
	w, err := Open(env, listen, ports.Range{})
	require.NoError(t, err)
	d.w = w.(*Wire)
	t.Cleanup(d.stop)
	return d
}

func (d *fakeDevice) stop() {
	if d.w != nil {
		d.w.Close()
		_ = d.n.Close()
		d.w = nil
	}
}

func (d *fakeDevice) poll(budget int) int {
	k := d.w.Poll(budget)
	d.w.Flush()
	return k
}

// link returns the link to another device.
func (d *fakeDevice) link(t testing.TB, to *fakeDevice) *link {
	l, err := d.w.Connect(to.self)
	require.NoError(t, err)
	return l.(*link)
}

// until polls all devices until cond holds.
func until(t testing.TB, what string, cond func() bool, devices ...*fakeDevice) {
	t.Helper()
	end := time.Now().Add(testlevel.Patience(20 * time.Second))
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
func joined(t testing.TB, change ...func(env *wire.Env, listen *string)) (a, b *fakeDevice, ab, ba *link) {
	a, b = newFakeDevice(t, 0, change...), newFakeDevice(t, 1, change...)
	ab, ba = a.link(t, b), b.link(t, a)
	require.False(t, ab.Send(&wire.Header{Op: wire.OpAck}, nil, nil), "the first send connects")
	until(t, "connection", func() bool { return ab.up && ba.up }, a, b)
	return a, b, ab, ba
}

// inject writes bytes to a connection as a peer would that keeps to no format of frames.
func inject(t testing.TB, l *link, b []byte) {
	if l.sealed != nil {
		var err error
		b, err = appendRecords(l.sealed.sealer, nil, b)
		require.NoError(t, err)
	}
	_, err := unix.Write(l.fd, b)
	require.NoError(t, err)
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
	b.onRecv = func(l wire.Link, h *wire.Header, payload []byte) bool {
		require.Equal(t, wire.Link(ba), l)
		require.Equal(t, wire.Header{Op: wire.OpSend, Flags: wire.FlagLast, Length: 5, QPN: 77, PSN: 3, Total: 5}, *h)
		require.Equal(t, "hello", string(payload))
		got++
		return true
	}
	require.True(t, ab.Send(&wire.Header{Op: wire.OpSend, Flags: wire.FlagLast, Length: 5, QPN: 77, PSN: 3, Total: 5}, []byte("he"), []byte("llo")))
	until(t, "packet", func() bool { return got == 1 }, a, b)
	require.Equal(t, ab, a.link(t, b), "the same link every time")
	a.stop()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorContains(t, b.down[0], "rank 0")
	require.ErrorIs(t, b.down[0], verbs.ErrPeerClosed)
	require.Equal(t, wire.Link(ba), b.downOf[0])
	ba.Close()
	ba.Close()
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
	}{
		{name: "plain"},
		{name: "placed", place: true},
		{name: "refused", refuse: 5, place: true},
		{name: "tiny buffers", tiny: true, refuse: 20, place: true},
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
				for _, l := range []*link{ab, ba} {
					require.NoError(t, unix.SetsockoptInt(l.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096))
				}
			}
			count := 3000
			if !testlevel.CI() || c.tiny {
				count = 300
			}
			to := newStream(t, seed, count, a, ab, b, ba)
			fro := newStream(t, seed+1, count, b, ba, a, ab)
			for _, s := range []*stream{to, fro} {
				s.refuse, s.place = c.refuse, c.place
			}
			r := rand.New(rand.NewPCG(seed, 9))
			var stall testlevel.Stall
			for !to.done() || !fro.done() {
				to.step(r)
				fro.step(r)
				require.False(t, stall.Lasts(testlevel.Patience(20*time.Second), to.got+fro.got), "stuck: %d and %d of %d", to.got, fro.got, count)
				require.Empty(t, append(a.down, b.down...))
			}
		})
	}
}

// stream is one direction of TestTCPStream. Packet i is the same function of the seed on both
// sides.
type stream struct {
	t         testing.TB
	seed      uint64
	count     int
	from, to  *fakeDevice
	out       *link
	sent, got int
	next      *packet // number sent
	want      *packet // number got
	refuse    int
	place     bool
	r         *rand.Rand
	dst       []byte
	placed    int
}

func newStream(t testing.TB, seed uint64, count int, from *fakeDevice, out *link, to *fakeDevice, in *link) *stream {
	s := &stream{t: t, seed: seed, count: count, from: from, to: to, out: out, r: rand.New(rand.NewPCG(seed, 5))}
	s.next, s.want = s.packet(0), s.packet(0)
	to.onRecv = func(l wire.Link, h *wire.Header, payload []byte) bool {
		require.Equal(t, wire.Link(in), l)
		return s.receive(h, payload)
	}
	to.onPlace = func(_ wire.Link, h *wire.Header) []byte {
		require.Equal(t, s.want.h, *h)
		if !s.place || h.Op != wire.OpReadResp {
			return nil
		}
		if s.dst == nil {
			s.dst = make([]byte, h.Length)
		}
		s.placed++
		return s.dst
	}
	return s
}

type packet struct {
	h       wire.Header
	payload []byte
}

func (s *stream) packet(i int) *packet {
	r := rand.New(rand.NewPCG(s.seed, uint64(i)))
	h := randomHeader(r)
	switch r.IntN(4) {
	case 0, 1:
		h.Length = uint32(r.IntN(200))
	case 2:
		h.Length = uint32(r.IntN(5000))
	}
	if h.Op == wire.OpReadResp {
		h.Length = min(h.Length, uint32(s.out.MaxReadPayload()))
	}
	p := make([]byte, h.Length)
	for k := 0; k+8 <= len(p); k += 8 {
		binary.LittleEndian.PutUint64(p[k:], r.Uint64())
	}
	return &packet{h, p}
}

func (s *stream) receive(h *wire.Header, payload []byte) (ok bool) {
	if s.refuse > 0 && s.r.IntN(s.refuse) == 0 {
		return false
	}
	require.Equal(s.t, s.want.h, *h, "packet %d", s.got)
	require.True(s.t, bytes.Equal(s.want.payload, payload), "packet %d", s.got)
	s.got++
	s.want, s.dst = s.packet(s.got), nil
	return true
}

func (s *stream) step(r *rand.Rand) {
	for range r.IntN(20) {
		if s.sent == s.count {
			break
		}
		p := s.next.payload
		cut := r.IntN(min(len(p), 64) + 1)
		if !s.out.Send(&s.next.h, p[:cut], p[cut:]) {
			break
		}
		clear(p) // the link must not look at it any more
		s.sent++
		s.next = s.packet(s.sent)
	}
	if r.IntN(3) == 0 {
		s.from.w.Flush()
	}
	s.to.w.Poll(1 + r.IntN(12))
}

func (s *stream) done() bool { return s.got == s.count }

// TestTCPPlaceDeregistered deregisters a destination in the middle of a payload: its memory must
// not be touched any more.
func TestTCPPlaceDeregistered(t *testing.T) {
	a, b, ab, _ := joined(t)
	h := wire.Header{Op: wire.OpReadResp, Length: 60_000, Total: 60_000, PSN: 5}
	payload := bytes.Repeat([]byte{7}, 60_000)
	frame := append(appendFrameHeader(nil, &h), payload...)
	dst := make([]byte, 60_000)
	given, received := 0, 0
	b.onPlace = func(wire.Link, *wire.Header) []byte {
		given++
		return dst
	}
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		received++
		require.Len(t, payload, 60_000)
		return true
	}
	inject(t, ab, frame[:30_000])
	until(t, "half of it", func() bool { return dst[29_000] == 7 }, b)
	clear(dst)
	b.onPlace = func(wire.Link, *wire.Header) []byte { return nil }
	inject(t, ab, frame[30_000:])
	until(t, "packet", func() bool { return received == 1 }, a, b)
	require.Positive(t, given)
	require.Equal(t, make([]byte, 60_000), dst)
}

// TestTCPBulkBehindSmall: of a large packet little is read to the buffer, and copied from there,
// also where a small one came between it and the last large one.
func TestTCPBulkBehindSmall(t *testing.T) {
	_, b, ab, ba := joined(t)
	const size = 60_000
	large := wire.Header{Op: wire.OpReadResp, Length: size, Total: size}
	dst := make([]byte, size)
	buffered, received := 0, 0
	b.onPlace = func(wire.Link, *wire.Header) []byte {
		if !ba.in.placing {
			buffered = ba.in.w - ba.in.r
		}
		return dst
	}
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool {
		received++
		return true
	}
	for i, h := range []wire.Header{large, {Op: wire.OpAck}, large} {
		inject(t, ab, append(appendFrameHeader(nil, &h), make([]byte, h.Length)...))
		until(t, "packet", func() bool { return received == i+1 }, b)
	}
	require.Positive(t, buffered)
	require.LessOrEqual(t, buffered, placeGap)
}

// TestTCPRefusedStays checks that nothing overtakes a refused packet, that the sender is held up in
// the end, and that everything comes once it is taken.
func TestTCPRefusedStays(t *testing.T) {
	a, b, ab, _ := joined(t)
	b.onRecv = func(_ wire.Link, h *wire.Header, _ []byte) bool {
		require.Zero(t, h.PSN)
		return false
	}
	sent := uint32(0)
	body := make([]byte, 32<<10)
	until(t, "sender held up", func() bool {
		if ab.Send(&wire.Header{Op: wire.OpSend, PSN: sent, Length: uint32(len(body))}, nil, body) {
			sent++
			return false
		}
		return ab.out.blocked && sent > 0
	}, a, b)
	var next uint32
	b.onRecv = func(_ wire.Link, h *wire.Header, _ []byte) bool {
		require.Equal(t, next, h.PSN)
		next++
		return true
	}
	until(t, "all of them", func() bool { return next == sent }, a, b)
}

// TestTCPFilledWhileArmed fills the socket between arm and sleep, as a device does whose last poll
// found room: the wire must wake its owner when there is room again.
func TestTCPFilledWhileArmed(t *testing.T) {
	a, b, ab, _ := joined(t)
	taken := 0
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool { taken++; return true }
	body := make([]byte, 32<<10)
	sent := 0
	fill := func() bool {
		for ab.Send(&wire.Header{Op: wire.OpSend, Length: uint32(len(body))}, nil, body) {
			sent++
		}
		return ab.out.blocked
	}
	until(t, "a full socket", fill, a)
	ab.w.Arm(true)
	require.NotZero(t, ab.events&unix.EPOLLOUT)
	until(t, "room", func() bool { return !ab.out.blocked }, a, b)
	require.Zero(t, ab.events&unix.EPOLLOUT)
	until(t, "a full socket again", fill, a)
	require.NotZero(t, ab.events&unix.EPOLLOUT, "nobody would tell of room")
	ab.w.Disarm()
	until(t, "everything", func() bool { return taken == sent }, a, b)
}

func TestTCPViolations(t *testing.T) {
	for name, frame := range map[string][]byte{
		"payload of 1048576 bytes": {1, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"header fields 0xff":       {1, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		"unknown opcode 200":       {200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		a, b, ab, _ := joined(t)
		inject(t, ab, frame)
		until(t, "violation", func() bool { return len(b.down) == 1 }, b)
		require.ErrorIs(t, b.down[0], verbs.ErrProtocol)
		require.ErrorContains(t, b.down[0], name)
		until(t, "the accusation", func() bool { return len(a.down) == 1 }, a)
		require.ErrorIs(t, a.down[0], verbs.ErrAccused)
		require.NotErrorIs(t, a.down[0], verbs.ErrPeerEnded)
	}
}

// TestTCPAccused: the device accuses a peer, which hears of it behind what was sent before.
func TestTCPAccused(t *testing.T) {
	a, b, ab, _ := joined(t)
	got := 0
	b.onRecv = func(wire.Link, *wire.Header, []byte) bool {
		got++
		return true
	}
	require.True(t, ab.Send(&wire.Header{Op: wire.OpSend}, nil, nil))
	ab.Accuse()
	until(t, "the end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorIs(t, b.down[0], verbs.ErrAccused)
	require.Equal(t, 1, got)
	require.Empty(t, a.down)
}
