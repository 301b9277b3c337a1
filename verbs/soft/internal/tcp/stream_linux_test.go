package tcp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// FuzzStream gives the bytes of a whole connection to a device that refuses and places what comes,
// in pieces that end anywhere. Whatever they are, packets have the length that they say, and
// the link ends once.
func FuzzStream(f *testing.F) {
	send := appendFrameHeader(nil, &wire.Header{Op: wire.OpSend, Flags: wire.FlagFirst | wire.FlagLast, Length: 3, Total: 3})
	read := appendFrameHeader(nil, &wire.Header{Op: wire.OpReadResp, Length: PlaceFrom, Total: PlaceFrom, Addr: 1, RKey: 2, Imm: 3})
	f.Add(uint16(1), append(bytes.Clone(send), "abc"...))
	f.Add(uint16(7000), append(append(read, make([]byte, PlaceFrom)...), append(send, "abc"...)...))
	f.Add(uint16(5), append(appendFrameHeader(nil, &wire.Header{Op: wire.OpReadResp, Length: maxRead}), 1, 2, 3))
	f.Add(uint16(9), appendFrameHeader(nil, &wire.Header{Op: wire.OpSend, Length: maxPayload + 1}))
	f.Fuzz(func(t *testing.T, piece uint16, stream []byte) {
		if len(stream) > 100<<10 { // fits what a socket holds
			stream = stream[:100<<10]
		}
		_, b, ab, ba := joined(t)
		n := 0
		place := make([]byte, maxRead)
		b.onRecv = func(l wire.Link, h *wire.Header, payload []byte) bool {
			require.Equal(t, wire.Link(ba), l)
			require.Len(t, payload, int(h.Length))
			require.LessOrEqual(t, h.Length, maxLength(h.Op))
			n++
			return n%5 != 0
		}
		b.onPlace = func(_ wire.Link, h *wire.Header) []byte {
			if h.PSN%2 != 0 {
				return nil
			}
			return place[:h.Length]
		}
		for left := stream; len(left) > 0 && len(b.down) == 0; {
			k := min(len(left), int(piece)+1)
			inject(t, ab, left[:k])
			left = left[k:]
			if len(stream)/(int(piece)+1) < 100 || len(left) == 0 {
				b.poll(16)
			}
		}
		_ = unix.Shutdown(ab.fd, unix.SHUT_WR) // fails where b has ended it
		until(t, "the end of the link", func() bool { return len(b.down) > 0 }, b)
		b.poll(16)
		require.Len(t, b.down, 1)
	})
}
