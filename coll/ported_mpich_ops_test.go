package coll_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestPortedMPICHOps has what MPICH's test/mpi/coll checks of operations and types of elements.
func TestPortedMPICHOps(t *testing.T) {
	portedRows(t,
		portedRow{"allred", on(4, 7), group(func(t *testing.T, g *coll.Group) { playOps(t, g, "allred", 10, 100) })},
		portedRow{"opsum", on(4), ops("opsum")},
		portedRow{"opprod", on(5, 6), ops("opprod")},
		portedRow{"opmin", on(4), ops("opmin")},
		portedRow{"opmax", on(5), ops("opmax")},
		portedRow{"opminloc", on(4), ops("opminloc")},
		portedRow{"opmaxloc", on(5), ops("opmaxloc")},
		portedRow{"opland", on(4), ops("opland")},
		portedRow{"oplor", on(4), ops("oplor")},
		portedRow{"oplxor", on(5, 4), ops("oplxor")},
		portedRow{"opband", on(4), ops("opband")},
		portedRow{"opbor", on(4), ops("opbor")},
		portedRow{"opbxor", on(5, 4), ops("opbxor")},
		portedRow{"op_commutative", on(5, 2), opCommutative},
		portedRow{"reduce_local", on(2), group(reduceLocal)},
	)
}

// opCase is what a row checks of an operation with one type of elements.
type opCase struct {
	row, about string
	play       func(t *testing.T, g *coll.Group, n int)
}

// ops is a row that reduces three elements to rank 0.
func ops(row string) func(t *testing.T, w *p2p.World) {
	return group(func(t *testing.T, g *coll.Group) { playOps(t, g, row, 3) })
}

func playOps(t *testing.T, g *coll.Group, row string, lengths ...int) {
	played := 0
	for _, c := range opCases() {
		if c.row != row {
			continue
		}
		for _, n := range lengths {
			c.play(t, g, n)
		}
		played++
	}
	require.NotZero(t, played, "cases of %s", row)
}

func opCases() (list []opCase) {
	return append(list, all(
		casesOfInteger[int8](), casesOfInteger[int16](), casesOfInteger[int32](), casesOfInteger[int64](),
		casesOfInteger[uint8](), casesOfInteger[uint16](), casesOfInteger[uint32](), casesOfInteger[uint64](),
		casesOfReal[float32](), casesOfReal[float64](),
		casesOfNumber[complex64](), casesOfNumber[complex128](),
		casesOfBool(),
	)...)
}

func all[T any](lists ...[]T) (joined []T) {
	for _, l := range lists {
		joined = append(joined, l...)
	}
	return joined
}

// given and wanted are elements by rank, or by the number of ranks, and by index.
type (
	given[T any]  func(rank, i int) T
	wanted[T any] func(size, i int) T
)

// opRow is a row that reduces to rank 0, where the others keep what they gave.
func opRow[T comparable](row string, op coll.Op[T], in given[T], want wanted[T]) opCase {
	var zero T
	about := fmt.Sprintf("%s of %T", row, zero)
	return opCase{row, about, func(t *testing.T, g *coll.Group, n int) {
		own := func(i int) T { return in(g.Rank(), i) }
		x := made(n, own)
		require.NoError(t, coll.Reduce(background, g, 0, op, x), about)
		if g.Rank() > 0 {
			requireElements(t, n, own, x, about)
			return
		}
		requireElements(t, n, func(i int) T { return want(g.Size(), i) }, x, about)
	}}
}

// allRow is a case of allred, in which all get the result.
func allRow[T comparable](name string, op coll.Op[T], in given[T], want wanted[T]) opCase {
	var zero T
	about := fmt.Sprintf("%s of %T", name, zero)
	return opCase{"allred", about, func(t *testing.T, g *coll.Group, n int) {
		x := made(n, func(i int) T { return in(g.Rank(), i) })
		require.NoError(t, coll.AllReduce(background, g, op, x), about)
		requireElements(t, n, func(i int) T { return want(g.Size(), i) }, x, about)
	}}
}

// number is n as any number, complex ones too. It wraps around.
func number[T p2p.Number](n int) T {
	var x T
	for range n {
		x++
	}
	return x
}

// one is 1 where yes, else 0.
func one[T p2p.Number](yes bool) T {
	if yes {
		return 1
	}
	return 0
}

func power[T p2p.Number](base T, exponent int) T {
	p := T(1)
	for range exponent {
		p *= base
	}
	return p
}

// of3 makes elements of three, by index; those behind them are like the last.
func of3[T any](a, b, c T, i int) T { return [3]T{a, b, c}[min(i, 2)] }

func casesOfNumber[T p2p.Number]() []opCase {
	factor := func(rank int) T { return number[T](max(1, rank)) }
	return []opCase{
		opRow("opsum", coll.Sum[T](),
			func(rank, i int) T { return of3(1, 0, one[T](rank > 0), i) },
			func(size, i int) T { return of3(number[T](size), 0, number[T](size-1), i) }),
		opRow("opprod", coll.Prod[T](),
			func(rank, i int) T { return of3(factor(rank), 0, one[T](rank > 1), i) },
			func(size, i int) T {
				product := T(1)
				for rank := range size {
					product *= factor(rank)
				}
				return of3(product, 0, 0, i)
			}),
		allRow("sum", coll.Sum[T](),
			func(_, i int) T { return number[T](i) },
			func(size, i int) T { return number[T](i) * number[T](size) }),
		// Upstream has the indices here too; only powers of two stay exact in floating point.
		allRow("prod", coll.Prod[T](),
			func(_, i int) T { return number[T](i % 3) },
			func(size, i int) T { return power(number[T](i%3), size) }),
	}
}

func casesOfReal[T coll.Real]() []opCase {
	at := func(value, rank int) coll.At[T] { return coll.At[T]{Value: T(value), Index: int64(rank)} }
	return append(casesOfNumber[T](),
		opRow("opmin", coll.Min[T](),
			func(rank, i int) T { return of3(1, 0, T(rank), i) },
			func(_, i int) T { return of3[T](1, 0, 0, i) }),
		opRow("opmax", coll.Max[T](),
			func(rank, i int) T { return of3(1, 0, T(rank), i) },
			func(size, i int) T { return of3(1, 0, T(size-1), i) }),
		opRow("opminloc", coll.MinLoc[T](),
			func(rank, i int) coll.At[T] { return of3(at(1, rank), at(0, rank), at(rank, rank), i) },
			func(_, i int) coll.At[T] { return of3(at(1, 0), at(0, 0), at(0, 0), i) }),
		opRow("opmaxloc", coll.MaxLoc[T](),
			func(rank, i int) coll.At[T] { return of3(at(1, rank), at(0, rank), at(rank, rank), i) },
			func(size, i int) coll.At[T] { return of3(at(1, 0), at(0, 0), at(size-1, size-1), i) }),
		allRow("min", coll.Min[T](),
			func(rank, i int) T { return T(rank + i) },
			func(_, i int) T { return T(i) }),
		allRow("max", coll.Max[T](),
			func(rank, i int) T { return T(rank + i) },
			func(size, i int) T { return T(size - 1 + i) }),
		allRow("minloc", coll.MinLoc[T](),
			func(rank, i int) coll.At[T] { return at(rank+i, rank+i) },
			func(_, i int) coll.At[T] { return at(i, i) }),
		allRow("maxloc", coll.MaxLoc[T](),
			func(rank, i int) coll.At[T] { return at(rank+i, rank+i) },
			func(size, i int) coll.At[T] { return at(size-1+i, size-1+i) }),
	)
}

// casesOfInteger: the logical operations are those of bits, with 0 and 1.
func casesOfInteger[T coll.Integer]() []opCase {
	none, ones := T(0), ^T(0)
	low, high := T(0x3c), T(0x43)
	and, or, xor := coll.And[T](), coll.Or[T](), coll.Xor[T]()
	odd := func(size int, x T) T { return x * T(size%2) }
	flags := func(rank, i int) T { return of3(1, 0, one[T](rank > 0), i) }
	parts := func(rank, i int) T { return of3(ones, none, chosen(rank > 0, low, high), i) }
	return all(casesOfReal[T](), constants("land", and,
		func(rank int) T { return T(rank & 1) }, func(int) T { return 0 },
		func(int) T { return 1 }, func(int) T { return 1 },
	), constants("lor", or,
		func(rank int) T { return T(rank & 1) }, func(size int) T { return one[T](size > 1) },
		func(int) T { return 0 }, func(int) T { return 0 },
		func(rank int) T { return T(rank & 3) }, func(size int) T { return T(min(size-1, 3) | 1) },
	), constants("lxor", xor,
		func(rank int) T { return one[T](rank == 1) }, func(size int) T { return one[T](size > 1) },
		func(int) T { return 0 }, func(int) T { return 0 },
		func(int) T { return 1 }, func(size int) T { return odd(size, 1) },
		func(int) T { return ones }, func(size int) T { return odd(size, ones) },
	), constants("band", and,
		func(rank int) T { return chosen(rank == 0, high, ones) }, func(int) T { return high },
		func(rank int) T { return chosen(rank == 0, ones, none) }, func(int) T { return 0 },
	), []opCase{
		opRow("opland", and, flags, func(_, i int) T { return of3[T](1, 0, 0, i) }),
		opRow("oplor", or, flags, func(_, i int) T { return of3[T](1, 0, 1, i) }),
		opRow("oplxor", xor, flags, func(size, i int) T { return of3(odd(size, 1), 0, odd(size-1, 1), i) }),
		opRow("opband", and,
			func(rank, i int) T { return of3(ones, none, chosen(rank > 0, ones, low), i) },
			func(_, i int) T { return of3(ones, none, low, i) }),
		opRow("opbor", or, parts, func(_, i int) T { return of3(ones, none, low|high, i) }),
		opRow("opbxor", xor, parts, func(size, i int) T { return of3(odd(size, ones), none, odd(size-1, low)^high, i) }),
	})
}

// constants are cases of allred in which each rank gives equal elements: pairs of what that is, by
// rank, and of what all get, by the number of ranks.
func constants[T comparable](name string, op coll.Op[T], pairs ...func(int) T) (list []opCase) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, allRow(name, op,
			func(rank, _ int) T { return pairs[i](rank) },
			func(size, _ int) T { return pairs[i+1](size) }))
	}
	return list
}

func chosen[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// casesOfBool has the logical operations of C's bool, each as a Func.
func casesOfBool() []opCase {
	logical := func(f func(a, b bool) bool) coll.Op[bool] {
		return coll.Func(true, func(acc, in []bool) {
			for i := range acc {
				acc[i] = f(acc[i], in[i])
			}
		})
	}
	flags := func(rank, i int) bool { return of3(true, false, rank > 0, i) }
	return []opCase{
		opRow("opland", logical(func(a, b bool) bool { return a && b }), flags, func(_, i int) bool { return i == 0 }),
		opRow("oplor", logical(func(a, b bool) bool { return a || b }), flags, func(_, i int) bool { return i != 1 }),
		opRow("oplxor", logical(func(a, b bool) bool { return a != b }), flags,
			func(size, i int) bool { return of3(size%2 == 1, false, size%2 == 0, i) }),
	}
}

// opCommutative (op_commutative): the operations of the package commute: with the ranks in the
// opposite order the result is the same. A Func that does not commute combines in that order. There
// is no call that tells.
func opCommutative(t *testing.T, w *p2p.World) {
	number := int32(1 << w.Rank())
	results := map[string][]int32{}
	first := coll.Func(false, func(acc, in []int32) {}) // the left operand
	collect := func(t *testing.T, g *coll.Group) {
		for _, c := range []struct {
			name string
			op   coll.Op[int32]
		}{
			{"max", coll.Max[int32]()}, {"min", coll.Min[int32]()}, {"sum", coll.Sum[int32]()}, {"prod", coll.Prod[int32]()},
			{"and", coll.And[int32]()}, {"or", coll.Or[int32]()}, {"xor", coll.Xor[int32]()}, {"first", first},
		} {
			x := []int32{number, number + 3}
			require.NoError(t, coll.AllReduce(background, g, c.op, x))
			results[c.name] = append(results[c.name], x...)
		}
		x := []coll.At[int32]{{Value: number % 5, Index: int64(w.Rank())}}
		y := []coll.At[int32]{x[0]}
		require.NoError(t, coll.AllReduce(background, g, coll.MaxLoc[int32](), x))
		require.NoError(t, coll.AllReduce(background, g, coll.MinLoc[int32](), y))
		results["loc"] = append(results["loc"], int32(x[0].Index), int32(y[0].Index))
	}
	inGroup(t, w.Comm(), collect)
	reversed := split(t, w.Comm(), 0, -w.Rank())
	inGroup(t, reversed, collect)
	require.NoError(t, reversed.Close())
	last := int32(1 << (w.Size() - 1))
	require.Equal(t, []int32{1, 4, last, last + 3}, results["first"])
	delete(results, "first")
	for name, r := range results {
		require.Equal(t, r[:2], r[2:4], name)
	}
}

// reduceLocal (reduce_local): two vectors of many lengths become one by Sum, and by a Func whose
// left operand counts twice. There is no local call: the second vector is another rank's, which
// keeps it.
func reduceLocal(t *testing.T, g *coll.Group) {
	weighted := coll.Func(false, func(acc, in []int32) {
		for i := range acc {
			acc[i] = 2*acc[i] + in[i]
		}
	})
	for _, n := range append(doubling(65000), 0) {
		for _, c := range []struct {
			factor int32
			op     coll.Op[int32]
		}{{2, coll.Sum[int32]()}, {3, weighted}} {
			x := made(n, func(i int) int32 { return int32(i) })
			require.NoError(t, coll.Reduce(background, g, 0, c.op, x))
			factor := chosen(g.Rank() == 0, c.factor, 1)
			requireElements(t, n, func(i int) int32 { return factor * int32(i) }, x)
		}
	}
}
