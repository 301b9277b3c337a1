package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// nearest is a mode of rounding, for ties to even.
const nearest = 0

// bfloat16: a register of halves is two of float32, of those in odd places, which lie where they
// belong, and of those in even places.
func bfloat16(s set) combiner {
	nan, upper := held(s, float32s.nan()), held(s, constant32("upper", 0xffff0000))
	most, one := held(s, constant32("most", 0x7fff)), held(s, constant32("one", 1))
	return func(width int, x, y VecVirtual) VecVirtual {
		upper, most, one := lower(upper, width), lower(most, width), lower(one, width)
		odd, even, other, carry := vector(width), vector(width), vector(width), vector(width)
		and(width, upper, x, odd)
		VPSLLD(Imm(16), x, even)
		and(width, upper, y, other)
		VPSLLD(Imm(16), y, y)
		VADDPS(other, odd, odd)
		VADDPS(y, even, even)
		for _, r := range []VecVirtual{odd, even} { // round: the lower half carries into the upper one
			float32s.canonical(s, width, r, r, r, nan)
			VPSRLD(Imm(16), r, carry)
			and(width, one, carry, carry)
			VPADDD(carry, r, r)
			VPADDD(most, r, r)
		}
		and(width, upper, odd, odd)
		VPSRLD(Imm(16), even, even)
		or(width, even, odd, odd)
		return odd
	}
}

func and(width int, x, y, to Op) {
	if width == 64 {
		VPANDD(x, y, to)
	} else {
		VPAND(x, y, to)
	}
}

func or(width int, x, y, to Op) {
	if width == 64 {
		VPORD(x, y, to)
	} else {
		VPOR(x, y, to)
	}
}

// float16: a register of halves is one of float32, twice as wide.
func float16(s set) combiner {
	nan := held(set{s.name, 2 * s.width, true}, float32s.nan())
	return func(width int, x, y VecVirtual) VecVirtual {
		wide := max(2*width, 32)
		u, v := vector(wide), vector(wide)
		VCVTPH2PS(x, u)
		VCVTPH2PS(y, v)
		VADDPS(v, u, u)
		float32s.canonical(s, wide, u, u, u, nan)
		VCVTPS2PH(Imm(nearest), u, x)
		return x
	}
}
