package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestAutoOffloads: with transport auto the device gets large receives once their source has
// answered the first one's question.
func TestAutoOffloads(t *testing.T) {
	p2ptest.RunConfig(t, 2, p2p.Config{Progress: p2p.ProgressManual}, func(w *p2p.World) {
		const size, peer = 1 << 20, 1
		c := w.Comm()
		if w.Rank() == peer {
			_, err := c.Recv(background, 0, 9, nil) // and answers meanwhile
			require.NoError(t, err)
			require.NoError(t, c.Send(background, 0, 9, nil))
			_, err = c.Recv(background, 0, 9, nil)
			require.NoError(t, err)
			for tag := range p2p.Tag(2) {
				require.NoError(t, c.Send(background, 0, tag+1, make([]byte, size)))
			}
			return
		}
		require.Equal(t, "tmsrq", w.Metrics().Transport)
		first := c.Irecv(peer, 1, make([]byte, size))
		m := w.Metrics().Offload
		require.Equal(t, [2]uint64{1, 0}, [2]uint64{m.KeptPath, m.Offloaded})
		require.NoError(t, c.Send(background, peer, 9, nil))
		_, err := c.Recv(background, peer, 9, nil)
		require.NoError(t, err)
		second := c.Irecv(peer, 2, make([]byte, size))
		require.EqualValues(t, 1, w.Metrics().Offload.Offloaded)
		require.NoError(t, c.Send(background, peer, 9, nil))
		require.NoError(t, p2p.WaitAll(background, []p2p.Request{first, second}, nil))
		require.EqualValues(t, 1, w.Metrics().Offload.Matched)
	})
}
