// Package kernel combines vectors element by element: sums, minima and so on, as fast as memory
// allows where that matters, in assembly.
//
// All operations here are commutative to the last bit, and give the same bits on every processor.
// Three rules see to that:
//
//   - A NaN that results from floating-point numbers is math.NaN(), converted to their type,
//     whichever NaNs came in. Processors differ in what they make of two NaNs, or of Inf - Inf.
//   - -0 is less than +0, and a NaN is the result of Min and Max, as with Go's min and max.
//   - No product is fused with a sum, in those of complex numbers.
//
// Concurrency: functions only; any goroutine may call them.
package kernel

import "reflect"

// Func sets dst[i] = a[i] op b[i] for the whole elements in dst; a and b are at least as long. dst
// may be the same memory as a or as b, and overlaps them in no other way. They are aligned for the
// type of the elements.
type Func func(dst, a, b []byte)

// Op names an operation.
type Op uint8

const (
	Sum Op = iota // integers wrap around
	Prod
	Min
	Max
	And // of the bits, like Or and Xor
	Or
	Xor
	MinLoc  // of At: the minimum, with the lowest index among those that have it
	MaxLoc  // of At, likewise
	SumBF16 // of Uint16, which are bfloat16: added as float32, then rounded to nearest even
	SumF16  // of Uint16, which are IEEE half precision, likewise
	ops
)

// At is an element of MinLoc and MaxLoc. Value has the bits that Min and Max give: among NaNs too
// the lowest index wins, and -0 is another value than +0.
type At[T Real] struct {
	Value T
	Index int64
}

// Integer is what all operations of numbers take.
type Integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Float is what all operations of numbers take, but for those of bits.
type Float interface{ ~float32 | ~float64 }

// Real is what has an order.
type Real interface{ Integer | Float }

// Of returns what does op on elements of a kind, for MinLoc and MaxLoc on At of that kind; nil
// where there is no such operation. It takes a few ns and does not allocate.
func Of(op Op, k reflect.Kind) Func {
	if op >= ops || k >= kinds {
		return nil
	}
	return best[op][k]
}

const kinds = reflect.Complex128 + 1

// table has the function for each operation and kind.
type table [ops][kinds]Func

// variant is one way to combine vectors, for as many operations as it is good for.
type variant struct {
	name string
	put  func(*table)
}

// variants are those that this processor can run: Go's loops, which do everything and which the
// others are compared with; then assembly, the best last.
var variants = append([]variant{{"go", loops}}, assembly()...)

var best = build(variants)

// build lets each variant replace what those before it have put.
func build(vs []variant) *table {
	t := new(table)
	for _, v := range vs {
		v.put(t)
	}
	return t
}

// loops puts Go's loops.
func loops(t *table) {
	integers[int8](t)
	integers[int16](t)
	integers[int32](t)
	integers[int64](t)
	integers[uint8](t)
	integers[uint16](t)
	integers[uint32](t)
	integers[uint64](t)
	floats[float32](t, reflect.Complex64)
	floats[float64](t, reflect.Complex128)
	t[SumBF16][reflect.Uint16] = of(sumBF16)
	t[SumF16][reflect.Uint16] = of(sumF16)
}

func integers[T Integer](t *table) {
	k := reflect.TypeFor[T]().Kind()
	t[Sum][k] = of(sum[T])
	t[Prod][k] = of(prod[T])
	t[And][k] = and
	t[Or][k] = or
	t[Xor][k] = xor
	ordered[T](t, k)
}

// floats puts what there is for T, and for complex numbers of it.
func floats[T Float](t *table, complexes reflect.Kind) {
	k := reflect.TypeFor[T]().Kind()
	t[Sum][k], t[Sum][complexes] = of(sum[T]), of(sum[T])
	t[Prod][k], t[Prod][complexes] = of(prod[T]), of(prodComplex[T])
	ordered[T](t, k)
}

func ordered[T Real](t *table, k reflect.Kind) {
	t[Min][k] = of(minimum[T])
	t[Max][k] = of(maximum[T])
	t[MinLoc][k] = of(minLoc[T])
	t[MaxLoc][k] = of(maxLoc[T])
}
