package p2p_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// pieces cuts b into random pieces, some of them empty.
func pieces(rng *rand.Rand, b []byte) (parts [][]byte) {
	for range rng.IntN(5) {
		n := rng.IntN(len(b) + 1)
		parts = append(parts, b[:n:n])
		b = b[n:]
	}
	return append(parts, b, nil)
}

// A message of tens of thousands of parts of a byte takes its time once for each part.
func TestVecOfManyParts(t *testing.T) {
	n := 100_000
	if !testlevel.CI() {
		n = 40_000
	}
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c, other := w.Comm(), 1-w.Rank()
		in, parts := fresh(n), make([][]byte, n)
		for i := range parts {
			parts[i] = in[i : i+1 : i+1]
		}
		recv := c.IrecvVec(other, 1, parts)
		sent := c.Isend(other, 1, pattern(n, w.Rank()))
		st, err := recv.Wait(background)
		require.NoError(t, err)
		requireReceived(t, pattern(n, other), in, st, other, 1)
		_, err = sent.Wait(background)
		require.NoError(t, err)
	})
}

// Messages gathered from pieces and scattered to others are those of one buffer, whether the
// receive is posted before or after, and however much of them fits.
func TestVec(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c, rng := w.Comm(), rand.New(rand.NewPCG(1, 2)) // both ranks draw the same
		other := 1 - w.Rank()
		for round, size := range []int{0, 1, 100, 100, 5000, 40_000, 40_000, 600_000, 1_000_001} {
			tag := p2p.Tag(round)
			out, in := make([]byte, size), make([]byte, size+10)
			for i := range out {
				out[i] = byte(rng.Uint32())
			}
			sent, got := pieces(rng, out), pieces(rng, in[:size+5])
			short := pieces(rng, make([]byte, size/2))
			early := c.IrecvVec(other, tag, got)
			reqs := []p2p.Request{c.IsendVec(other, tag, sent), c.Isend(other, tag, out)}
			st, err := early.Wait(background)
			require.NoError(t, err)
			require.Equal(t, p2p.Status{Source: other, Tag: tag, Len: int64(size)}, st)
			require.Equal(t, append(append([]byte{}, out...), make([]byte, 10)...), in)

			_, err = c.Sendrecv(background, other, tag+1000, nil, other, tag+1000, nil) // the second is unexpected here
			require.NoError(t, err)
			st, err = c.IrecvVec(p2p.AnySource, tag, short).Wait(background)
			require.EqualValues(t, size, st.Len)
			if size == size/2 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, p2p.ErrTruncated)
			}
			var first []byte
			for _, part := range short {
				first = append(first, part...)
			}
			require.Equal(t, append([]byte(nil), out[:size/2]...), first)
			require.NoError(t, p2p.WaitAll(background, reqs, nil))
		}
		canceled := c.IrecvVec(other, 77, [][]byte{make([]byte, 10), make([]byte, 10)})
		canceled.Cancel()
		_, err := canceled.Wait(background)
		require.ErrorIs(t, err, p2p.ErrCanceled)
		_, err = c.IrecvVec(5, 77, nil).Wait(background)
		require.EqualError(t, err, "p2p: recv from 5, tag 0x4d: invalid argument: rank 5 is out of range: sources go from 0 to 1, or AnySource or ProcNull")
		_, err = c.IsendVec(5, 77, nil).Wait(background)
		require.ErrorIs(t, err, p2p.ErrInvalid)
		_, err = c.IrecvVec(p2p.ProcNull, 77, nil).Wait(background)
		require.NoError(t, err)
	})
}

// TestVecIsListed: what is unfinished is named a receive, as it has been posted.
func TestVecIsListed(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		r := w.Comm().IrecvVec(0, 5, [][]byte{make([]byte, 10), make([]byte, 20)})
		var dump strings.Builder
		require.NoError(t, w.Dump(&dump))
		require.Contains(t, dump.String(), ", 30 bytes\n")
		ctx, cancel := context.WithCancel(background)
		cancel()
		require.ErrorContains(t, w.Shutdown(ctx), "unfinished here: recv from 0, tag 0x5, 30 bytes, no message")
		require.NoError(t, w.Close())
		_, err := r.Wait(background)
		require.ErrorIs(t, err, p2p.ErrClosed)
	})
}

// TestVecInit: persistent operations of several buffers take the same ones with each Start,
// whatever becomes of the slice that named them.
func TestVecInit(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c, other := w.Comm(), 1-w.Rank()
		for _, size := range []int{100, 100_000} {
			out, in := make([]byte, size), make([]byte, size)
			outs, ins := [][]byte{out[:10], nil, out[10:]}, [][]byte{in[:size/2], in[size/2:]}
			ops := []*p2p.Persistent{c.RecvInitVec(other, 1, ins), c.RecvInitVec(other, 2, ins), c.SendInitVec(other, 1, outs), c.SsendInitVec(other, 2, outs)}
			clear(outs)
			clear(ins)
			for round := range 3 {
				for kind := range 2 {
					copy(out, pattern(size, w.Rank()+10*round+kind))
					recv, send := ops[kind].Start(), ops[2+kind].Start()
					_, err := ops[kind].Start().Wait(background)
					require.ErrorIs(t, err, p2p.ErrInvalid)
					st, err := recv.Wait(background)
					require.NoError(t, err)
					require.EqualValues(t, size, st.Len)
					requireBytes(t, pattern(size, other+10*round+kind), in)
					_, err = send.Wait(background)
					require.NoError(t, err)
				}
			}
		}
	})
}
