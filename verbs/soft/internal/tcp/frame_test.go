package tcp

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// randomHeader makes any header, with fields that are often zero.
func randomHeader(r *rand.Rand) wire.Header {
	some := func() uint64 { return r.Uint64() * uint64(r.IntN(2)) }
	h := wire.Header{Op: wire.Opcode(1 + r.IntN(int(wire.OpEnd)-1)), Flags: uint8(some()), Status: uint8(some()), QPN: uint32(some()),
		PSN: uint32(some()), Imm: uint32(some()), RKey: uint32(some()), Addr: some(), Total: some(),
	}
	h.Length = uint32(r.IntN(int(maxLength(h.Op)) + 1))
	if r.IntN(2) == 0 {
		h.Total = uint64(h.Length)
	}
	return h
}

func TestFrameHeaderRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		h := randomHeader(r)
		b := appendFrameHeader([]byte("before"), &h)[6:]
		require.LessOrEqual(t, len(b), maxFrameHeader)
		var got wire.Header
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
	for _, h := range []wire.Header{
		{Op: wire.OpSend, Flags: wire.FlagFirst | wire.FlagLast | wire.FlagAckReq, Length: 8, QPN: 1, PSN: 2, Total: 8},
		{Op: wire.OpAck, QPN: 1, PSN: 2},
		{Op: wire.OpNak, QPN: 1, PSN: 2, Status: 3},
	} {
		require.Len(t, appendFrameHeader(nil, &h), frameHeader)
	}
}

// TestFrameLengths: what a read has read may be long, nothing else.
func TestFrameLengths(t *testing.T) {
	for _, c := range []struct {
		op   wire.Opcode
		most uint32
	}{{wire.OpSend, 64 << 10}, {wire.OpWrite, 64 << 10}, {wire.OpReadResp, 1 << 20}, {wire.OpPushResp, 64 << 10}} {
		var h wire.Header
		_, err := decodeFrameHeader(appendFrameHeader(nil, &wire.Header{Op: c.op, Length: c.most}), &h)
		require.NoError(t, err)
		require.Equal(t, c.most, h.Length)
		_, err = decodeFrameHeader(appendFrameHeader(nil, &wire.Header{Op: c.op, Length: c.most + 1}), &h)
		require.ErrorContains(t, err, "the most is")
	}
}

func FuzzFrameHeader(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		h := randomHeader(r)
		f.Add(appendFrameHeader(nil, &h))
	}
	f.Add(appendFrameHeader(nil, &wire.Header{Op: wire.OpReadResp, Length: maxRead}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again wire.Header
		n, err := decodeFrameHeader(b, &h)
		if err != nil || n == 0 {
			return
		}
		require.LessOrEqual(t, h.Length, maxLength(h.Op))
		e := appendFrameHeader(nil, &h) // may be shorter: a peer may spell zeros out
		k, err := decodeFrameHeader(e, &again)
		require.NoError(t, err)
		require.Equal(t, len(e), k)
		require.Equal(t, h, again)
	})
}
