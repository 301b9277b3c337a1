package p2p_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestWaitAllSkipsInactive gives WaitAll the zero request, one that was consumed before, and one
// that fails.
func TestWaitAllSkipsInactive(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		buf := make([]byte, 4)
		recv := w.Irecv(1, p2p.Exact, buf)
		consumed := w.Isend(0, 1, []byte("data"))
		_, err := consumed.Wait(background)
		require.NoError(t, err)
		reqs := []p2p.Request{{}, consumed, recv}
		out := make([]p2p.Completion, len(reqs))
		require.NoError(t, p2p.WaitAll(background, reqs, out))
		require.Equal(t, []p2p.Request{{}, {}, {}}, reqs)
		require.Equal(t, p2p.ProcNull, out[1].Status.Source)
		require.Equal(t, 0, out[2].Status.Source)
		reqs = []p2p.Request{consumed, w.Isend(7, 1, nil)}
		require.ErrorIs(t, p2p.WaitAll(background, reqs, nil), p2p.ErrInvalid)
	})
}
