package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// deviceLater is a cluster whose devices match tags once ranks send each message by itself.
func deviceLater(t *testing.T, n int) *cluster {
	return newCluster(t, n, Config{Manual: true, Bundles: true}, fakeOpts{tags: 8})
}

// TestUnbundle: a device gets receives that are posted when the ranks which the message may come
// from have answered that they send each message by itself. Those before stay with the software.
func TestUnbundle(t *testing.T) {
	c := deviceLater(t, 2)
	first := make([]byte, 1000)
	recv, stays := c.e[1].Irecv(0, 3, exact, first), c.e[1].Irecv(0, 99, exact, nil)
	require.Equal(t, 1, c.sent(1, 0, pkCtrl), "it is asked once")
	require.EqualValues(t, 2, c.e[1].Metrics().Offload.KeptPath)
	succeeded(t, c.isendAll(0, 10, always(1), always(8))...) // it has not come to the question
	require.Equal(t, []int{1, 0}, []int{c.sent(0, 1, pkCtrl), c.sent(0, 1, pkEager)})
	c.step()
	c.got(recv, first, 8, 3)
	later := c.e[1].Irecv(0, 100, exact, nil)
	require.Equal(t, []opState{opPosted, opOffloaded}, []opState{stays.op.state, later.op.state})
	require.Equal(t, opPosted, c.e[1].Irecv(0, 99, exact, nil).op.state, "it overlaps one in software")

	succeeded(t, c.isendAll(0, 10, always(1), always(8))...)
	require.Equal(t, []int{0, 10}, []int{c.sent(0, 1, pkCtrl), c.sent(0, 1, pkEager)})
	succeeded(t, c.isendAll(1, 10, always(0), always(8))...)
	require.Equal(t, 1, c.sent(1, 0, pkCtrl), "the other way they go as one")
	for _, tag := range []uint64{99, 99, 100} {
		require.NoError(t, c.e[0].Send(bg, 1, tag, nil))
	}
	c.step()
	require.EqualValues(t, 1, c.e[1].Metrics().Offload.Matched)
	statusOf(t, later)
	statusOf(t, stays)
	for i := range 19 {
		c.take(0, 1, uint64([]int{0, 1, 2, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}[i]))
	}
	c.requireInOrder(0, 10, always(8))
	c.balanced()
}

// TestUnbundleAll: a receive from any rank, or any of a group, waits for all of them, but not for
// those that are lost.
func TestUnbundleAll(t *testing.T) {
	c := deviceLater(t, 5)
	e := c.e[0]
	two, three := e.Group(0, ranksOf{1, 2}), e.Group(0, ranksOf{1, 2, 3})
	e.Irecv(two, 1, exact, nil)
	require.Equal(t, []int{0, 1, 1, 0, 0}, c.asked(0))
	c.e[1].Poll()
	e.Poll()
	require.Equal(t, []int{0, 0, 1, 0, 0}, c.asked(0))
	require.Equal(t, opPosted, e.Irecv(two, 2, exact, nil).op.state, "one has answered")
	c.step()
	require.Equal(t, opOffloaded, e.Irecv(two, 3, exact, nil).op.state)
	require.Equal(t, opPosted, e.Irecv(three, 4, exact, nil).op.state)
	require.Equal(t, []int{0, 0, 0, 1, 0}, c.asked(0))
	require.Equal(t, opPosted, e.Irecv(AnySource, 5, exact, nil).op.state)
	require.Equal(t, []int{1, 0, 0, 1, 1}, c.asked(0), "each rank is asked once")
	c.net.kill(4)
	c.step()
	require.Zero(t, e.off.bundlers)
	e.AckFailures(AnySource, 4)
	require.Equal(t, opOffloaded, e.Irecv(three, 6, exact, nil).op.state)
	require.Equal(t, opOffloaded, e.Irecv(AnySource, 7, exact, nil).op.state)
}

// asked counts, by rank, the control messages of src that are on their way.
func (c *cluster) asked(src int) (n []int) {
	for dst := range c.e {
		n = append(n, c.sent(src, dst, pkCtrl))
	}
	return n
}

// TestUnbundleMost: a receive that could come from very many ranks connects to none of them.
func TestUnbundleMost(t *testing.T) {
	c := deviceLater(t, unbundleMost+1)
	all := make(ranksOf, unbundleMost+1)
	for i := range all {
		all[i] = i
	}
	for _, src := range []int{AnySource, c.e[0].Group(0, all)} {
		c.e[0].Irecv(src, 1, exact, nil)
		require.Equal(t, make([]int, unbundleMost+1), c.asked(0))
	}
	c.e[0].Irecv(1, 2, exact, nil)
	c.step()
	c.e[0].Irecv(AnySource, 3, exact, nil) // it is one less
	c.step()
	require.Equal(t, opOffloaded, c.e[0].Irecv(AnySource, 4, exact, nil).op.state)
}

// TestUnbundleHostile: who breaks the rules is lost.
func TestUnbundleHostile(t *testing.T) {
	const message = "\x07\x00\x00\x00\x00\x00\x00\x00\x02ab"
	for name, ctrls := range map[string][]ctrl{
		"answers unasked":         {{kind: ctrlUnbundled}},
		"asks twice":              {{kind: ctrlUnbundle}, {kind: ctrlUnbundle}},
		"answers twice":           {{kind: ctrlUnbundled}, {kind: ctrlUnbundled}},
		"bundles after that":      {{kind: ctrlUnbundled}, {kind: ctrlEagers, body: []byte(message)}},
		"takes another's receive": {{kind: ctrlEagers, body: []byte(message)}},
	} {
		t.Run(name, func(t *testing.T) {
			c := deviceLater(t, 3)
			if len(ctrls) == 2 && ctrls[0].kind == ctrlUnbundled {
				c.e[0].Irecv(1, 1, exact, nil)
			} else {
				c.e[0].Irecv(2, 6, exact, nil)
				c.step()
				c.e[0].Irecv(2, 7, exact, nil)
				require.EqualValues(t, 1, c.e[0].Metrics().Offload.Offloaded)
			}
			for i, m := range ctrls {
				require.NoError(t, c.e[0].peers[1].lost, i)
				c.callback(0, func(s transport.Sink) { s.Ctrl(1, m.encode()) })
			}
			require.ErrorIs(t, c.e[0].Send(bg, 1, 1, nil), ErrProtocol)
			require.NoError(t, c.e[0].Send(bg, 2, 1, nil))
		})
	}
}
