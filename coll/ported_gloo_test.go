package coll_test

import (
	"context"
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedGloo has what gloo's tests of collective calls check, with their lengths.
func TestPortedGloo(t *testing.T) {
	portedRows(t,
		portedRow{"allreduce_test.SinglePointer", on(7, 1, 2, 3, 4, 5, 6, 8, 9, 13, 16, 24, 32), group(allreduceSinglePointer)},
		portedRow{"allreduce_test.HalfPrecisionTest", on(4), group(allreduceHalfPrecision)},
		portedRow{"allreduce_test.Default", on(7, 1, 2, 4), group(allreduceDefault)},
		portedRow{"allgather_test.VarNumPointer", on(7, 2, 3, 4, 5, 6, 8, 9), group(allgatherDefault)},
		portedRow{"allgather_test.Default", on(7, 1, 2, 4), group(allgatherDefault)},
		portedRow{"allgatherv_test.Default", on(7, 1, 2, 4), group(allgathervDefault)},
		portedRow{"alltoall_test.Default", on(7, 1, 2, 4), group(alltoallDefault)},
		portedRow{"alltoallv_test.Default", on(7, 1, 2, 4), group(alltoallvDefault)},
		portedRow{"broadcast_test.Default", on(7, 1, 2, 3, 4, 5), group(broadcastDefault)},
		portedRow{"gather_test.Default", on(7, 1, 2, 4), group(gatherDefault)},
		portedRow{"gatherv_test.Default", on(7, 1, 2, 4), group(gathervDefault)},
		portedRow{"reduce_test.Default", on(7, 1, 2, 4), group(reduceDefault)},
		portedRow{"scatter_test.Default", on(7, 1, 2, 4), group(scatterDefault)},
	)
}

// TestPortedGlooTimeout has gloo's tests of time limits.
func TestPortedGlooTimeout(t *testing.T) {
	portedRows(t,
		portedRow{"allreduce_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			return coll.AllReduce(ctx, g, coll.Sum[uint64](), []uint64{1})
		})},
		portedRow{"allgather_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			return coll.AllGather(ctx, g, make([]uint64, 2), []uint64{1})
		})},
		portedRow{"allgatherv_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			_, err := coll.AllGatherV(ctx, g, []uint64{1})
			return err
		})},
		portedRow{"broadcast_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			return coll.Bcast(ctx, g, 1, []uint64{1})
		})},
		portedRow{"gather_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			return coll.Gather(ctx, g, 0, make([]uint64, 2), []uint64{1})
		})},
		portedRow{"gatherv_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			_, err := coll.GatherV(ctx, g, 0, []uint64{1})
			return err
		})},
		portedRow{"reduce_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			return coll.Reduce(ctx, g, 0, coll.Sum[uint64](), []uint64{1})
		})},
		portedRow{"scatter_test.TestTimeout", on(2), timeout(func(ctx context.Context, g *coll.Group) error {
			return coll.Scatter(ctx, g, 1, make([]uint64, 1), make([]uint64, 2))
		})},
	)
}

// timeout is a row: a call that both ranks make succeeds; one that rank 0 makes alone ends with its
// context, and so do later ones, at once.
func timeout(fn func(ctx context.Context, g *coll.Group) error) func(t *testing.T, w *p2p.World) {
	return func(t *testing.T, w *p2p.World) {
		inGroup(t, w.Comm(), func(t *testing.T, g *coll.Group) {
			require.NoError(t, fn(background, g))
			require.NoError(t, w.Comm().Barrier(background)) // that call is over for both
			if g.Rank() == 1 {
				_, err := w.Comm().Recv(background, 0, 0, nil)
				require.NoError(t, err)
				return
			}
			ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, fn(ctx, g), context.DeadlineExceeded)
			require.ErrorIs(t, fn(background, g), p2p.ErrRevoked, "the Group is broken")
			require.NoError(t, w.Comm().Send(background, 1, 0, nil))
		})
	}
}

// distinct is what rank gives at index i: a number that nobody else gives.
func distinct(g *coll.Group, rank int) func(i int) uint64 {
	return func(i int) uint64 { return uint64(i*g.Size() + rank) }
}

// sumOfDistinct is the sum of all of them.
func sumOfDistinct(g *coll.Group) func(i int) uint64 {
	return func(i int) uint64 { return uint64(i*g.Size()*g.Size() + sumOfRanks(g.Size())) }
}

// allreduceSinglePointer: sums of numbers, which stay exact in float32.
func allreduceSinglePointer(t *testing.T, g *coll.Group) {
	for _, n := range []int{0, 1, 4, 64, 100, 1000, 10_000} {
		x := made(n, func(i int) float32 { return float32(distinct(g, g.Rank())(i)) })
		require.NoError(t, coll.AllReduce(background, g, coll.Sum[float32](), x))
		requireElements(t, n, func(i int) float32 { return float32(sumOfDistinct(g)(i)) }, x)
	}
}

// allreduceHalfPrecision: the same in numbers of 16 bits.
func allreduceHalfPrecision(t *testing.T, g *coll.Group) {
	const n = 128
	x := made(n, func(i int) coll.F16 { return half(distinct(g, g.Rank())(i)) })
	require.NoError(t, coll.AllReduce(background, g, coll.SumF16(), x))
	requireElements(t, n, func(i int) coll.F16 { return half(sumOfDistinct(g)(i)) }, x)
}

// half is n as a number of 16 bits, where it is exact.
func half(n uint64) coll.F16 {
	if n == 0 {
		return 0
	}
	exponent := bits.Len64(n) - 1
	return coll.F16(uint64(exponent+15)<<10 | (n<<10>>exponent)&(1<<10-1))
}

// allreduceDefault: sums by a Func, in each length.
func allreduceDefault(t *testing.T, g *coll.Group) {
	add := coll.Func(true, func(acc, in []uint64) {
		for i := range acc {
			acc[i] += in[i]
		}
	})
	for _, n := range []int{0, 1, 10, 100, 1000, 10_000} {
		x := made(n, distinct(g, g.Rank()))
		require.NoError(t, coll.AllReduce(background, g, add, x))
		requireElements(t, n, sumOfDistinct(g), x)
	}
}

// inTurns plays fn with each length and each rank as the root.
func inTurns(g *coll.Group, lengths []int, fn func(root, n int)) {
	for _, n := range lengths {
		for root := range g.Size() {
			fn(root, n)
		}
	}
}

// requireAll requires what all ranks give, one after the other.
func requireAll(t *testing.T, g *coll.Group, n int, got []uint64) {
	t.Helper()
	requireElements(t, n*g.Size(), func(i int) uint64 { return distinct(g, i/n)(i % n) }, got)
}

func allgatherDefault(t *testing.T, g *coll.Group) {
	for _, n := range []int{0, 4, 100, 1000, 10_000} {
		all := make([]uint64, n*g.Size())
		require.NoError(t, coll.AllGather(background, g, all, made(n, distinct(g, g.Rank()))))
		requireAll(t, g, n, all)
	}
}

// turned is the length of a rank's piece: none of the first rank, and n more of each after it.
func turned(g *coll.Group, first, n int) func(rank int) int {
	return func(rank int) int { return (rank - first + g.Size()) % g.Size() * n }
}

func requireTurned(t *testing.T, g *coll.Group, length func(rank int) int, pieces [][]uint64) {
	t.Helper()
	require.Len(t, pieces, g.Size())
	for rank, piece := range pieces {
		requireElements(t, length(rank), func(int) uint64 { return uint64(rank) }, piece)
	}
}

func allgathervDefault(t *testing.T, g *coll.Group) {
	inTurns(g, []int{0, 1, 10, 100, 1000}, func(first, n int) {
		length := turned(g, first, n)
		pieces, err := coll.AllGatherV(background, g, same(length(g.Rank()), uint64(g.Rank())))
		require.NoError(t, err)
		requireTurned(t, g, length, pieces)
	})
}

func alltoallDefault(t *testing.T, g *coll.Group) {
	for _, n := range []int{4, 100, 1000, 10_000} {
		recv := make([]uint64, n*g.Size())
		send := made(n*g.Size(), func(i int) uint64 { return uint64(g.Rank()*(i%n) + i/n*127) })
		require.NoError(t, coll.AllToAll(background, g, recv, send))
		requireElements(t, len(recv), func(i int) uint64 { return uint64(i/n*(i%n) + g.Rank()*127) }, recv)
	}
}

// alltoallvDefault: pieces of lengths that depend on both ranks.
func alltoallvDefault(t *testing.T, g *coll.Group) {
	for _, n := range []int{4, 100, 1000, 10_000} {
		length := func(from, to int) int { return n + 3*from + to }
		element := func(from, to int) func(i int) uint64 {
			return func(i int) uint64 { return uint64(from*i + to*127) }
		}
		recv, err := coll.AllToAllV(background, g, made(g.Size(), func(to int) []uint64 {
			return made(length(g.Rank(), to), element(g.Rank(), to))
		}))
		require.NoError(t, err)
		require.Len(t, recv, g.Size())
		for from, piece := range recv {
			requireElements(t, length(from, g.Rank()), element(from, g.Rank()), piece)
		}
	}
}

func broadcastDefault(t *testing.T, g *coll.Group) {
	inTurns(g, []int{1, 4, 10, 100, 1000, 10_000}, func(root, n int) { broadcast(t, g, root, n, distinct(g, root)) })
}

func gatherDefault(t *testing.T, g *coll.Group) {
	inTurns(g, []int{4, 100, 1000, 10_000}, func(root, n int) {
		all := make([]uint64, n*g.Size())
		require.NoError(t, coll.Gather(background, g, root, all, made(n, distinct(g, g.Rank()))))
		if g.Rank() == root {
			requireAll(t, g, n, all)
		}
	})
}

func gathervDefault(t *testing.T, g *coll.Group) {
	inTurns(g, []int{1, 10, 100, 1000}, func(root, n int) {
		length := turned(g, root, n)
		pieces, err := coll.GatherV(background, g, root, same(length(g.Rank()), uint64(g.Rank())))
		require.NoError(t, err)
		if g.Rank() == root {
			requireTurned(t, g, length, pieces)
		}
	})
}

func reduceDefault(t *testing.T, g *coll.Group) {
	inTurns(g, []int{0, 1, 10, 100, 1000, 10_000}, func(root, n int) {
		x := made(n, distinct(g, g.Rank()))
		require.NoError(t, coll.Reduce(background, g, root, coll.Sum[uint64](), x))
		requireElements(t, n, chosen(g.Rank() == root, sumOfDistinct(g), distinct(g, g.Rank())), x)
	})
}

func scatterDefault(t *testing.T, g *coll.Group) {
	inTurns(g, []int{1, 10, 100}, func(root, n int) {
		mine := make([]uint64, n)
		all := made(n*g.Size(), func(i int) uint64 { return distinct(g, root)(i) })
		require.NoError(t, coll.Scatter(background, g, root, mine, all))
		requireElements(t, n, func(i int) uint64 { return distinct(g, root)(g.Rank()*n + i) }, mine)
	})
}
