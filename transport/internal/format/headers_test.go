package format_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
)

// maxRndv is the largest rendezvous request, as the format has it.
const maxRndv = 64

func deliver(t *testing.T, msg []byte, maxEager int) (transporttest.Recorder, error) {
	t.Helper()
	var sink transporttest.Recorder
	var h transport.RndvHdr
	err := format.Deliver(&sink, 3, format.Opcode(msg), msg, maxEager, &h)
	return sink, err
}

// TestGolden pins the encoding: a change of it needs a new address version.
func TestGolden(t *testing.T) {
	b := make([]byte, maxRndv)
	n := format.PutEager(b, 0x01020304, 0x1112131415161718)
	require.Equal(t, []byte{3, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}, b[:n])

	n = format.PutRndv(b, &transport.RndvHdr{AppCtx: 5, Tag: 6, VA: 7, RKey: 8, Len: 9<<32 | 10, Extra: []byte("ab")})
	require.Equal(t, []byte{
		1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6,
		0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 255, 255, 255, 255,
		0, 0, 0, 9, 0, 0, 0, 10, 'a', 'b',
	}, b[:n])

	n = format.PutFin(b, 11)
	require.Equal(t, append([]byte{2, 0, 0, 0, 0, 0, 0, 11}, make([]byte, 24)...), b[:n])

	n = format.PutCtrl(b)
	require.Equal(t, []byte{0, 1}, b[:n])
}

func TestDeliver(t *testing.T) {
	b := make([]byte, maxRndv)
	for _, size := range []uint64{0, 1, 1<<32 - 2, 1<<32 - 1, 1 << 32, 1<<64 - 1} {
		for extra := 0; extra <= format.MaxExtra; extra++ {
			h := transport.RndvHdr{AppCtx: 1, Tag: 2, VA: 3, RKey: 4, Len: size, Extra: bytes.Repeat([]byte{7}, extra)}
			sink, err := deliver(t, b[:format.PutRndv(b, &h)], 0)
			require.NoError(t, err)
			require.Len(t, sink.Events, 1)
			e := sink.Events[0]
			require.Equal(t, transporttest.Event{Kind: "rndv", Src: 3, AppCtx: 1, Tag: 2, VA: 3, RKey: 4, Len: size,
				Data: append([]byte{}, h.Extra...)}, e)
		}
	}
	// A FIN without RVH is legal (TMO 2.4).
	for n := verbs.TMHSize; n <= maxRndv; n++ {
		clear(b)
		format.PutFin(b, 9)
		sink, err := deliver(t, b[:n], 0)
		require.NoError(t, err)
		require.Equal(t, []transporttest.Event{{Kind: "fin", Src: 3, AppCtx: 9}}, sink.Events)
	}
}

func TestBufferSize(t *testing.T) {
	for _, limit := range []int{0, 1, 100, 1000, 32 << 10, 60 << 10} {
		n := format.BufferSize(limit)
		require.Zero(t, n%64)
		require.GreaterOrEqual(t, n, limit+verbs.TMHSize)
		require.GreaterOrEqual(t, n, maxRndv)
		require.GreaterOrEqual(t, n, format.MaxCtrl+2)
	}
}

// FuzzDeliver: any message is either delivered, once and with no more bytes than it has, or
// refused.
func FuzzDeliver(f *testing.F) {
	b := make([]byte, maxRndv)
	f.Add(append([]byte{}, b[:format.PutEager(b, 1, 2)]...))
	f.Add(append([]byte{}, b[:format.PutRndv(b, &transport.RndvHdr{Len: 1 << 40, Extra: []byte("x")})]...))
	f.Add(append([]byte{}, b[:format.PutFin(b, 1)]...))
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, msg []byte) {
		const maxEager = 100
		sink, err := deliver(t, msg, maxEager)
		if err != nil {
			require.Empty(t, sink.Events)
			return
		}
		require.Len(t, sink.Events, 1)
		e := sink.Events[0]
		require.LessOrEqual(t, len(e.Data), len(msg))
		switch e.Kind {
		case "eager":
			require.LessOrEqual(t, len(e.Data), maxEager)
		case "ctrl":
			require.LessOrEqual(t, len(e.Data), format.MaxCtrl)
		case "rndv":
			require.LessOrEqual(t, len(e.Data), format.MaxExtra)
		}
	})
}
