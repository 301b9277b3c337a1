package coll_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
)

// TestPortedMPICHScan has what MPICH's test/mpi/coll checks of ReduceScatter, Scan and ExScan.
func TestPortedMPICHScan(t *testing.T) {
	portedRows(t,
		portedRow{"redscat", on(4, 6, 8), group(bothWays(redscat))},
		portedRow{"redscat2", on(5, 4, 10), group(redscat2)},
		portedRow{"redscat3", on(8), group(bothWays(redscat3))},
		portedRow{"red_scat_block", on(5, 4, 8), group(bothWays(redscat))},
		portedRow{"red_scat_block2", on(10, 4, 5), group(redscat2)},
		portedRow{"redscatblk3", on(10, 8), group(bothWays(redscat3))},
		portedRow{"scantst", on(4), group(scantst)},
		portedRow{"exscan", on(10), groups(exscan)},
		portedRow{"exscan2", on(5), group(exscan2)},
	)
}

// redscat (also red_scat_block): each rank gets the sum of one element of all, which stay.
func redscat(t *testing.T, g *coll.Group, started bool) { sumBlocks(t, g, 1, started) }

// redscat3 (also redscatblk3): the same with blocks that are a million elements together.
func redscat3(t *testing.T, g *coll.Group, started bool) {
	sumBlocks(t, g, rounds(1<<20)/g.Size(), started)
}

func sumBlocks(t *testing.T, g *coll.Group, each int, started bool) {
	given := func(i int) int32 { return int32(g.Rank() + i/each) }
	mine, all := same[int32](each, untouched), made(each*g.Size(), given)
	sum := coll.Sum[int32]()
	call{
		func() error { return coll.ReduceScatter(background, g, sum, mine, all) },
		func() *coll.Pending { return coll.StartReduceScatter(g, sum, mine, all) },
	}.do(t, started)
	requireElements(t, each, func(int) int32 { return int32(g.Size()*g.Rank() + sumOfRanks(g.Size())) }, mine)
	requireElements(t, len(all), given, all)
}

// redscat2 (also red_scat_block2): Funcs that keep the left or the right operand, which has to be
// that of a lower or higher rank, and a sum that is said not to commute.
func redscat2(t *testing.T, g *coll.Group) {
	var disorder atomic.Int32
	keep := func(right bool) coll.Op[int32] {
		return coll.Func(false, func(acc, in []int32) {
			for i := range acc {
				if acc[i] > in[i] {
					disorder.Add(1)
				}
				if right {
					acc[i] = in[i]
				}
			}
		})
	}
	last := int32(g.Size() - 1)
	for _, each := range doubling(256) {
		given := func(i int) int32 { return int32(g.Rank() + i) }
		base := int32(g.Rank() * each)
		for _, c := range []struct {
			op   coll.Op[int32]
			want func(i int) int32
		}{
			{keep(false), func(i int) int32 { return base + int32(i) }},
			{keep(true), func(i int) int32 { return last + base + int32(i) }},
			{addInts(false), func(i int) int32 { return int32(g.Size())*(base+int32(i)) + int32(sumOfRanks(g.Size())) }},
		} {
			mine := same[int32](each, untouched)
			require.NoError(t, coll.ReduceScatter(background, g, c.op, mine, made(each*g.Size(), given)))
			requireElements(t, each, c.want, mine)
		}
	}
	assert.Zero(t, disorder.Load(), "operands in another order than that of ranks")
}

// scantst: sums up to the own rank by Sum and by a Func, twice each, and operands in the order of
// ranks.
func scantst(t *testing.T, g *coll.Group) {
	for _, c := range []struct {
		op   coll.Op[int32]
		want int
	}{
		{coll.Sum[int32](), sumOfRanks(g.Rank() + 1)}, {coll.Sum[int32](), sumOfRanks(g.Rank() + 1)},
		{addInts(true), sumOfRanks(g.Rank() + 1)}, {addInts(true), sumOfRanks(g.Rank() + 1)},
		{inOrder, 0},
	} {
		x := []int32{int32(g.Rank())}
		require.NoError(t, coll.Scan(background, g, c.op, x))
		require.Equal(t, []int32{int32(c.want)}, x)
	}
}

// exscan: sums of the ranks before, of many lengths, in place; rank 0 keeps what it gave.
func exscan(t *testing.T, g *coll.Group) {
	rank, size := g.Rank(), g.Size()
	for _, n := range doubling(65000) {
		x := made(n, func(i int) int32 { return int32(rank + i*size) })
		require.NoError(t, coll.ExScan(background, g, coll.Sum[int32](), x))
		requireElements(t, n, func(i int) int32 {
			return int32(chosen(rank == 0, i*size, rank*i*size+sumOfRanks(rank)))
		}, x)
	}
}

// exscan2: the same of one number.
func exscan2(t *testing.T, g *coll.Group) {
	x := []int32{int32(g.Rank() + 1)}
	require.NoError(t, coll.ExScan(background, g, coll.Sum[int32](), x))
	require.Equal(t, []int32{max(1, int32(sumOfRanks(g.Rank()+1)))}, x)
}
