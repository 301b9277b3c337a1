package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// TestEndure: the survivors of a rank that closes its World in a round name it, and go on.
func TestEndure(t *testing.T) {
	for lost, transport := range []string{"rc", "tmsrq", "rc"} {
		t.Run(fmt.Sprintf("%s/%d", transport, lost), func(t *testing.T) {
			t.Parallel()
			var ready sync.WaitGroup
			ready.Add(3)
			p2ptest.RunConfig(t, 3, p2p.Config{Transport: transport, OffloadMin: -1}, func(w *p2p.World) {
				if w.Rank() == lost {
					go func() {
						ready.Wait()
						w.Close()
					}()
				}
				_, loss, err := Endure(w, Options{Size: 100 << 10, Count: 10}, func() error {
					ready.Done()
					return nil
				})
				if w.Rank() == lost {
					require.ErrorIs(t, err, p2p.ErrClosed)
					return
				}
				require.NoError(t, err)
				require.Equal(t, lost, loss.Rank)
				require.False(t, loss.Over.Before(loss.At))
				require.ErrorIs(t, w.Shutdown(context.Background()), p2p.ErrPeerLost)
			})
		})
	}
}

// TestPardon: a loss explains errors that name the rank, those of a round that was given up, and
// nothing else.
func TestPardon(t *testing.T) {
	peer := func(ranks ...int) error {
		return fmt.Errorf("send: %w", &p2p.PeerError{Ranks: ranks, Cause: errors.New("gone")})
	}
	for name, c := range map[string]struct {
		err    error
		given  bool // the round up
		pardon bool
	}{
		"names it":             {peer(1), false, true},
		"names another":        {peer(0), false, false},
		"names two":            {peer(0, 1), false, false},
		"ended with the round": {context.Canceled, true, true},
		"late with the round":  {context.DeadlineExceeded, true, true},
		"ended before":         {context.Canceled, false, false},
		"damaged":              {errors.New("arrived damaged"), true, false},
	} {
		l := &watch{known: make(chan struct{}), loss: Loss{Rank: 1}}
		l.ctx, l.stop = context.WithCancelCause(context.Background())
		close(l.known)
		if c.given {
			l.stop(errGrace)
		}
		got := l.pardon(c.err)
		require.Equal(t, c.pardon, errors.Is(got, errLost), name)
		if !c.pardon {
			require.ErrorIs(t, got, c.err, name)
		}
		l.err = errors.New("an operation has not ended")
		require.NotErrorIs(t, l.pardon(c.err), errLost, name)
	}
	require.NoError(t, (&watch{}).pardon(nil))
	err := peer(1)
	require.Equal(t, err, (*watch)(nil).pardon(err), "where nobody is to die")
}

// TestLate: an operation with the lost rank that goes on when the round is given up is a fault, and
// one with a survivor is not.
func TestLate(t *testing.T) {
	pair(t, func(w *p2p.World) {
		x := side(w, 0)
		l := &watch{loss: Loss{Rank: 1}}
		l.ctx, l.stop = context.WithCancelCause(context.Background())
		x.round.watch = l
		r := w.Comm().Irecv(1, tagUnsent, nil)
		defer r.Cancel()
		reqs := []p2p.Request{{}, r}
		with := func(rank int) error {
			return x.overdue(context.Canceled, reqs, func(int) int { return rank })
		}
		require.Equal(t, context.Canceled, with(1), "the round goes on")
		l.stop(errGrace)
		require.Equal(t, context.Canceled, with(0))
		require.ErrorContains(t, with(1), "an operation with rank 1 goes on")
		require.NoError(t, x.overdue(nil, reqs, nil))
	})
}
