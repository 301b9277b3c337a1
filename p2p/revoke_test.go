package p2p_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// waiting starts one operation of each kind on c that nothing but the end of c ends, to and from
// rank peer, and returns what gives their errors. Sends wait behind those that fill what peer
// keeps.
func waiting(c *p2p.Comm, peer int) (errs []func() error) {
	request := func(r p2p.Request) {
		errs = append(errs, func() error { return second(r.Wait(background)) })
	}
	request(c.Irecv(peer, 1, make([]byte, 8)))
	request(c.Irecv(p2p.AnySource, 2, make([]byte, 20_000)))
	request(c.IrecvVec(peer, 3, [][]byte{make([]byte, 8), make([]byte, 8)}))
	request(c.RecvInit(peer, 4, nil).Start())
	request(c.IrecvAll(nil, []p2p.Transfer{{Rank: peer, Tag: 5}})[0])
	q := c.World().NewQueue(1)
	c.Irecv(peer, 6, nil).Notify(q, 0)
	errs = append(errs, func() error {
		defer q.Close()
		var cs [1]p2p.Completion
		if _, err := q.Wait(background, cs[:]); err != nil {
			return err
		}
		return cs[0].Err
	})
	for _, call := range []func() error{
		func() error { return second(c.Recv(background, peer, 7, nil)) },
		func() error { return second(c.Probe(background, peer, 8)) },
		func() error { _, err := c.Mprobe(background, p2p.AnySource, 9); return err },
		func() error { _, _, err := c.RecvAlloc(background, peer, 10, 0); return err },
		func() error { return c.Barrier(background) },
	} {
		end := make(chan error, 1)
		go func() { end <- call() }()
		errs = append(errs, func() error { return <-end })
	}
	return errs
}

// later makes each call on c.
func later(c *p2p.Comm) (errs []error) {
	for _, peer := range []int{0, p2p.ProcNull} {
		errs = append(errs, sendErrors(c, peer, 1)...)
		for _, err := range recvErrors(c, peer, 1) {
			errs = append(errs, err)
		}
		_, err := c.SendInit(peer, 1, nil).Start().Wait(background)
		errs = append(errs, err)
	}
	_, err := c.Dup(background)
	errs = append(errs, err)
	_, err = c.Split(background, 0, 0)
	return append(errs, err, c.Barrier(background))
}

// Revoke ends what waits on all ranks, and later calls; other Comms go on, and so do raw calls.
func TestRevoke(t *testing.T) {
	reason := strings.Repeat("x", 199) + "ä"
	onWirings(t, 3, offloaded, func(t *testing.T, w *p2p.World) {
		c, other := dup(t, w.Comm()), dup(t, w.Comm())
		next, last := (w.Rank()+1)%3, (w.Rank()+2)%3
		var errs []func() error
		if w.Rank() != 0 {
			errs = waiting(c, last)
		}
		barrier(t, other)
		if w.Rank() == 0 {
			require.NoError(t, c.Revoke(reason))
			require.NoError(t, c.Revoke("again"))
		}
		const text = "communicator revoked by rank 0 of the World: "
		revoked := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, p2p.ErrRevoked)
			require.Contains(t, err.Error(), text+reason[:199]+"?")
			require.NotContains(t, err.Error()[1:], "p2p: ")
		}
		for _, err := range errs {
			revoked(err())
		}
		barrier(t, other)
		for _, err := range later(c) {
			revoked(err)
		}
		c.AckFailures(0)
		require.Equal(t, w.Rank(), c.Rank())
		require.NoError(t, c.Revoke("later"))
		require.NoError(t, c.Close())
		require.EqualError(t, c.Revoke("too late"), "p2p: revoke: communicator closed")
		require.ErrorIs(t, c.Send(background, 0, 1, nil), p2p.ErrClosed)
		st, err := other.Sendrecv(background, next, 1, []byte("on"), last, 1, make([]byte, 2))
		require.NoError(t, err)
		require.EqualValues(t, 2, st.Len)
		barrier(t, w.Comm())
	})
}

// Sends end too: those that wait behind others, and those that their receivers know of.
func TestRevokeEndsSends(t *testing.T) {
	cfg := offloaded
	cfg.UnexpectedLimit = 1 << 16
	onWirings(t, 2, cfg, func(t *testing.T, w *p2p.World) {
		c := dup(t, w.Comm())
		peer := 1 - w.Rank()
		var reqs []p2p.Request
		for i := range 200 {
			reqs = append(reqs, c.Isend(peer, 1, make([]byte, 2000)), c.Issend(peer, 1, nil), c.Isend(peer, 1, make([]byte, 200_000)))
			if i == 100 {
				reqs = append(reqs, c.IsendVec(peer, 1, [][]byte{make([]byte, 10), make([]byte, 90_000)}))
			}
		}
		if w.Rank() == 0 {
			require.NoError(t, c.Revoke(""))
		}
		failed := 0
		for _, r := range reqs {
			if err := second(r.Wait(background)); err != nil {
				require.ErrorIs(t, err, p2p.ErrRevoked)
				require.ErrorContains(t, err, "communicator revoked by rank 0 of the World")
				failed++
			}
		}
		require.NotZero(t, failed)
		require.NoError(t, w.Comm().Barrier(background))
		require.NoError(t, c.Close())
		again := dup(t, w.Comm())
		st, err := again.Sendrecv(background, peer, 1, make([]byte, 30_000), peer, 1, make([]byte, 30_000))
		require.NoError(t, err)
		require.EqualValues(t, 30_000, st.Len)
	})
}

// A Message that is still with its sender is of no use any more, one that is here is.
func TestRevokedMessages(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		c := dup(t, w.Comm())
		if w.Rank() == 0 {
			small, large := c.Issend(1, 1, []byte("a")), c.Isend(1, 2, make([]byte, 100_000))
			require.NoError(t, c.Send(background, 1, 3, []byte("b")))
			barrier(t, w.Comm())
			require.NoError(t, c.Revoke("enough"))
			for _, r := range []p2p.Request{small, large} {
				if err := second(r.Wait(background)); err != nil {
					require.ErrorIs(t, err, p2p.ErrRevoked)
				}
			}
			barrier(t, w.Comm())
			return
		}
		var ms []*p2p.Message
		for tag := range p2p.Tag(3) {
			m, err := c.Mprobe(background, 0, tag+1)
			require.NoError(t, err)
			ms = append(ms, m)
		}
		barrier(t, w.Comm())
		require.ErrorIs(t, second(c.Recv(background, 0, 9, nil)), p2p.ErrRevoked)
		barrier(t, w.Comm())
		for i, m := range ms {
			_, err := m.Recv(background, make([]byte, 1))
			if i == 2 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, p2p.ErrRevoked)
			}
		}
	})
}

// World.Comm can be revoked too. Comms made of it, and raw calls, go on.
func TestRevokeWorldComm(t *testing.T) {
	p2ptest.Run(t, 5, func(w *p2p.World) {
		c := dup(t, w.Comm())
		barrier(t, c)
		if w.Rank() == 3 {
			require.NoError(t, w.Comm().Revoke("w"))
		}
		require.ErrorIs(t, second(w.Comm().Recv(background, 0, 1, nil)), p2p.ErrRevoked)
		require.ErrorIs(t, w.Comm().Barrier(background), p2p.ErrRevoked)
		r := w.Irecv(1, p2p.MaskExact, nil)
		require.NoError(t, w.Send(background, w.Rank(), 1, nil))
		require.NoError(t, second(r.Wait(background)))
		barrier(t, dup(t, c))
	})
}

// Comms are made, revoked by several ranks at random, closed, and made again in the same contexts:
// none that nobody has revoked is revoked, and nobody waits for ever on one that is.
func TestRevokeAgainAndAgain(t *testing.T) {
	onWirings(t, 4, offloaded, func(t *testing.T, w *p2p.World) {
		for i := range rounds(200) {
			c := dup(t, w.Comm())
			if i%3 == 0 {
				var wg sync.WaitGroup
				wg.Go(func() {
					err := c.Barrier(background)
					assert.True(t, err == nil || assert.ErrorIs(t, err, p2p.ErrRevoked))
				})
				if (i+w.Rank())%2 == 0 {
					require.NoError(t, c.Revoke(fmt.Sprint(i)))
				}
				wg.Wait()
				require.ErrorIs(t, second(c.Recv(background, p2p.AnySource, p2p.AnyTag, nil)), p2p.ErrRevoked)
			} else {
				barrier(t, c)
				st, err := c.Sendrecv(background, (w.Rank()+1)%4, 1, make([]byte, 20_000), p2p.AnySource, 1, make([]byte, 20_000))
				require.NoError(t, err)
				require.EqualValues(t, 20_000, st.Len)
			}
			require.NoError(t, c.Close())
		}
	})
}

// All ranks of a process are on one host.
func TestHostOf(t *testing.T) {
	p2ptest.Run(t, 3, func(w *p2p.World) {
		for rank := range 3 {
			require.Zero(t, w.HostOf(rank))
		}
	})
}

// Revoke of a World that has ended tells so.
func TestRevokeAfterClose(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		c := dup(t, w.Comm())
		require.NoError(t, w.Shutdown(context.Background()))
		require.ErrorIs(t, c.Revoke(""), p2p.ErrClosed)
	})
}
