// Command gen writes the kernels for amd64: one function for each operation, type and set of
// instructions.
//
//	go generate ./coll/internal/kernel
//
// A kernel goes through its vectors in four registers at a time, then in one. The rest is at most
// one piece of each smaller power of two, down to an element, in a part of a register: the same
// instructions combine it, and what they make of the empty part is not stored.
package main

import (
	"flag"
	"log"
	"os"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// unroll is how many registers of each vector one turn of the loop has.
const unroll = 4

// set is a set of instructions.
type set struct {
	name  string
	width int  // of its registers, in bytes
	vex   bool // instructions with three operands; operands in memory need no alignment
}

var (
	sse2   = set{"SSE2", 16, false}
	avx2   = set{"AVX2", 32, true}
	avx512 = set{"AVX512", 64, true}
)

// combiner emits the instructions for x op y in registers of width bytes. They may change x and y.
type combiner func(width int, x, y VecVirtual) VecVirtual

// vector is a register of width bytes, or the smallest that has as many.
func vector(width int) VecVirtual {
	switch width {
	case 64:
		return ZMM()
	case 32:
		return YMM()
	}
	return XMM()
}

// kernel emits a function. prepare emits what comes before all loops, and returns the combiner.
func kernel(s set, name string, element int, prepare func(s set) combiner) {
	TEXT(name+s.name, NOSPLIT, "func(dst, a, b []byte)")
	Pragma("noescape")
	dst, a, b := Load(Param("dst").Base(), GP64()), Load(Param("a").Base(), GP64()), Load(Param("b").Base(), GP64())
	n := Load(Param("dst").Len(), GP64())
	combine := prepare(s)

	for _, registers := range []int{unroll, 1} {
		bytes := registers * s.width
		loop, done := label("loop", bytes), label("done", bytes)
		Label(loop)
		CMPQ(n, U32(bytes))
		JB(LabelRef(done))
		piece(s, combine, dst, a, b, s.width, registers)
		ADDQ(U32(bytes), dst)
		ADDQ(U32(bytes), a)
		ADDQ(U32(bytes), b)
		SUBQ(U32(bytes), n)
		JMP(LabelRef(loop))
		Label(done)
	}
	for width := s.width / 2; width >= element; width /= 2 {
		skip := label("skip", width)
		TESTQ(U32(width), n)
		JZ(LabelRef(skip))
		piece(s, combine, dst, a, b, width, 1)
		if width > element {
			ADDQ(U32(width), dst)
			ADDQ(U32(width), a)
			ADDQ(U32(width), b)
		}
		Label(skip)
	}
	if s.vex {
		VZEROUPPER()
	}
	RET()
}

// piece emits the combination of some registers' worth of both vectors.
func piece(s set, combine combiner, dst, a, b Register, width, registers int) {
	results := make([]VecVirtual, registers)
	for i := range results {
		x, y := vector(width), vector(width)
		move(s, width, Mem{Base: a, Disp: i * width}, x)
		move(s, width, Mem{Base: b, Disp: i * width}, y)
		results[i] = combine(width, x, y)
	}
	for i, r := range results {
		move(s, width, r, Mem{Base: dst, Disp: i * width})
	}
}

func main() {
	// What avo takes as flags would all be named in the first line of what it writes.
	if len(os.Args) == 1 {
		for name, value := range map[string]string{
			"out": "../kernels_amd64.s", "stubs": "../kernels_amd64.go", "pkg": "kernel",
		} {
			if err := flag.Set(name, value); err != nil {
				log.Fatal(err)
			}
		}
	}
	ConstraintExpr("amd64")
	for _, s := range []set{sse2, avx2, avx512} {
		for _, k := range []struct {
			name    string
			element int
			prepare func(set) combiner
		}{
			{"sumInt8", 1, integers{PADDB, VPADDB}.addition},
			{"sumInt16", 2, integers{PADDW, VPADDW}.addition},
			{"sumInt32", 4, integers{PADDD, VPADDD}.addition},
			{"sumInt64", 8, integers{PADDQ, VPADDQ}.addition},
			{"sumFloat32", 4, float32s.addition},
			{"sumFloat64", 8, float64s.addition},
			{"minFloat32", 4, float32s.minimum},
			{"minFloat64", 8, float64s.minimum},
			{"maxFloat32", 4, float32s.maximum},
			{"maxFloat64", 8, float64s.maximum},
		} {
			kernel(s, k.name, k.element, k.prepare)
		}
		if s.vex {
			kernel(s, "sumBF16", 2, bfloat16)
			kernel(set{s.name, s.width / 2, true}, "sumF16", 2, float16)
		}
	}
	Generate()
}
