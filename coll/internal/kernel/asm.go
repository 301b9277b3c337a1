package kernel

import "reflect"

// piece is how many bytes assembly gets at a time: while it runs its goroutine cannot be
// interrupted, so that garbage collection waits. It takes some 10 us.
const piece = 256 << 10

// inPieces makes a Func of assembly, which takes operands to be as long as dst.
func inPieces(f Func) Func {
	return func(dst, a, b []byte) {
		a, b = a[:len(dst)], b[:len(dst)]
		for len(dst) > piece {
			f(dst[:piece], a, b)
			dst, a, b = dst[piece:], a[piece:], b[piece:]
		}
		f(dst, a, b)
	}
}

// sums puts additions by their type; those of integers serve both kinds of a size.
func (t *table) sums(int8s, int16s, int32s, int64s, float32s, float64s Func) {
	row := &t[Sum]
	row[reflect.Int8], row[reflect.Uint8] = inPieces(int8s), inPieces(int8s)
	row[reflect.Int16], row[reflect.Uint16] = inPieces(int16s), inPieces(int16s)
	row[reflect.Int32], row[reflect.Uint32] = inPieces(int32s), inPieces(int32s)
	row[reflect.Int64], row[reflect.Uint64] = inPieces(int64s), inPieces(int64s)
	row[reflect.Float32], row[reflect.Complex64] = inPieces(float32s), inPieces(float32s)
	row[reflect.Float64], row[reflect.Complex128] = inPieces(float64s), inPieces(float64s)
}

func (t *table) bounds(min32, max32, min64, max64 Func) {
	t[Min][reflect.Float32], t[Max][reflect.Float32] = inPieces(min32), inPieces(max32)
	t[Min][reflect.Float64], t[Max][reflect.Float64] = inPieces(min64), inPieces(max64)
}

func (t *table) halves(bf16, f16 Func) {
	t[SumBF16][reflect.Uint16], t[SumF16][reflect.Uint16] = inPieces(bf16), inPieces(f16)
}
