package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/seal"
	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/dial"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// testTLS is what newFakeDevice gives its devices.
var testTLS *secure.Layer

// withTLS has the devices of a test have TLS.
func withTLS(t testing.TB) {
	s, err := secure.Parse(secure.Secret)
	require.NoError(t, err)
	testTLS, err = s.Load()
	require.NoError(t, err)
	t.Cleanup(func() { testTLS = nil })
}

// TestTLS plays the tests of the wire with TLS. Those of how sockets are read and written to and
// from the memory of programs have others in their stead: TestTLSPlaced, TestTLSBodyGone.
func TestTLS(t *testing.T) {
	withTLS(t)
	for name, f := range map[string]func(*testing.T){
		"ConnectAndLeaks": TestTCPConnectAndLeaks, "Stream": TestTCPStream, "RefusedStays": TestTCPRefusedStays,
		"FilledWhileArmed": TestTCPFilledWhileArmed, "Violations": TestTCPViolations, "PeerGone": TestTCPPeerGone, "Killed": TestTCPKilled,
		"LastWords": TestTCPLastWords, "StalledPeerGone": TestTCPStalledPeerGone, "DialFailure": TestTCPDialFailure, "Listen": TestTCPListen,
		"Sleep": TestTCPSleep, "SleepBlocked": TestTCPSleepBlocked, "StaysArmed": TestTCPStaysArmed, "LeavesEpoll": TestTCPLeavesEpoll,
		"BusyPeerGone": TestTCPBusyPeerGone, "Congestion": TestTCPCongestion, "Mute": TestTCPMute, "Deaf": TestTCPDeaf,
		"PlaceDeregistered": TestTCPPlaceDeregistered, "PlaceGone": TestTCPPlaceGone, "ClosedWhileMade": TestTCPClosedWhileMade,
	} {
		t.Run(name, f)
	}
}

// TestTLSSettingsDiffer: ends with different settings do not connect, and say why.
func TestTLSSettingsDiffer(t *testing.T) {
	a := newFakeDevice(t, 0)
	withTLS(t)
	b := newFakeDevice(t, 1)
	for _, d := range [][2]*fakeDevice{{a, b}, {b, a}} {
		l := d[0].link(t, d[1])
		l.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
		until(t, "failure", func() bool { return len(d[0].down) == 1 }, a, b)
		require.ErrorContains(t, d[0].down[0], "TLS secret")
		require.ErrorContains(t, d[0].down[0], "connection came to a")
	}
}

// TestTLSBodyGone: a packet whose body is gone leaves no trace in the stream of records.
func TestTLSBodyGone(t *testing.T) {
	withTLS(t)
	a, b, ab, _ := joined(t)
	var got []uint32
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		require.Len(t, payload, int(h.Length))
		got = append(got, h.PSN)
		return true
	}
	send := func(op wire.Opcode, psn uint32, body []byte) bool {
		return ab.Send(&wire.Header{Op: op, PSN: psn, Length: uint32(len(body))}, nil, body)
	}
	body := gone(t, maxPayload, 8192, unix.PROT_NONE)
	require.False(t, send(wire.OpReadResp, 0, body))
	require.True(t, send(wire.OpReadResp, 1, []byte("waits to be written")))
	require.False(t, send(wire.OpReadResp, 2, body))
	require.NoError(t, unix.Mprotect(body, unix.PROT_READ))
	require.True(t, send(wire.OpReadResp, 3, body))
	until(t, "the packets", func() bool { return len(got) == 2 }, a, b)
	require.Equal(t, []uint32{1, 3}, got)
	require.Empty(t, append(a.down, b.down...))
	require.NoError(t, unix.Mprotect(body[8192:], unix.PROT_NONE))
	require.True(t, send(wire.OpSend, 4, body), "a send whose body is gone ends the link")
	until(t, "the end of the link", func() bool { return len(a.down) == 1 && len(b.down) == 1 }, a, b)
	require.ErrorIs(t, a.down[0], unix.EFAULT)
	require.NoError(t, unix.Mprotect(body[8192:], unix.PROT_READ))
}

// TestTLSRefusedInput: records wait in the link while the device refuses packets, and come after
// that, without anything more of the socket.
func TestTLSRefusedInput(t *testing.T) {
	withTLS(t)
	_, b, ab, ba := joined(t)
	const size, count = 3000, 200
	var stream []byte
	for i := range count {
		h := wire.Header{Op: wire.OpSend, PSN: uint32(i), Length: size, Total: size}
		stream = append(appendFrameHeader(stream, &h), bytes.Repeat([]byte{byte(i)}, size)...)
		inject(t, ab, stream)
		stream = stream[:0]
	}
	next := uint32(0)
	refuse := true
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		require.Equal(t, next, h.PSN)
		require.Equal(t, bytes.Repeat([]byte{byte(next)}, size), payload)
		if refuse = !refuse && next%7 == 0; refuse {
			return false
		}
		next++
		return true
	}
	until(t, "all packets", func() bool { return next == count }, b)
	require.Less(t, cap(ba.in.buf), bufLimit+1)
}

// TestTLSPlaced: the records of a large body are opened to its place, which is asked for again with
// each, and nowhere else; where it cannot be written the device is told, and the stream goes on.
func TestTLSPlaced(t *testing.T) {
	withTLS(t)
	const size, count = maxPayload, 8
	a, b, ab, ba := joined(t)
	dst := gone(t, count*size, count*size-4096, unix.PROT_READ) // the last one's end
	var got int
	b.onPlace = func(_ wire.Link, h *wire.Header) []byte {
		if b.gone > 0 {
			return nil
		}
		return dst[int(h.PSN)*size:][:size]
	}
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		require.EqualValues(t, got/2, h.PSN)
		if got++; h.Op == wire.OpAck {
			require.Equal(t, "behind", string(payload))
			return true
		}
		require.Len(t, payload, size)
		if h.PSN < count-1 {
			require.Same(t, &dst[int(h.PSN)*size], &payload[0])
			require.Equal(t, bytes.Repeat([]byte{byte(h.PSN)}, size), payload)
		}
		return true
	}
	for i := range uint32(count) {
		body := bytes.Repeat([]byte{byte(i)}, size)
		until(t, "room", func() bool { return ab.Send(&wire.Header{Op: wire.OpReadResp, PSN: i, Length: size}, nil, body) }, a)
		require.True(t, ab.Send(&wire.Header{Op: wire.OpAck, PSN: i, Length: 6}, []byte("behind"), nil))
		until(t, "both packets", func() bool { return got == 2*int(i+1) }, a, b) // that one read has them
	}
	require.Equal(t, 1, b.gone)
	require.Len(t, ba.in.buf, bufStart, "a body was in the input buffer")
	require.Empty(t, append(a.down, b.down...))
}

// TestTLSRecordsAnywhere: records may end anywhere, and payloads still come to their place.
func TestTLSRecordsAnywhere(t *testing.T) {
	withTLS(t)
	r := rand.New(rand.NewPCG(3, 4))
	_, b, ab, _ := joined(t)
	var stream []byte
	const count = 60
	content := func(psn uint32, n int) []byte { return bytes.Repeat([]byte{byte(psn + 1)}, n) }
	for i := range uint32(count) {
		h := wire.Header{Op: wire.OpReadResp, PSN: i, Length: uint32(r.IntN(4 * PlaceFrom))}
		stream = append(appendFrameHeader(stream, &h), content(i, int(h.Length))...)
	}
	dst := make([]byte, maxPayload)
	next, placed := uint32(0), 0
	b.onPlace = func(_ wire.Link, h *wire.Header) []byte { return dst[:h.Length] }
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		require.Equal(t, next, h.PSN)
		require.True(t, bytes.Equal(content(next, int(h.Length)), payload), "packet %d", next)
		if len(payload) > 0 && &payload[0] == &dst[0] {
			placed++
		}
		next++
		return true
	}
	for len(stream) > 0 {
		n := min(len(stream), 1+r.IntN([]int{20, 3 * PlaceFrom}[r.IntN(2)]))
		inject(t, ab, stream[:n])
		stream = stream[n:]
		b.poll(16)
	}
	until(t, "all packets", func() bool { return next == count }, b)
	require.Greater(t, placed, count/4)
}

// TestTLSRekey: keys change by volume, in each direction for itself, and nothing comes of it.
func TestTLSRekey(t *testing.T) {
	withTLS(t)
	for _, rekey := range []int64{1, 1000, maxPayload, 500_000} {
		a, b, ab, ba := joined(t)
		for _, d := range [][2]*link{{ab, ba}, {ba, ab}} {
			secret := bytes.Repeat([]byte{byte(rekey)}, seal.SecretSize)
			var err [2]error
			d[0].sealed.sealer, err[0] = seal.NewSealer(secret, rekey)
			d[1].sealed.opener, err[1] = seal.NewOpener(secret, rekey)
			require.NoError(t, errors.Join(err[:]...))
		}
		const count = 200
		to, fro := newStream(t, 1, count, a, ab, b, ba), newStream(t, 2, count, b, ba, a, ab)
		to.place, fro.place = true, true
		r := rand.New(rand.NewPCG(7, uint64(rekey)))
		until(t, "all packets", func() bool {
			to.step(r)
			fro.step(r)
			return to.done() && fro.done()
		})
		require.Empty(t, append(a.down, b.down...))
	}
}

// TestTLSOtherPair: somebody who joins the TLS of one pair's connection to that of another pair
// gets no link.
func TestTLSOtherPair(t *testing.T) {
	withTLS(t)
	at := func(id byte) *wire.Address { return &wire.Address{ID: wire.DeviceID{id}} }
	for peer, same := range map[byte]bool{1: true, 2: false} {
		x, y := net.Pipe()
		ends := make(chan error)
		for _, e := range []struct {
			conn       net.Conn
			self, peer byte
		}{{x, 1, 3}, {y, 3, peer}} {
			w := &Wire{env: wire.Env{Self: at(e.self), Secret: []byte("secret"), TLS: testTLS}}
			go func() {
				_, err := w.upgrade(e.conn, &socket{peer: at(e.peer)})
				ends <- err
			}()
		}
		for range 2 {
			if err := <-ends; same {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, secure.ErrRefused)
				require.ErrorIs(t, err, verbs.ErrRefused)
			}
		}
	}
}

// TestTLSTampering has a link's records changed on the way: it ends, at the end that finds out,
// with words that say so; nothing is delivered from the first change on.
func TestTLSTampering(t *testing.T) {
	withTLS(t)
	const count, at = 8, 4
	cases := map[string]func(l [][]byte) [][]byte{
		"dropped":   func(l [][]byte) [][]byte { return append(l[:at:at], l[at+1:]...) },
		"repeated":  func(l [][]byte) [][]byte { return append(append(l[:at:at], l[at-1]), l[at:]...) },
		"reordered": func(l [][]byte) [][]byte { l[at], l[at+1] = l[at+1], l[at]; return l },
	}
	for _, bit := range []int{0, 9, 31, 40, 8*seal.HeaderSize + 3, 8*seal.HeaderSize + 200, -1} {
		cases[fmt.Sprintf("bit %d", bit)] = func(l [][]byte) [][]byte {
			i := (bit + 8*len(l[at])) % (8 * len(l[at]))
			l[at][i/8] ^= 1 << (i % 8)
			return l
		}
	}
	for name, change := range cases {
		for _, size := range []int{8, 20_000} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, size), func(t *testing.T) {
				a, b, ab, _ := joined(t)
				var got []uint32
				b.onRecv = func(_ wire.Link, h *wire.Header, _ []byte) bool {
					got = append(got, h.PSN)
					return true
				}
				var list [][]byte
				for i := range count {
					h := wire.Header{Op: wire.OpSend, PSN: uint32(i), Length: uint32(size), Total: uint64(size)}
					record, err := ab.sealed.sealer.Append(nil, append(appendFrameHeader(nil, &h), make([]byte, size)...))
					require.NoError(t, err)
					list = append(list, record)
				}
				_, err := unix.Write(ab.fd, bytes.Join(change(list), nil))
				require.NoError(t, err)
				until(t, "the end of the link", func() bool { return len(a.down) == 1 && len(b.down) == 1 }, a, b)
				require.ErrorIs(t, b.down[0], seal.ErrBroken)
				require.ErrorContains(t, b.down[0], "record ")
				require.ErrorContains(t, b.down[0], "changed, left out, repeated or moved")
				require.LessOrEqual(t, len(got), at)
				for i, psn := range got {
					require.EqualValues(t, i, psn)
				}
			})
		}
	}
}

// TestTLSCutShort: the end of a connection within a record is told as such.
func TestTLSCutShort(t *testing.T) {
	withTLS(t)
	_, b, ab, _ := joined(t)
	record, err := ab.sealed.sealer.Append(nil, make([]byte, 100))
	require.NoError(t, err)
	_, err = unix.Write(ab.fd, record[:50])
	require.NoError(t, err)
	ab.Close()
	until(t, "end", func() bool { return len(b.down) == 1 }, b)
	require.ErrorIs(t, b.down[0], io.ErrUnexpectedEOF)
}

// TestTLSOtherAddress: where one address of a peer is that of another device here, the next one is
// tried, as without TLS.
func TestTLSOtherAddress(t *testing.T) {
	withTLS(t)
	a, b, other := newFakeDevice(t, 0), newFakeDevice(t, 1), newFakeDevice(t, 2)
	b.self.TCP = slices.Concat(other.self.TCP, b.self.TCP)
	ab := a.link(t, b)
	ab.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
	until(t, "a link or an error", func() bool { return ab.up || len(a.down) > 0 }, a, b, other)
	require.Empty(t, a.down)
}

// TestTLSLongFrame: a payload that no end with TLS sends, and that its peer has no room for, is a
// violation, though it is none on a plain connection.
func TestTLSLongFrame(t *testing.T) {
	withTLS(t)
	for _, size := range []uint32{maxPayload + 1, maxRead} {
		a, b, ab, _ := joined(t)
		inject(t, ab, append(appendFrameHeader(nil, &wire.Header{Op: wire.OpReadResp, Length: size}), make([]byte, 300_000)...))
		until(t, "violation", func() bool { return len(b.down) == 1 }, b)
		require.ErrorIs(t, b.down[0], verbs.ErrProtocol)
		require.ErrorContains(t, b.down[0], fmt.Sprintf("a payload of %d bytes: the most is %d", size, maxPayload))
		until(t, "the accusation", func() bool { return len(a.down) == 1 }, a)
		require.ErrorIs(t, a.down[0], verbs.ErrAccused)
	}
}

// TestTLSHandshakeErrors: of what has failed only that is tried again which came changed.
func TestTLSHandshakeErrors(t *testing.T) {
	upgrade := func(say []byte) error {
		x, y := net.Pipe()
		done := make(chan struct{})
		go func() {
			_, _ = y.Write(say)
			_ = y.Close()
			close(done)
		}()
		self := &wire.Address{ID: wire.DeviceID{3}}
		w := &Wire{env: wire.Env{Self: self, Secret: []byte("secret"), TLS: testTLS}}
		_, err := w.upgrade(x, &socket{peer: &wire.Address{ID: wire.DeviceID{1}}})
		_ = x.Close()
		<-done
		return err
	}
	withTLS(t)
	var again *dial.Again
	for _, said := range []string{"\x17\x03\x03\xff\xff", "\x16\x03\x03\x00\x04\x01\x00\x00\x00", "HTTP/1.1 400 Bad Request"} {
		err := upgrade([]byte(said))
		require.ErrorAs(t, err, &again)
		require.ErrorContains(t, err, "what came was changed on its way, or is no TLS")
		require.NotErrorIs(t, err, verbs.ErrRefused)
	}
	for said, end := range map[string]error{"": io.EOF, "\x16\x03\x03": io.ErrUnexpectedEOF} {
		err := upgrade([]byte(said))
		require.ErrorIs(t, err, end)
		require.NotErrorIs(t, err, secure.ErrChanged)
	}
}
