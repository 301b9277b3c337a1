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
	}
	h.length = uint32(r.IntN(int(maxLength(h.op)) + 1))
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

// TestFrameLengths: what a read has read may be long, nothing else.
func TestFrameLengths(t *testing.T) {
	for _, c := range []struct {
		op   opcode
		most uint32
	}{{opSend, 64 << 10}, {opWrite, 64 << 10}, {opReadResp, 512 << 10}, {opPushResp, 64 << 10}} {
		var h header
		_, err := decodeFrameHeader(appendFrameHeader(nil, &header{op: c.op, length: c.most}), &h)
		require.NoError(t, err)
		require.Equal(t, c.most, h.length)
		_, err = decodeFrameHeader(appendFrameHeader(nil, &header{op: c.op, length: c.most + 1}), &h)
		require.ErrorContains(t, err, "the most is")
	}
}

func FuzzFrameHeader(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		h := randomHeader(r)
		f.Add(appendFrameHeader(nil, &h))
	}
	f.Add(appendFrameHeader(nil, &header{op: opReadResp, length: tcpMaxRead}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again header
		n, err := decodeFrameHeader(b, &h)
		if err != nil || n == 0 {
			return
		}
		require.LessOrEqual(t, h.length, maxLength(h.op))
		e := appendFrameHeader(nil, &h) // may be shorter: a peer may spell zeros out
		k, err := decodeFrameHeader(e, &again)
		require.NoError(t, err)
		require.Equal(t, len(e), k)
		require.Equal(t, h, again)
	})
}
