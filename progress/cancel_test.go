package progress

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCancelRecvPosted(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	first := c.e[1].Irecv(0, 5, exact, make([]byte, 8))
	buf := make([]byte, 8)
	second := c.e[1].Irecv(0, 5, exact, buf)
	first.Cancel()
	first.Cancel()
	canceled(t, first)
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 1)))
	c.step()
	c.got(second, buf, 8, 1)
	c.quiet()
}

func TestCancelSendQueued(t *testing.T) {
	for _, size := range []int{8, 1000} {
		c := manual(t, 2, fakeOpts{room: 1})
		var reqs []Request
		for i := range 3 {
			reqs = append(reqs, c.e[0].Isend(1, 5, fill(size+i, 0)))
		}
		reqs[1].Cancel()
		canceled(t, reqs[1])
		require.Len(t, c.take(0, 1, 5), size)
		require.Len(t, c.take(0, 1, 5), size+2)
		succeeded(t, reqs[0], reqs[2])
		c.quiet()
	}
}

func TestCancelSendRequested(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{})
		s := c.e[0].Isend(1, 5, fill(1000, 0))
		other := c.e[0].Isend(1, 5, fill(1001, 0))
		if arrived {
			c.step()
		}
		s.Cancel()
		s.Cancel()
		open(t, s)
		c.step()
		canceled(t, s)
		require.Len(t, c.take(0, 1, 5), 1001)
		succeeded(t, other)
		c.quiet()
	}
}

// A receive is posted while the withdrawal is on its way: the message was faster.
func TestCancelSendLosesRace(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	s := c.e[0].Isend(1, 5, fill(1000, 0))
	c.step()
	s.Cancel()
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 1000))
	c.step()
	succeeded(t, s, r)
	c.quiet()
}

// With no room for control messages the withdrawal is late, not lost.
func TestCancelSendWithoutRoom(t *testing.T) {
	c := manual(t, 2, fakeOpts{room: 1})
	s := c.e[0].Isend(1, 5, fill(1000, 0))
	s.Cancel()
	c.step()
	canceled(t, s)
	c.quiet()
}

// A blocking call ends with its context, whether the peer answers or the operation is still here,
// and not before the buffer is free.
func TestContextEndsBlockingCalls(t *testing.T) {
	for _, m := range []bool{false, true} {
		c := newCluster(t, 2, Config{Manual: m}, fakeOpts{})
		ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
		_, err := c.e[0].Recv(ctx, 1, 5, exact, nil)
		require.Equal(t, context.DeadlineExceeded, err)
		_, err = c.e[0].Recv(ctx, 1, 5, exact, nil)
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, context.DeadlineExceeded, c.e[0].Send(ctx, 1, 5, nil))
		cancel()

		stop := make(chan struct{})
		if m { // the peer must be inside a call to answer
			go func() {
				defer close(stop)
				_, _ = c.e[1].Recv(bg, 0, 77, exact, nil)
			}()
		}
		ctx, cancel = context.WithTimeout(bg, 5*time.Millisecond)
		require.Equal(t, context.DeadlineExceeded, c.e[0].Send(ctx, 1, 5, fill(1000, 0)))
		cancel()
		r := c.e[0].Irecv(1, 6, exact, nil)
		ctx, cancel = context.WithTimeout(bg, 5*time.Millisecond)
		_, err = r.Wait(ctx)
		require.Equal(t, context.DeadlineExceeded, err)
		require.True(t, r.Active())
		cancel()
		r.Cancel()
		_, err = r.Wait(bg)
		require.Equal(t, ErrCanceled, err)
		if m {
			require.NoError(t, c.e[0].Send(bg, 1, 77, nil))
			<-stop
		}
		c.quiet()
	}
}

// sendBriefly sends a large message from rank 0 to rank 1, which does not poll meanwhile.
func sendBriefly(t *testing.T, c *cluster, tag uint64) {
	t.Helper()
	err := c.e[0].Send(&patience{Context: bg}, 1, tag, fill(1000, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, ErrMaybeDelivered)
	require.ErrorContains(t, err, "may have the message")
}

// A deadline on a send takes the buffer back from a receiver that does not answer. Its receive goes
// back to its place, before one that was posted later, and takes the next message.
func TestRevoke(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	buf := make([]byte, 2000)
	first := c.e[1].Irecv(0, 5, exact, buf)
	second := c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
	sendBriefly(t, c, 5)
	sendBriefly(t, c, 6) // unexpected: nobody ever sees it
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
	c.step()
	c.got(first, buf, 8, 2)
	open(t, second)
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(9, 3)))
	c.step()
	require.EqualValues(t, 9, statusOf(t, second).Len)
	require.EqualValues(t, 2, c.e[0].Metrics().Canceled)
	require.EqualValues(t, 1, c.e[1].Metrics().Returned)
	c.quiet()
}

// Recv goes on to the next message, whether it waits when the withdrawn one comes or finds it
// waiting.
func TestRevokeRecv(t *testing.T) {
	for _, early := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{revoke: true})
		sendBriefly(t, c, 5)
		require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
		if early {
			in := &c.net.nodes[1].in[0]
			withdrawal := (*in)[1] // is late
			*in = append((*in)[:1], (*in)[2:]...)
			c.step()
			*in = append(*in, withdrawal)
		}
		buf := make([]byte, 2000)
		st, err := c.e[1].Recv(bg, 0, 5, exact, buf)
		require.NoError(t, err)
		require.Equal(t, fill(8, 2), buf[:st.Len])
		require.EqualValues(t, 1, c.e[1].Metrics().Returned)
		c.quiet()
	}
}

// What a device reads, or cannot be abandoned, is received although it was withdrawn.
func TestWithdrawnTooLate(t *testing.T) {
	for _, opts := range []fakeOpts{{}, {revoke: true, tags: 4}} {
		c := manual(t, 2, opts)
		c.net.nodes[1].hold(true)
		r := c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		for range 3 {
			s.Cancel()
			c.step()
			open(t, s, r)
		}
		c.net.nodes[1].hold(false)
		c.step()
		succeeded(t, s, r)
		c.quiet()
	}
}
