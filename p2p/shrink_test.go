package p2p_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func shrink(t *testing.T, c *p2p.Comm, value int64) (*p2p.Comm, int64) {
	t.Helper()
	n, least, err := c.Shrink(background, value)
	require.NoError(t, err)
	return n, least
}

// Where nobody is lost the members are the same. The result is a Comm as any other.
func TestShrinkWhole(t *testing.T) {
	onWirings(t, 3, offloaded, func(t *testing.T, w *p2p.World) {
		c := split(t, w.Comm(), 0, -w.Rank())
		for i := range 3 {
			n, least := shrink(t, c, int64(w.Rank()-5*i))
			require.Equal(t, int64(-5*i), least)
			require.Equal(t, []int{2, 1, 0}, ranksOf(n))
			barrier(t, n)
			require.NoError(t, c.Close())
			c = n
		}
		alone := split(t, c, w.Rank(), 0)
		n, least := shrink(t, alone, 7)
		require.EqualValues(t, 7, least)
		require.Equal(t, 1, n.Size())
		barrier(t, dup(t, c))
	})
}

// Ranks are lost one after the other, the first among them. The survivors of each revoke what they
// have, and go on with a Comm of the same ranks.
func TestShrinkAfterLosses(t *testing.T) {
	const n = 5
	p2ptest.Run(t, n, func(w *p2p.World) {
		c := dup(t, w.Comm())
		order := []int{0, 1, 2, 3, 4}
		for _, leaves := range []int{3, 0, 4} {
			if w.Rank() == leaves {
				require.NoError(t, w.Close())
				return
			}
			next := (c.Rank() + 1) % c.Size()
			if _, err := c.Recv(background, next, 1, nil); err != nil {
				require.NoError(t, c.Revoke(err.Error()))
			}
			survivors, least := shrink(t, c, int64(w.Rank()))
			require.NoError(t, c.Close())
			c = survivors
			for i, rank := range order {
				if rank == leaves {
					order = append(order[:i:i], order[i+1:]...)
				}
			}
			require.Equal(t, order, ranksOf(c))
			require.EqualValues(t, order[0], least)
			barrier(t, dup(t, c))
			require.Equal(t, c.Size(), split(t, c, 0, 0).Size())
		}
		require.NoError(t, w.Close())
	})
}

// A rank whose context ends gives up. The others hear who when all have called Shrink, and can call
// it again, as can that rank.
func TestShrinkGivenUp(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		c := dup(t, w.Comm())
		var err error
		if w.Rank() == 1 {
			ctx, cancel := context.WithCancelCause(background)
			other := dup(t, w.Comm())
			go cancel(nil)
			_, _, err = c.Shrink(ctx, 0)
			require.Equal(t, "p2p: shrink: context canceled", err.Error())
			barrier(t, other)
		} else {
			other := dup(t, w.Comm())
			if w.Rank() == 0 {
				barrier(t, other)
				_, _, err = c.Shrink(background, 0)
			} else {
				var wg sync.WaitGroup
				wg.Go(func() { _, _, err = c.Shrink(background, 0) })
				barrier(t, other)
				wg.Wait()
			}
			require.ErrorIs(t, err, p2p.ErrGaveUp)
			require.EqualError(t, err, "p2p: shrink: another rank has given up: rank 1 of the World")
		}
		n, least := shrink(t, c, int64(10+w.Rank()))
		require.EqualValues(t, 10, least)
		require.Equal(t, 3, n.Size())
		barrier(t, n)
	})
}

// Who has closed the Comm fails the others, whichever it is.
func TestShrinkOfClosed(t *testing.T) {
	for closes := range 3 {
		p2ptest.Run(t, 3, func(w *p2p.World) {
			c := dup(t, w.Comm())
			if w.Rank() == closes {
				require.NoError(t, c.Close())
				_, _, err := c.Shrink(background, 0)
				require.EqualError(t, err, "p2p: shrink: communicator closed")
			} else {
				_, _, err := c.Shrink(background, 0)
				require.EqualError(t, err, fmt.Sprintf("p2p: shrink: another rank has given up: rank %d of the World", closes))
			}
			barrier(t, w.Comm())
		})
	}
}

// Two Comms shrink and dup at once on the same ranks.
func TestShrinkBesideDup(t *testing.T) {
	onWirings(t, 3, offloaded, func(t *testing.T, w *p2p.World) {
		a, b, c := dup(t, w.Comm()), dup(t, w.Comm()), dup(t, w.Comm())
		var wg sync.WaitGroup
		for _, k := range []*p2p.Comm{a, b, c} {
			wg.Go(func() {
				for range rounds(60) {
					var n *p2p.Comm
					var err error
					if k == c {
						n, err = k.Dup(background)
					} else {
						n, _, err = k.Shrink(background, 0)
					}
					if err != nil {
						panic(err)
					}
					if err := n.Barrier(background); err != nil {
						panic(err)
					}
					_ = n.Close()
				}
			})
		}
		wg.Wait()
	})
}

// Of two ranks that live and have given each other up, one is left out, or both are. Such a rank
// hears so from the other one, and again in a later call, or has lost both, and is alone.
func TestShrinkLeftOut(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		c := dup(t, w.Comm())
		barrier(t, c)
		if w.Rank() == 0 {
			p2p.GiveUpRank(w, 2)
		}
		n, _, err := c.Shrink(background, 0)
		if err != nil {
			require.NotEqual(t, 1, w.Rank())
			var loss *p2p.PeerError
			require.ErrorAs(t, err, &loss)
			require.ErrorContains(t, err, "it goes on without this rank")
			require.Subset(t, w.Failed(), loss.Ranks)
			_, _, err = c.Shrink(background, 0)
			require.ErrorIs(t, err, p2p.ErrPeerLost)
		} else {
			require.Contains(t, [][]int{{0, 1}, {1, 2}, {w.Rank()}}, ranksOf(n)) // others may be lost to it since
		}
		require.NoError(t, w.Close())
	})
}
