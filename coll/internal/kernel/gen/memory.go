package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func label(name string, n int) string { return fmt.Sprint(name, n) }

// move emits a move of width bytes between memory and a register. What is behind them in the
// register is cleared.
func move(s set, width int, from, to Op) {
	switch {
	case width <= 2:
		moveFew(s, width, from, to)
	case s.vex && width == 4:
		VMOVD(from, to)
	case s.vex && width == 8:
		VMOVQ(from, to)
	case s.vex:
		VMOVUPS(from, to)
	case width == 4:
		MOVSS(from, to) // what Go's assembler calls MOVD moves 8 bytes
	case width == 8:
		MOVQ(from, to)
	default:
		MOVUPS(from, to)
	}
}

// moveFew emits a move of one or two bytes, which goes through a general register.
func moveFew(s set, width int, from, to Op) {
	r := GP32()
	across := MOVD
	if s.vex {
		across = VMOVD
	}
	if _, store := to.(Mem); store {
		across(from, r)
		if width == 1 {
			MOVB(r.As8(), to)
		} else {
			MOVW(r.As16(), to)
		}
		return
	}
	if width == 1 {
		MOVBLZX(from, r)
	} else {
		MOVWLZX(from, r)
	}
	across(r, to)
}

// constants are those that have been emitted.
var constants = map[string]Mem{}

// constant32 is memory with a value 16 times: as many as a register takes.
func constant32(name string, v uint32) Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(v))
	}
	constants[name] = m
	return m
}

func constant64(name string, v uint64) Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 8 {
		DATA(8*i, U64(v))
	}
	constants[name] = m
	return m
}

// held is a constant in the widest register.
func held(s set, m Mem) VecVirtual {
	r := vector(s.width)
	move(s, s.width, m, r)
	return r
}

// lower is the part of a register that has width bytes.
func lower(r VecVirtual, width int) Register {
	switch width {
	case 64:
		return r.AsZ()
	case 32:
		return r.AsY()
	}
	return r.AsX()
}
