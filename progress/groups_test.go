package progress

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// ranksOf is a group's ranks.
type ranksOf []int

func (g ranksOf) Contains(rank int) bool { return slices.Contains(g, rank) }

// Receives from any rank of a group end with the loss of one of its ranks, in software and in the
// device, and fail until that is acknowledged. Others do not concern them.
func TestGroupLoss(t *testing.T) {
	for _, tags := range []int{0, 8} {
		c := newCluster(t, 5, Config{Manual: true}, fakeOpts{tags: tags})
		e := c.e[0]
		c.net.kill(4)
		c.step()
		first, second := e.Group(ranksOf{1, 2}), e.Group(ranksOf{2, 3, 4})
		require.Equal(t, []int{AnySource - 1, AnySource - 2}, []int{first, second})
		requireLost(t, 4, e.Irecv(second, 2, exact, nil), e.Irecv(AnySource, 3, exact, nil))
		e.AckFailures(AnySource, 4)
		requireLost(t, 4, e.Irecv(second, 2, exact, nil)) // which has not heard of it yet
		e.AckFailures(first, 4)                           // not of that group
		e.AckFailures(second, 4)
		one, two, all := e.Irecv(first, 1, exact, nil), e.Irecv(second, 2, exact, nil), e.Irecv(AnySource, 3, exact, nil)
		c.net.kill(1)
		c.step()
		requireLost(t, 1, one, all, e.Irecv(first, 1, exact, nil), e.Irecv(AnySource, 3, exact, nil))
		_, err := e.Recv(bg, first, 1, exact, nil)
		require.ErrorIs(t, err, ErrPeerLost)
		open(t, two)
		e.AckFailures(first, 1, 1, 4)
		requireLost(t, 1, e.Irecv(AnySource, 3, exact, nil))
		e.AckFailures(AnySource, 1)
		one = e.Irecv(first, 1, exact, nil)
		again := e.Irecv(second, 2, exact, nil)
		c.net.kill(3)
		c.step()
		requireLost(t, 3, two, again)
		open(t, one)
		requireLost(t, 3, e.Irecv(AnySource, 3, exact, nil))
		require.NoError(t, c.e[2].Send(bg, 0, 1, nil))
		c.step()
		require.Equal(t, Status{2, 1, 0}, statusOf(t, one))
		require.NoError(t, c.e[2].Send(bg, 0, 2, nil)) // what has come can be received
		c.step()
		_, err = e.Recv(bg, second, 2, exact, nil)
		require.NoError(t, err)

		(*callback)(e).Forget(second)
		e.AckFailures(second, 3)
		_, err = e.Recv(bg, second, 2, exact, nil)
		require.ErrorIs(t, err, ErrInvalid)
		require.Equal(t, second, e.Group(ranksOf{0}))
		for _, src := range []int{-7, 5} {
			_, err = e.Recv(bg, src, 2, exact, nil)
			require.ErrorIs(t, err, ErrInvalid)
		}
	}
}

// Of the peers that are held up those in the group are told of a receive, whether it was posted
// before or after.
func TestGroupWants(t *testing.T) {
	c := tight(t, 3, fakeOpts{})
	e := c.e[0]
	c.holdUp(1, 0)
	c.step()
	c.holdUp(2, 0)
	before := e.Irecv(e.Group(ranksOf{1}), 5, exact, nil)
	log := c.watch(2)
	c.step()
	after := e.Irecv(e.Group(ranksOf{2, 0}), 6, exact, nil)
	c.step()
	require.Len(t, *log, 1)
	require.EqualValues(t, 6, (*log)[0].want.tag)
	require.EqualValues(t, 2, e.Metrics().WantsSent)
	late := []Request{c.e[1].Isend(0, 5, nil), c.e[2].Isend(0, 6, nil)}
	c.step()
	succeeded(t, before, after)
	succeeded(t, late...)
	c.balanced()
}

// The device gets receives from any rank of a group whose ranks all send by it.
func TestGroupInDevice(t *testing.T) {
	c := newCluster(t, 4, Config{Manual: true}, fakeOpts{tags: 8, split: true})
	e := c.e[0]
	near, far := e.Irecv(e.Group(ranksOf{0, 2}), 1, exact, nil), e.Irecv(e.Group(ranksOf{2, 3}), 2, exact, nil)
	require.Equal(t, opOffloaded, near.op.state)
	require.Equal(t, opPosted, far.op.state)
	require.NoError(t, c.e[2].Send(bg, 0, 1, nil))
	require.NoError(t, c.e[3].Send(bg, 0, 2, nil))
	c.step()
	succeeded(t, near, far)
}
