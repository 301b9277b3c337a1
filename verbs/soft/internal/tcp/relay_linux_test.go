package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/seal"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// relay passes bytes on between the two devices of a test, and sees all of them.
type relay struct {
	mu     sync.Mutex
	seen   []byte
	conns  []net.Conn
	meddle [2]*meddler // of what the dialler of the first connection says, and of what it hears; nil: none
}

// start puts the relay in front of device d.
func (r *relay) start(t *testing.T, d *fakeDevice) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	to := d.self.TCP[0]
	d.self.TCP = []string{ln.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			r.mu.Lock()
			meddle := [2]*meddler{}
			if len(r.conns) == 0 {
				meddle = r.meddle
			}
			r.conns = append(r.conns, in, out)
			r.mu.Unlock()
			wg.Go(func() { r.pass(in, out, meddle[0]) })
			wg.Go(func() { r.pass(out, in, meddle[1]) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		wg.Wait()
	})
}

// pass passes on what one end says. A meddler that has cut the stream ends both directions, and so
// does one after whose change nothing more is said.
func (r *relay) pass(from, to net.Conn, m *meddler) {
	defer func() { _ = to.(*net.TCPConn).CloseWrite() }()
	buf := make([]byte, 64<<10)
	for {
		if m != nil && m.early {
			_ = from.SetReadDeadline(time.Now().Add(time.Second / 2))
		}
		n, err := from.Read(buf)
		r.mu.Lock()
		r.seen = append(r.seen, buf[:n]...)
		out, cut := buf[:n], false
		if m != nil {
			out, cut = m.pass(out)
		}
		r.mu.Unlock()
		if len(out) > 0 {
			if _, err := to.Write(out); err != nil {
				return
			}
		}
		if cut || errors.Is(err, os.ErrDeadlineExceeded) {
			_, _ = from.Close(), to.Close()
		}
		if err != nil {
			return
		}
	}
}

// through makes two joined devices whose connection goes by a relay.
func through(t *testing.T, r *relay) (a, b *fakeDevice, ab, ba *link) {
	a, b = newFakeDevice(t, 0), newFakeDevice(t, 1)
	r.start(t, b)
	ab = a.link(t, b)
	ab.Send(&wire.Header{Op: wire.OpAck}, nil, nil)
	until(t, "connection", func() bool { return ab.up && len(b.w.links) == 1 && b.link(t, a).up }, a, b)
	return a, b, ab, b.link(t, a)
}

// TestTLSHides: nothing of a payload, and nothing of a header, can be read on the way.
func TestTLSHides(t *testing.T) {
	for _, tls := range []bool{false, true} {
		if tls {
			withTLS(t)
		}
		r := &relay{}
		a, b, ab, _ := through(t, r)
		got := 0
		b.onRecv = func(wire.Link, *wire.Header, []byte) bool { got++; return true }
		for _, size := range []int{32, 4096, DirectFrom, maxPayload} {
			payload := bytes.Repeat([]byte("what nobody is to read, "), 1+size/24)[:size]
			before := got
			until(t, "room", func() bool {
				return ab.Send(&wire.Header{Op: wire.OpReadResp, Length: uint32(size), Addr: 0x0123456789abcdef}, nil, payload)
			}, a)
			until(t, "packet", func() bool { return got == before+1 }, a, b)
		}
		r.mu.Lock()
		require.Equal(t, !tls, bytes.Contains(r.seen, []byte("nobody is to read")))
		require.Equal(t, !tls, bytes.Contains(r.seen, binary.LittleEndian.AppendUint64(nil, 0x0123456789abcdef)))
		r.mu.Unlock()
	}
}

// meddler changes one direction of a connection, once: from a place in the stream on, a unit of it,
// which is some bytes or a sealed record. What is behind the change is passed on as it is.
type meddler struct {
	what   string
	from   int  // bytes that are passed on before
	size   int  // of a unit; 0: units are records
	bit    int  // that "flip" flips
	early  bool // it may have the ends wait for ever for what it has not passed on
	ready  bool
	passed int
	rest   []byte // of a unit that is not all there
	last   []byte // the unit before
	kept   []byte // for after the next unit
	done   bool
}

var meddling = []string{"flip", "drop", "repeat", "replay", "swap", "cut"}

// pass returns what is passed on for b.
func (m *meddler) pass(b []byte) (out []byte, cut bool) {
	m.rest = append(m.rest, b...)
	for {
		n := m.unit()
		if n == 0 || n > len(m.rest) {
			return out, false
		}
		u := slices.Clone(m.rest[:n])
		m.rest = m.rest[n:]
		if !m.ready || m.done || m.passed < m.from || m.what == "replay" && m.last == nil {
			out = append(out, u...)
			m.passed += n
			m.last = u
			continue
		}
		u, cut = m.change(u)
		if out = append(out, u...); cut {
			return out, true
		}
	}
}

// unit is the length of the next unit; 0: not known.
func (m *meddler) unit() int {
	switch {
	case !m.ready || m.done:
		return len(m.rest)
	case m.size == 0 && len(m.rest) < seal.HeaderSize:
		return 0
	case m.size == 0:
		return int(binary.LittleEndian.Uint32(m.rest)) + seal.Overhead
	case m.passed < m.from:
		return min(len(m.rest), m.from-m.passed, m.size)
	}
	return m.size
}

func (m *meddler) change(u []byte) (out []byte, cut bool) {
	m.done = m.what != "swap" || m.kept != nil
	switch m.what {
	case "flip":
		u[m.bit/8%len(u)] ^= 1 << (m.bit % 8)
	case "drop":
		return nil, false
	case "repeat":
		return append(u, u...), false
	case "replay":
		return append(m.last, u...), false
	case "swap":
		if m.kept == nil {
			m.kept = u
			return nil, false
		}
		return append(u, m.kept...), false
	case "cut":
		return u[:len(u)/2], true
	}
	return u, false
}

// meddlers calls f with meddlers of every kind.
func meddlers(t *testing.T, records bool, most int, f func(t *testing.T, m *meddler, dir int, r *rand.Rand)) {
	seeds := uint64(4)
	if !testlevel.CI() {
		seeds = 1
	}
	for _, what := range meddling {
		for dir := range 2 {
			for seed := range seeds {
				r := rand.New(rand.NewPCG(seed+*tcpSeed, 11))
				m := &meddler{what: what, from: r.IntN(most), size: 16 + r.IntN(200), bit: r.IntN(8 * 60_000)}
				name := fmt.Sprintf("%s/bytes/%d/%d", what, dir, seed)
				if records {
					m.size, name = 0, fmt.Sprintf("%s/record/%d/%d", what, dir, seed)
				}
				t.Run(name, func(t *testing.T) { f(t, m, dir, r) })
			}
		}
	}
}

// TestTLSMeddled: whatever somebody does between two devices to the bytes or the records of a link,
// both ends lose it, the one that finds out says why, nothing wrong is delivered, in the input
// buffer or at its place, and nothing that was sent can be read there.
func TestTLSMeddled(t *testing.T) {
	withTLS(t)
	for _, records := range []bool{false, true} {
		meddlers(t, records, 300_000, func(t *testing.T, m *meddler, dir int, r *rand.Rand) {
			relay := &relay{}
			relay.meddle[dir] = m
			a, b, ab, ba := through(t, relay)
			relay.mu.Lock()
			m.ready = true // no record is on its way
			relay.mu.Unlock()
			to, fro := newStream(t, r.Uint64(), 1<<30, a, ab, b, ba), newStream(t, r.Uint64(), 1<<30, b, ba, a, ab)
			to.place, fro.place = true, true
			until(t, "the end of the link", func() bool {
				to.step(r)
				fro.step(r)
				return len(a.down) == 1 && len(b.down) == 1
			})
			finder := []*fakeDevice{b, a}[dir]
			require.ErrorContains(t, finder.down[0], "connection to rank ")
			if m.what != "cut" { // which looks like the end of the peer
				require.ErrorIs(t, finder.down[0], seal.ErrBroken)
				require.ErrorContains(t, finder.down[0], "changed, left out, repeated or moved")
			}
			relay.mu.Lock()
			defer relay.mu.Unlock()
			for i := range min(to.got, 20) {
				if p := to.packet(i).payload; len(p) >= 64 {
					require.False(t, bytes.Contains(relay.seen, p[16:32]), "packet %d can be read", i)
				}
			}
		})
	}
}

// TestTLSMeddledHandshake: the same while the link is made. It comes to be, maybe by another dial,
// or it does not, with an error. What is delivered is what was sent, and cannot be read on the way.
func TestTLSMeddledHandshake(t *testing.T) {
	withTLS(t)
	text := []byte("what nobody is to read, or to write")
	meddlers(t, false, 2500, func(t *testing.T, m *meddler, dir int, _ *rand.Rand) {
		relay := &relay{}
		relay.meddle[dir] = m
		m.early, m.ready = true, true
		a, b := newFakeDevice(t, 0), newFakeDevice(t, 1)
		relay.start(t, b)
		ab := a.link(t, b)
		var sent, got uint32
		b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
			require.Equal(t, wire.Header{Op: wire.OpSend, PSN: got, Length: uint32(len(text))}, *h)
			require.Equal(t, text, payload)
			got++
			return true
		}
		until(t, "a link or an error", func() bool {
			if sent < 100 && ab.Send(&wire.Header{Op: wire.OpSend, PSN: sent, Length: uint32(len(text))}, nil, text) {
				sent++
			}
			return got == 100 || len(a.down) == 1
		}, a, b)
		if got < 100 {
			require.ErrorContains(t, a.down[0], "connection to rank 1")
		}
		relay.mu.Lock()
		defer relay.mu.Unlock()
		require.False(t, bytes.Contains(relay.seen, text[:16]))
	})
}
