package progress

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// recvBriefly receives, with a deadline, a message whose data does not come.
func recvBriefly(t *testing.T, e *Engine, tag uint64, buf []byte) {
	t.Helper()
	_, err := e.Recv(&patience{Context: bg}, AnySource, tag, exact, buf)
	require.Equal(t, context.DeadlineExceeded, err)
}

// abandon does what the context of a blocking receive does, and reports whether that has ended it.
func abandon(r Request) bool {
	r.op.e.mu.Lock()
	defer r.op.e.mu.Unlock()
	ended, _ := r.op.abandon()
	return ended
}

// requireAbandoned abandons a receive, which nothing keeps from it.
func requireAbandoned(t *testing.T, r Request) {
	t.Helper()
	require.True(t, abandon(r))
	canceled(t, r)
}

// A deadline on a receive requeues the message whose data is on its way: the buffer is free, and
// the message keeps its place before those that came later, whether it had waited for the receive
// or the receive for it.
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
		require.Equal(t, fill(1000, 1), c.take(0, 1, 5))
		require.Equal(t, fill(8, 2), c.take(0, 1, 5))
		succeeded(t, first)
		c.quiet()
	}
}

// A receive does not requeue its message while another waits that matches it, in software or in
// the device: it gets it, late.
func TestAbandonedNotBesideAnother(t *testing.T) {
	for _, tags := range []int{0, 4} {
		c := manual(t, 2, fakeOpts{revoke: true, tags: tags, software: true})
		e := c.e[1]
		c.net.nodes[1].holdRds = true
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		c.step()
		buf := make([]byte, 2000)
		first := e.Irecv(AnySource, 5, exact, buf)
		second := e.Irecv(AnySource, 4, ^uint64(1), make([]byte, 2000)) // in the device, where there is one
		require.Equal(t, tags != 0, second.op.state == opOffloaded)
		require.False(t, abandon(first))
		c.net.nodes[1].holdRds = false
		c.step()
		c.got(first, buf, 1000, 1)
		succeeded(t, s)
		open(t, second)
		second.Cancel()
		c.step()
		canceled(t, second)
		c.quiet()
	}
}

// A call of Recv does likewise: where another receive waits it returns the message, after its
// deadline.
func TestAbandonedCallFinishes(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	e := c.e[1]
	c.net.nodes[1].holdRds = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	c.step()
	second := e.Irecv(AnySource, 4, exact, make([]byte, 2000))
	third := e.Irecv(AnySource, 0, 0, make([]byte, 2000)) // has the message, and would wait for one if it gave it back
	fourth := e.Irecv(AnySource, 0, 0, make([]byte, 2000))
	require.False(t, abandon(third))
	fourth.Cancel()
	requireAbandoned(t, third)
	ctx, cancel := context.WithCancel(bg)
	got := make(chan error, 1)
	buf := make([]byte, 2000)
	go func() {
		_, err := e.Recv(ctx, AnySource, 5, exact, buf)
		got <- err
	}()
	require.Eventually(t, func() bool { return e.Metrics().ReadsNow == 2 }, testlevel.Patience(10*time.Second), time.Millisecond)
	last := e.Irecv(AnySource, 5, exact, make([]byte, 2000))
	cancel()
	select {
	case err := <-got:
		t.Fatalf("the call has ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	e.mu.Lock()
	c.net.nodes[1].holdRds = false
	e.mu.Unlock()
	c.step()
	require.NoError(t, <-got)
	require.Equal(t, fill(1000, 1), buf[:1000])
	open(t, second, last)
	second.Cancel()
	last.Cancel()
	canceled(t, second, last, fourth)
	c.step()
	succeeded(t, s)
	c.quiet()
}

// A sender that wants a message back, and has begun to copy it itself, gets it when its receive
// gives it up.
func TestAbandonedWithdrawn(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true})
	c.net.nodes[1].holdRds, c.net.nodes[1].copying = true, true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	r := c.e[1].Irecv(AnySource, 5, exact, make([]byte, 2000))
	c.step()
	s.Cancel()
	c.step()
	open(t, s)
	require.False(t, abandon(r))
	c.net.nodes[1].copying = false
	requireAbandoned(t, r)
	c.step()
	canceled(t, s)
	c.net.nodes[1].holdRds = false
	c.step()
	c.quiet()
}

// A message that the buffer could not take is requeued: the next receive's may.
func TestAbandonedUnwritable(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true, maxRead: 300})
	e, node := c.e[1], c.net.nodes[1]
	node.holdRds = true
	s := c.e[0].Isend(1, 5, fill(1000, 1))
	r := e.Irecv(0, 5, exact, make([]byte, 2000))
	c.step()
	node.reads = node.reads[1:]
	c.callback(1, func(s transport.Sink) { s.ReadDone(r.op.slot.id(), transport.ErrUnwritable) })
	requireAbandoned(t, r)
	require.Empty(t, e.Failed())
	node.holdRds = false
	c.step()
	buf := make([]byte, 2000)
	again := e.Irecv(0, 5, exact, buf)
	c.step()
	c.got(again, buf, 1000, 1)
	succeeded(t, s)
	c.quiet()
}

// spoiltRead has a receive of rank 1 that reads a message of rank 0, and a later message behind it.
// The first of its reads has ended with cause, unless that is nil; the others have not.
func spoiltRead(t *testing.T, cause error) (c *cluster, s, r Request) {
	c = manual(t, 2, fakeOpts{revoke: true, maxRead: 300})
	node := c.net.nodes[1]
	node.holdRds = true
	s = c.e[0].Isend(1, 5, fill(1000, 1))
	r = c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
	c.step()
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
	c.step()
	if cause != nil {
		node.reads = node.reads[1:]
		c.callback(1, func(s transport.Sink) { s.ReadDone(r.op.slot.id(), cause) })
	}
	open(t, r)
	return c, s, r
}

// endReads lets the reads of rank 1 end, of which nothing is left.
func (c *cluster) endReads() {
	c.net.nodes[1].holdRds = false
	c.step()
	require.Zero(c.t, c.e[1].Metrics().ReadsNow)
}

// lostTo has a rank lose rank 0, which has closed its World.
func (c *cluster) lostTo(rank int) {
	c.callback(rank, func(s transport.Sink) { s.PeerLost(0, errors.New("it has closed its World")) })
}

// Whatever became of its reads, an abandoned message is requeued. Where the loss of its sender
// follows, nobody gets the message behind it as if there had been none before.
func TestAbandonedUnreadable(t *testing.T) {
	for cause, left := range map[error]int{transport.ErrDeregistered: 2, transport.ErrUnreadable: 2, errors.New("remote access error"): 0} {
		t.Run(cause.Error(), func(t *testing.T) {
			c, _, r := spoiltRead(t, cause)
			requireAbandoned(t, r)
			require.Equal(t, left, c.e[1].Metrics().UnexpectedNow)
			c.lostTo(1)
			require.Zero(t, c.e[1].Metrics().UnexpectedNow)
			_, err := c.e[1].Recv(bg, 0, 5, exact, make([]byte, 8))
			require.ErrorIs(t, err, ErrPeerLost)
			c.endReads()
		})
	}
}

// The loss was before: then the receive itself tells of it, as later messages stay.
func TestAbandonedAfterLoss(t *testing.T) {
	c, _, r := spoiltRead(t, nil)
	c.e[1].PeerLost(0, errors.New("told"))
	require.True(t, abandon(r))
	_, err := ended(t, r)
	require.ErrorIs(t, err, ErrPeerLost)
	require.Len(t, c.take(0, 1, 5), 8)
	c.endReads()
}

// An abort was before: likewise.
func TestAbandonedAfterAbort(t *testing.T) {
	c, _, r := spoiltRead(t, nil)
	c.e[1].Abort(nil)
	require.True(t, abandon(r))
	_, err := ended(t, r)
	require.ErrorIs(t, err, ErrAborted)
	c.endReads()
}

// A buffer that is gone is told of by the next receive, at both ends.
func TestAbandonedFault(t *testing.T) {
	c, s, r := spoiltRead(t, transport.ErrUnreadable)
	requireAbandoned(t, r)
	again := c.e[1].Irecv(0, 5, exact, make([]byte, 200))
	c.net.nodes[1].reads = c.net.nodes[1].reads[:0]
	c.callback(1, func(s transport.Sink) { s.ReadDone(again.op.slot.id(), transport.ErrUnreadable) })
	c.step()
	for _, r := range []Request{s, again} {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrFault)
	}
	require.Len(t, c.take(0, 1, 5), 8)
}
