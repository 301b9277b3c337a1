package coll_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tagmatch/tagmatch/coll"
	"github.com/tagmatch/tagmatch/p2p"
)

// reduces compares AllReduce by op with plain, applied in the order of ranks, on values of make.
// Sums of the floating-point values that are used here are exact, so that the order says nothing.
func reduces[T comparable](g *coll.Group, op coll.Op[T], of func(i int) T, plain func(a, b T) T) error {
	for _, n := range []int{1, 37, 5000} {
		x, want := make([]T, n), make([]T, n)
		for i := range x {
			x[i] = of(i * (g.Rank() + 1))
			want[i] = of(i)
			for r := 1; r < g.Size(); r++ {
				want[i] = plain(want[i], of(i*(r+1)))
			}
		}
		if err := coll.AllReduce(background, g, op, x); err != nil {
			return err
		}
		for i := range x {
			if x[i] != want[i] {
				return fmt.Errorf("element %d of %d is %v, want %v", i, n, x[i], want[i])
			}
		}
	}
	return nil
}

func numbers[T cmp.Ordered](g *coll.Group, sum, prod, low, high coll.Op[T], of func(int) T, times func(a, b T) T) error {
	for _, c := range []struct {
		op    coll.Op[T]
		plain func(a, b T) T
	}{
		{sum, func(a, b T) T { return a + b }},
		{prod, times},
		{low, func(a, b T) T { return min(a, b) }},
		{high, func(a, b T) T { return max(a, b) }},
	} {
		if err := reduces(g, c.op, of, c.plain); err != nil {
			return err
		}
	}
	return nil
}

func integers[T coll.Integer](g *coll.Group) error {
	of := func(i int) T { return T(i*2654435761 + i) }
	err := numbers(g, coll.Sum[T](), coll.Prod[T](), coll.Min[T](), coll.Max[T](), of, func(a, b T) T { return a * b })
	for _, c := range []struct {
		op    coll.Op[T]
		plain func(a, b T) T
	}{
		{coll.And[T](), func(a, b T) T { return a & b }},
		{coll.Or[T](), func(a, b T) T { return a | b }},
		{coll.Xor[T](), func(a, b T) T { return a ^ b }},
	} {
		if err == nil {
			err = reduces(g, c.op, of, c.plain)
		}
	}
	if err == nil {
		err = located[T](g)
	}
	return err
}

func floats[T ~float32 | ~float64](g *coll.Group) error {
	of := func(i int) T { return T(i%7) - 3 }
	err := numbers(g, coll.Sum[T](), coll.Prod[T](), coll.Min[T](), coll.Max[T](), of, func(a, b T) T { return a * b })
	if err == nil {
		err = located[T](g)
	}
	return err
}

func complexes[T ~complex64 | ~complex128](g *coll.Group) error {
	of := func(i int) T { return T(complex(float64(i%5)-2, float64(i%3)-1)) }
	err := reduces(g, coll.Sum[T](), of, func(a, b T) T { return a + b })
	if err == nil {
		err = reduces(g, coll.Prod[T](), of, func(a, b T) T { return a * b })
	}
	return err
}

func located[T coll.Real](g *coll.Group) error {
	of := func(i int) coll.At[T] { return coll.At[T]{Value: T(i % 13), Index: int64(i % 17)} }
	choose := func(sign int) func(a, b coll.At[T]) coll.At[T] {
		return func(a, b coll.At[T]) coll.At[T] {
			if c := sign * cmp.Compare(a.Value, b.Value); c < 0 || c == 0 && a.Index < b.Index {
				return a
			}
			return b
		}
	}
	err := reduces(g, coll.MinLoc[T](), of, choose(1))
	if err == nil {
		err = reduces(g, coll.MaxLoc[T](), of, choose(-1))
	}
	return err
}

type named float32

// TestOps plays each Op with each type that it takes.
func TestOps(t *testing.T) {
	each(t, 3, func(g *coll.Group, _ *p2p.World) {
		for i, f := range []func(*coll.Group) error{
			integers[int8], integers[int16], integers[int32], integers[int64],
			integers[uint8], integers[uint16], integers[uint32], integers[uint64],
			floats[float32], floats[float64], floats[named], complexes[complex64], complexes[complex128],
			halves,
		} {
			if !assert.NoError(t, f(g), "function %d", i) {
				return
			}
		}
	})
}

// halves: numbers of 16 bits that are powers of two, whose sums are exact.
func halves(g *coll.Group) error {
	bf16 := func(i int) coll.BF16 { return coll.BF16(math.Float32bits(float32(i%8)) >> 16) }
	wide := func(h coll.BF16) float32 { return math.Float32frombits(uint32(h) << 16) }
	if err := reduces(g, coll.SumBF16(), bf16, func(a, b coll.BF16) coll.BF16 {
		return coll.BF16(math.Float32bits(wide(a)+wide(b)) >> 16)
	}); err != nil {
		return err
	}
	f16 := func(i int) coll.F16 { return []coll.F16{0, 0x3c00, 0x4000}[i%3] } // 0, 1, 2
	return reduces(g, coll.SumF16(), f16, func(a, b coll.F16) coll.F16 {
		value := map[coll.F16]int{0: 0, 0x3c00: 1, 0x4000: 2, 0x4200: 3, 0x4400: 4, 0x4500: 5, 0x4600: 6}
		for h, v := range value {
			if v == value[a]+value[b] {
				return h
			}
		}
		panic("no such sum")
	})
}

// TestSameBits: floating-point sums that depend on their order are the same on all ranks, and each
// time.
func TestSameBits(t *testing.T) {
	for _, n := range []int{2, 3, 6} {
		each(t, n, func(g *coll.Group, _ *p2p.World) {
			for _, size := range []int{1, 1000, 300_000} {
				var first []float32
				for range 3 {
					r := rand.New(rand.NewPCG(7, uint64(g.Rank())))
					x := make([]float32, size)
					for i := range x {
						x[i] = float32(r.NormFloat64())
					}
					if !assert.NoError(t, coll.AllReduce(background, g, coll.Sum[float32](), x)) {
						return
					}
					all := make([]float32, size*n)
					if !assert.NoError(t, coll.AllGather(background, g, all, x)) {
						return
					}
					for r := range n {
						assert.True(t, string(p2p.Bytes(all[r*size:(r+1)*size])) == string(p2p.Bytes(x)), "rank %d has other bits than rank %d", r, g.Rank())
					}
					if first == nil {
						first = x
					}
					assert.True(t, string(p2p.Bytes(first)) == string(p2p.Bytes(x)), "bits differ from run to run")
				}
			}
		})
	}
}
