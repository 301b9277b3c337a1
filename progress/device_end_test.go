package progress

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A receive whose message the device cannot finish after an abort ends with that.
func TestMatchedAborted(t *testing.T) {
	for _, revoke := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{tags: 4, revoke: revoke})
		c.net.nodes[1].dev.holdData = true
		r := c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
		c.step()
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		require.Equal(t, opMatched, r.op.state)
		c.e[1].Abort(errors.New("enough"))
		c.step()
		_, err := ended(t, s)
		require.ErrorIs(t, err, ErrAborted)
		c.net.nodes[1].dev.holdData = false
		c.step()
		_, err = ended(t, r)
		require.EqualError(t, err, "enough")
	}
}

// betweenReads is two receives of rank 1 that have read some of their bytes, and wait for room to
// read the rest. A read of the second is under way.
func betweenReads(t *testing.T) (c *cluster, sends, recvs []Request) {
	c = manual(t, 2, fakeOpts{room: 1, maxRead: 300, revoke: true})
	e, n := c.e[1], c.net.nodes[1]
	n.holdRds = true
	for range 2 {
		recvs = append(recvs, e.Irecv(0, 5, exact, make([]byte, 1000)))
		sends = append(sends, c.e[0].Isend(1, 5, fill(1000, 1)))
		c.step()
	}
	readq := &e.peers[0].readq
	if readq.head == recvs[0].op {
		e.Poll() // now the other one is the first that gets room
	}
	require.Same(t, recvs[1].op, readq.head)
	n.holdRds = false
	e.Poll()
	n.holdRds = true
	for i, r := range recvs {
		require.True(t, r.op.linked)
		require.EqualValues(t, 300, r.op.read.posted)
		require.EqualValues(t, i, r.op.read.active)
	}
	return c, sends, recvs
}

// Such receives end with the loss of their sender: at once, or when the read that is under way has
// ended.
func TestLostBetweenReads(t *testing.T) {
	c, sends, recvs := betweenReads(t)
	e, n := c.e[1], c.net.nodes[1]
	e.PeerLost(0, errors.New("told"))
	requireLost(t, 0, recvs[0])
	open(t, recvs[1])
	n.holdRds = false
	e.Poll()
	requireLost(t, 0, recvs[1])
	require.Zero(t, e.Metrics().ReadsNow)
	open(t, sends...)
}

// Such receives can give their messages up.
func TestAbandonedBetweenReads(t *testing.T) {
	c, sends, recvs := betweenReads(t)
	requireAbandoned(t, recvs[0])
	requireAbandoned(t, recvs[1])
	require.Equal(t, 2, c.e[1].Metrics().UnexpectedNow)
	c.net.nodes[1].holdRds = false
	for range sends {
		require.Equal(t, fill(1000, 1), c.take(0, 1, 5))
	}
	succeeded(t, sends...)
	c.quiet()
}
