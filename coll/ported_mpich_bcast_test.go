package coll_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestPortedMPICHBcast has what MPICH's test/mpi/coll checks of Bcast, Scatter and AllToAll.
func TestPortedMPICHBcast(t *testing.T) {
	portedRows(t,
		portedRow{"bcasttest", on(10, 4, 8, 16), group(bcasttest)},
		portedRow{"bcast", on(4), group(bcast)},
		portedRow{"bcastzerotype", on(5, 1, 4, 10), group(bcastzerotype)},
		portedRow{"scattern", on(4), group(scattern)},
		portedRow{"scatter2", on(4), group(scatter2)},
		portedRow{"scatter3", on(4), group(scatter3)},
		portedRow{"scatterv", on(4, 6), group(scatterv)},
		portedRow{"coll4", on(4), group(coll4)},
		portedRow{"coll5", on(4), group(coll5)},
		portedRow{"coll13", on(4), group(coll13)},
		portedRow{"alltoall1", on(8), groups(bothWays(alltoall1))},
		portedRow{"alltoallv", on(10), groups(alltoallv)},
		portedRow{"alltoallv0", on(10), groups(alltoallv0)},
		portedRow{"alltoallw_zeros", on(5, 1, 2, 8), group(alltoallwZeros)},
	)
}

// bcasttest: several lengths up to a million elements, several times, with other numbers each time.
func bcasttest(t *testing.T, g *coll.Group) {
	lengths := []int{100, 64 << 10, 128 << 10}
	if testlevel.CI() {
		lengths = append(lengths, 1<<20)
	}
	for _, n := range lengths {
		for rep := range max(2, rounds(5)) {
			broadcast(t, g, 0, n, func(i int) int32 { return int32(1_000_000*rep + i) })
		}
	}
}

// bcast: each root, elements of several types.
func bcast(t *testing.T, g *coll.Group) {
	type mixed struct {
		a int8
		b float64
		c [3]int16
	}
	for root := range g.Size() {
		for _, n := range []int{1, 17, 1018, 65530} {
			broadcast(t, g, root, n, func(i int) int8 { return int8(i + root) })
			broadcast(t, g, root, n, func(i int) int32 { return int32(i + root) })
			broadcast(t, g, root, n, func(i int) complex128 { return complex(float64(i), float64(root)) })
			broadcast(t, g, root, n, func(i int) mixed { return mixed{int8(i), float64(root), [3]int16{int16(i), 1, 2}} })
		}
	}
}

func broadcast[T comparable](t *testing.T, g *coll.Group, root, n int, element func(i int) T) {
	x := make([]T, n)
	if g.Rank() == root {
		x = made(n, element)
	}
	require.NoError(t, coll.Bcast(background, g, root, x))
	requireElements(t, n, element, x)
}

// bcastzerotype: a Bcast of nothing leaves the memory behind the slice alone. Elements without
// bytes are refused (TestArguments).
func bcastzerotype(t *testing.T, g *coll.Group) {
	x := made(10, func(i int) byte { return byte(10*g.Rank() + i) })
	require.NoError(t, coll.Bcast(background, g, 0, x[:0]))
	require.NoError(t, coll.Bcast[byte](background, g, 0, nil))
	requireElements(t, 10, func(i int) byte { return byte(10*g.Rank() + i) }, x)
}

// scattern: each root scatters 12 elements for each rank; what others have as all is not used.
func scattern(t *testing.T, g *coll.Group) {
	scatterFrom(t, g, func(root int, numbers []float64) []float64 {
		return chosen(g.Rank() == root, numbers, same[float64](len(numbers), untouched))
	})
}

// scatter2: the same where all of the others is nil.
func scatter2(t *testing.T, g *coll.Group) {
	scatterFrom(t, g, func(root int, numbers []float64) []float64 { return chosen(g.Rank() == root, numbers, nil) })
}

// scatter3: the same where all of the others has another length.
func scatter3(t *testing.T, g *coll.Group) {
	scatterFrom(t, g, func(root int, numbers []float64) []float64 { return chosen(g.Rank() == root, numbers, numbers[:5]) })
}

func scatterFrom(t *testing.T, g *coll.Group, all func(root int, numbers []float64) []float64) {
	const n = 12
	for root := range g.Size() {
		numbers := made(n*g.Size(), func(i int) float64 { return float64(i) })
		mine := same[float64](n, untouched)
		require.NoError(t, coll.Scatter(background, g, root, mine, all(root, numbers)))
		requireElements(t, n, func(i int) float64 { return float64(g.Rank()*n + i) }, mine)
	}
}

// scatterv: the blocks of a matrix, divided by rows and columns, twice. The root copies each block
// out of the matrix, as there are no layouts here.
func scatterv(t *testing.T, g *coll.Group) {
	const height, width = 10, 8
	columns := 2
	at := func(block, i int) float64 {
		row, column := block/columns*height+i/width, block%columns*width+i%width
		return float64(1000*row + column)
	}
	for range 2 {
		var blocks [][]float64
		if g.Rank() == 0 {
			blocks = made(g.Size(), func(block int) []float64 {
				return made(height*width, func(i int) float64 { return at(block, i) })
			})
		}
		mine, err := coll.ScatterV(background, g, 0, blocks)
		require.NoError(t, err)
		requireElements(t, height*width, func(i int) float64 { return at(g.Rank(), i) }, mine)
	}
}

// coll4: rows of a table, one for each rank.
func coll4(t *testing.T, g *coll.Group) {
	var table []int32
	if g.Rank() == 0 {
		table = made(10*g.Size(), func(i int) int32 { return int32(i/10 + i%10) })
	}
	row := same[int32](10, untouched)
	require.NoError(t, coll.Scatter(background, g, 0, row, table))
	requireElements(t, 10, func(i int) int32 { return int32(g.Rank() + i) }, row)
}

// coll5: the same by ScatterV.
func coll5(t *testing.T, g *coll.Group) {
	var table [][]int32
	if g.Rank() == 0 {
		table = made(g.Size(), func(row int) []int32 { return made(10, func(i int) int32 { return int32(row + i) }) })
	}
	row, err := coll.ScatterV(background, g, 0, table)
	require.NoError(t, err)
	requireElements(t, 10, func(i int) int32 { return int32(g.Rank() + i) }, row)
}

// coll13: AllToAll of 128 elements for each rank. What comes is checked here too.
func coll13(t *testing.T, g *coll.Group) {
	n := 128 * g.Size()
	recv := make([]int32, n)
	require.NoError(t, coll.AllToAll(background, g, recv, same(n, int32(g.Rank()+1))))
	requireElements(t, n, func(i int) int32 { return int32(i/128 + 1) }, recv)
}

// alltoall1: many lengths.
func alltoall1(t *testing.T, g *coll.Group, started bool) {
	size := g.Size()
	for _, each := range doubling(65000) {
		n := each * size
		recv := same[int32](n, untouched)
		send := made(n, func(i int) int32 { return int32(i/each*size + g.Rank() + i%each) })
		call{
			func() error { return coll.AllToAll(background, g, recv, send) },
			func() *coll.Pending { return coll.StartAllToAll(g, recv, send) },
		}.do(t, started)
		requireElements(t, n, func(i int) int32 { return int32(g.Rank()*size + i/each + i%each) }, recv)
	}
}

// alltoallv: as many elements to a rank as its number; and as many as the sum of both numbers.
func alltoallv(t *testing.T, g *coll.Group) {
	for _, length := range []func(from, to int) int{
		func(_, to int) int { return to },
		func(from, to int) int { return from + to },
	} {
		exchangePieces(t, g, length)
	}
}

// alltoallv0: only to the neighbors, as where borders of a grid are exchanged.
func alltoallv0(t *testing.T, g *coll.Group) {
	size := g.Size()
	for n := 1; n < 66000; n = chosen(testlevel.CI(), 2*n+1, 16*n+15) {
		exchangePieces(t, g, func(from, to int) int {
			distance := (to - from + size) % size
			return chosen(distance == 1 || distance == size-1, n, 0)
		})
	}
}

// alltoallwZeros (alltoallw_zeros): nothing to anybody, in empty slices and in none. There is one
// type of elements in a call here.
func alltoallwZeros(t *testing.T, g *coll.Group) {
	exchangePieces(t, g, func(int, int) int { return 0 })
	recv, err := coll.AllToAllV(background, g, make([][]int32, g.Size()))
	require.NoError(t, err)
	require.Len(t, recv, g.Size())
	require.NoError(t, coll.AllToAll(background, g, []int32{}, nil))
}

// exchangePieces sends pieces of these lengths to all ranks, by AllToAllV.
func exchangePieces(t *testing.T, g *coll.Group, length func(from, to int) int) {
	element := func(from, to int) func(i int) int32 {
		return func(i int) int32 { return int32(100_000*from + 1000*to + i) }
	}
	send := made(g.Size(), func(to int) []int32 { return made(length(g.Rank(), to), element(g.Rank(), to)) })
	recv, err := coll.AllToAllV(background, g, send)
	require.NoError(t, err)
	require.Len(t, recv, g.Size())
	for from, piece := range recv {
		requireElements(t, length(from, g.Rank()), element(from, g.Rank()), piece)
	}
}
