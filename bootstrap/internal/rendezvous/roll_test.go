package rendezvous

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// awaitJoined starts rank 0 of a job; joined is closed when another rank has joined.
func awaitJoined(ctx context.Context, at func(rank int) candidate) (joined chan struct{}, root chan error) {
	me := at(0)
	joined, root = make(chan struct{}, 8), make(chan error, 1)
	me.Logger = ranktest.On("rendezvous: rank has joined", func() { joined <- struct{}{} })
	go func() {
		b, err := me.join(ctx)
		if err == nil {
			err = b.Close()
		}
		root <- err
	}()
	return joined, root
}

// TestJoinTimeoutIsTheJobs: the timeout of one rank ends, and all that have joined get the names of
// the missing ranks.
func TestJoinTimeoutIsTheJobs(t *testing.T) {
	t.Parallel()
	at := candidates(t, 4)
	ctx := ranktest.Timeout(t)
	joined, root := awaitJoined(ctx, at)
	second := make(chan error, 1)
	go func() {
		_, err := at(2).join(ctx)
		second <- err
	}()
	<-joined
	after := &JoinTimeout{testlevel.Patience(time.Second)} // long enough to join
	short, cancel := context.WithTimeoutCause(ctx, after.After, after)
	defer cancel()
	_, err := at(3).join(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	missing := fmt.Sprintf("rank 3 gave up waiting for all ranks to join (%v); still missing: rank 1 of 4", after)
	require.ErrorContains(t, err, "rank 3 of 4 waited at ADDRESS=127.0.0.1:")
	require.ErrorContains(t, err, missing)
	require.ErrorContains(t, <-root, missing)
	require.ErrorContains(t, <-second, missing)
}

// TestGivingUpAlone: a rank whose own context ends gets the names of the missing ranks, and may
// come again; the others continue to wait.
func TestGivingUpAlone(t *testing.T) {
	at := candidates(t, 3)
	ctx := ranktest.Timeout(t)
	_, root := awaitJoined(ctx, at)
	me := at(2)
	alone, logger := ranktest.CancelOn(t, "rendezvous: waiting for the other ranks")
	me.Logger = logger
	_, err := me.join(alone)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "rank 2 gave up waiting for all ranks to join (context canceled); still missing: rank 1 of 3")
	ranktest.Each(t, 3, func(r int) error {
		if r == 0 {
			return <-root
		}
		b, err := at(r).join(ctx)
		if err == nil {
			err = b.Close()
		}
		return err
	})
}
