package soft

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// randomHeader makes any header, with fields that are often zero.
func randomHeader(r *rand.Rand) header {
	some := func() uint64 { return r.Uint64() * uint64(r.IntN(2)) }
	h := header{op: opcode(1 + r.IntN(int(opDisconnected))), flags: uint8(some()), status: uint8(some()), qpn: uint32(some()),
		psn: uint32(some()), imm: uint32(some()), rkey: uint32(some()), addr: some(), total: some(),
		length: uint32(r.IntN(tcpMaxPayload + 1))}
	if r.IntN(2) == 0 {
		h.total = uint64(h.length)
	}
	return h
}

func TestFrameHeaderRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		h := randomHeader(r)
		b := appendFrameHeader([]byte("before"), &h)[6:]
		require.LessOrEqual(t, len(b), maxFrameHeader)
		var got header
		for n := range b {
			k, err := decodeFrameHeader(b[:n], &got)
			require.NoError(t, err)
			require.Zero(t, k, "cut to %d bytes", n)
		}
		got = randomHeader(r) // whatever was there before
		k, err := decodeFrameHeader(append(b, 1, 2, 3), &got)
		require.NoError(t, err)
		require.Equal(t, len(b), k)
		require.Equal(t, h, got)
	}
}

func TestFrameHeaderSizes(t *testing.T) {
	for _, h := range []header{
		{op: opSend, flags: flagFirst | flagLast | flagAckReq, length: 8, qpn: 1, psn: 2, total: 8},
		{op: opAck, qpn: 1, psn: 2},
		{op: opNak, qpn: 1, psn: 2, status: 3},
	} {
		require.Len(t, appendFrameHeader(nil, &h), frameHeader)
	}
}

func FuzzFrameHeader(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		h := randomHeader(r)
		f.Add(appendFrameHeader(nil, &h))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again header
		n, err := decodeFrameHeader(b, &h)
		if err != nil || n == 0 {
			return
		}
		require.LessOrEqual(t, h.length, uint32(tcpMaxPayload))
		e := appendFrameHeader(nil, &h) // may be shorter: a peer may spell zeros out
		k, err := decodeFrameHeader(e, &again)
		require.NoError(t, err)
		require.Equal(t, len(e), k)
		require.Equal(t, h, again)
	})
}
