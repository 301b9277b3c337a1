package progress

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// givenBack is a rank with a device that has matched two messages of rank 0, of 1000 and 1001 bytes with tag 5, to the receives
// given, whose reads do not end.
type givenBack struct {
	*cluster
	e     *Engine
	sends []Request
	given []Request
}

func newGivenBack(t *testing.T, ranks, maxOps int) *givenBack {
	c := manual(t, ranks, fakeOpts{revoke: true, tags: 4, rts: 2, maxOps: maxOps})
	g := &givenBack{cluster: c, e: c.e[1]}
	c.net.nodes[1].holdRds = true
	for i := range 2 {
		g.sends = append(g.sends, c.e[0].Isend(1, 5, fill(1000+i, byte(i))))
	}
	c.step()
	for range 2 {
		g.given = append(g.given, g.e.Irecv(AnySource, 5, exact, make([]byte, 10)))
	}
	return g
}

// offered posts a receive that the device gets.
func (g *givenBack) offered() Request {
	g.t.Helper()
	r := g.e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
	g.step()
	require.Equal(g.t, opOffered, r.op.state)
	return r
}

// hold lets the device execute no operation, or again.
func (g *givenBack) hold(ops bool) {
	g.net.nodes[1].dev.holdOps = ops
	if !ops {
		g.net.nodes[1].holdRds = false
		g.step()
	}
}

// end takes the outcomes of what nobody looks at.
func (g *givenBack) end(more ...Request) {
	g.t.Helper()
	for _, r := range append(append(more, g.given...), g.sends...) {
		_, _ = ended(g.t, r)
	}
	g.quiet()
}

// Of two messages that are given back, the younger first, each has its own receive that is asked back from the device: neither takes
// the other's, which would lose its place to a later one.
func TestAbandonedYoungerFirst(t *testing.T) {
	g := newGivenBack(t, 2, 0)
	waiting := []Request{g.offered(), g.offered()}
	last := g.e.Irecv(AnySource, 5, exact, make([]byte, 500)) // too short for the device
	g.hold(true)
	abandon(g.given[1])
	abandon(g.given[0])
	g.hold(false)
	for i, r := range waiting {
		st, err := ended(t, r)
		require.NoError(t, err)
		require.EqualValues(t, 1001-i, st.Len)
	}
	open(t, last)
	last.Cancel()
	g.end(last)
}

// When a message that waits once more finds a receive, and reading it shows that its sender is lost, the others of that sender are
// gone too: whether the receive that both wait for gets the first of them, or ends.
func TestAbandonedLostMeanwhile(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		g := newGivenBack(t, 3, 1)
		first := g.offered()
		g.hold(true)
		other := g.e.Irecv(2, 77, exact, make([]byte, 2000))      // leaves no room for the recall, so that both messages wait for first
		last := g.e.Irecv(AnySource, 5, exact, make([]byte, 500)) // too short for the device
		abandon(g.given[0])
		abandon(g.given[1])
		if cancel {
			first.Cancel()
		}
		g.net.nodes[0].dead = true // the transport has not reported it yet
		g.hold(false)
		for _, r := range []Request{first, last} {
			_, err := ended(t, r)
			require.Error(t, err)
		}
		require.Equal(t, []int{0}, g.e.Failed())
		require.Empty(t, g.e.returned)
		require.Nil(t, g.e.peers[0].rndvs)
		require.NotSame(t, g.e.buffers.message(), g.e.buffers.message()) // no record was freed twice
		other.Cancel()
		g.step()
		_, err := ended(t, other)
		require.Equal(t, ErrCanceled, err)
	}
}

// The message of a receive that ends while it still reads from a rank that is lost is not given back: nobody could read it.
func TestAbandonedAfterLoss(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	e := c.e[1]
	c.net.nodes[1].holdRds = true
	c.e[0].Isend(1, 5, fill(1000, 1))
	r := e.Irecv(AnySource, 5, exact, make([]byte, 2000))
	c.step()
	e.PeerLost(0, errors.New("told"))
	abandon(r)
	_, err := ended(t, r)
	require.Equal(t, ErrCanceled, err)
	require.Zero(t, e.Metrics().UnexpectedNow)
	c.net.nodes[1].holdRds = false
	e.Poll()
	require.Zero(t, e.Metrics().ReadsNow)
}

// A receive that is asked back for a message, and then is to end, keeps it no longer: who comes next has it before the device answers.
func TestAbandonedRecallCanceledKeepsNothing(t *testing.T) {
	r := askedBack(t, func(*Engine) {})
	r.second.Cancel()
	r.net.nodes[1].holdRds = false
	third := r.e[1].Irecv(AnySource, 5, exact, make([]byte, 2000))
	r.step()
	st, err := ended(t, third)
	require.NoError(t, err)
	require.EqualValues(t, 1000, st.Len)
	r.goOn()
	for _, req := range []Request{r.first, r.second} {
		_, err := ended(t, req)
		require.Equal(t, ErrCanceled, err)
	}
	_, err = ended(t, r.s)
	require.NoError(t, err)
	r.quiet()
}

// A message that is given back, and that the first receive which matches cannot have because it is asked back in order to end, is
// for the next one that waits, not for one that is posted then.
func TestAbandonedBesideCancelKeepsOrder(t *testing.T) {
	g := newGivenBack(t, 3, 1)
	first := g.offered()
	second := g.e.Irecv(AnySource, 5, exact, make([]byte, 500)) // too short for the device
	g.hold(true)
	other := g.e.Irecv(2, 77, exact, make([]byte, 2000)) // leaves no room for the recall
	first.Cancel()
	abandon(g.given[0])
	third := g.e.Irecv(AnySource, 5, exact, make([]byte, 400))
	g.hold(false)
	_, err := ended(t, first)
	require.Equal(t, ErrCanceled, err)
	st, err := ended(t, second)
	require.Equal(t, ErrTruncated, err)
	require.EqualValues(t, 1000, st.Len)
	open(t, third)
	third.Cancel()
	other.Cancel()
	g.step()
	g.end(third, other)
}

// dormant has a receive in the device which that cannot match yet, since it has not heard of all messages, and abandons first, which has
// had a message of 1000 bytes with tag 5: the device executes no operation, and second is posted behind it in software.
func dormant(t *testing.T, maxOps int, before func(e *Engine)) (c *cluster, first, second, third Request) {
	c = manual(t, 2, fakeOpts{revoke: true, tags: 4, rts: 2, maxOps: maxOps})
	e, dev := c.e[1], c.net.nodes[1].dev
	c.net.nodes[1].holdRds = true
	c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	first = e.Irecv(AnySource, 5, exact, make([]byte, 10))
	c.step()
	dev.holdCQ = true
	c.e[0].Isend(1, 99, fill(8, 9))
	e.Poll()
	second = e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
	e.Poll()
	third = e.Irecv(AnySource, 5, exact, make([]byte, 1000)) // too short for the device
	dev.holdOps = true
	before(e)
	abandon(first)
	return c, first, second, third
}

// younger sends a second message with tag 5, of 8 bytes, and lets the device work again once software has it.
func younger(c *cluster) {
	n := c.net.nodes[1]
	c.e[0].Isend(1, 5, fill(8, 2))
	c.e[1].Poll()
	n.dev.holdCQ = false
	c.e[1].Poll()
	n.dev.holdOps, n.holdRds = false, false
	c.step()
}

// When a receive that is asked back for a message is to end, the next one that waits has the message at once: not a later one that
// comes before the device has answered.
func TestAbandonedNotOvertaken(t *testing.T) {
	c, first, second, third := dormant(t, 0, func(*Engine) {})
	second.Cancel()
	younger(c)
	_, err := ended(t, second)
	require.Equal(t, ErrCanceled, err)
	st, err := ended(t, third)
	require.NoError(t, err)
	require.EqualValues(t, 1000, st.Len)
	_, err = ended(t, first)
	require.Equal(t, ErrCanceled, err)
}

// A receive that cannot be asked back yet, and gets a later message from software, leaves the one that was given back to the next.
func TestAbandonedWithoutRoom(t *testing.T) {
	c, first, second, third := dormant(t, 1, func(e *Engine) { e.Irecv(AnySource, 77, exact, make([]byte, 2000)) })
	require.Len(t, c.e[1].off.recalls, 1)
	younger(c)
	for i, r := range []Request{second, third} {
		st, err := ended(t, r)
		require.NoError(t, err)
		require.EqualValues(t, []int{8, 1000}[i], st.Len)
	}
	_, err := ended(t, first)
	require.Equal(t, ErrCanceled, err)
}
