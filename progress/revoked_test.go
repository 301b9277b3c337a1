package progress

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
)

// The message of a receive that reads is taken back: by a sender that withdraws it, that has given
// this rank up, or that has closed its engine. The receive waits until it hears which.
func TestRevokedFor(t *testing.T) {
	lost := func(c *cluster) {
		c.callback(1, func(s transport.Sink) { s.PeerLost(0, errors.New("it has closed its World")) })
	}
	for name, why := range map[string]struct {
		tell func(c *cluster, name uint32)
		want error
	}{
		"withdrawn": {func(c *cluster, name uint32) {
			c.callback(1, func(s transport.Sink) { s.Ctrl(0, ctrl{kind: ctrlWithdraw, id: name}.encode()) })
		}, nil},
		"lost":   {func(c *cluster, _ uint32) { lost(c) }, ErrPeerLost},
		"closed": {func(c *cluster, _ uint32) { require.NoError(t, c.e[1].Close(ErrClosed)) }, ErrClosed},
	} {
		for _, tags := range []int{0, 4} {
			t.Run(name, func(t *testing.T) {
				c := manual(t, 2, fakeOpts{revoke: true, tags: tags})
				c.net.nodes[1].hold(true)
				r := c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
				c.step()
				s := c.e[0].Isend(1, 5, fill(1000, 1))
				c.step()
				request := s.op.slot.wire()
				c.e[0].PeerLost(1, errors.New("told"))
				c.net.nodes[1].hold(false)
				for range 3 {
					c.e[1].Poll()
				}
				open(t, r)
				require.Equal(t, 1, c.e[1].Metrics().ReadsNow, "it has not gone back for another message")
				why.tell(c, request)
				if why.want != nil {
					_, err := ended(t, r)
					require.ErrorIs(t, err, why.want)
				} else {
					open(t, r)
				}
				require.Zero(t, c.e[1].Metrics().ReadsNow)
			})
		}
	}
}

// A Recv whose context ends before it hears that does not wait for it: the message is back at its
// place, where WITHDRAW finds it, or the loss of the sender, which takes the one behind it too.
func TestRevokedAndGivenUp(t *testing.T) {
	for _, withdrawn := range []bool{false, true} {
		c := manual(t, 2, fakeOpts{revoke: true})
		c.net.nodes[1].hold(true)
		s := c.e[0].Isend(1, 5, fill(1000, 1))
		require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
		c.step()
		request := s.op.slot.wire()
		c.e[0].PeerLost(1, errors.New("told"))
		c.net.nodes[1].hold(false)
		_, err := c.e[1].Recv(&patience{Context: bg}, 0, 5, exact, make([]byte, 2000))
		require.Equal(t, context.DeadlineExceeded, err)
		require.Zero(t, c.e[1].Metrics().ReadsNow)
		require.Equal(t, 2, c.e[1].Metrics().UnexpectedNow)
		if withdrawn {
			c.callback(1, func(s transport.Sink) { s.Ctrl(0, ctrl{kind: ctrlWithdraw, id: request}.encode()) })
			require.Len(t, c.take(0, 1, 5), 8)
		} else {
			c.lostTo(1)
		}
		require.Zero(t, c.e[1].Metrics().UnexpectedNow)
	}
}

// A device does not say where it was reading: such a message cannot be requeued.
func TestRevokedInDeviceAndGivenUp(t *testing.T) {
	c := manual(t, 2, fakeOpts{revoke: true, tags: 4})
	c.net.nodes[1].hold(true)
	r := c.e[1].Irecv(0, 5, exact, make([]byte, 2000))
	c.step()
	c.e[0].Isend(1, 5, fill(1000, 1))
	require.NoError(t, c.e[0].Send(bg, 1, 5, fill(8, 2)))
	c.step()
	c.e[0].PeerLost(1, errors.New("told"))
	c.net.nodes[1].hold(false)
	for range 3 {
		c.e[1].Poll()
	}
	require.False(t, abandon(r))
	c.lostTo(1)
	_, err := ended(t, r)
	require.ErrorIs(t, err, ErrPeerLost)
}

// A rank that finds a violation gives the peer up, and tells it: both errors are ErrProtocol.
func TestAccused(t *testing.T) {
	c := manual(t, 2, fakeOpts{})
	finder, accused := c.e[0].Irecv(1, 1, exact, nil), c.e[1].Irecv(0, 1, exact, nil)
	c.callback(0, func(s transport.Sink) { s.Ctrl(1, []byte{1}) })
	c.step()
	for r, text := range map[Request]string{finder: "peer broke the protocol: control message of rank 1", accused: "it says that this rank broke the protocol"} {
		_, err := ended(t, r)
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorIs(t, err, ErrProtocol)
		require.ErrorContains(t, err, text)
	}
}
