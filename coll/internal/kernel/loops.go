package kernel

import (
	"crypto/subtle"
	"encoding/binary"
	"math"
)

var native = binary.NativeEndian

// canonical replaces every NaN by the one that all processors give.
func canonical[T Real](v T) T {
	if v != v {
		return T(math.NaN())
	}
	return v
}

func sum[T Real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonical(a[i] + b[i])
	}
}

func prod[T Real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonical(a[i] * b[i])
	}
}

// prodComplex is for pairs of a real and an imaginary part. The conversions keep the compiler from
// fusing products with sums, which only some processors can do.
func prodComplex[T Float](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := 1; i < len(dst); i += 2 {
		ar, ai, br, bi := a[i-1], a[i], b[i-1], b[i]
		dst[i-1] = canonical(T(ar*br) - T(ai*bi)) //nolint:unconvert
		dst[i] = canonical(T(ar*bi) + T(ai*br))   //nolint:unconvert
	}
}

func minimum[T Real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonical(min(a[i], b[i]))
	}
}

func maximum[T Real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = canonical(max(a[i], b[i]))
	}
}

func minLoc[T Real](dst, a, b []At[T]) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = at(min(a[i].Value, b[i].Value), a[i], b[i])
	}
}

func maxLoc[T Real](dst, a, b []At[T]) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = at(max(a[i].Value, b[i].Value), a[i], b[i])
	}
}

// at gives v the lowest index among those of x and y that have it.
func at[T Real](v T, x, y At[T]) At[T] {
	v = canonical(v)
	switch {
	case !same(y.Value, v):
		return At[T]{v, x.Index}
	case !same(x.Value, v):
		return At[T]{v, y.Index}
	}
	return At[T]{v, min(x.Index, y.Index)}
}

// same is equality in which NaN equals NaN, and -0 does not equal +0.
func same[T Real](x, y T) bool {
	return x == y && math.Signbit(float64(x)) == math.Signbit(float64(y)) || x != x && y != y
}

// and is the same for integers of every size, some words at a time.
func and(dst, a, b []byte) {
	for len(dst) >= 32 && len(a) >= 32 && len(b) >= 32 {
		d, x, y := dst[:32], a[:32], b[:32]
		native.PutUint64(d, native.Uint64(x)&native.Uint64(y))
		native.PutUint64(d[8:], native.Uint64(x[8:])&native.Uint64(y[8:]))
		native.PutUint64(d[16:], native.Uint64(x[16:])&native.Uint64(y[16:]))
		native.PutUint64(d[24:], native.Uint64(x[24:])&native.Uint64(y[24:]))
		dst, a, b = dst[32:], a[32:], b[32:]
	}
	for i := range dst {
		dst[i] = a[i] & b[i]
	}
}

func or(dst, a, b []byte) {
	for len(dst) >= 32 && len(a) >= 32 && len(b) >= 32 {
		d, x, y := dst[:32], a[:32], b[:32]
		native.PutUint64(d, native.Uint64(x)|native.Uint64(y))
		native.PutUint64(d[8:], native.Uint64(x[8:])|native.Uint64(y[8:]))
		native.PutUint64(d[16:], native.Uint64(x[16:])|native.Uint64(y[16:]))
		native.PutUint64(d[24:], native.Uint64(x[24:])|native.Uint64(y[24:]))
		dst, a, b = dst[32:], a[32:], b[32:]
	}
	for i := range dst {
		dst[i] = a[i] | b[i]
	}
}

func xor(dst, a, b []byte) { subtle.XORBytes(dst, a[:len(dst)], b[:len(dst)]) }
