package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// gone is n bytes of memory of which those from off on can be accessed as prot says.
func gone(t *testing.T, n, off, prot int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	require.NoError(t, unix.Mprotect(b[off:], prot))
	return b
}

// TestTCPPlaceGone: where a payload's place cannot be written the device is told, once, and the
// stream goes on behind the payload, wherever in it that is found.
func TestTCPPlaceGone(t *testing.T) {
	const size = 64 << 10
	for name, off := range map[string]int{"all": 0, "but the beginning": 4096, "the end": size - 4096} {
		t.Run(name, func(t *testing.T) {
			a, b, ab, _ := joined(t)
			place := gone(t, size, off, unix.PROT_READ)
			b.onPlace = func(wire.Link, *wire.Header) []byte {
				if b.gone > 0 {
					return nil
				}
				return place
			}
			var got []uint32
			b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
				require.Len(t, payload, int(h.Length))
				if h.Op == wire.OpAck {
					require.Equal(t, "behind", string(payload))
				}
				got = append(got, h.PSN)
				return true
			}
			var stream []byte
			for psn, h := range []wire.Header{{Op: wire.OpReadResp, Length: size}, {Op: wire.OpReadResp, Length: size}, {Op: wire.OpAck, Length: 6}} {
				h.PSN = uint32(psn)
				stream = appendFrameHeader(stream, &h)
				if h.Op == wire.OpAck {
					stream = append(stream, "behind"...)
				} else {
					stream = append(stream, bytes.Repeat([]byte{7}, size)...)
				}
			}
			for _, part := range [][]byte{stream[:20_000], stream[20_000:]} { // the first one begins in the buffer
				inject(t, ab, part)
				for range 10 {
					b.poll(16)
				}
			}
			until(t, "the packets", func() bool { return len(got) == 3 }, a, b)
			require.Equal(t, []uint32{0, 1, 2}, got)
			require.Equal(t, 1, b.gone)
			require.Empty(t, append(a.down, b.down...))
		})
	}
}

// TestTCPBodyGone: a packet whose body is gone leaves no trace on a connection, nor on what waits
// to be written; what is sent behind it arrives.
func TestTCPBodyGone(t *testing.T) {
	a, b, ab, _ := joined(t)
	var got []uint32
	b.onRecv = func(_ wire.Link, h *wire.Header, payload []byte) bool {
		require.Len(t, payload, int(h.Length))
		got = append(got, h.PSN)
		return true
	}
	send := func(psn uint32, body []byte) bool {
		return ab.Send(&wire.Header{Op: wire.OpReadResp, PSN: psn, Length: uint32(len(body))}, nil, body)
	}
	body := gone(t, 1<<20, 0, unix.PROT_NONE)
	require.False(t, send(0, body))
	require.True(t, send(1, []byte("waits to be written")))
	require.False(t, send(2, body))
	require.NoError(t, unix.Mprotect(body, unix.PROT_READ))
	require.True(t, send(3, body))
	until(t, "the packets", func() bool { return len(got) == 2 }, a, b)
	require.Equal(t, []uint32{1, 3}, got)
	require.Empty(t, append(a.down, b.down...))
}

// TestTCPBodyGoneAmid: a connection on which half a packet has left ends, with words that say so,
// and the process goes on.
func TestTCPBodyGoneAmid(t *testing.T) {
	a, b, ab, _ := joined(t)
	body := gone(t, 1<<20, 512<<10, unix.PROT_NONE)
	require.True(t, ab.Send(&wire.Header{Op: wire.OpReadResp, Length: 1 << 20}, nil, body))
	until(t, "the end of the link", func() bool { return len(a.down) == 1 && len(b.down) == 1 }, a, b)
	require.ErrorIs(t, a.down[0], unix.EFAULT)
}
