package p2p_test

import (
	"context"
	"testing"
	"time"

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

// WaitAll consumes nothing when its context ends: the next one tells the outcome of each request,
// that of one which had failed before included.
func TestWaitAllAgain(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		late, short := make([]byte, 4), make([]byte, 1)
		reqs := []p2p.Request{w.Irecv(1, p2p.Exact, short), w.Irecv(2, p2p.Exact, late)}
		require.NoError(t, w.Send(background, 0, 1, []byte("long")))
		for range 2 {
			ctx, cancel := context.WithTimeout(background, time.Millisecond)
			require.Equal(t, context.DeadlineExceeded, p2p.WaitAll(ctx, reqs, nil))
			cancel()
			require.NotContains(t, reqs, p2p.Request{})
		}
		require.NoError(t, w.Send(background, 0, 2, []byte("late")))
		out := make([]p2p.Completion, 2)
		require.ErrorIs(t, p2p.WaitAll(background, reqs, out), p2p.ErrTruncated)
		require.ErrorIs(t, out[0].Err, p2p.ErrTruncated)
		require.NoError(t, out[1].Err)
		require.Equal(t, []p2p.Request{{}, {}}, reqs)

		// An operation that fails with ErrInactive is not a request that was consumed before.
		require.NoError(t, w.Send(background, 0, 3, []byte("once")))
		m, err := w.Mprobe(background, 3, p2p.Exact)
		require.NoError(t, err)
		m.Discard()
		require.ErrorIs(t, p2p.WaitAll(background, []p2p.Request{m.Irecv(late)}, nil), p2p.ErrInactive)
		i, _, err := p2p.WaitAny(background, []p2p.Request{m.Irecv(late)})
		require.ErrorIs(t, err, p2p.ErrInactive)
		require.Zero(t, i)
	})
}
