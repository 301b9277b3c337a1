package coll_test

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestPortedMPICHHuge has what MPICH's test/mpi/coll checks of vectors above 2 GiB.
func TestPortedMPICHHuge(t *testing.T) {
	debug.FreeOSMemory()
	defer debug.FreeOSMemory()
	huge := make([]int64, elements(64<<20)+4)
	for i := range huge {
		huge[i] = int64(i)
	}
	portedRows(t,
		portedRow{"coll_large.option1", on(2), group(collLargeOption)},
		portedRow{"gather_big", on(4), group(func(t *testing.T, g *coll.Group) { gatherBig(t, g, huge) })},
	)
}

// elements is n, or less where that would take too long, or too much memory.
func elements(n int) int {
	if !testlevel.CI() || testlevel.Race || invariant.Enabled {
		return n >> 8
	}
	return n
}

// gatherBig (gather_big): 2 GiB and a bit come to the last rank. To save memory all ranks give of
// one vector, each from another index on. (Upstream 8 GiB.)
func gatherBig(t *testing.T, g *coll.Group, huge []int64) {
	n, root := elements(64<<20)+1, g.Size()-1
	var all []int64
	if g.Rank() == root {
		all = make([]int64, n*g.Size())
	}
	require.NoError(t, coll.Gather(background, g, root, all, huge[g.Rank():][:n]))
	requireElements(t, len(all), func(i int) int64 { return int64(i/n + i%n) }, all)
	require.NoError(t, coll.Barrier(background, g))
}

// collLargeOption (coll_large with option 1): AllReduce of vectors of 3 GiB and a bit.
func collLargeOption(t *testing.T, g *coll.Group) {
	n := elements(384<<20) + 100
	x := make([]int64, n)
	for i := range x {
		x[i] = int64(i + g.Rank())
	}
	require.NoError(t, coll.AllReduce(background, g, coll.Sum[int64](), x))
	requireElements(t, n, func(i int) int64 { return int64(g.Size()*i + sumOfRanks(g.Size())) }, x)
}
