package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func newComm(t *testing.T, w *p2p.World, ranks ...int) *p2p.Comm {
	t.Helper()
	c, err := w.NewComm(background, ranks)
	require.NoError(t, err)
	require.Equal(t, ranks, ranksOf(c))
	require.Equal(t, w.Rank(), c.WorldRank(c.Rank()))
	return c
}

// Members make Comms of themselves alone, in any order, again and again, while the others do
// something else. The results are Comms as any other.
func TestNewComm(t *testing.T) {
	onWirings(t, 5, offloaded, func(t *testing.T, w *p2p.World) {
		lists := [][]int{{3, 0, 1}, {0, 1}, {0}, {4, 3, 2, 1, 0}, {2, 4}, {0, 1, 2, 3, 4}}
		for range 3 {
			for _, list := range lists {
				if !slices.Contains(list, w.Rank()) {
					continue
				}
				c := newComm(t, w, list...)
				barrier(t, c)
				require.NoError(t, c.Barrier(background))
				d := dup(t, c)
				n, least := shrink(t, d, int64(w.Rank()))
				require.EqualValues(t, slices.Min(list), least)
				require.Equal(t, 1, split(t, n, c.Rank(), 0).Size())
				for _, c := range []*p2p.Comm{c, d, n} {
					require.NoError(t, c.Close())
				}
			}
		}
		require.NoError(t, w.Comm().Barrier(background))
	})
}

// Comms of groups that overlap, and of groups that do not, are made at once, beside Dup and Shrink.
func TestNewCommAtOnce(t *testing.T) {
	onWirings(t, 4, offloaded, func(t *testing.T, w *p2p.World) {
		var calls []func() (*p2p.Comm, error)
		for _, list := range [][]int{{0, 1, 2}, {1, 2, 3}, {2, 0}, {3, 1}, {0, 3}, {3, 2, 1, 0}, {0}, {1}, {2}, {3}} {
			if slices.Contains(list, w.Rank()) {
				calls = append(calls, func() (*p2p.Comm, error) { return w.NewComm(background, list) })
			}
		}
		a, b := dup(t, w.Comm()), dup(t, w.Comm())
		calls = append(calls, func() (*p2p.Comm, error) { return a.Dup(background) }, func() (*p2p.Comm, error) {
			n, _, err := b.Shrink(background, 0)
			return n, err
		})
		var under sync.WaitGroup
		for _, call := range calls {
			under.Go(func() {
				for range rounds(40) {
					c, err := call()
					if !assert.NoError(t, err) {
						return
					}
					assert.NoError(t, c.Barrier(background))
					assert.NoError(t, c.Close())
				}
			})
		}
		under.Wait()
	})
}

// Each mistake is named, before anything is sent.
func TestNewCommArguments(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		for _, c := range []struct {
			ranks []int
			want  string
		}{
			{nil, fmt.Sprintf("the list is without this rank, which is %d: only the members of a Comm make it", w.Rank())},
			{[]int{(w.Rank() + 1) % 3}, fmt.Sprintf("the list is without this rank, which is %d: only the members of a Comm make it", w.Rank())},
			{[]int{0, 1, 2, 1}, "rank 1 is in the list twice"},
			{[]int{w.Rank(), 3}, "rank 3 is out of range: ranks of the World go from 0 to 2"},
			{[]int{w.Rank(), -1}, "rank -1 is out of range: ranks of the World go from 0 to 2"},
		} {
			_, err := w.NewComm(background, c.ranks)
			require.ErrorIs(t, err, p2p.ErrInvalid)
			require.EqualError(t, err, "p2p: new comm: invalid argument: "+c.want)
		}
		var none context.Context
		require.ErrorIs(t, commErr(w.NewComm(none, []int{w.Rank()})), p2p.ErrInvalid)
		ended, end := context.WithCancel(background)
		end()
		require.ErrorIs(t, commErr(w.NewComm(ended, []int{0, 1, 2})), context.Canceled)
		newComm(t, w, 0, 1, 2)
	})
}

// Where the same ranks are given in another order all members hear it, and can call again.
func TestNewCommOrders(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		list := []int{2, 0, 1}
		if w.Rank() == 1 {
			list = []int{0, 1, 2}
		}
		_, err := w.NewComm(background, list)
		require.ErrorIs(t, err, p2p.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("here %v, and rank 1 gives another order than rank 0", list))
		newComm(t, w, 2, 0, 1)
	})
}

// One that gives other ranks is named where the call ends, there and by those that it names.
func TestNewCommOfOthers(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		ctx, end := context.WithTimeout(background, testlevel.Patience(500*time.Millisecond)) // until then they have heard of each other
		defer end()
		list := []int{0, 1, 2}
		if w.Rank() == 2 {
			list = []int{0, 2}
		}
		_, err := w.NewComm(ctx, list)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		switch w.Rank() {
		case 0:
			require.ErrorContains(t, err, "rank 2 makes a Comm with this rank and other ones than here, which are ranks 0-2")
		case 2:
			require.ErrorContains(t, err, "rank 0 makes a Comm with this rank and other ones than here, which are ranks 0, 2")
		}
		barrier(t, w.Comm())
		list = []int{0, 1, 2}
		_, err = w.NewComm(background, list) // the ballot of those that gave up is still to be decided
		if w.Rank() == 2 {
			require.ErrorIs(t, err, p2p.ErrGaveUp)
		}
		for err != nil {
			require.ErrorIs(t, err, p2p.ErrGaveUp)
			_, err = w.NewComm(background, list)
		}
	})
}

// A loss before all have called fails the call for all, with the same ranks; also where one knew of
// it before. Those that live make another one.
func TestNewCommLoss(t *testing.T) {
	const n, gone = 4, 1
	p2ptest.Run(t, n, func(w *p2p.World) {
		barrier(t, w.Comm())
		if w.Rank() == gone {
			require.NoError(t, w.Close())
			return
		}
		if w.Rank() == 3 {
			require.ErrorIs(t, second(w.Comm().Recv(background, gone, 1, nil)), p2p.ErrPeerLost)
		}
		for range 2 {
			_, err := w.NewComm(background, []int{3, 2, 1, 0})
			var loss *p2p.PeerError
			require.True(t, errors.As(err, &loss), "%v", err)
			require.Equal(t, []int{gone}, loss.Ranks)
			require.Contains(t, w.Failed(), gone)
		}
		c := newComm(t, w, 3, 2, 0)
		barrier(t, c)
		require.NoError(t, w.Close())
	})
}

// Of a World that has ended NewComm tells so.
func TestNewCommAfterClose(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		require.NoError(t, w.Shutdown(background))
		require.ErrorIs(t, commErr(w.NewComm(background, []int{0})), p2p.ErrClosed)
	})
}

func commErr(_ *p2p.Comm, err error) error { return err }
