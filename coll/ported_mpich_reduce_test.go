package coll_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
)

// TestPortedMPICHReduce has what MPICH's test/mpi/coll checks of Reduce and AllReduce.
func TestPortedMPICHReduce(t *testing.T) {
	portedRows(t,
		portedRow{"allred2", on(4), groups(allred2)},
		portedRow{"allred3", on(10), groups(allred3)},
		portedRow{"allred4", on(4), groups(allred4)},
		portedRow{"allred5", on(5, 10), groups(allred5)},
		portedRow{"allred6", on(4, 7), groups(allred6)},
		portedRow{"allred_float", on(10), group(allredFloat)},
		portedRow{"allredmany", on(4), group(allredmany)},
		portedRow{"reduce", on(5, 3, 10), groups(reduce)},
		portedRow{"red3", on(10), groups(red3)},
		portedRow{"red4", on(10), groups(red4)},
		portedRow{"longuser", on(4), group(longuser)},
		portedRow{"uoplong", on(4, 11, 16), group(uoplong)},
		portedRow{"coll8", on(4), group(coll8)},
		portedRow{"coll9", on(4), group(coll9)},
		portedRow{"coll10", on(4), group(coll10)},
		portedRow{"coll12", on(4), group(coll12)},
	)
}

// addInts is a sum by a Func, which commutes, or is said not to.
func addInts(commutative bool) coll.Op[int32] {
	return coll.Func(commutative, func(acc, in []int32) {
		for i := range acc {
			acc[i] += in[i]
		}
	})
}

// requireSumOfRanks requires that element i is the sum of i + rank of size ranks.
func requireSumOfRanks(t *testing.T, size, n int, got []int32) {
	t.Helper()
	requireElements(t, n, func(i int) int32 { return int32(i*size + sumOfRanks(size)) }, got)
}

// allred2: sums of many lengths, in place.
func allred2(t *testing.T, g *coll.Group) { sumsInPlace(t, g, coll.Sum[int32]()) }

// allred6: the same by a Func that is said not to commute.
func allred6(t *testing.T, g *coll.Group) { sumsInPlace(t, g, addInts(false)) }

func sumsInPlace(t *testing.T, g *coll.Group, op coll.Op[int32]) {
	for _, n := range doubling(65000) {
		x := made(n, func(i int) int32 { return int32(g.Rank() + i) })
		require.NoError(t, coll.AllReduce(background, g, op, x))
		requireSumOfRanks(t, g.Size(), n, x)
	}
}

// permutation is what the square matrices of MPICH's tests are: a product that does not commute.
type permutation [16]int32

// after is the product of the permutations: first p, then q.
func (p permutation) after(q permutation) (r permutation) {
	for i := range r {
		r[i] = q[p[i]]
	}
	return r
}

var permute = coll.Func(false, func(acc, in []permutation) {
	for i := range acc {
		acc[i] = acc[i].after(in[i])
	}
})

func identity() permutation { return shift(1, 0) }

// shift moves n elements by steps.
func shift(n, steps int) (p permutation) {
	for i := range p {
		p[i] = int32(i)
	}
	for i := range n {
		p[i] = int32((i + steps + n) % n)
	}
	return p
}

// swap exchanges two elements.
func swap(i, j int) permutation {
	p := identity()
	p[i], p[j] = p[j], p[i]
	return p
}

// productOf is the product of all ranks' permutations, in the order of ranks.
func productOf(size int, of func(rank int) permutation) permutation {
	p := identity()
	for rank := range size {
		p = p.after(of(rank))
	}
	return p
}

// allred3: permutations of all ranks, of which the last turns back what the others have done.
func allred3(t *testing.T, g *coll.Group) {
	size := g.Size()
	of := func(rank int) permutation { return chosen(rank < size-1, swap(rank, (rank+1)%size), shift(size, 1)) }
	require.Equal(t, identity(), productOf(size, of))
	x := []permutation{of(g.Rank())}
	require.NoError(t, coll.AllReduce(background, g, permute, x))
	require.Equal(t, []permutation{identity()}, x)
}

// allred4: two of the ranks have permutations that do not commute, the others have none; one for
// each element.
func allred4(t *testing.T, g *coll.Group) {
	size := g.Size()
	a, b := size/4, 3*size/4
	if size == 2 {
		a, b = 0, 1
	}
	for n := 1; n < size; n++ {
		own := identity()
		switch g.Rank() {
		case a:
			own = swap(1, 2)
		case b:
			own = swap(0, 1)
		}
		x := same(n, own)
		require.NoError(t, coll.AllReduce(background, g, permute, x))
		require.Equal(t, same(n, swap(1, 2).after(swap(0, 1))), x)
	}
}

// allred5: twice as many elements as ranks.
func allred5(t *testing.T, g *coll.Group) {
	n := 2 * g.Size()
	x := made(n, func(i int) int32 { return int32(i) })
	require.NoError(t, coll.AllReduce(background, g, coll.Sum[int32](), x))
	requireElements(t, n, func(i int) int32 { return int32(i * g.Size()) }, x)
}

// allredFloat (allred_float): a large number and its negative cancel each other where they are
// added first, and else swallow small ones: all ranks have the same bits, and get them again, also
// in vectors of several blocks.
func allredFloat(t *testing.T, g *coll.Group) {
	for _, n := range []int{8, rounds(100_000)} {
		for a := range g.Size() {
			for b := a + 1; b < g.Size(); b += chosen(n == 8, 1, 4) {
				own := float32(1e-2)
				switch g.Rank() {
				case a:
					own = 1e6
				case b:
					own = -1e6
				}
				first := bitsOfSum(t, g, same(n, own))
				require.Equal(t, first, bitsOfSum(t, g, same(n, own)), "another run")
				everyone := make([]uint32, g.Size()*n)
				require.NoError(t, coll.AllGather(background, g, everyone, first))
				requireElements(t, len(everyone), func(i int) uint32 { return first[i%n] }, everyone)
			}
		}
	}
}

func bitsOfSum(t *testing.T, g *coll.Group, x []float32) []uint32 {
	require.NoError(t, coll.AllReduce(background, g, coll.Sum[float32](), x))
	return made(len(x), func(i int) uint32 { return math.Float32bits(x[i]) })
}

// allredmany: ten thousand sums of one number, one after the other.
func allredmany(t *testing.T, g *coll.Group) {
	for range rounds(10_000) {
		x := []float64{10}
		require.NoError(t, coll.AllReduce(background, g, coll.Sum[float64](), x))
		require.Equal(t, 10*float64(g.Size()), x[0])
	}
}

// reduce: sums of many lengths at each root; the other ranks keep what they gave.
func reduce(t *testing.T, g *coll.Group) {
	for _, n := range doubling(130_000) {
		for root := range g.Size() {
			x := made(n, func(i int) int32 { return int32(i) })
			require.NoError(t, coll.Reduce(background, g, root, coll.Sum[int32](), x))
			factor := chosen(g.Rank() == root, int32(g.Size()), 1)
			requireElements(t, n, func(i int) int32 { return factor * int32(i) }, x)
		}
	}
}

// red3: the product of permutations shifts by one, whatever the root.
func red3(t *testing.T, g *coll.Group) {
	size := g.Size()
	of := func(rank int) permutation { return chosen(rank < size-1, swap(rank, (rank+1)%size), identity()) }
	require.Equal(t, shift(size, -1), productOf(size, of))
	reduceAtEachRoot(t, g, of)
}

// red4: the same with permutations by which the product that begins at rank 0 differs from one that
// begins at the root.
func red4(t *testing.T, g *coll.Group) {
	size := g.Size()
	of := func(rank int) permutation { return swap(rank, (rank+1)%size) }
	if size > 2 { // two swap the same
		require.NotEqual(t, productOf(size, of), productOf(size, func(rank int) permutation { return of((rank + 1) % size) }))
	}
	reduceAtEachRoot(t, g, of)
}

func reduceAtEachRoot(t *testing.T, g *coll.Group, of func(rank int) permutation) {
	want := productOf(g.Size(), of)
	for root := range g.Size() {
		x := []permutation{of(g.Rank())}
		require.NoError(t, coll.Reduce(background, g, root, permute, x))
		require.Equal(t, chosen(g.Rank() == root, want, of(g.Rank())), x[0])
	}
}

// longuser: a Func that adds, on vectors that go through in pieces; it commutes, or is said not to.
func longuser(t *testing.T, g *coll.Group) {
	for _, commutative := range []bool{true, false} {
		add := coll.Func(commutative, func(acc, in []float64) {
			for i := range acc {
				acc[i] += in[i]
			}
		})
		for _, n := range doubling(100_000) {
			x := same(n, chosen(g.Rank()%2 == 1, 1.0, -1.0))
			require.NoError(t, coll.AllReduce(background, g, add, x))
			requireElements(t, n, func(int) float64 { return chosen(g.Size()%2 == 1, -1.0, 0.0) }, x)
		}
	}
}

// uoplong: a Func on triples of numbers that is said not to commute, on up to a million of them.
func uoplong(t *testing.T, g *coll.Group) {
	type triple struct{ sum, most, least float64 }
	op := coll.Func(false, func(acc, in []triple) {
		for i, b := range in {
			a := acc[i]
			acc[i] = triple{a.sum + b.sum, max(a.most, b.most), min(a.least, b.least)}
		}
	})
	for _, n := range doubling(rounds(1_200_000)) {
		value := func(i int) float64 { return float64(1 + i&3) }
		x := made(n, func(i int) triple { return triple{value(3 * i), value(3*i + 1), value(3*i + 2)} })
		require.NoError(t, coll.Reduce(background, g, 0, op, x))
		sums := chosen(g.Rank() == 0, float64(g.Size()), 1)
		requireElements(t, n, func(i int) triple { return triple{sums * value(3*i), value(3*i + 1), value(3*i + 2)} }, x)
	}
}

// reduceAndTell reduces one number of each rank to the root, which tells all.
func reduceAndTell(t *testing.T, g *coll.Group, root int, op coll.Op[int32], own int) int {
	x := []int32{int32(own)}
	require.NoError(t, coll.Reduce(background, g, root, op, x))
	require.NoError(t, coll.Bcast(background, g, root, x))
	return int(x[0])
}

// coll8: sum, lowest and highest of the ranks' numbers.
func coll8(t *testing.T, g *coll.Group) {
	require.Equal(t, sumOfRanks(g.Size()), reduceAndTell(t, g, 0, coll.Sum[int32](), g.Rank()))
	require.Equal(t, 0, reduceAndTell(t, g, 0, coll.Min[int32](), g.Rank()))
	require.Equal(t, g.Size()-1, reduceAndTell(t, g, 0, coll.Max[int32](), g.Rank()))
}

// coll9: the sum by a Func.
func coll9(t *testing.T, g *coll.Group) {
	require.Equal(t, sumOfRanks(g.Size()), reduceAndTell(t, g, 0, addInts(true), g.Rank()))
}

// wrong is what inOrder makes of operands in another order than that of ranks.
const wrong = 100_000

// inOrder keeps the left operand, which has to be that of a lower rank.
var inOrder = coll.Func(false, func(acc, in []int32) {
	for i := range acc {
		if acc[i] >= in[i] {
			acc[i] = wrong
		}
	}
})

// coll10: operands come in the order of ranks where the root is the last.
func coll10(t *testing.T, g *coll.Group) {
	require.Equal(t, 0, reduceAndTell(t, g, g.Size()-1, inOrder, g.Rank()))
}

// coll12: where the highest and the lowest numbers are, of equal ones that of the lower rank.
func coll12(t *testing.T, g *coll.Group) {
	const n = 2
	at := func(i int) coll.At[float64] {
		value := chosen(i >= g.Rank(), float64(g.Rank()+1), 0)
		return coll.At[float64]{Value: value, Index: int64(g.Rank())}
	}
	x := made(n, at)
	require.NoError(t, coll.Reduce(background, g, 0, coll.MaxLoc[float64](), x))
	require.NoError(t, coll.Bcast(background, g, 0, x))
	y := made(n, at)
	for i := range y {
		y[i].Value = -y[i].Value
	}
	require.NoError(t, coll.AllReduce(background, g, coll.MinLoc[float64](), y))
	for i := range n {
		rank := min(i, g.Size()-1)
		require.Equal(t, coll.At[float64]{Value: float64(rank + 1), Index: int64(rank)}, x[i])
		require.Equal(t, coll.At[float64]{Value: -float64(rank + 1), Index: int64(rank)}, y[i])
	}
}
