package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// unordered is a predicate of comparisons: at least one operand is a NaN.
const unordered = 3

// integers are the instructions for one size of integers.
type integers struct {
	sum  func(from, to Op)
	vsum func(...Op)
}

func (t integers) addition(s set) combiner {
	return func(_ int, x, y VecVirtual) VecVirtual {
		if s.vex {
			t.vsum(y, x, x)
		} else {
			t.sum(y, x)
		}
		return x
	}
}

// floats are the instructions for one size of floating-point numbers.
type floats struct {
	nan                       func() Mem
	sum, min, max             func(from, to Op)
	vsum, vmin, vmax          func(...Op)
	compare                   func(from, to, predicate Op)
	vcompare, vblend, vselect func(...Op)
}

var float32s = floats{
	nan: func() Mem { return constant32("nan32", 0x7fc00000) },
	sum: ADDPS, min: MINPS, max: MAXPS, vsum: VADDPS, vmin: VMINPS, vmax: VMAXPS,
	compare:  func(from, to, predicate Op) { CMPPS(from, to, predicate) },
	vcompare: VCMPPS, vblend: func(o ...Op) { VBLENDVPS(o[0], o[1], o[2], o[3]) }, vselect: VBLENDMPS,
}

var float64s = floats{
	nan: func() Mem { return constant64("nan64", 0x7ff8000000000001) },
	sum: ADDPD, min: MINPD, max: MAXPD, vsum: VADDPD, vmin: VMINPD, vmax: VMAXPD,
	compare:  func(from, to, predicate Op) { CMPPD(from, to, predicate) },
	vcompare: VCMPPD, vblend: func(o ...Op) { VBLENDVPD(o[0], o[1], o[2], o[3]) }, vselect: VBLENDMPD,
}

func (t floats) addition(s set) combiner {
	nan := held(s, t.nan())
	return func(width int, x, y VecVirtual) VecVirtual {
		if s.vex {
			t.vsum(y, x, x)
		} else {
			t.sum(y, x)
		}
		return t.canonical(s, width, x, x, x, nan)
	}
}

// minimum: the instruction takes its second source where it finds none smaller, which may be 0
// beside -0. Both orders together have the sign.
func (t floats) minimum(s set) combiner {
	nan := held(s, t.nan())
	return func(width int, x, y VecVirtual) VecVirtual {
		u, v := vector(width), vector(width)
		if s.vex {
			t.vmin(y, x, u)
			t.vmin(x, y, v)
			VORPS(v, u, u)
		} else {
			MOVAPS(x, u)
			t.min(y, u)
			MOVAPS(y, v)
			t.min(x, v)
			ORPS(v, u)
		}
		return t.canonical(s, width, u, x, y, nan)
	}
}

func (t floats) maximum(s set) combiner {
	nan := held(s, t.nan())
	return func(width int, x, y VecVirtual) VecVirtual {
		u, v := vector(width), vector(width)
		if s.vex {
			t.vmax(y, x, u)
			t.vmax(x, y, v)
			VANDPS(v, u, u)
		} else {
			MOVAPS(x, u)
			t.max(y, u)
			MOVAPS(y, v)
			t.max(x, v)
			ANDPS(v, u)
		}
		return t.canonical(s, width, u, x, y, nan)
	}
}

// canonical emits what makes r a certain NaN wherever x or y is any NaN.
func (t floats) canonical(s set, width int, r, x, y, nan VecVirtual) VecVirtual {
	switch {
	case width == 64:
		k := K()
		t.vcompare(Imm(unordered), y, x, k)
		t.vselect(nan, r, k, r)
	case s.vex:
		mask := vector(width)
		t.vcompare(Imm(unordered), y, x, mask)
		t.vblend(mask, lower(nan, width), r, r)
	default:
		mask, part := vector(width), vector(width)
		MOVAPS(x, mask)
		t.compare(y, mask, Imm(unordered))
		MOVAPS(mask, part)
		ANDPS(nan, part)
		ANDNPS(r, mask)
		ORPS(part, mask)
		return mask
	}
	return r
}
