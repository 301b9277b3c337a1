package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestAutoOffloads: with transport auto the device gets large receives from the first one on.
func TestAutoOffloads(t *testing.T) {
	p2ptest.RunConfig(t, 2, p2p.Config{Progress: p2p.ProgressManual}, func(w *p2p.World) {
		const size, peer = 1 << 20, 1
		c := w.Comm()
		if w.Rank() == peer {
			_, err := c.Recv(background, 0, 9, nil)
			require.NoError(t, err)
			require.NoError(t, c.Send(background, 0, 1, make([]byte, size)))
			return
		}
		require.Equal(t, "tmsrq", w.Metrics().Transport)
		recv := c.Irecv(peer, 1, make([]byte, size))
		require.EqualValues(t, 1, w.Metrics().Offload.Offloaded)
		require.NoError(t, c.Send(background, peer, 9, nil))
		_, err := recv.Wait(background)
		require.NoError(t, err)
		require.EqualValues(t, 1, w.Metrics().Offload.Matched)
	})
}
