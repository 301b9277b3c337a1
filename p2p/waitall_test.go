package p2p_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestWaitAllSkipsInactive gives WaitAll the zero request, one that was consumed before, and one
// that fails.
func TestWaitAllSkipsInactive(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		buf := make([]byte, 4)
		recv := w.Irecv(1, p2p.MaskExact, buf)
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
		reqs := []p2p.Request{w.Irecv(1, p2p.MaskExact, short), w.Irecv(2, p2p.MaskExact, late)}
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
		m, err := w.Mprobe(background, 3, p2p.MaskExact)
		require.NoError(t, err)
		m.Discard()
		require.ErrorIs(t, p2p.WaitAll(background, []p2p.Request{m.Irecv(late)}, nil), p2p.ErrInactive)
		i, _, err := p2p.WaitAny(background, []p2p.Request{m.Irecv(late)})
		require.ErrorIs(t, err, p2p.ErrInactive)
		require.Zero(t, i)
	})
}

// refusedCalls are nonblocking calls that begin nothing, on a rank whose sends that wait take all
// of Config.SendLimit.
func refusedCalls(t *testing.T, c *p2p.Comm) map[string]p2p.Request {
	d, err := c.Dup(background)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	twice := c.RecvInit(0, 9, nil)
	twice.Start().Free()
	return map[string]p2p.Request{
		"full": c.Isend(0, 1, nil), "full sync": c.Issend(0, 1, nil), "full vector": c.IsendVec(0, 1, nil),
		"full of many": c.IsendAll(nil, []p2p.Transfer{{Tag: 1}})[0],
		"rank":         c.Isend(7, 1, nil), "tag": c.Irecv(0, p2p.MaxCommTag+1, nil), "vector": c.IrecvVec(7, 1, nil),
		"of many": c.IrecvAll(nil, []p2p.Transfer{{Rank: 7}})[0], "closed": d.Isend(0, 1, nil), "closed receive": d.Irecv(0, 1, nil),
		"started": twice.Start(),
	}
}

// fill begins sends to this rank until one is refused, and returns the others.
func fill(c *p2p.Comm) (reqs []p2p.Request) {
	for {
		r := c.Isend(0, 5, nil)
		if _, done, err := r.Peek(); done && errors.Is(err, p2p.ErrFull) {
			r.Free()
			return reqs
		}
		reqs = append(reqs, r)
	}
}

// WaitAll and TestAll return the error of a call that was refused where they would have to wait for
// others, and consume nothing. Once Test has, the others are waited for.
func TestWaitAllTellsRefusals(t *testing.T) {
	cfg := p2p.Config{SendLimit: 2048, UnexpectedLimit: 4096}
	p2ptest.RunConfig(t, 1, cfg, func(w *p2p.World) {
		c := w.Comm()
		bounded, cancel := context.WithTimeout(background, testlevel.Patience(20*time.Second)) // it is not used up
		defer cancel()
		waiting := fill(c)
		for name, r := range refusedCalls(t, c) {
			pending := c.Irecv(0, 6, nil)
			reqs := []p2p.Request{pending, r}
			_, _, want := r.Peek()
			require.Error(t, want, name)
			for range 2 {
				require.EqualError(t, p2p.WaitAll(bounded, reqs, nil), want.Error(), name)
				done, err := p2p.TestAll(reqs, nil)
				require.EqualError(t, err, want.Error(), name)
				require.False(t, done)
				require.Equal(t, []p2p.Request{pending, r}, reqs, name)
			}
			_, done, err := r.Test()
			require.True(t, done)
			require.EqualError(t, err, want.Error())
			done, err = p2p.TestAll(reqs, nil)
			require.False(t, done)
			require.NoError(t, err, name)
			pending.Cancel()
			require.ErrorIs(t, p2p.WaitAll(background, reqs, nil), p2p.ErrCanceled, name)
		}
		for range waiting {
			_, err := c.Recv(background, 0, 5, nil)
			require.NoError(t, err)
		}
		require.NoError(t, p2p.WaitAll(background, waiting, nil))
		require.NoError(t, c.Send(background, 0, 9, nil)) // that of Free
	})
}

// A receiver that takes the messages in the opposite order waits for one that the sender's limit
// has refused: WaitAll says so, and the sender goes on with calls that wait.
func TestWaitAllRefusedIsSentAgain(t *testing.T) {
	const n = 100
	onWirings(t, 2, p2p.Config{SendLimit: 4096, UnexpectedLimit: 1 << 14}, func(t *testing.T, w *p2p.World) {
		c := w.Comm()
		if w.Rank() == 1 {
			for i := range n {
				_, err := c.Recv(background, 0, p2p.Tag(n-1-i), nil)
				require.NoError(t, err)
			}
			return
		}
		var reqs []p2p.Request
		for i := range n {
			reqs = append(reqs, c.Isend(1, p2p.Tag(i), nil))
		}
		require.ErrorIs(t, p2p.WaitAll(background, reqs, nil), p2p.ErrFull)
		again := 0
		for i, r := range slices.Backward(reqs) { // in the order in which they are received
			if _, done, err := r.Test(); done && errors.Is(err, p2p.ErrFull) {
				again++
				require.NoError(t, c.Send(background, 1, p2p.Tag(i), nil))
			}
		}
		require.NotZero(t, again)
		require.NoError(t, p2p.WaitAll(background, reqs, nil))
	})
}
