package progress

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// A Send whose context has ended deregisters its buffer when its receiver has not answered in time.
// A device that was reading fails then, and the answer comes; where none does its error says so.
func TestReclaim(t *testing.T) {
	for _, stops := range []bool{false, true} {
		var c *cluster
		graces := 0
		over, cancel := context.WithCancel(bg)
		cancel()
		grace := func() (context.Context, context.CancelFunc) {
			if graces++; graces == 2 && !stops {
				c.net.mu.Lock()
				c.net.nodes[1].hold(false)
				c.net.mu.Unlock()
			}
			c.e[1].Poll()
			return over, func() {}
		}
		c = newCluster(t, 2, Config{Manual: true, SpinLimit: -1, grace: grace}, fakeOpts{revoke: true, tags: 4})
		c.net.nodes[1].hold(true)
		buf := make([]byte, 2000)
		r := c.e[1].Irecv(0, 5, exact, buf)
		c.step()
		ctx, cancel := context.WithCancel(bg)
		go func() {
			for c.e[1].Poll(); c.e[1].Metrics().Offload.Matched == 0; c.e[1].Poll() {
			}
			cancel()
		}()
		err := c.e[0].Send(ctx, 1, 5, fill(1000, 1))
		require.Equal(t, 2, graces)
		if stops {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, ErrMaybeDelivered)
		} else {
			require.Equal(t, context.Canceled, err)
		}
		c.net.nodes[1].hold(false)
		c.step()
		open(t, r)
		require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
		c.step()
		c.got(r, buf, 8, 2)
		c.quiet()
	}
}

// A Recv whose context ends while the sender's processor is in the middle of a copy to its buffer
// waits for the end of that, or for the message.
func TestReclaimWaitsForACopy(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		var c *cluster
		graces := 0
		over, cancel := context.WithCancel(bg)
		cancel()
		grace := func() (context.Context, context.CancelFunc) {
			if graces++; graces == 3 {
				c.net.mu.Lock()
				c.net.nodes[1].holdRds, c.net.nodes[1].copying = !arrives, arrives
				c.net.mu.Unlock()
			}
			c.e[1].pollLocked()
			return over, func() {}
		}
		c = newCluster(t, 2, Config{Manual: true, SpinLimit: -1, grace: grace}, fakeOpts{revoke: true})
		c.net.nodes[1].holdRds, c.net.nodes[1].copying = true, true
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		buf := make([]byte, 1000)
		_, err := c.e[1].Recv(&patience{Context: bg}, AnySource, 5, exact, buf)
		require.Equal(t, 3, graces)
		if arrives {
			require.NoError(t, err)
			require.Equal(t, fill(1000, 1), buf)
		} else {
			require.Equal(t, context.DeadlineExceeded, err)
			c.net.nodes[1].holdRds = false
			c.step()
			require.Equal(t, make([]byte, 1000), buf)
			require.Equal(t, fill(1000, 1), c.take(0, 1, 5))
		}
		c.step()
		succeeded(t, s)
		c.quiet()
	}
}

// Where reads cannot be abandoned a Recv whose context ends while it reads has the message.
func TestReclaimWithoutRevoke(t *testing.T) {
	c := newCluster(t, 2, Config{Manual: true, SpinLimit: -1}, fakeOpts{})
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	ctx, cancel := context.WithCancel(bg)
	go func() {
		for c.e[1].Metrics().ReadsNow == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		cancel()
		time.Sleep(10 * time.Millisecond) // it would not wait that long if it did not have to
		c.net.mu.Lock()
		c.net.nodes[1].holdRds = false
		c.net.mu.Unlock()
		c.e[1].Poll()
	}()
	buf := make([]byte, 1000)
	_, err := c.e[1].Recv(ctx, 0, 5, exact, buf)
	require.NoError(t, err)
	require.Equal(t, fill(1000, 1), buf)
	c.step()
	succeeded(t, s)
	c.quiet()
}

// WITHDRAWN without a WITHDRAW changes nothing.
func TestWithdrawnAlone(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	c.callback(0, func(sink transport.Sink) { sink.Ctrl(1, ctrl{kind: ctrlWithdrawn, id: s.op.slot.wire()}.encode()) })
	c.step()
	open(t, s)
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
	c.step()
	succeeded(t, s, r)
	c.quiet()
}
