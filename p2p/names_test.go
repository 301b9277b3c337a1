package p2p_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestCommNames: a message whose tag names another rank than its sender is a violation of that
// sender's, and no receive from the other rank takes it for that rank's.
func TestCommNames(t *testing.T) {
	for _, n := range []int{8, 3000, 200_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onWirings(t, 3, offloaded, func(t *testing.T, w *p2p.World) {
				c, b := w.Comm(), make([]byte, n)
				ctx, cancel := context.WithTimeout(t.Context(), testlevel.Patience(30*time.Second))
				defer cancel()
				defer func() { _ = w.Close() }() // Shutdown would tell of the loss
				switch w.Rank() {
				case 0:
					r := c.Irecv(2, 5, b)
					_, err := c.Recv(ctx, 2, 9, nil) // it has joined: rank 1 soon closes its World
					require.NoError(t, err)
					require.NoError(t, c.Send(ctx, 1, 1, nil))
					_, err = c.Recv(ctx, 1, 6, nil)
					require.ErrorIs(t, err, p2p.ErrPeerLost)
					require.ErrorContains(t, err, "broke the protocol")
					require.Regexp(t, "names rank 2|sends as rank 2", err.Error())
					require.NoError(t, c.Send(ctx, 2, 1, nil))
					if _, err = r.Wait(ctx); err != nil { // a device has matched it
						require.ErrorContains(t, err, "sends as rank 2")
						require.Equal(t, []int{1}, err.(*p2p.OpError).Err.(*p2p.PeerError).Ranks)
						_, err = c.Recv(ctx, 2, 5, b)
					}
					require.NoError(t, err)
					require.Equal(t, bytes.Repeat([]byte{2}, n), b)
					require.NoError(t, c.Ssend(ctx, 2, 8, nil))
				case 1:
					_, err := c.Recv(ctx, 0, 1, nil)
					require.NoError(t, err)
					violate(ctx, t, c, bytes.Repeat([]byte{1}, n))
				case 2:
					require.NoError(t, c.Send(ctx, 0, 9, nil))
					_, err := c.Recv(ctx, 0, 1, nil)
					require.NoError(t, err)
					require.NoError(t, c.Send(ctx, 0, 5, bytes.Repeat([]byte{2}, n)))
					_, err = c.Recv(ctx, 0, 8, nil)
					require.NoError(t, err)
				}
			})
		})
	}
}

// violate sends the first rank of the World a message as rank 2 of c, which ends the connection.
func violate(ctx context.Context, t *testing.T, c *p2p.Comm, b []byte) {
	r := p2p.IsendAs(c, 2, 0, 5, b)
	_, _ = r.Wait(ctx)
	_, err := c.World().Comm().Recv(ctx, 0, 7, nil) // ends with the connection
	require.ErrorIs(t, err, p2p.ErrPeerLost)
}

// TestCommMembers: a message in a Comm of Split by a rank that is no member is a violation of that
// rank's. Receives from any source do not take it, and go on, also one that a device has matched
// with it.
func TestCommMembers(t *testing.T) {
	for _, n := range []int{8, 3000, 200_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			onWirings(t, 3, offloaded, func(t *testing.T, w *p2p.World) {
				ctx, cancel := context.WithTimeout(t.Context(), testlevel.Patience(30*time.Second))
				defer cancel()
				c, b := w.Comm(), make([]byte, n)
				d, err := c.Split(ctx, w.Rank()/2, 0)
				require.NoError(t, err)
				defer func() { _ = w.Close() }() // Shutdown would tell of the loss
				switch w.Rank() {
				case 0:
					require.Equal(t, 2, d.Size())
					r := d.Irecv(p2p.AnySource, p2p.AnyTag, b)
					require.NoError(t, c.Send(ctx, 2, 1, nil))
					_, err = c.Recv(ctx, 2, 6, nil)
					require.ErrorIs(t, err, p2p.ErrPeerLost)
					require.ErrorIs(t, err, p2p.ErrProtocol)
					require.ErrorContains(t, err, "of a Comm that it is no member of")
					require.NoError(t, d.Send(ctx, 1, 1, nil))
					st, err := r.Wait(ctx)
					require.NoError(t, err)
					require.Equal(t, p2p.Status{Source: 1, Tag: 5, Len: int64(n)}, st)
					require.Equal(t, bytes.Repeat([]byte{1}, n), b)
					require.NoError(t, d.Ssend(ctx, 1, 8, nil))
				case 1:
					_, err := d.Recv(ctx, 0, 1, nil)
					require.NoError(t, err)
					require.NoError(t, d.Send(ctx, 0, 5, bytes.Repeat([]byte{1}, n)))
					_, err = d.Recv(ctx, 0, 8, nil)
					require.NoError(t, err)
				case 2: // the context of its Comm is the same
					_, err := c.Recv(ctx, 0, 1, nil)
					require.NoError(t, err)
					violate(ctx, t, d, bytes.Repeat([]byte{2}, n))
				}
			})
		})
	}
}
