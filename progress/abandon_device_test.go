package progress

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// matchedInDevice is two receives that the device has matched with messages of 2000 and 2001 bytes. They are too short, so that it
// leaves them to software when it is let, with what software sent of them if rts is 2: their reads do not end.
func matchedInDevice(t *testing.T, rts int) (c *cluster, sends, recvs []Request) {
	c = manual(t, 2, fakeOpts{revoke: true, tags: 4, rts: rts})
	n := c.net.nodes[1]
	n.holdRds, n.dev.holdData = true, true
	for range 2 {
		recvs = append(recvs, c.e[1].Irecv(0, 5, exact, make([]byte, 1500)))
	}
	c.step()
	for i := range 2 {
		sends = append(sends, c.e[0].Isend(1, 5, fill(2000+i, byte(i))))
	}
	c.step()
	for _, r := range recvs {
		require.Equal(t, opMatched, r.op.state)
	}
	return c, sends, recvs
}

// What the device has matched has its place from then on, whenever it is left to software and given back.
func TestAbandonedAfterMatch(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		c, sends, recvs := matchedInDevice(t, 0)
		n := c.net.nodes[1]
		slices.Reverse(n.dev.data)
		n.dev.holdData = false
		c.step()
		for _, i := range order {
			abandon(recvs[i])
			_, err := ended(t, recvs[i])
			require.Equal(t, ErrCanceled, err)
		}
		n.holdRds = false
		for i, s := range sends {
			st, err := c.e[1].Recv(bg, 0, 5, exact, make([]byte, 3000))
			require.NoError(t, err)
			require.EqualValues(t, 2000+i, st.Len)
			c.step()
			_, err = ended(t, s)
			require.NoError(t, err)
		}
		c.quiet()
	}
}

// A sender that has asked for such a message has it when the receive gives it up: also where it asked before the name of its request was
// known here.
func TestAbandonedAfterMatchWithdrawn(t *testing.T) {
	for _, rts := range []int{0, 2} {
		c, sends, recvs := matchedInDevice(t, rts)
		sends[0].Cancel()
		c.step()
		open(t, sends[0])
		sends[1].Cancel()
		c.step()
		c.net.nodes[1].dev.holdData = false
		c.step()
		require.Empty(t, c.e[1].peers[0].unknown)
		abandon(recvs[0])
		c.net.nodes[1].holdRds = false
		c.step()
		for _, r := range []Request{recvs[0], sends[0]} {
			_, err := ended(t, r)
			require.Equal(t, ErrCanceled, err)
		}
		_, err := ended(t, recvs[1])
		require.Equal(t, ErrTruncated, err)
		_, err = ended(t, sends[1])
		require.NoError(t, err)
		c.quiet()
	}
}

// That the sender of a message has asked for it says nothing of the next message that is given back.
func TestAbandonedAskedOnce(t *testing.T) {
	r := askedBack(t, func(*Engine) {})
	r.s.Cancel()
	r.step()
	r.goOn()
	for _, req := range []Request{r.second, r.s} {
		_, err := ended(t, req)
		require.NoError(t, err)
	}
	r.net.nodes[1].holdRds = true
	s := r.e[0].Isend(1, 5, fill(1000, 1))
	r.step()
	given := r.e[1].Irecv(AnySource, 5, exact, make([]byte, 2000))
	abandon(given)
	require.Equal(t, 1, r.e[1].Metrics().UnexpectedNow)
	r.net.nodes[1].holdRds = false
	_, err := r.e[1].Recv(bg, 0, 5, exact, make([]byte, 2000))
	require.NoError(t, err)
	r.step()
	for _, req := range []Request{r.first, given, s} {
		_, _ = ended(t, req)
	}
	r.quiet()
}

// A loss ends a receive from any source, and a message of another rank that is given back after
// that is for the next one; but a receive that such a message was promised to before has it.
func TestAbandonedBesideLoss(t *testing.T) {
	for _, promised := range []bool{false, true} {
		g := newGivenBack(t, 3)
		first := g.offered()
		second := g.e.Irecv(0, 5, exact, make([]byte, 500)) // too short for the device
		g.hold(true)
		if promised {
			abandon(g.given[0])
		}
		g.e.PeerLost(2, errors.New("told"))
		if !promised {
			abandon(g.given[0])
			require.Equal(t, opReading, second.op.state)
		}
		g.hold(false)
		if !promised {
			requireLost(t, first, 2)
			g.inherited(second)
			g.end()
			continue
		}
		st, err := ended(t, first)
		require.NoError(t, err)
		require.EqualValues(t, 1000, st.Len)
		open(t, second)
		second.Cancel()
		g.end(second)
	}
}

// After an abort a receive that is asked back from the device for a message does not begin to read it.
func TestAbandonedRecallAborted(t *testing.T) {
	r := askedBack(t, func(*Engine) {})
	r.e[1].Abort(nil)
	r.net.nodes[1].dev.holdOps = false
	for range 10 {
		r.e[1].Poll()
	}
	_, err := ended(t, r.second)
	require.ErrorIs(t, err, ErrAborted)
}

// A message that one of several reads has found to be taken back, or that cannot be read, is not given back.
func TestAbandonedUnreadable(t *testing.T) {
	for _, cause := range []error{transport.ErrWithdrawn, errors.New("remote access error")} {
		c := manual(t, 2, fakeOpts{revoke: true, maxRead: 300})
		e, n := c.e[1], c.net.nodes[1]
		n.holdRds = true
		c.e[0].Isend(1, 5, fill(1000, 1))
		first := e.Irecv(0, 5, exact, make([]byte, 2000))
		c.step()
		second := e.Irecv(0, 5, exact, make([]byte, 2000))
		n.reads = n.reads[1:]
		c.callback(1, func(s transport.Sink) { s.ReadDone(first.op.slot.id(), cause) })
		e.Poll()
		open(t, first)
		abandon(first)
		_, err := ended(t, first)
		require.Equal(t, ErrCanceled, err)
		if cause == transport.ErrWithdrawn {
			open(t, second)
		} else {
			requireLost(t, second, 0)
		}
		n.holdRds = false
		e.Poll()
		require.Zero(t, e.Metrics().ReadsNow)
	}
}
