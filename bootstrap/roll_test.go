package bootstrap

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// awaitJoined starts rank 0 of a job; joined is closed when another rank has joined.
func awaitJoined(ctx context.Context, env func(rank int) vars) (joined chan struct{}, root chan error) {
	opt := options(env(0))
	joined, root = make(chan struct{}, 8), make(chan error, 1)
	opt.on("rendezvous: rank has joined", func() { joined <- struct{}{} })
	go func() {
		b, err := Detect(ctx, opt)
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
	env := jobEnv(t, 4)
	ctx := timeout(t)
	joined, root := awaitJoined(ctx, env)
	second := make(chan error, 1)
	go func() {
		_, err := Detect(ctx, options(env(2)))
		second <- err
	}()
	<-joined
	_, err := Detect(ctx, options(env(3).with(EnvJoinTimeout, "1s"))) // long enough to join
	require.ErrorIs(t, err, context.DeadlineExceeded)
	const missing = "rank 3 gave up waiting for all ranks to join (the 1s of TAGMATCH_JOIN_TIMEOUT are over); still missing: rank 1 of 4"
	require.ErrorContains(t, err, "rank 3 of 4 waited at MASTER_ADDR:MASTER_PORT=127.0.0.1:")
	require.ErrorContains(t, err, missing)
	require.ErrorContains(t, <-root, missing)
	require.ErrorContains(t, <-second, missing)
}

// TestGivingUpAlone: a rank whose own context ends gets the names of the missing ranks, and may
// come again; the others continue to wait.
func TestGivingUpAlone(t *testing.T) {
	env := jobEnv(t, 3)
	ctx := timeout(t)
	_, root := awaitJoined(ctx, env)
	opt := options(env(2))
	_, err := Detect(cancelOn(t, &opt, "rendezvous: waiting for the other ranks"), opt)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "rank 2 gave up waiting for all ranks to join (context canceled); still missing: rank 1 of 3")
	each(t, 3, func(r int) error {
		if r == 0 {
			return <-root
		}
		b, err := Detect(ctx, options(env(r)))
		if err == nil {
			err = b.Close()
		}
		return err
	})
}

func TestNoJoinTimeout(t *testing.T) {
	for _, s := range []string{"none", "-1"} {
		opt := options(vars{EnvJoinTimeout: s})
		d, err := opt.timeout()
		require.NoError(t, err)
		require.Negative(t, d)
	}
	env := jobEnv(t, 2)
	each(t, 2, func(r int) error {
		b, err := Detect(timeout(t), options(env(r).with(EnvJoinTimeout, "none")))
		if err == nil {
			err = b.Close()
		}
		return err
	})
}
