package p2p_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// stuck begins a collective call on some ranks, that others do not make, and ends its context when
// all wait in it. It returns their errors by rank.
func stuck(t *testing.T, ws []*p2p.World, calls map[int]func(context.Context) error) map[int]error {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	type outcome struct {
		rank int
		err  error
	}
	failed := make(chan outcome, len(calls))
	for rank, call := range calls {
		p2p.BePatient(ws[rank])
		go func() { failed <- outcome{rank, call(ctx)} }()
	}
	for rank := range calls {
		awaitCollective(t, ws[rank])
	}
	cancel()
	errs := map[int]error{}
	for range calls {
		o := <-failed
		errs[o.rank] = o.err
	}
	return errs
}

// awaitCollective returns when a rank waits in a collective call for another one.
func awaitCollective(t *testing.T, w *p2p.World) {
	require.Eventually(t, func() bool {
		var b strings.Builder
		_ = w.Dump(&b)
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, " of a Barrier, Dup or Split, ") && !strings.Contains(line, "eager") {
				return true
			}
		}
		return false
	}, testlevel.Patience(time.Minute), time.Millisecond)
}

// onAll makes a collective call on all ranks.
func onAll(t *testing.T, ws []*p2p.World, call func(w *p2p.World) (*p2p.Comm, error)) []*p2p.Comm {
	cs := make([]*p2p.Comm, len(ws))
	errs := make(chan error, len(ws))
	for i, w := range ws {
		go func() {
			var err error
			cs[i], err = call(w)
			errs <- err
		}()
	}
	for range ws {
		require.NoError(t, <-errs)
	}
	return cs
}

func dupOf(c *p2p.Comm) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Dup(ctx)
		return err
	}
}

func splitOf(c *p2p.Comm) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.Split(ctx, 0, 0)
		return err
	}
}

// The error of Dup and Split names the ranks that have not made the call, or another one. Messages
// go on.
func TestMissingInCollective(t *testing.T) {
	worldsOnWirings(t, 4, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		turned := onAll(t, ws, func(w *p2p.World) (*p2p.Comm, error) { return w.Comm().Split(background, 0, -w.Rank()) })
		for rank, err := range stuck(t, ws, map[int]func(context.Context) error{0: dupOf(turned[0]), 2: dupOf(turned[2]), 3: dupOf(turned[3])}) {
			require.ErrorIs(t, err, context.Canceled)
			require.EqualError(t, err, "p2p: dup: context canceled: rank 1 of the World has not called it")
			_, err = turned[rank].Split(background, 0, 0)
			require.EqualError(t, err, "p2p: split: an earlier call on this Comm failed: context canceled: rank 1 of the World has not called it")
		}
		for rank, err := range stuck(t, ws, map[int]func(context.Context) error{
			0: splitOf(ws[0].Comm()), 1: dupOf(ws[1].Comm()), 2: splitOf(ws[2].Comm()), 3: splitOf(ws[3].Comm())}) {
			if rank == 1 {
				require.ErrorContains(t, err, "dup: context canceled: ranks 0, 2, 3 have made another call on this Comm")
			} else {
				require.ErrorContains(t, err, "split: context canceled: rank 1 has made another call on this Comm")
			}
		}
		require.NoError(t, ws[0].Comm().Send(background, 1, 1, nil))
		_, err := ws[1].Comm().Recv(background, 0, 1, nil)
		require.NoError(t, err)
	})
}

// Where a rank is lost nobody else is asked: the call ends at once, with that loss.
func TestLostInCollective(t *testing.T) {
	worldsOnWirings(t, 3, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		require.NoError(t, ws[0].Comm().Send(background, 1, 1, nil)) // connects them
		_, err := ws[1].Comm().Recv(background, 0, 1, nil)
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() { failed <- dupOf(ws[1].Comm())(background) }()
		awaitCollective(t, ws[1]) // for rank 0; rank 2 has not called it either
		require.NoError(t, ws[0].Close())
		err = <-failed
		loss, ok := errors.AsType[*p2p.PeerError](err)
		require.True(t, ok, err)
		require.Equal(t, []int{0}, loss.Ranks)
		require.NotContains(t, err.Error(), "rank 2")
		require.NoError(t, ws[2].Close())
		require.NoError(t, ws[1].Close())
	})
}

// A call ends by the loss of a rank of its Comm although it waits for another one, which makes no
// call, is not lost and is asked nothing. A later call ends at once.
func TestLossEndsCollective(t *testing.T) {
	worldsOnWirings(t, 4, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		three := onAll(t, ws, func(w *p2p.World) (*p2p.Comm, error) { return w.Comm().Split(background, w.Rank()/3, -w.Rank()) })
		failed := make(chan error, 1)
		go func() { failed <- dupOf(three[1])(background) }()
		awaitCollective(t, ws[1]) // for rank 2
		require.NoError(t, ws[3].Close())
		require.ErrorIs(t, second(ws[1].Comm().Recv(background, 3, 1, nil)), p2p.ErrPeerLost)
		require.Empty(t, failed, "rank 3 is none of the Comm")
		require.NoError(t, ws[0].Close())
		err := <-failed
		require.EqualError(t, err, "p2p: dup: rank 0 lost: it has closed its World while this rank still counted on it")
		_, err = ws[2].Comm().Split(background, 0, 0)
		require.ErrorIs(t, err, p2p.ErrPeerLost)
		require.NoError(t, ws[1].Close())
		require.NoError(t, ws[2].Close())
	})
}

// A rank that fails tells the others whom it has missed: they say so too when both are gone.
func TestMissingIsPassedOn(t *testing.T) {
	worldsOnWirings(t, 4, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		failed := make(chan error, 2)
		for _, rank := range []int{0, 3} {
			go func() { failed <- dupOf(ws[rank].Comm())(background) }()
		}
		awaitCollective(t, ws[0])
		awaitCollective(t, ws[3])
		err := stuck(t, ws, map[int]func(context.Context) error{2: dupOf(ws[2].Comm())})[2]
		require.EqualError(t, err, "p2p: dup: context canceled: rank 1 has not called it")
		for _, rank := range []int{0, 3} { // have heard that, then
			require.NoError(t, ws[2].Comm().Send(background, rank, 1, nil))
			_, err := ws[rank].Comm().Recv(background, 2, 1, nil)
			require.NoError(t, err)
		}
		require.NoError(t, ws[1].Close())
		require.NoError(t, ws[2].Close())
		for range 2 {
			err := <-failed
			loss, ok := errors.AsType[*p2p.PeerError](err)
			require.True(t, ok, err)
			require.NotContains(t, loss.Ranks, 0)
			require.ErrorContains(t, err, ": rank 1 has not called it")
		}
		require.NoError(t, ws[0].Close())
		require.NoError(t, ws[3].Close())
	})
}
