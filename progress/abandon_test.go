package progress

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// recvBriefly receives with a deadline a message whose data does not come.
func recvBriefly(t *testing.T, e *Engine, tag uint64, buf []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Millisecond)
	defer cancel()
	_, err := e.Recv(ctx, AnySource, tag, exact, buf)
	require.Equal(t, context.DeadlineExceeded, err)
}

// abandon does what the context of a blocking receive does.
func abandon(r Request) {
	r.op.e.lock()
	r.op.e.abandonLocked(r.op)
	r.op.e.mu.Unlock()
}

// A deadline on a receive gives the message back whose data is on its way: the buffer is free, and the message keeps its place
// before those that came later, whether it had waited for the receive or the receive for it.
func TestAbandon(t *testing.T) {
	for _, early := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{revoke: true, maxRead: 300})
		c.net.nodes[1].holdRds = true
		first := c.e[0].Isend(1, 5, fill(1000, 1))
		if early {
			c.step()
		}
		buf := make([]byte, 2000)
		recvBriefly(t, c.e[1], 5, buf)
		require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
		c.step()
		require.Equal(t, 2, c.e[1].Metrics().UnexpectedNow)
		recvBriefly(t, c.e[1], 5, buf)
		c.net.nodes[1].holdRds = false
		c.step()
		require.Equal(t, make([]byte, 2000), buf)
		for _, want := range [][]byte{fill(1000, 1), fill(8, 2)} {
			st, err := c.e[1].Recv(bg, AnySource, 5, exact, buf)
			require.NoError(t, err)
			require.Equal(t, want, buf[:st.Len])
		}
		c.step()
		_, err := ended(t, first)
		require.NoError(t, err)
		c.quiet()
	}
}

// Another receive that waits gets the message that is given back.
func TestAbandonedFindsReceive(t *testing.T) {
	for _, tags := range []int{0, 4} {
		c := manual(t, 2, fakeOpts{revoke: true, tags: tags, rts: 2})
		e := c.e[1]
		c.net.nodes[1].holdRds = true
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		first := e.Irecv(AnySource, 5, exact, make([]byte, 10))
		buf := make([]byte, 2000)
		second := e.Irecv(AnySource, 4, ^uint64(1), buf) // in the device, where there is one
		require.Equal(t, tags != 0, second.op.state == opOffered)
		abandon(first)
		_, err := ended(t, first)
		require.Equal(t, ErrCanceled, err)
		c.net.nodes[1].holdRds = false
		c.step()
		st, err := ended(t, second)
		require.NoError(t, err)
		require.True(t, bytes.Equal(fill(1000, 1), buf[:st.Len]))
		_, err = ended(t, s)
		require.NoError(t, err)
		c.quiet()
	}
}

// recalled is a receive in the device (second) that is asked back for a message which another one (first) has just abandoned: the
// device's completions are held. buf is second's.
type recalled struct {
	*cluster
	s             Request // the message, of 1000 bytes with tag 5
	first, second Request
	buf           []byte
}

// askedBack sets it up; before is called when the two receives are there.
func askedBack(t *testing.T, before func(e *Engine)) *recalled {
	c := manual(t, 2, fakeOpts{revoke: true, tags: 4, rts: 2})
	r := &recalled{cluster: c, buf: make([]byte, 2000)}
	c.net.nodes[1].holdRds = true
	r.s = c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	r.first = r.e[1].Irecv(AnySource, 5, exact, make([]byte, 10))
	r.second = r.e[1].Irecv(AnySource, 4, ^uint64(1), r.buf)
	before(r.e[1])
	c.step()
	c.net.nodes[1].dev.holdOps = true
	abandon(r.first)
	return r
}

// goOn lets the device's completions and the reads come.
func (r *recalled) goOn() {
	r.net.nodes[1].dev.holdOps, r.net.nodes[1].holdRds = false, false
	r.step()
}

// end ends what is left but for the message: third is a receive of the test that waits for nothing.
func (r *recalled) end(third Request) {
	r.t.Helper()
	open(r.t, third)
	third.Cancel()
	r.step()
	for _, req := range []Request{r.first, third} {
		_, err := ended(r.t, req)
		require.Equal(r.t, ErrCanceled, err)
	}
	r.quiet()
}

// A receive that is asked back from the device for such a message can still be cancelled, or get another one there.
func TestAbandonedRecall(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		c := askedBack(t, func(*Engine) {})
		third := c.e[1].Irecv(AnySource, 4, exact, make([]byte, 2000))
		if cancel {
			c.second.Cancel()
		} else {
			require.NoError(t, c.e[0].Send(bg, 1, 4, fill(8, 2))) // the device is faster than the recall
			c.step()
		}
		c.goOn()
		_, err := ended(t, c.second)
		if cancel {
			require.Equal(t, ErrCanceled, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, fill(8, 2), c.buf[:8])
		}
		st, err := c.e[1].Recv(bg, AnySource, 5, exact, c.buf)
		require.NoError(t, err)
		require.Equal(t, fill(1000, 1), c.buf[:st.Len])
		_, err = ended(t, c.s)
		require.NoError(t, err)
		c.end(third)
	}
}

// A sender that wants a message back gets it when its receive gives it up.
func TestAbandonedWithdrawn(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	r := c.e[1].Irecv(AnySource, 5, exact, make([]byte, 2000))
	c.step()
	s.Cancel()
	c.step()
	open(t, s)
	abandon(r)
	c.step()
	for _, r := range []Request{r, s} {
		_, err := ended(t, r)
		require.Equal(t, ErrCanceled, err)
	}
	c.net.nodes[1].holdRds = false
	c.step()
	c.quiet()
}

// A receive that was asked back from the device for such a message, and ends without it, leaves it to the next that matches.
func TestAbandonedRecallEndsWithout(t *testing.T) {
	for _, end := range []struct{ cancel, faster bool }{{true, false}, {true, true}, {false, true}} {
		buf := make([]byte, 1000)
		var third Request
		c := askedBack(t, func(e *Engine) { third = e.Irecv(AnySource, 5, exact, buf) }) // too short for the device
		if end.cancel {
			c.second.Cancel()
		}
		if end.faster {
			require.NoError(t, c.e[0].Send(bg, 1, 4, fill(8, 2))) // the device matches it before it hears of the recall
			c.step()
		}
		c.goOn()
		for _, r := range []Request{c.first, c.second, c.s, third} {
			_, _ = ended(t, r)
		}
		require.Equal(t, fill(1000, 1), buf)
		c.quiet()
	}
}
