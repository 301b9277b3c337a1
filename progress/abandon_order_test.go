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

func newGivenBack(t *testing.T, ranks int) *givenBack {
	c := manual(t, ranks, fakeOpts{revoke: true, tags: 4, rts: 2})
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

// small sends 8 bytes from rank 0, which the device sees and the engine does not yet.
func (g *givenBack) small(tag uint64, seed byte) Request {
	r := g.cluster.e[0].Isend(1, tag, fill(8, seed))
	g.e.Poll()
	return r
}

// inherited requires that a receive, which has less room, has got the message of 1000 bytes.
func (g *givenBack) inherited(r Request) {
	g.t.Helper()
	st, err := ended(g.t, r)
	require.Equal(g.t, ErrTruncated, err)
	require.EqualValues(g.t, 1000, st.Len)
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
	g := newGivenBack(t, 2)
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

// When a message that is given back finds a receive, and reading it shows that its sender is lost,
// the others of that sender are gone too: whether it is the receive that was asked back for it, or
// another because that one has ended.
func TestAbandonedLostMeanwhile(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		g := newGivenBack(t, 3)
		waiting := []Request{g.offered(), g.offered()}
		last := g.e.Irecv(AnySource, 5, exact, make([]byte, 500)) // too short for the device
		g.hold(true)
		abandon(g.given[0])
		abandon(g.given[1])
		require.Len(t, g.e.returned, 2)
		g.net.nodes[0].dead = true // the transport has not reported it yet
		if cancel {
			waiting[0].Cancel()
			requireLost(t, last, 0)
		}
		g.hold(false)
		for _, r := range append(waiting, last) {
			_, err := ended(t, r)
			require.Error(t, err)
		}
		require.Equal(t, []int{0}, g.e.Failed())
		require.Empty(t, g.e.returned)
		require.Nil(t, g.e.peers[0].rndvs)
		require.NotSame(t, g.e.buffers.message(), g.e.buffers.message()) // no record was freed twice
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
	g := newGivenBack(t, 3)
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
	g.inherited(second)
	open(t, third)
	third.Cancel()
	other.Cancel()
	g.step()
	g.end(third, other)
}

// When a receive that is asked back for a message is to end, the next one that waits has the message at once: not a later one that
// comes before the device has answered.
func TestAbandonedNotOvertaken(t *testing.T) {
	g := newGivenBack(t, 2)
	dev := g.net.nodes[1].dev
	dev.holdCQ = true
	unrelated := g.small(99, 1) // what is posted now is dormant
	first := g.e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
	g.e.Poll()
	second := g.e.Irecv(AnySource, 5, exact, make([]byte, 500)) // too short for the device
	g.hold(true)
	abandon(g.given[0])
	require.Equal(t, opRecalled, first.op.state)
	first.Cancel()
	younger := g.small(5, 2)
	dev.holdCQ = false
	g.step()
	g.hold(false)
	_, err := ended(t, first)
	require.Equal(t, ErrCanceled, err)
	g.inherited(second)
	rest := []Request{unrelated, younger, g.e.Irecv(0, 99, exact, make([]byte, 8)), g.e.Irecv(0, 5, exact, make([]byte, 8))}
	g.step()
	g.end(rest...)
}
