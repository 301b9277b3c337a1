package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// reads is a receive that software reads into buf, and its send, which is withdrawn next.
func reads(c *cluster, buf []byte) (r, s Request) {
	c.net.nodes[1].holdRds = true
	s = c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	r = c.e[1].Irecv(0, 5, exact, buf)
	require.Equal(c.t, opReading, r.op.state)
	return r, s
}

// withdrawn cancels a send, and ends the reads under way.
func (c *cluster) withdrawn(s Request) {
	s.Cancel()
	c.step()
	canceled(c.t, s)
	c.net.nodes[1].holdRds = false
	c.step()
}

// A receive whose message is withdrawn after it was cancelled ends.
func TestCanceledLosesMessage(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	r, s := reads(c, make([]byte, 1000))
	r.Cancel()
	open(t, r)
	c.withdrawn(s)
	canceled(t, r)
	c.quiet()
}

// A receive that goes back is behind one that the device has and that overlaps it, and in its place
// otherwise. A later one stays out of the device then.
func TestBackBesideDevice(t *testing.T) {
	for _, tag := range []uint64{5, 6} {
		c := manual(t, 2, fakeOpts{revoke: true, tags: 4})
		bufs := [3][]byte{make([]byte, 1000), make([]byte, 1000), make([]byte, 1000)}
		first, s := reads(c, bufs[0])
		second := c.e[1].Irecv(0, tag, exact, bufs[1])
		require.Equal(t, opOffloaded, second.op.state)
		c.withdrawn(s)
		third := c.e[1].Irecv(0, 5, exact, bufs[2])
		overlaps := tag == 5
		for _, r := range []Request{first, third} {
			require.Equal(t, overlaps, r.op.state == opOffloaded)
		}
		require.NoError(t, c.e[0].Send(bg, 1, tag, fill(8, 1)))
		for i := range 2 {
			require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, byte(2+i))))
		}
		c.step()
		c.got(second, bufs[1], 8, 1)
		c.got(first, bufs[0], 8, 2)
		c.got(third, bufs[2], 8, 3)
		c.quiet()
	}
}

// A receive into several buffers begins with the first again.
func TestVectorGoesBack(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true, maxRead: 300})
	c.net.nodes[1].holdRds = true
	parts := [][]byte{make([]byte, 500), make([]byte, 500)}
	r := c.e[1].IrecvVec(0, 5, exact, parts)
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	c.withdrawn(s)
	next := c.e[0].Isend(1, 5, fill(1000, 2))
	c.step()
	require.EqualValues(t, 1000, statusOf(t, r).Len)
	require.Equal(t, fill(1000, 2), append(parts[0], parts[1]...))
	succeeded(t, next)
	c.quiet()
}

// A receive goes back behind the others while sends are held up: a later one was named to their
// sender already, and would wait for ever if this one took the message that comes for it.
func TestBackWhileHeldUp(t *testing.T) {
	c := tight(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 2, fill(1000, 1))
	c.step()
	wide := c.e[1].Irecv(0, 2, ^uint64(1), make([]byte, 1000)) // tags 2 and 3
	c.step()
	require.Equal(t, opReading, wide.op.state)
	c.flood(0, 1, 1, inCredit+2)
	c.step()
	for _, tag := range []uint64{2, 3, 2} {
		c.flood(0, 1, tag, 1)
	}
	c.step()
	exactly := c.e[1].Irecv(0, 2, exact, make([]byte, 1000))
	s.Cancel()
	for range 40 {
		c.step()
	}
	canceled(t, s)
	for i, r := range []Request{wide, exactly} {
		_, done, err := r.Test()
		require.True(t, done, i)
		require.NoError(t, err, i)
	}
}

// What is unfinished has the tag that a receive was posted with, also once it has lost a message.
func TestBackIsListedAsPosted(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 7, fill(1000, 1))
	c.step()
	r := c.e[1].Irecv(0, 4, ^uint64(3), make([]byte, 1000))
	c.withdrawn(s)
	other := c.e[1].Irecv(0, 4, ^uint64(3), make([]byte, 1000))
	groups := c.e[1].Look().Groups
	require.Len(t, groups, 1)
	require.Equal(t, Unfinished{StagePosted, UnfinishedRecv, 0, 4, ^uint64(3), 1000}, groups[0].Unfinished)
	require.Equal(t, 2, groups[0].N)
	r.Cancel()
	other.Cancel()
	canceled(t, r)
	canceled(t, other)
}
