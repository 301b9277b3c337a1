package rendezvous

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
)

// kinds are the ways to make a job of n ranks; every rule of exchange holds for all.
var kinds = []struct {
	name  string
	start func(t *testing.T, n int) []*Endpoint
}{
	{"local", func(t *testing.T, n int) []*Endpoint {
		list := NewLocal(n)
		t.Cleanup(func() { closeAll(t, list) })
		return list
	}},
	{"open", func(t *testing.T, n int) []*Endpoint { return startJob(t, n, Secret{}, "") }},
	{"secret", func(t *testing.T, n int) []*Endpoint { return startJob(t, n, given(0x5a), "") }},
	{"TLS", func(t *testing.T, n int) []*Endpoint { return startJob(t, n, given(0x5a), "secret") }},
}

func forKinds(t *testing.T, n int, f func(t *testing.T, list []*Endpoint)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k.start(t, n)) })
	}
}

func TestExchange(t *testing.T) {
	const n, rounds = 8, 5
	forKinds(t, n, func(t *testing.T, list []*Endpoint) {
		ctx := ranktest.Timeout(t)
		ranktest.Each(t, n, func(r int) error {
			b := list[r]
			if b.Rank() != r || b.Size() != n {
				return fmt.Errorf("rank %d of %d", b.Rank(), b.Size())
			}
			for i := range rounds {
				if err := exchangeRound(ctx, b, i); err != nil {
					return fmt.Errorf("round %d: %w", i, err)
				}
			}
			return nil
		})
	})
}

// exchangeRound puts a value under a new key, one under an old key and nothing under another, and
// checks everybody's.
func exchangeRound(ctx context.Context, b *Endpoint, round int) error {
	value := func(rank, round int) []byte { return fmt.Appendf(nil, "value %d of %d", round, rank) }
	if err := b.Put(ctx, fmt.Sprint("round", round), value(b.Rank(), round)); err != nil {
		return err
	}
	if err := b.Put(ctx, "latest", value(b.Rank(), round)); err != nil {
		return err
	}
	if err := b.Fence(ctx); err != nil {
		return err
	}
	for r := range b.Size() {
		for _, key := range []string{"round0", fmt.Sprint("round", round), "latest"} {
			want := value(r, round)
			if key == "round0" {
				want = value(r, 0)
			}
			got, err := b.Get(ctx, r, key)
			if err != nil || !bytes.Equal(got, want) {
				return fmt.Errorf("get %q of rank %d: %q, %v; want %q", key, r, got, err, want)
			}
		}
	}
	return nil
}

func TestValueSizes(t *testing.T) {
	sizes := []int{0, 1, 512, 1023, 4096, 100_000, MaxValue}
	forKinds(t, 3, func(t *testing.T, list []*Endpoint) {
		ctx := ranktest.Timeout(t)
		ranktest.Each(t, 3, func(r int) error {
			for _, n := range sizes {
				if err := list[r].Put(ctx, fmt.Sprint(n), bytes.Repeat([]byte{byte(r)}, n)); err != nil {
					return err
				}
			}
			return list[r].Fence(ctx)
		})
		for r := range list {
			for _, n := range sizes {
				got, err := list[0].Get(ctx, r, fmt.Sprint(n))
				require.NoError(t, err)
				require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(r)}, n), got), "%d bytes of rank %d", n, r)
			}
		}
	})
}

func TestPutGetRules(t *testing.T) {
	b := NewLocal(1)[0]
	ctx := context.Background()
	require.ErrorContains(t, b.Put(ctx, "", nil), "a key has 1 to 1024 bytes")
	require.ErrorContains(t, b.Put(ctx, strings.Repeat("k", MaxKey+1), nil), "a key has 1 to 1024 bytes")
	require.ErrorContains(t, b.Put(ctx, "k", make([]byte, MaxValue+1)), "split it over several keys")
	value := []byte("before")
	require.NoError(t, b.Put(ctx, "k", value))
	copy(value, "after!")
	_, err := b.Get(ctx, 0, "k")
	require.ErrorIs(t, err, ErrNotFound, "not visible before the fence")
	require.NoError(t, b.Fence(ctx))
	got, err := b.Get(ctx, 0, "k")
	require.NoError(t, err)
	require.Equal(t, "before", string(got))
	_, err = b.Get(ctx, 1, "k")
	require.ErrorContains(t, err, "ranks go from 0 to 0")

	for i := range MaxFence/MaxValue - 1 {
		require.NoError(t, b.Put(ctx, fmt.Sprint(i), make([]byte, MaxValue)))
	}
	require.ErrorContains(t, b.Put(ctx, "last", make([]byte, MaxValue)), "call Fence in between")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Put(ctx, "k", nil), ErrClosed)
	require.ErrorIs(t, b.Fence(ctx), ErrClosed)
	_, err = b.Get(ctx, 0, "k")
	require.ErrorIs(t, err, ErrClosed)
}

func TestInfo(t *testing.T) {
	forKinds(t, 3, func(t *testing.T, list []*Endpoint) {
		first := list[0].Info()
		require.Len(t, first.Secret, SecretSize)
		require.NotEmpty(t, first.SecretOrigin)
		require.Len(t, first.JobID, 2*jobIDSize)
		require.Contains(t, []string{"local", "test"}, first.Launcher)
		for r, b := range list {
			i := b.Info()
			require.True(t, i.LocalIP.IsLoopback(), "rank %d: %v", r, i.LocalIP)
			require.GreaterOrEqual(t, i.LocalRank, -1)
			i.LocalRank, i.LocalIP = first.LocalRank, first.LocalIP
			require.Equal(t, first, i)
		}
	})
	list := startWith(t, 2, func(c candidate) candidate {
		c.LocalRank, c.LocalSize = 0, 1
		return c
	})
	i := list[1].Info()
	require.Equal(t, 0, i.LocalRank)
	require.Equal(t, 1, i.LocalSize)
	require.Equal(t, HandedOut, i.SecretOrigin)
}

func TestFenceContextNamesMissing(t *testing.T) {
	forKinds(t, 4, func(t *testing.T, list []*Endpoint) {
		long := ranktest.Timeout(t)
		short, giveUp := context.WithCancel(long)
		list[2].patience = 10 * time.Second
		errs := ranktest.Outcomes(3, func(i int) error {
			switch i {
			case 0:
				return list[0].Fence(long)
			case 1:
				return list[2].Fence(short)
			}
			defer giveUp()
			return awaitArrival(hubOf(list[0]), 2)
		})
		require.NoError(t, errs[2])
		require.ErrorIs(t, errs[1], context.Canceled)
		require.EqualError(t, errs[1], "bootstrap: context canceled: rank 2 gave up waiting for all ranks (context canceled); still missing: ranks 1, 3")
		require.ErrorIs(t, errs[0], ErrPeerLost)
		require.ErrorContains(t, errs[0], "rank 2 gave up waiting for all ranks (context canceled); still missing: ranks 1, 3")
		require.Error(t, list[1].Fence(long), "the job has failed for all")
	})
}

// TestAbort finds the others in the fence, or perhaps not yet: both must do.
func TestAbort(t *testing.T) {
	for from, inFence := range map[int]int{0: 3, 1: 0, 2: 3, 3: 0} {
		forKinds(t, 4, func(t *testing.T, list []*Endpoint) {
			ctx := ranktest.Timeout(t)
			want := AbortInfo{Rank: from, Code: 42, Reason: "no more paper"}
			ranktest.Each(t, 4, func(r int) error {
				if r == from {
					if err := awaitArrival(hubOf(list[0]), inFence); err != nil {
						return err
					}
					list[r].Abort(42, "no more paper")
				} else if err := list[r].Fence(ctx); err == nil {
					return fmt.Errorf("fence without an error")
				}
				if got := <-list[r].Aborted(); got != want {
					return fmt.Errorf("got %+v", got)
				}
				return nil
			})
			for r, b := range list {
				_, err := b.Get(ctx, 0, "k")
				require.ErrorIs(t, err, ErrAborted, "rank %d", r)
				require.ErrorContains(t, b.Fence(ctx), "job aborted by rank "+fmt.Sprint(from)+" with code 42: no more paper")
			}
		})
	}
}

func TestAbortedClosesWithoutAbort(t *testing.T) {
	b := NewLocal(1)[0]
	require.NoError(t, b.Close())
	_, ok := <-b.Aborted()
	require.False(t, ok)
}

func TestCleanCloseThenFence(t *testing.T) {
	forKinds(t, 3, func(t *testing.T, list []*Endpoint) {
		ctx := ranktest.Timeout(t)
		ranktest.Each(t, 3, func(r int) error { return list[r].Fence(ctx) })
		require.NoError(t, list[1].Close())
		_, err := list[2].Get(ctx, 1, "nothing")
		require.ErrorIs(t, err, ErrNotFound, "a clean close disturbs nobody")
		errs := ranktest.Outcomes(2, func(i int) error { return list[2*i].Fence(ctx) })
		for _, err := range errs {
			require.ErrorIs(t, err, ErrPeerLost)
			require.EqualError(t, err, "bootstrap: rank 1 left the job")
		}
	})
}

// TestLastFence closes at once after the last fence: rank 0 must not take the answer away from the
// others.
func TestLastFence(t *testing.T) {
	for range 10 {
		list := startJob(t, 6, Secret{}, "")
		ctx := ranktest.Timeout(t)
		ranktest.Each(t, 6, func(r int) error {
			if err := list[r].Fence(ctx); err != nil {
				return err
			}
			return list[r].Close()
		})
	}
}

func TestRootClosesEarly(t *testing.T) {
	list := startJob(t, 3, Secret{}, "")
	require.NoError(t, list[0].Close(), "does not wait for others for ever")
	err := list[1].Fence(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrPeerLost)
	require.ErrorContains(t, err, "rank 0 left the job")
	require.NoError(t, list[1].Close())
}

// TestManyRanks is about as large as one host's job gets.
func TestManyRanks(t *testing.T) {
	const n = 128
	list := startJob(t, n, given(0x5a), "")
	ctx := ranktest.Timeout(t)
	ranktest.Each(t, n, func(r int) error { return exchangeRound(ctx, list[r], 0) })
}

// BenchmarkStore has 1,024 ranks, all in this process, join a job and hand each other a value of
// 600 bytes, as their cards are.
func BenchmarkStore(b *testing.B) {
	const n = 1024
	for b.Loop() {
		ln, port := listen(b)
		list, value := make([]*Endpoint, n), make([]byte, 600)
		start := time.Now()
		for r, err := range ranktest.Outcomes(n, func(r int) (err error) {
			c := candidateOf(r, n, port).with(b, given(0x5a), "")
			if r == 0 {
				c.ln = ln
			}
			list[r], err = c.join(b.Context())
			return err
		}) {
			require.NoError(b, err, "rank %d", r)
		}
		joined := time.Now()
		for r, err := range ranktest.Outcomes(n, func(r int) error {
			if err := list[r].Put(b.Context(), "card", value); err != nil {
				return err
			}
			return list[r].Fence(b.Context())
		}) {
			require.NoError(b, err, "rank %d", r)
		}
		b.ReportMetric(joined.Sub(start).Seconds(), "s/join")
		b.ReportMetric(time.Since(joined).Seconds(), "s/exchange")
		for _, err := range ranktest.Outcomes(n, func(r int) error { return list[r].Close() }) {
			require.NoError(b, err)
		}
	}
}
