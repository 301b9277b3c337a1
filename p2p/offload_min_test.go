package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestDefaultOffloadMin: receives of less than 1 MiB stay with the software unless OffloadMin says
// otherwise.
func TestDefaultOffloadMin(t *testing.T) {
	p2ptest.RunConfig(t, 2, p2p.Config{Transport: "tmsrq", Progress: p2p.ProgressManual}, func(w *p2p.World) {
		const min = 1 << 20
		peer := 1 - w.Rank()
		small, large := w.Comm().Irecv(peer, 1, make([]byte, min-1)), w.Comm().Irecv(peer, 2, make([]byte, min))
		m := w.Metrics().Offload
		require.Equal(t, [2]uint64{1, 1}, [2]uint64{m.KeptSmall, m.Offloaded})
		for tag := range p2p.Tag(2) {
			require.NoError(t, w.Comm().Send(background, peer, tag+1, make([]byte, min-1)))
		}
		require.NoError(t, p2p.WaitAll(background, []p2p.Request{small, large}, nil))
	})
}
