package progress

import (
	"fmt"
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
		first, second := e.Group(0, ranksOf{1, 2}), e.Group(0, ranksOf{2, 3, 4})
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
		require.Equal(t, second, e.Group(0, ranksOf{0}))
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
	before := e.Irecv(e.Group(0, ranksOf{1}), 5, exact, nil)
	log := c.watch(2)
	c.step()
	after := e.Irecv(e.Group(0, ranksOf{2, 0}), 6, exact, nil)
	c.step()
	require.Len(t, *log, 1)
	require.EqualValues(t, 6, (*log)[0].want.Tag)
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
	near, far := e.Irecv(e.Group(0, ranksOf{0, 2}), 1, exact, nil), e.Irecv(e.Group(0, ranksOf{2, 3}), 2, exact, nil)
	require.Equal(t, opOffloaded, near.op.state)
	require.Equal(t, opPosted, far.op.state)
	require.NoError(t, c.e[2].Send(bg, 0, 1, nil))
	require.NoError(t, c.e[3].Send(bg, 0, 2, nil))
	c.step()
	succeeded(t, near, far)
}

// Tags of Comms, as package p2p packs them.
func commTag(context, src, tag uint64) uint64 { return 1<<63 | context<<52 | src<<32 | tag }

const (
	commContext = uint64(1<<12-1) << 52
	commSources = uint64(1<<20-1) << 32
	anyOfComm   = ^commSources
)

// comms is a cluster whose tags have contexts and sources.
func comms(t *testing.T, opts fakeOpts) *cluster {
	return newCluster(t, 4, Config{Manual: true, ContextMask: commContext, SourceMask: commSources}, opts)
}

// requireIntruder requires that rank 0 has lost rank 2 as one that sends where it is no member.
func (c *cluster) requireIntruder() {
	c.t.Helper()
	e := c.e[0]
	require.Equal(c.t, []int{2}, e.Failed())
	_, err := e.Irecv(2, 99, exact, nil).Wait(bg)
	require.ErrorIs(c.t, err, ErrProtocol)
	require.ErrorContains(c.t, err, "of a Comm that it is no member of")
}

// sendsOf are the ways in which a message comes.
var sendsOf = map[string]func(e *Engine, tag uint64){
	"eager":   func(e *Engine, tag uint64) { e.Isend(0, tag, fill(8, 2)) },
	"request": func(e *Engine, tag uint64) { e.Isend(0, tag, fill(1000, 2)) },
	"empty":   func(e *Engine, tag uint64) { e.Issend(0, tag, nil) },
}

// A message from outside of its context ends its sender, and no receive from any rank of the
// context takes it: in software the receive waits, in a device it has it for a moment.
func TestIntruder(t *testing.T) {
	for name, send := range sendsOf {
		for _, tags := range []int{0, 8} {
			t.Run(fmt.Sprint(name, tags), func(t *testing.T) {
				c := comms(t, fakeOpts{tags: tags})
				e, buf := c.e[0], make([]byte, 1000)
				src := e.Group(commTag(5, 0, 0), ranksOf{0, 1})
				all := e.Group(commTag(6, 0, 0), ranksOf{0, 1, 2, 3})
				r := e.Irecv(src, commTag(5, 0, 7), anyOfComm, buf)
				other := e.Irecv(all, commTag(6, 0, 7), anyOfComm, nil)
				require.NoError(t, c.e[2].Send(bg, 0, commTag(6, 2, 7), nil))
				c.step()
				succeeded(t, other)
				send(c.e[2], commTag(5, 2, 7))
				c.step()
				c.requireIntruder()
				open(t, r)
				require.NoError(t, c.e[1].Send(bg, 0, commTag(5, 1, 7), fill(8, 1)))
				c.step()
				require.Equal(t, Status{1, commTag(5, 1, 7), 8}, statusOf(t, r))
				require.Equal(t, fill(8, 1), buf[:8])
				require.Zero(t, e.Metrics().UnexpectedNow)
			})
		}
	}
}

// A message that comes from a rank whose loss was acknowledged ends no receive that was posted
// after that. In a device the receive has it for a moment.
func TestLateMessage(t *testing.T) {
	for name, send := range sendsOf {
		for _, tags := range []int{0, 8} {
			t.Run(fmt.Sprint(name, tags), func(t *testing.T) {
				c := newCluster(t, 3, Config{Manual: true}, fakeOpts{tags: tags})
				e, buf := c.e[0], make([]byte, 1000)
				before := e.Irecv(AnySource, 7, exact, nil)
				e.PeerLost(2, ErrPeerLost)
				c.step()
				requireLost(t, 2, before)
				e.AckFailures(AnySource, 2)
				r := e.Irecv(AnySource, 7, exact, buf)
				send(c.e[2], 7)
				c.step()
				open(t, r)
				require.NoError(t, c.e[1].Send(bg, 0, 7, fill(8, 1)))
				c.step()
				require.Equal(t, Status{1, 7, 8}, statusOf(t, r))
				require.Equal(t, fill(8, 1), buf[:8])
				require.Zero(t, e.Metrics().UnexpectedNow)
			})
		}
	}
}

// A probe sees no message from outside, and messages that were here before the context was known
// are dropped, with their sender. Those of members stay.
func TestEarlyIntruder(t *testing.T) {
	for name, send := range sendsOf {
		t.Run(name, func(t *testing.T) {
			c := comms(t, fakeOpts{})
			e := c.e[0]
			for range 2 {
				send(c.e[2], commTag(5, 2, 7))
				require.NoError(t, c.e[1].Send(bg, 0, commTag(5, 1, 7), fill(8, 1)))
				require.NoError(t, c.e[2].Send(bg, 0, commTag(6, 2, 7), fill(8, 3)))
			}
			c.step()
			require.Equal(t, 6, e.Metrics().UnexpectedNow)
			src := e.Group(commTag(5, 0, 0), ranksOf{0, 1, 3})
			c.requireIntruder()
			for range 2 {
				st, ok, err := e.Iprobe(src, commTag(5, 0, 7), anyOfComm)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, 1, st.Source)
				require.Equal(t, fill(8, 1), c.take(1, 0, commTag(5, 1, 7)))
			}
			_, ok, err := e.Iprobe(src, commTag(5, 0, 7), anyOfComm)
			require.NoError(t, err)
			require.False(t, ok)
			probe := c.probe(0, src, commTag(5, 0, 7), anyOfComm, nil)
			require.NoError(t, c.e[3].Send(bg, 0, commTag(5, 3, 7), nil))
			c.step()
			require.Equal(t, 3, statusOf(t, probe).Source)
			c.balanced()
		})
	}
}

// Where a context is retired others may still send nothing there; they may once its group is
// forgotten, and again not in the next one.
func TestContextOfOtherRanks(t *testing.T) {
	c := comms(t, fakeOpts{})
	e := c.e[0]
	e.contexts.owner = new(heard)
	context := commTag(5, 0, 0)
	first, high := e.Group(context, ranksOf{0, 1}), e.Group(commTag(9, 0, 0), ranksOf{0})
	e.Retire(context, errRetired)
	(*callback)(e).Reuse(context)
	(*callback)(e).Forget(first)
	require.NoError(t, c.e[3].Send(bg, 0, commTag(5, 3, 7), nil))
	c.step()
	require.Empty(t, e.Failed())
	src := e.Group(context, ranksOf{0, 3})
	require.NoError(t, c.e[3].Send(bg, 0, commTag(5, 3, 7), nil))
	c.step()
	require.Empty(t, e.Failed())
	(*callback)(e).Forget(high)
	require.Len(t, e.contexts.confined, 6)
	e.Retire(context, errRetired)
	require.NoError(t, c.e[2].Send(bg, 0, commTag(5, 2, 7), nil))
	c.step()
	c.requireIntruder()
	(*callback)(e).Forget(src)
	require.Empty(t, e.contexts.confined)
}
