package coll

import (
	"reflect"

	"github.com/tagmatch/tagmatch/coll/internal/kernel"
	"github.com/tagmatch/tagmatch/p2p"
)

// Op is an associative operation that combines two vectors, element by element. The functions of
// this package make Ops; the zero value is not one. Ops have no state: they may be made for each
// call, or kept, and used by any goroutine.
//
// The operand of a lower rank is the left one. Where an Op of this package gives a NaN, it is the
// same NaN on all ranks; integers wrap around.
type Op[T any] struct{ op operation }

// Integer lists what And, Or and Xor take.
type Integer = kernel.Integer

// Real lists what MinLoc and MaxLoc take.
type Real = kernel.Real

// At is a value and where it is: a rank, or an index of the program's.
type At[T Real] = kernel.At[T]

// BF16 is the bits of a bfloat16, and F16 those of a number of IEEE 754's binary16.
type (
	BF16 uint16
	F16  uint16
)

// Sum adds numbers. Floating-point numbers are added in an order that the size of the Group and the
// algorithm decide: the same input gives the same bits on all ranks and in each run.
func Sum[T p2p.Number]() Op[T] { return numbers[T](kernel.Sum, "sum") }

// Prod multiplies numbers.
func Prod[T p2p.Number]() Op[T] { return numbers[T](kernel.Prod, "prod") }

// Min takes the lower number, as Go's min: a NaN where there is one.
func Min[T Real]() Op[T] { return numbers[T](kernel.Min, "min") }

// Max takes the higher number, as Go's max: a NaN where there is one.
func Max[T Real]() Op[T] { return numbers[T](kernel.Max, "max") }

// And is the AND of bits.
func And[T Integer]() Op[T] { return numbers[T](kernel.And, "and") }

// Or is the OR of bits.
func Or[T Integer]() Op[T] { return numbers[T](kernel.Or, "or") }

// Xor is the exclusive OR of bits.
func Xor[T Integer]() Op[T] { return numbers[T](kernel.Xor, "xor") }

// MinLoc takes the element with the lower Value, and of equal ones that with the lower Index.
func MinLoc[T Real]() Op[At[T]] { return Op[At[T]]{builtin[T](kernel.MinLoc, "minloc")} }

// MaxLoc takes the element with the higher Value, and of equal ones that with the lower Index.
func MaxLoc[T Real]() Op[At[T]] { return Op[At[T]]{builtin[T](kernel.MaxLoc, "maxloc")} }

// SumBF16 adds in float32 and rounds to nearest even, once for each addition.
func SumBF16() Op[BF16] { return Op[BF16]{builtin[uint16](kernel.SumBF16, "sum")} }

// SumF16 adds in float32 and rounds to nearest even, once for each addition.
func SumF16() Op[F16] { return Op[F16]{builtin[uint16](kernel.SumF16, "sum")} }

func numbers[T any](op kernel.Op, name string) Op[T] { return Op[T]{builtin[T](op, name)} }

func builtin[T any](op kernel.Op, name string) operation {
	return operation{name, true, kernel.Of(op, reflect.TypeFor[T]().Kind())}
}

// Func is an operation of the program: f makes acc[i] the combination of acc[i] and in[i], with
// acc[i] as the left operand, and changes nothing else. It must be associative. Where commutative
// is false, operands are combined in the order of ranks. f gets as many elements of each, several
// times for one vector, on goroutines of the caller or of the Group. It must not call the Group.
func Func[T any](commutative bool, f func(acc, in []T)) Op[T] {
	if f == nil {
		return Op[T]{}
	}
	return Op[T]{operation{"func", commutative, func(dst, a, b []byte) { combineBy(f, elementsOf[T](dst), elementsOf[T](a), elementsOf[T](b)) }}}
}

// combineBy makes dst the combination of a and b by f. dst may be a or b, and where it is b what is
// in a is lost.
func combineBy[T any](f func(acc, in []T), dst, a, b []T) {
	if len(dst) == 0 {
		return
	}
	if &dst[0] == &b[0] {
		f(a, b)
		copy(dst, a)
		return
	}
	copy(dst, a)
	f(dst, b)
}
