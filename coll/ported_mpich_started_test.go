package coll_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHStarted has what MPICH's test/mpi/coll checks of nonblocking calls.
func TestPortedMPICHStarted(t *testing.T) {
	portedRows(t,
		portedRow{"nonblocking", on(5, 4, 10), group(nonblocking)},
		portedRow{"nonblocking2", on(5, 1, 4, 10), group(nonblocking2)},
		portedRow{"nonblocking3", on(5, 1, 4, 10), nonblocking3},
		portedRow{"iallred", on(2), group(iallred)},
		portedRow{"ibarrier", on(2), ibarrier},
		portedRow{"p_order", on(2), pOrder},
		portedRow{"coll_large", on(2, 4), group(bothWays(collLarge))},
	)
}

// operation is a call of some kind, with n elements, and what holds when it has ended.
type operation func(g *coll.Group, root, n int) (call, func(t *testing.T))

// operations has each kind.
var operations = []operation{
	aBarrier, aBcast, aReduce, aReduceByFunc, anAllReduce, aReduceScatter, aScan, anExScan,
	aGather, aScatter, anAllGather, anAllToAll, aGatherV, aScatterV, anAllGatherV, anAllToAllV,
}

// by is what a rank gives at index i: small numbers, of which sums do not wrap around.
func by(rank int) func(i int) int16 { return func(i int) int16 { return int16(rank + i%1000) } }

func sumBy(size, i int) int16 { return int16(sumOfRanks(size) + size*(i%1000)) }

func aBarrier(g *coll.Group, _, _ int) (call, func(t *testing.T)) {
	return call{
		func() error { return coll.Barrier(background, g) },
		func() *coll.Pending { return coll.StartBarrier(g) },
	}, func(*testing.T) {}
}

func aBcast(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	x := made(n, by(g.Rank()))
	return call{
			func() error { return coll.Bcast(background, g, root, x) },
			func() *coll.Pending { return coll.StartBcast(g, root, x) },
		}, func(t *testing.T) {
			requireElements(t, n, by(root), x, "bcast")
		}
}

func aReduce(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	return reduceBy(g, root, n, coll.Sum[int16]())
}

func aReduceByFunc(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	return reduceBy(g, root, n, coll.Func(true, func(acc, in []int16) {
		for i := range acc {
			acc[i] += in[i]
		}
	}))
}

func reduceBy(g *coll.Group, root, n int, op coll.Op[int16]) (call, func(t *testing.T)) {
	x := made(n, by(g.Rank()))
	return call{
			func() error { return coll.Reduce(background, g, root, op, x) },
			func() *coll.Pending { return coll.StartReduce(g, root, op, x) },
		}, func(t *testing.T) {
			requireElements(t, n, func(i int) int16 { return chosen(g.Rank() == root, sumBy(g.Size(), i), by(g.Rank())(i)) }, x, "reduce")
		}
}

func anAllReduce(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	x, sum := made(n, by(g.Rank())), coll.Sum[int16]()
	return call{
			func() error { return coll.AllReduce(background, g, sum, x) },
			func() *coll.Pending { return coll.StartAllReduce(g, sum, x) },
		}, func(t *testing.T) {
			requireElements(t, n, func(i int) int16 { return sumBy(g.Size(), i) }, x, "allreduce")
		}
}

func aReduceScatter(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	mine, all, sum := make([]int16, n), made(n*g.Size(), by(g.Rank())), coll.Sum[int16]()
	return call{
			func() error { return coll.ReduceScatter(background, g, sum, mine, all) },
			func() *coll.Pending { return coll.StartReduceScatter(g, sum, mine, all) },
		}, func(t *testing.T) {
			requireElements(t, n, func(i int) int16 { return sumBy(g.Size(), g.Rank()*n+i) }, mine, "reducescatter")
		}
}

func aScan(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	x, sum := made(n, by(g.Rank())), coll.Sum[int16]()
	return call{
			func() error { return coll.Scan(background, g, sum, x) },
			func() *coll.Pending { return coll.StartScan(g, sum, x) },
		}, func(t *testing.T) {
			requireElements(t, n, func(i int) int16 { return sumBy(g.Rank()+1, i) }, x, "scan")
		}
}

func anExScan(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	x, sum := made(n, by(g.Rank())), coll.Sum[int16]()
	return call{
			func() error { return coll.ExScan(background, g, sum, x) },
			func() *coll.Pending { return coll.StartExScan(g, sum, x) },
		}, func(t *testing.T) {
			requireElements(t, n, func(i int) int16 { return chosen(g.Rank() == 0, by(0)(i), sumBy(g.Rank(), i)) }, x, "exscan")
		}
}

// byAll is what all give, one after the other.
func byAll(n int) func(i int) int16 { return func(i int) int16 { return by(i / n)(i % n) } }

func aGather(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	all, mine := make([]int16, n*g.Size()), made(n, by(g.Rank()))
	return call{
			func() error { return coll.Gather(background, g, root, all, mine) },
			func() *coll.Pending { return coll.StartGather(g, root, all, mine) },
		}, func(t *testing.T) {
			requireElements(t, len(all), func(i int) int16 { return chosen(g.Rank() == root, byAll(n)(i), 0) }, all, "gather")
		}
}

func aScatter(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	mine, all := make([]int16, n), made(n*g.Size(), by(g.Rank()))
	return call{
			func() error { return coll.Scatter(background, g, root, mine, all) },
			func() *coll.Pending { return coll.StartScatter(g, root, mine, all) },
		}, func(t *testing.T) {
			requireElements(t, n, func(i int) int16 { return by(root)(g.Rank()*n + i) }, mine, "scatter")
		}
}

func anAllGather(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	all, mine := make([]int16, n*g.Size()), made(n, by(g.Rank()))
	return call{
			func() error { return coll.AllGather(background, g, all, mine) },
			func() *coll.Pending { return coll.StartAllGather(g, all, mine) },
		}, func(t *testing.T) {
			requireElements(t, len(all), byAll(n), all, "allgather")
		}
}

func anAllToAll(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	recv, send := make([]int16, n*g.Size()), made(n*g.Size(), by(g.Rank()))
	return call{
			func() error { return coll.AllToAll(background, g, recv, send) },
			func() *coll.Pending { return coll.StartAllToAll(g, recv, send) },
		}, func(t *testing.T) {
			requireElements(t, len(recv), func(i int) int16 { return by(i / n)(g.Rank()*n + i%n) }, recv, "alltoall")
		}
}

func aGatherV(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	var all [][]int16
	mine := made(n+g.Rank(), by(g.Rank()))
	return call{
			func() (err error) { all, err = coll.GatherV(background, g, root, mine); return err },
			func() *coll.Pending { return coll.StartGatherV(g, root, mine, &all) },
		}, func(t *testing.T) {
			if g.Rank() != root {
				require.Nil(t, all, "gatherv")
				return
			}
			requirePieces(t, g, n, all)
		}
}

func requirePieces(t *testing.T, g *coll.Group, n int, all [][]int16) {
	require.Len(t, all, g.Size())
	for rank, piece := range all {
		requireElements(t, n+rank, by(rank), piece, "pieces")
	}
}

func aScatterV(g *coll.Group, root, n int) (call, func(t *testing.T)) {
	var mine []int16
	all := made(g.Size(), func(rank int) []int16 { return made(n+rank, by(rank)) })
	return call{
			func() (err error) { mine, err = coll.ScatterV(background, g, root, all); return err },
			func() *coll.Pending { return coll.StartScatterV(g, root, all, &mine) },
		}, func(t *testing.T) {
			requireElements(t, n+g.Rank(), by(g.Rank()), mine, "scatterv")
		}
}

func anAllGatherV(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	var all [][]int16
	mine := made(n+g.Rank(), by(g.Rank()))
	return call{
		func() (err error) { all, err = coll.AllGatherV(background, g, mine); return err },
		func() *coll.Pending { return coll.StartAllGatherV(g, mine, &all) },
	}, func(t *testing.T) { requirePieces(t, g, n, all) }
}

func anAllToAllV(g *coll.Group, _, n int) (call, func(t *testing.T)) {
	var recv [][]int16
	send := same(g.Size(), made(n+g.Rank(), by(g.Rank())))
	return call{
		func() (err error) { recv, err = coll.AllToAllV(background, g, send); return err },
		func() *coll.Pending { return coll.StartAllToAllV(g, send, &recv) },
	}, func(t *testing.T) { requirePieces(t, g, n, recv) }
}

// nonblocking: each kind is started and waited for.
func nonblocking(t *testing.T, g *coll.Group) { playOperations(t, g, 0, 2, true) }

// nonblocking2: the same with other roots and lengths, one of them a prime.
func nonblocking2(t *testing.T, g *coll.Group) {
	for _, root := range []int{0, g.Size() - 1} {
		for _, n := range []int{10, 17} {
			playOperations(t, g, root, n, true)
		}
	}
}

func playOperations(t *testing.T, g *coll.Group, root, n int, started bool) {
	for _, op := range operations {
		c, check := op(g, root, n)
		c.do(t, started)
		check(t)
	}
}

// nonblocking3: operations of random kinds in several Groups, of which many are under way at once;
// each rank waits for its own choice of them. In between there are messages of the program.
func nonblocking3(t *testing.T, w *p2p.World) {
	const window, count = 20, 4
	gs := made(count, func(int) *coll.Group {
		g, err := coll.New(background, w.Comm())
		require.NoError(t, err)
		return g
	})
	what, when := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(2, uint64(w.Rank())))
	var all []begun
	for i := range rounds(10_000) {
		g, op := gs[what.IntN(count)], operations[what.IntN(len(operations))]
		c, check := op(g, what.IntN(w.Size()), chosen(what.IntN(50) == 0, 5000, 10))
		all = append(all, begun{c.start(), check})
		if i%32 == 0 {
			passOn(t, w)
		}
		for len(all) == window {
			all = endSome(t, all, when)
		}
	}
	for len(all) > 0 {
		all = endSome(t, all, when)
	}
	for _, g := range gs {
		require.NoError(t, g.Close())
	}
}

// begun is an operation under way, and what holds when it has ended.
type begun struct {
	pending *coll.Pending
	check   func(t *testing.T)
}

// endSome waits for one operation, for all, or for none but those that have ended.
func endSome(t *testing.T, all []begun, r *rand.Rand) (left []begun) {
	chosen, everything, only := r.IntN(len(all)), r.IntN(40) == 0, r.IntN(2) == 0
	for i, b := range all {
		switch {
		case everything, only && i == chosen:
			require.NoError(t, b.pending.Wait(background))
		case only || !done(b.pending):
			left = append(left, b)
			continue
		}
		require.NoError(t, b.pending.Wait(background), "it has ended")
		b.check(t)
	}
	return left
}

func done(p *coll.Pending) bool {
	select {
	case <-p.Done():
		return true
	default:
		runtime.Gosched()
		return false
	}
}

// passOn sends a message to the next rank, in the Comm of all.
func passOn(t *testing.T, w *p2p.World) {
	next, before := (w.Rank()+1)%w.Size(), (w.Rank()+w.Size()-1)%w.Size()
	buf := []byte{0}
	_, err := w.Comm().Sendrecv(background, next, 1, []byte{byte(w.Rank())}, before, 1, buf)
	require.NoError(t, err)
	require.Equal(t, []byte{byte(before)}, buf)
}

// iallred: a blocking call is made while a started one is under way.
func iallred(t *testing.T, g *coll.Group) {
	one, two := []int32{1}, []int32{2}
	p := coll.StartAllReduce(g, coll.Sum[int32](), one)
	require.NoError(t, coll.AllReduce(background, g, coll.Sum[int32](), two))
	require.NoError(t, p.Wait(background))
	require.Equal(t, []int32{2, 4}, []int32{one[0], two[0]})
}

// ibarrier: a started Barrier ends while the program only asks for it, and not before all ranks
// have called it: rank 1 does when rank 0 has found it under way.
func ibarrier(t *testing.T, w *p2p.World) {
	inGroup(t, w.Comm(), func(t *testing.T, g *coll.Group) {
		if g.Rank() == 1 {
			_, err := w.Comm().Recv(background, 0, 0, nil)
			require.NoError(t, err)
		}
		p := coll.StartBarrier(g)
		if g.Rank() == 0 {
			require.False(t, done(p))
			require.NoError(t, w.Comm().Send(background, 1, 0, nil))
		}
		for !done(p) {
		}
		require.NoError(t, p.Wait(background))
	})
}

// pOrder (p_order): the ranks start two operations in different orders. Persistent ones are matched
// by the order in which they were made; here that is an order of Groups, each with its own.
func pOrder(t *testing.T, w *p2p.World) {
	inGroup(t, w.Comm(), func(t *testing.T, first *coll.Group) {
		inGroup(t, w.Comm(), func(t *testing.T, second *coll.Group) {
			var bcast, barrier *coll.Pending
			x := []int32{untouched}
			if w.Rank() == 0 {
				x[0] = 42
				bcast, barrier = coll.StartBcast(first, 0, x), coll.StartBarrier(second)
			} else {
				barrier = coll.StartBarrier(second)
				require.NoError(t, barrier.Wait(background))
				bcast = coll.StartBcast(first, 0, x)
			}
			require.NoError(t, bcast.Wait(background))
			require.NoError(t, barrier.Wait(background))
			require.Equal(t, []int32{42}, x)
		})
	})
}

// collLarge (coll_large): each kind with 1,024 elements, as upstream does first. What follows there
// is in TestPortedMPICHHuge.
func collLarge(t *testing.T, g *coll.Group, started bool) { playOperations(t, g, 0, 1024, started) }
