package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// tables are those of processors that have the first variants only.
var tables = func() (ts []*table) {
	for v := range variants {
		ts = append(ts, build(variants[:v+1]))
	}
	return ts
}()

// each calls f for every operation on every kind that there is.
func each(f func(op Op, k reflect.Kind, size int)) {
	for op := range ops {
		for k := range kinds {
			if Of(op, k) != nil {
				f(op, k, size(op, k))
			}
		}
	}
}

// size is that of an element in bytes.
func size(op Op, k reflect.Kind) int {
	if op == MinLoc || op == MaxLoc {
		return 16
	}
	return sizes[k]
}

var sizes = map[reflect.Kind]int{
	reflect.Int8: 1, reflect.Int16: 2, reflect.Int32: 4, reflect.Int64: 8,
	reflect.Uint8: 1, reflect.Uint16: 2, reflect.Uint32: 4, reflect.Uint64: 8,
	reflect.Float32: 4, reflect.Float64: 8, reflect.Complex64: 8, reflect.Complex128: 16,
}

// blank clears the bytes between the fields of an At, which may be anything.
func blank(op Op, k reflect.Kind, b []byte) {
	if op != MinLoc && op != MaxLoc {
		return
	}
	for at := 0; at < len(b); at += 16 {
		clear(b[at+sizes[k] : at+8])
	}
}

// operand is memory with random elements at an offset from a multiple of 64 bytes.
func operand(rng *rand.Rand, elem, n, offset int) []byte {
	b := aligned(elem*n + offset)[offset:]
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	special := [][]byte{
		{0x00, 0x00, 0xc0, 0x7f}, {0x01, 0x00, 0xa0, 0xff}, {0x00, 0x00, 0x80, 0x7f}, {0x00, 0x00, 0x80, 0xff}, // NaN, -NaN, Inf, -Inf
		{0x00, 0x00, 0x00, 0x00}, {0x00, 0x00, 0x00, 0x80}, {0x01, 0x00, 0x01, 0x00}, {0xff, 0xff, 0x7f, 0x7f}, // 0, -0, not normal, largest
		{0x00, 0x7c, 0x00, 0xfc}, {0x01, 0x7c, 0x00, 0xfe}, {0xff, 0x7b, 0xff, 0xfb}, {0x00, 0x80, 0x01, 0x00}, // the same as halves
	}
	for at := 0; at+4 <= len(b); at += 4 {
		switch rng.IntN(6) {
		case 0:
			copy(b[at:], special[rng.IntN(len(special))])
		case 1: // as the upper half of a float64
			s := special[rng.IntN(8)]
			copy(b[at:], []byte{0, 0, s[2] | s[2]&0x80>>3, s[3]})
			clear(b[max(0, at-4):at])
		}
	}
	return b
}

// check compares every variant with Go's loop, in place too, and with operands swapped.
func check(t *testing.T, rng *rand.Rand, op Op, k reflect.Kind, elem, n, offset int) {
	a, b := operand(rng, elem, n, offset), operand(rng, elem, n, offset*3%64)
	want := bytes.Clone(a)
	tables[0][op][k](want, a, b)
	blank(op, k, want)
	for v := range variants {
		f := tables[v][op][k]
		for name, dst := range map[string]func(a, b []byte) []byte{
			"apart":  func(a, _ []byte) []byte { return aligned(len(a)) },
			"into a": func(a, _ []byte) []byte { return a },
			"into b": func(_, b []byte) []byte { return b },
		} {
			for _, swap := range []bool{false, true} {
				x, y := replica(a), replica(b)
				if swap {
					x, y = y, x
				}
				got := dst(x, y)
				f(got, x, y)
				blank(op, k, got)
				if !bytes.Equal(want, got) {
					i := differs(want, got) / elem * elem
					t.Fatalf("%s: op %d of %v, %d elements at %d, %s, swapped: %v: element %d of\na %x\nb %x\nis %x, want %x", variants[v].name,
						op, k, n, offset, name, swap, i/elem, a[i:i+elem], b[i:i+elem], got[i:i+elem], want[i:i+elem])
				}
			}
		}
	}
}

// replica is a copy at the same place in a line of cache.
func replica(b []byte) []byte {
	offset := place(b)
	c := aligned(len(b) + offset)[offset:]
	copy(c, b)
	return c
}

func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// All variants give the same bits, for short vectors of every length at every alignment.
func TestVariants(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	each(func(op Op, k reflect.Kind, elem int) {
		for n := range 201 {
			align := min(elem, 8)
			check(t, rng, op, k, elem, n, rng.IntN(64/align)*align)
		}
	})
}

// Assembly gets long vectors in pieces.
func TestPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, k := range []reflect.Kind{reflect.Int8, reflect.Float32, reflect.Complex128} {
		elem := sizes[k]
		for _, n := range []int{piece/elem - 1, piece / elem, piece/elem + 1, 2*piece/elem + 5} {
			check(t, rng, Sum, k, elem, n, 16)
		}
	}
}

func FuzzVariants(f *testing.F) {
	type operation struct {
		op   Op
		k    reflect.Kind
		elem int
	}
	var all []operation
	each(func(op Op, k reflect.Kind, elem int) { all = append(all, operation{op, k, elem}) })
	for which := range all {
		f.Add(uint64(which), uint8(which), uint16(300), uint8(5))
	}
	f.Fuzz(func(t *testing.T, seed uint64, which uint8, n uint16, offset uint8) {
		o := all[int(which)%len(all)]
		rng := rand.New(rand.NewPCG(seed, 0))
		check(t, rng, o.op, o.k, o.elem, int(n)%400, int(offset)*min(o.elem, 8)%64)
	})
}

// What is behind dst stays as it is.
func TestEnds(t *testing.T) {
	each(func(op Op, k reflect.Kind, elem int) {
		for v := range variants {
			for n := range 100 {
				dst, a := aligned((n+8)*elem), aligned((n+8)*elem)
				for i := range dst {
					dst[i] = 0xa5
				}
				rest := bytes.Clone(dst[n*elem:])
				tables[v][op][k](dst[:n*elem], a, a)
				require.Equal(t, rest, dst[n*elem:], "%s: op %d of %v, %d elements", variants[v].name, op, k, n)
			}
		}
	})
}

// Operands that are too short are a mistake of the caller, not a read of what lies behind them.
func TestShortOperand(t *testing.T) {
	each(func(op Op, k reflect.Kind, elem int) {
		for v := range variants {
			f := tables[v][op][k]
			long, short := aligned(64*elem), aligned(63 * elem)[:63*elem:63*elem]
			require.Panics(t, func() { f(long, short, long) })
			require.Panics(t, func() { f(long, long, short) })
		}
	})
}

func TestNoSuchOperation(t *testing.T) {
	for _, c := range []struct {
		op Op
		k  reflect.Kind
	}{{Min, reflect.Complex64}, {And, reflect.Float32}, {Sum, reflect.String}, {SumF16, reflect.Int16}, {ops, reflect.Int8}, {Sum, reflect.Int}} {
		require.Nil(t, Of(c.op, c.k), "%v", c)
	}
}

func BenchmarkOps(b *testing.B) {
	for _, bench := range []struct {
		name string
		op   Op
		k    reflect.Kind
	}{
		{"SumFloat32", Sum, reflect.Float32}, {"SumFloat64", Sum, reflect.Float64}, {"SumInt8", Sum, reflect.Int8}, {"SumInt16", Sum, reflect.Int16},
		{"SumInt32", Sum, reflect.Int32}, {"SumInt64", Sum, reflect.Int64}, {"SumBF16", SumBF16, reflect.Uint16}, {"SumF16", SumF16, reflect.Uint16},
		{"ProdFloat32", Prod, reflect.Float32}, {"ProdComplex64", Prod, reflect.Complex64}, {"MinFloat32", Min, reflect.Float32},
		{"MaxFloat64", Max, reflect.Float64}, {"MinInt32", Min, reflect.Int32}, {"MaxInt64", Max, reflect.Int64}, {"Xor", Xor, reflect.Int32},
		{"MinLocFloat64", MinLoc, reflect.Float64},
	} {
		for v := range variants {
			var its table
			variants[v].put(&its)
			f := its[bench.op][bench.k]
			if f == nil {
				continue
			}
			for _, n := range []int{16, 1 << 13, 1 << 16, 1 << 18, 1 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%d", bench.name, variants[v].name, n), func(b *testing.B) {
					x, y := aligned(n), aligned(n)
					b.SetBytes(int64(n))
					for b.Loop() {
						f(x, x, y)
					}
				})
			}
		}
	}
}

// Asking for an operation in every call costs a few ns.
func BenchmarkOf(b *testing.B) {
	type weight float32
	for b.Loop() {
		Of(Sum, reflect.TypeFor[weight]().Kind())
	}
}

func TestOfDoesNotAllocate(t *testing.T) {
	x := make([]byte, 8)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		Of(Sum, reflect.TypeFor[float32]().Kind())(x, x, x)
	}))
}
