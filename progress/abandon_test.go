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
		e.lock()
		e.abandonLocked(first.op)
		e.mu.Unlock()
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

// A receive that is asked back from the device for such a message can still be cancelled, or get another one there.
func TestAbandonedRecall(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{revoke: true, tags: 4, rts: 2})
		e, dev := c.e[1], c.net.nodes[1].dev
		c.net.nodes[1].holdRds = true
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		first := e.Irecv(AnySource, 5, exact, make([]byte, 10))
		buf := make([]byte, 2000)
		second := e.Irecv(AnySource, 4, ^uint64(1), buf)
		c.step()
		dev.holdOps = true
		e.lock()
		e.abandonLocked(first.op)
		e.mu.Unlock()
		third := e.Irecv(AnySource, 4, exact, make([]byte, 2000))
		if cancel {
			second.Cancel()
		} else {
			require.NoError(t, c.e[0].Send(bg, 1, 4, fill(8, 2))) // the device is faster than the recall
			c.step()
		}
		dev.holdOps = false
		c.net.nodes[1].holdRds = false
		c.step()
		_, err := ended(t, second)
		if cancel {
			require.Equal(t, ErrCanceled, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, fill(8, 2), buf[:8])
		}
		st, err := e.Recv(bg, AnySource, 5, exact, buf)
		require.NoError(t, err)
		require.Equal(t, fill(1000, 1), buf[:st.Len])
		third.Cancel()
		c.step()
		for _, r := range []Request{first, s, third} {
			_, _ = ended(t, r)
		}
		c.quiet()
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
	c.e[1].lock()
	c.e[1].abandonLocked(r.op)
	c.e[1].mu.Unlock()
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
	for _, faster := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{revoke: true, tags: 4, rts: 2})
		e, dev := c.e[1], c.net.nodes[1].dev
		c.net.nodes[1].holdRds = true
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		first := e.Irecv(AnySource, 5, exact, make([]byte, 10))
		second := e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000))
		buf := make([]byte, 1000)
		third := e.Irecv(AnySource, 5, exact, buf) // too short for the device
		c.step()
		dev.holdOps = true
		e.lock()
		e.abandonLocked(first.op)
		e.mu.Unlock()
		second.Cancel()
		if faster {
			require.NoError(t, c.e[0].Send(bg, 1, 4, fill(8, 2))) // the device matches it before it hears of the cancel
			c.step()
		}
		dev.holdOps, c.net.nodes[1].holdRds = false, false
		c.step()
		for _, r := range []Request{first, second, s, third} {
			_, _ = ended(t, r)
		}
		require.Equal(t, fill(1000, 1), buf)
		c.quiet()
	}
}
