package coll_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHGather has what MPICH's test/mpi/coll checks of Gather and AllGather.
func TestPortedMPICHGather(t *testing.T) {
	portedRows(t,
		portedRow{"gather", on(4), groups(gather)},
		portedRow{"gather2", on(4), groups(gather2)},
		portedRow{"gatherv", on(5, 2), group(gatherv)},
		portedRow{"coll2", on(5, 2), group(bothWays(coll2))},
		portedRow{"coll6", on(5, 2), group(coll6)},
		portedRow{"coll7", on(5, 1, 2), group(coll7)},
		portedRow{"allgather2", on(10), groups(allgather2)},
		portedRow{"allgather3", on(10), groups(allgather3)},
		portedRow{"allgatherv2", on(10), groups(allgatherv2)},
		portedRow{"allgatherv3", on(10), groups(allgatherv2)},
		portedRow{"allgatherv4", on(4), allgatherv4},
		portedRow{"allgather_struct", on(10), groups(allgatherStruct)},
	)
}

func asFloat(i int) float64 { return float64(i) }

// gather: many lengths at each root, and no elements at all.
func gather(t *testing.T, g *coll.Group) {
	for root := range g.Size() {
		for _, n := range doubling(65000) {
			gatherAt(t, g, root, n, same[float64](n*g.Size(), untouched))
		}
	}
	require.NoError(t, coll.Gather[byte](background, g, 0, nil, nil))
}

// gather2: the same where only the root has a vector for all.
func gather2(t *testing.T, g *coll.Group) {
	for root := range g.Size() {
		for _, n := range []int{1, 12, 3000} {
			gatherAt(t, g, root, n, chosen(g.Rank() == root, make([]float64, n*g.Size()), nil))
		}
	}
	require.NoError(t, coll.Gather(background, g, 0, []byte{}, []byte{}))
}

// gatherAt gathers n elements of each rank; the others' vectors stay as they were.
func gatherAt(t *testing.T, g *coll.Group, root, n int, all []float64) {
	mine := made(n, func(i int) float64 { return float64(g.Rank()*n + i) })
	require.NoError(t, coll.Gather(background, g, root, all, mine))
	if g.Rank() == root {
		requireElements(t, n*g.Size(), asFloat, all)
		return
	}
	requireElements(t, len(all), func(int) float64 { return untouched }, all)
}

// rows is a table of ten rows of ten, each with the number of the rank that has it.
func rows(g *coll.Group) (mine []int32, table func(i int) int32) {
	each := 100 / g.Size()
	return same(each, int32(g.Rank()+10)), func(i int) int32 { return int32(i/each + 10) }
}

// coll2: all get a table whose rows the ranks have, as each is the root of a Gather once.
func coll2(t *testing.T, g *coll.Group, started bool) {
	mine, table := rows(g)
	got := make([]int32, 100)
	for root := range g.Size() {
		all := chosen(g.Rank() == root, got, nil)
		call{
			func() error { return coll.Gather(background, g, root, all, mine) },
			func() *coll.Pending { return coll.StartGather(g, root, all, mine) },
		}.do(t, started)
	}
	requireElements(t, 100, table, got)
}

// gatherv: the same by GatherV.
func gatherv(t *testing.T, g *coll.Group) {
	mine, table := rows(g)
	for root := range g.Size() {
		pieces, err := coll.GatherV(background, g, root, mine)
		require.NoError(t, err)
		if g.Rank() == root {
			requireElements(t, 100, table, all(pieces...))
		} else {
			require.Nil(t, pieces)
		}
	}
}

// coll6: the same by AllGatherV.
func coll6(t *testing.T, g *coll.Group) {
	mine, table := rows(g)
	pieces, err := coll.AllGatherV(background, g, mine)
	require.NoError(t, err)
	requireElements(t, 100, table, all(pieces...))
}

// coll7: the same by AllGather.
func coll7(t *testing.T, g *coll.Group) {
	mine, table := rows(g)
	got := make([]int32, 100)
	require.NoError(t, coll.AllGather(background, g, got, mine))
	requireElements(t, 100, table, got)
}

// allgather2: many lengths.
func allgather2(t *testing.T, g *coll.Group) {
	for _, n := range doubling(9000) {
		mine := made(n, func(i int) float64 { return float64(g.Rank()*n + i) })
		got := make([]float64, n*g.Size())
		require.NoError(t, coll.AllGather(background, g, got, mine))
		requireElements(t, len(got), asFloat, got)
		requireElements(t, n, func(i int) float64 { return float64(g.Rank()*n + i) }, mine)
	}
}

// allgather3: the same, and no elements at all.
func allgather3(t *testing.T, g *coll.Group) {
	allgather2(t, g)
	require.NoError(t, coll.AllGather[byte](background, g, nil, nil))
}

// allgatherv2 (also allgatherv3): many lengths, which the ranks do not know from each other.
func allgatherv2(t *testing.T, g *coll.Group) {
	for _, n := range doubling(9000) {
		allGatherPieces(t, g, func(int) int { return n })
	}
}

// allGatherPieces gathers as many elements of each rank as length says.
func allGatherPieces(t *testing.T, g *coll.Group, length func(rank int) int) {
	element := func(rank int) func(i int) int16 { return func(i int) int16 { return int16(7*rank + i) } }
	mine := made(length(g.Rank()), element(g.Rank()))
	pieces, err := coll.AllGatherV(background, g, mine)
	require.NoError(t, err)
	require.Len(t, pieces, g.Size())
	for rank, piece := range pieces {
		requireElements(t, length(rank), element(rank), piece)
	}
}

// allgatherv4: the elements are spread over the ranks in several ways, in the Group of all ranks,
// in one without the last rank, and in one with the ranks in another order.
func allgatherv4(t *testing.T, w *p2p.World) {
	inGroup(t, w.Comm(), spread)
	most := split(t, w.Comm(), chosen(w.Rank() == w.Size()-1, 1, 0), 0)
	if w.Rank() < w.Size()-1 {
		inGroup(t, most, spread)
	}
	require.NoError(t, most.Close())
	mixed := split(t, w.Comm(), 0, 5*w.Rank()%w.Size()+w.Rank()/2)
	inGroup(t, mixed, spread)
	require.NoError(t, mixed.Close())
}

func spread(t *testing.T, g *coll.Group) {
	size := g.Size()
	for _, n := range doubling(rounds(256<<10) + 1) {
		for _, length := range []func(rank int) int{
			func(int) int { return n },                                           // regular
			func(rank int) int { return chosen(rank == 0, n, 0) },                // of one
			func(rank int) int { return chosen(rank == 0, n, n/(size-1)) / 2 },   // a spike
			func(rank int) int { return chosen(rank < size/2, 2*n, 0) },          // of the first half
			func(rank int) int { return 2 * n * (size - 1 - rank) / (size - 1) }, // falling
			func(rank int) int { // a bell
				x := 6 * ((float64(rank)+0.5)/float64(size) - 0.5)
				return int(2.4 * float64(n) * math.Exp(-x*x/2))
			},
		} {
			allGatherPieces(t, g, length)
		}
	}
}

// allgatherStruct (allgather_struct): elements are structs with a gap in them.
func allgatherStruct(t *testing.T, g *coll.Group) {
	type pair struct {
		first  int32
		second int64
	}
	got := make([]pair, g.Size())
	require.NoError(t, coll.AllGather(background, g, got, []pair{{int32(g.Rank()), int64(10 * g.Rank())}}))
	requireElements(t, g.Size(), func(i int) pair { return pair{int32(i), int64(10 * i)} }, got)
}
