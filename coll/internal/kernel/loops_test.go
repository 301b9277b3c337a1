package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"sort"
	"testing"
)

// one combines two values.
func one[T any](op Op, k reflect.Kind, a, b T) T {
	var dst T
	tables[0][op][k](octets(&dst), octets(&a), octets(&b))
	return dst
}

// agree says that Go's loop gives what is wanted, to the bit.
func agree[T any](t *testing.T, op Op, k reflect.Kind, a, b, want T) {
	t.Helper()
	got := one(op, k, a, b)
	blank(op, k, octets(&want))
	blank(op, k, octets(&got))
	if !bytes.Equal(octets(&want), octets(&got)) {
		t.Fatalf("op %d of %v, %v and %v: %v, want %v", op, k, a, b, got, want)
	}
}

func testIntegers[T Integer](t *testing.T, least, most T) {
	k := reflect.TypeFor[T]().Kind()
	for _, a := range []T{0, 1, 2, 85, most, most - 1, least, least + 1} {
		for _, b := range []T{0, 1, 3, 77, most, most - 1, least, least + 1} {
			agree(t, Sum, k, a, b, a+b)
			agree(t, Prod, k, a, b, a*b)
			agree(t, And, k, a, b, a&b)
			agree(t, Or, k, a, b, a|b)
			agree(t, Xor, k, a, b, a^b)
			smaller, larger := a, b
			if a > b {
				smaller, larger = b, a
			}
			agree(t, Min, k, a, b, smaller)
			agree(t, Max, k, a, b, larger)
			index := map[bool]int64{true: 4, false: 9}
			agree(t, MinLoc, k, At[T]{a, 4}, At[T]{b, 9}, At[T]{smaller, index[a <= b]})
			agree(t, MaxLoc, k, At[T]{a, 9}, At[T]{b, 4}, At[T]{larger, index[a <= b]})
		}
	}
}

func TestIntegers(t *testing.T) {
	testIntegers[int8](t, math.MinInt8, math.MaxInt8)
	testIntegers[int16](t, math.MinInt16, math.MaxInt16)
	testIntegers[int32](t, math.MinInt32, math.MaxInt32)
	testIntegers[int64](t, math.MinInt64, math.MaxInt64)
	testIntegers[uint8](t, 0, math.MaxUint8)
	testIntegers[uint16](t, 0, math.MaxUint16)
	testIntegers[uint32](t, 0, math.MaxUint32)
	testIntegers[uint64](t, 0, math.MaxUint64)
}

func testFloats[T Float](t *testing.T, largest T, nans []T) {
	k := reflect.TypeFor[T]().Kind()
	inf, nan, zero, minus := T(math.Inf(1)), T(math.NaN()), T(0), T(math.Copysign(0, -1))
	for _, c := range []struct{ a, b, sum, prod, min, max T }{
		{1.5, -2.25, -0.75, -3.375, -2.25, 1.5},
		{zero, minus, zero, minus, minus, zero},
		{largest, largest, inf, inf, largest, largest},
		{inf, 1, inf, inf, 1, inf},
		{inf, -inf, nan, -inf, -inf, inf},
		{inf, zero, inf, nan, 0, inf},
	} {
		agree(t, Sum, k, c.a, c.b, c.sum)
		agree(t, Prod, k, c.a, c.b, c.prod)
		agree(t, Min, k, c.a, c.b, c.min)
		agree(t, Max, k, c.a, c.b, c.max)
	}
	for _, x := range nans {
		for _, y := range append(nans, 1, inf, -inf) {
			for op := Sum; op <= Max; op++ {
				agree(t, op, k, x, y, nan)
				agree(t, op, k, y, x, nan)
			}
			agree(t, MinLoc, k, At[T]{x, 4}, At[T]{1, 3}, At[T]{nan, 4})
			agree(t, MaxLoc, k, At[T]{inf, 3}, At[T]{x, 4}, At[T]{nan, 4})
		}
	}
	agree(t, MinLoc, k, At[T]{zero, 1}, At[T]{minus, 2}, At[T]{minus, 2})
	agree(t, MaxLoc, k, At[T]{zero, 2}, At[T]{minus, 1}, At[T]{zero, 2})
	agree(t, MinLoc, k, At[T]{2, 8}, At[T]{2, 7}, At[T]{2, 7})
	agree(t, MaxLoc, k, At[T]{nans[0], 8}, At[T]{nans[1], 7}, At[T]{nan, 7})
}

func TestFloats(t *testing.T) {
	testFloats(t, math.MaxFloat32, []float32{math.Float32frombits(0x7fc00000), math.Float32frombits(0xff800001), math.Float32frombits(0x7fffffff)})
	testFloats(t, math.MaxFloat64, []float64{math.NaN(), math.Float64frombits(0xfff0000000000001), math.Float64frombits(0x7fffffffffffffff)})
}

func TestComplex(t *testing.T) {
	agree(t, Sum, reflect.Complex64, complex64(1+2i), complex64(3-5i), complex64(4-3i))
	agree(t, Prod, reflect.Complex64, complex64(1+2i), complex64(3-5i), complex64(13+1i))
	agree(t, Prod, reflect.Complex128, 1+2i, 3-5i, 13+1i)
	// Fused, the real part would be the rounding error of a product.
	x := 1 + 0x1p-30
	agree(t, Prod, reflect.Complex128, complex(x, x), complex(x, x), complex(0, 2*(x*x)))
	agree(t, Prod, reflect.Complex128, complex(math.Inf(1), 0), complex(0, 1), complex(math.NaN(), math.Inf(1)))
}

// nearest is the half whose value is the nearest to v, the even one of two. values are those from 0
// to what would be behind the largest, in the order of the halves.
func nearest(v float64, values []float64) uint16 {
	var sign uint16
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	i := sort.SearchFloat64s(values, v)
	switch {
	case i == len(values):
		return sign | uint16(i-1)
	case i > 0 && (v-values[i-1] < values[i]-v || v-values[i-1] == values[i]-v && i%2 == 1):
		i--
	}
	return sign | uint16(i)
}

// Sums of halves are compared with a search of all of them. exact is the sum that is rounded.
func testHalves(t *testing.T, op Op, bits int, exact func(a, b float64) float64) {
	exponents, bias := 1<<(15-bits), 1<<(14-bits)-1
	var values []float64
	for e := range exponents {
		for f := range 1 << bits {
			value := math.Ldexp(1+float64(f)/float64(int(1)<<bits), e-bias)
			if e == 0 {
				value = math.Ldexp(float64(f)/float64(int(1)<<bits), 1-bias)
			}
			if values = append(values, value); e == exponents-1 {
				break // in the place of Inf, what would be next to the largest
			}
		}
	}
	infinity := uint16(len(values) - 1)
	value := func(h uint16) float64 {
		v := values[h&0x7fff]
		if h&0x8000 != 0 {
			return -v
		}
		return v
	}
	finite := func(h uint16) bool { return h&0x7fff < infinity }
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 300_000 {
		a, b := uint16(i), uint16(rng.Uint32())
		if i >= 1<<16 { // of about the same size
			b = a&0x7f00 + uint16(rng.IntN(0x600)) | b&0x8000
		}
		if finite(a) && finite(b) {
			agree(t, op, reflect.Uint16, a, b, nearest(exact(value(a), value(b)), values))
		}
	}
	quiet := infinity | 1<<(bits-1)
	agree(t, op, reflect.Uint16, infinity, infinity|0x8000, quiet)
	agree(t, op, reflect.Uint16, infinity, 5, infinity)
	agree(t, op, reflect.Uint16, infinity|0x8000, infinity-1, infinity|0x8000)
	agree(t, op, reflect.Uint16, infinity+1, 5, quiet)
	agree(t, op, reflect.Uint16, 0xffff, 0xfffe, quiet)
}

func TestHalves(t *testing.T) {
	testHalves(t, SumF16, 10, func(a, b float64) float64 { return a + b })
	testHalves(t, SumBF16, 7, func(a, b float64) float64 { return float64(float32(a) + float32(b)) })
}
