package p2p_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// A raw receive that names its source matches by its tag, and says of whom it was in its errors.
func TestRecvFrom(t *testing.T) {
	onWirings(t, 2, offloaded, func(t *testing.T, w *p2p.World) {
		peer := 1 - w.Rank()
		tag := func(sender int) p2p.Tag { return p2p.Tag(sender)<<16 | 5 }
		for _, size := range []int{0, 8, 100_000} {
			in, out := make([]byte, 100_000), make([]byte, size)
			r := w.IrecvFrom(peer, tag(peer), p2p.Exact, in)
			require.NoError(t, w.Send(background, w.Rank(), tag(w.Rank()), nil))
			require.NoError(t, second(w.RecvFrom(background, w.Rank(), tag(w.Rank()), p2p.Exact, nil)))
			s := w.Isend(peer, tag(w.Rank()), out)
			st, err := r.Wait(background)
			require.NoError(t, err)
			require.Equal(t, p2p.Status{Source: peer, Tag: tag(peer), Len: int64(size)}, st)
			require.NoError(t, second(s.Wait(background)))
		}
		require.NoError(t, w.Send(background, peer, tag(w.Rank()), []byte("both")))
		st, err := w.RecvFrom(background, p2p.AnySource, 5, 0xffff, make([]byte, 2))
		require.EqualError(t, err, "p2p: recv from any, tag 0x5: message longer than the buffer: 4 bytes into 2")
		require.Equal(t, peer, st.Source)

		var none context.Context
		for text, err := range map[string]error{
			"p2p: recv from 2, tag 0x5: invalid argument: rank 2 is out of range: sources go from 0 to 1, or AnySource": second(
				w.RecvFrom(background, 2, 5, p2p.Exact, nil)),
			"p2p: recv from -2, tag 0x5: invalid argument: rank -2 is out of range: sources go from 0 to 1, or AnySource": second(
				w.IrecvFrom(p2p.ProcNull, 5, p2p.Exact, nil).Wait(background)),
			"p2p: recv from 0, tag 0x8000000000000000: invalid argument: bit 63 of a tag belongs to the library: " +
				"tags of a World's own calls go from 0 to 0x7fffffffffffffff": second(w.RecvFrom(background, 0, 1<<63, p2p.Any, nil)),
			"p2p: recv from 0, tag 0x5: invalid argument: the context is nil: use context.Background where nothing should end the call": second(
				w.RecvFrom(none, 0, 5, p2p.Exact, nil)),
		} {
			require.EqualError(t, err, text)
			require.ErrorIs(t, err, p2p.ErrInvalid)
		}
	})
}
