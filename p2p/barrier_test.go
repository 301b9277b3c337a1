package p2p_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// No rank leaves a Barrier before all have entered it, whichever is last, and the messages of it
// meet no receive of the program.
func TestBarrier(t *testing.T) {
	const n, rounds = 5, 50
	eachWiring(t, offloaded, func(t *testing.T, cfg p2p.Config) {
		var all, part [2]atomic.Int64
		p2ptest.RunConfig(t, n, cfg, func(w *p2p.World) {
			c, half := dup(t, w.Comm()), split(t, w.Comm(), w.Rank()%2, 0)
			raw := w.Irecv(0, p2p.MaskAny, nil)
			anything := c.Irecv(p2p.AnySource, p2p.AnyTag, nil)
			// Barriers of different Comms are at once under way.
			var both sync.WaitGroup
			both.Go(func() { enter(t, half, &part[w.Rank()%2], rounds) })
			enter(t, c, &all[0], rounds)
			both.Wait()
			for _, r := range []p2p.Request{raw, anything} {
				requireUnmatched(t, r)
			}
			require.NoError(t, half.Close())
			require.ErrorIs(t, half.Barrier(background), p2p.ErrClosed)
		})
	})
}

// enter calls Barrier again and again, and counts the calls of all ranks before each.
func enter(t *testing.T, c *p2p.Comm, calls *atomic.Int64, rounds int) {
	for i := range rounds {
		if i%c.Size() == c.Rank() { // the others are in it by then
			for range 20 {
				_, _, _ = c.Iprobe(c.Rank(), 1)
			}
		}
		calls.Add(1)
		assert.NoError(t, c.Barrier(background))
		assert.GreaterOrEqual(t, calls.Load(), int64(c.Size()*(i+1)), "round %d", i)
	}
}

func barrierOf(c *p2p.Comm) func(context.Context) error { return c.Barrier }

// A Barrier that cannot end names the ranks for which it waits, as Dup does, and messages go on.
func TestBarrierFails(t *testing.T) {
	worldsOnWirings(t, 3, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		var none context.Context
		require.EqualError(t, ws[0].Comm().Barrier(none), "p2p: barrier: invalid argument: the context is nil: use context.Background where nothing should end the call")
		turned := onAll(t, ws, func(w *p2p.World) (*p2p.Comm, error) { return w.Comm().Split(background, 0, -w.Rank()) })
		for rank, err := range stuck(t, ws, map[int]func(context.Context) error{0: barrierOf(turned[0]), 2: barrierOf(turned[2])}) {
			require.ErrorIs(t, err, context.Canceled)
			require.EqualError(t, err, "p2p: barrier: context canceled: rank 1 of the World has not called it")
			require.EqualError(t, turned[rank].Barrier(background),
				"p2p: barrier: an earlier call on this Comm failed: context canceled: rank 1 of the World has not called it")
		}
		for rank, err := range stuck(t, ws, map[int]func(context.Context) error{
			0: barrierOf(ws[0].Comm()), 1: splitOf(ws[1].Comm()), 2: barrierOf(ws[2].Comm())}) {
			if rank == 1 {
				require.ErrorContains(t, err, "split: context canceled: ranks 0, 2 have made another call on this Comm")
			} else {
				require.ErrorContains(t, err, "barrier: context canceled: rank 1 has made another call on this Comm")
			}
		}
		require.NoError(t, ws[0].Comm().Send(background, 1, 1, nil))
		require.NoError(t, second(ws[1].Comm().Recv(background, 0, 1, nil)))
	})
}

// The loss of any rank ends a Barrier on all others.
func TestBarrierEndsByLoss(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		defer w.Close()
		assert.NoError(t, w.Comm().Barrier(background))
		if w.Rank() == 2 {
			return
		}
		err := w.Comm().Barrier(background)
		assert.ErrorIs(t, err, p2p.ErrPeerLost)
		assert.ErrorContains(t, err, "p2p: barrier: ")
	})
}
