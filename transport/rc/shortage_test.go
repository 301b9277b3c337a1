package rc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestManyOffers offers more send buffers than the device has regions. None of the sends may fail, and neither may the
// receives that need regions of their own meanwhile.
func TestManyOffers(t *testing.T) {
	const count, size = 17_000, 40_000
	p2ptest.RunConfig(t, 2, p2p.Config{SendLimit: 1 << 40}, func(w *p2p.World) {
		ctx, buf := t.Context(), make([]byte, size)
		if w.Rank() == 0 {
			reqs := make([]p2p.Request, count)
			for i := range reqs {
				reqs[i] = w.Isend(1, 1, buf)
			}
			_, err := w.Recv(ctx, 2, p2p.Exact, make([]byte, size))
			require.NoError(t, err)
			require.NoError(t, p2p.WaitAll(ctx, reqs, nil))
			return
		}
		require.NoError(t, w.Send(ctx, 0, 2, buf))
		for range count {
			_, err := w.Recv(ctx, 1, p2p.Exact, buf)
			require.NoError(t, err)
		}
	})
}
