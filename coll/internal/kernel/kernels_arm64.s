#include "textflag.h"

// Each kernel goes through its vectors in four registers at a time, then in one, then in parts of a
// register: the same instructions combine them, and what they make of the rest is not stored.

// Go's assembler has not all of the instructions here. d, n and m are registers' numbers, of the
// result and of the operands from left to right.
#define OP2(code, d, n) WORD $(code | n<<5 | d)
#define OP3(code, d, n, m) WORD $(code | m<<16 | n<<5 | d)

#define ADD_B(d, n, m) OP3(0x4e208400, d, n, m)
#define ADD_H(d, n, m) OP3(0x4e608400, d, n, m)
#define ADD_S(d, n, m) OP3(0x4ea08400, d, n, m)
#define ADD_D(d, n, m) OP3(0x4ee08400, d, n, m)
#define AND(d, n, m) OP3(0x4e201c00, d, n, m)
#define FADD_S(d, n, m) OP3(0x4e20d400, d, n, m)
#define FADD_D(d, n, m) OP3(0x4e60d400, d, n, m)
#define FMIN_S(d, n, m) OP3(0x4ea0f400, d, n, m)
#define FMIN_D(d, n, m) OP3(0x4ee0f400, d, n, m)
#define FMAX_S(d, n, m) OP3(0x4e20f400, d, n, m)
#define FMAX_D(d, n, m) OP3(0x4e60f400, d, n, m)
#define FCMEQ_S(d, n, m) OP3(0x4e20e400, d, n, m)
#define FCMEQ_D(d, n, m) OP3(0x4e60e400, d, n, m)
#define BIF(d, n, m) OP3(0x6ee01c00, d, n, m)
// The lower half of a register to float32, the upper one, and back.
#define FCVTL(d, n) OP2(0x0e217800, d, n)
#define FCVTL2(d, n) OP2(0x4e217800, d, n)
#define FCVTN(d, n) OP2(0x0e216800, d, n)
#define FCVTN2(d, n) OP2(0x4e216800, d, n)
// By 16 bits, from or to halves.
#define SHLL(d, n) OP2(0x2e613800, d, n)
#define SHLL2(d, n) OP2(0x6e613800, d, n)
#define SHRN(d, n) OP2(0x0f108400, d, n)
#define SHRN2(d, n) OP2(0x4f108400, d, n)
#define USHR_S(d, n) OP2(0x6f300400, d, n)

// V31 has the NaN that takes the place of every other.
#define NAN_S MOVD $0x7fc00000, R4; VDUP R4, V31.S4
#define NAN_D MOVD $0x7ff8000000000001, R4; VDUP R4, V31.D2
#define CANONICAL_S(x, mask) FCMEQ_S(mask, x, x); BIF(x, 31, mask)
#define CANONICAL_D(x, mask) FCMEQ_D(mask, x, x); BIF(x, 31, mask)

// What combines registers x and y into x.
#define SUM_B(x, y) ADD_B(x, x, y)
#define SUM_H(x, y) ADD_H(x, x, y)
#define SUM_S(x, y) ADD_S(x, x, y)
#define SUM_D(x, y) ADD_D(x, x, y)
#define FSUM_S(x, y) FADD_S(x, x, y); CANONICAL_S(x, y)
#define FSUM_D(x, y) FADD_D(x, x, y); CANONICAL_D(x, y)
#define LESS_S(x, y) FMIN_S(x, x, y); CANONICAL_S(x, y)
#define LESS_D(x, y) FMIN_D(x, x, y); CANONICAL_D(x, y)
#define MORE_S(x, y) FMAX_S(x, x, y); CANONICAL_S(x, y)
#define MORE_D(x, y) FMAX_D(x, x, y); CANONICAL_D(x, y)

#define SUM_F16(x, y) \
	FCVTL(16, x); FCVTL2(17, x); FCVTL(18, y); FCVTL2(19, y); \
	FADD_S(16, 16, 18); FADD_S(17, 17, 19); \
	CANONICAL_S(16, 18); CANONICAL_S(17, 19); \
	FCVTN(x, 16); FCVTN2(x, 17)

// V30 has 0x7fff, V29 has 1: what is cut off carries into what is left, as toBF16 says.
#define ROUND(r, carry) \
	CANONICAL_S(r, carry); \
	USHR_S(carry, r); AND(carry, carry, 29); \
	ADD_S(r, r, carry); ADD_S(r, r, 30)
#define SUM_BF16(x, y) \
	SHLL(16, x); SHLL2(17, x); SHLL(18, y); SHLL2(19, y); \
	FADD_S(16, 16, 18); FADD_S(17, 17, 19); \
	ROUND(16, 18); ROUND(17, 19); \
	SHRN(x, 16); SHRN2(x, 17)

#define BEGIN \
	MOVD dst_base+0(FP), R0; MOVD a_base+24(FP), R1; MOVD b_base+48(FP), R2; \
	MOVD dst_len+8(FP), R3

#define REGISTERS(combine) \
four: \
	CMP $64, R3; BLO one; \
	VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]; \
	VLD1.P 64(R2), [V4.B16, V5.B16, V6.B16, V7.B16]; \
	combine(0, 4); combine(1, 5); combine(2, 6); combine(3, 7); \
	VST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0); \
	SUB $64, R3; B four; \
one: \
	CMP $16, R3; BLO eight; \
	VLD1.P 16(R1), [V0.B16]; VLD1.P 16(R2), [V4.B16]; \
	combine(0, 4); \
	VST1.P [V0.B16], 16(R0); \
	SUB $16, R3; B one; \
eight: \
	TBZ $3, R3, behind8; \
	FMOVD.P 8(R1), F0; FMOVD.P 8(R2), F4; \
	combine(0, 4); \
	FMOVD.P F0, 8(R0); \
behind8:

#define FOUR(combine) \
	TBZ $2, R3, behind4; \
	FMOVS.P 4(R1), F0; FMOVS.P 4(R2), F4; \
	combine(0, 4); \
	FMOVS.P F0, 4(R0); \
behind4:

#define TWO(combine) \
	TBZ $1, R3, behind2; \
	MOVHU.P 2(R1), R4; MOVHU.P 2(R2), R5; FMOVS R4, F0; FMOVS R5, F4; \
	combine(0, 4); \
	FMOVS F0, R4; MOVH.P R4, 2(R0); \
behind2:

#define ONE(combine) \
	TBZ $0, R3, behind1; \
	MOVBU (R1), R4; MOVBU (R2), R5; FMOVS R4, F0; FMOVS R5, F4; \
	combine(0, 4); \
	FMOVS F0, R4; MOVB R4, (R0); \
behind1:

// func sumInt8NEON(dst, a, b []byte)
TEXT ·sumInt8NEON(SB), NOSPLIT, $0-72
	BEGIN
	REGISTERS(SUM_B)
	FOUR(SUM_B)
	TWO(SUM_B)
	ONE(SUM_B)
	RET

// func sumInt16NEON(dst, a, b []byte)
TEXT ·sumInt16NEON(SB), NOSPLIT, $0-72
	BEGIN
	REGISTERS(SUM_H)
	FOUR(SUM_H)
	TWO(SUM_H)
	RET

// func sumInt32NEON(dst, a, b []byte)
TEXT ·sumInt32NEON(SB), NOSPLIT, $0-72
	BEGIN
	REGISTERS(SUM_S)
	FOUR(SUM_S)
	RET

// func sumInt64NEON(dst, a, b []byte)
TEXT ·sumInt64NEON(SB), NOSPLIT, $0-72
	BEGIN
	REGISTERS(SUM_D)
	RET

// func sumFloat32NEON(dst, a, b []byte)
TEXT ·sumFloat32NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_S
	REGISTERS(FSUM_S)
	FOUR(FSUM_S)
	RET

// func sumFloat64NEON(dst, a, b []byte)
TEXT ·sumFloat64NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_D
	REGISTERS(FSUM_D)
	RET

// func minFloat32NEON(dst, a, b []byte)
TEXT ·minFloat32NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_S
	REGISTERS(LESS_S)
	FOUR(LESS_S)
	RET

// func minFloat64NEON(dst, a, b []byte)
TEXT ·minFloat64NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_D
	REGISTERS(LESS_D)
	RET

// func maxFloat32NEON(dst, a, b []byte)
TEXT ·maxFloat32NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_S
	REGISTERS(MORE_S)
	FOUR(MORE_S)
	RET

// func maxFloat64NEON(dst, a, b []byte)
TEXT ·maxFloat64NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_D
	REGISTERS(MORE_D)
	RET

// func sumBF16NEON(dst, a, b []byte)
TEXT ·sumBF16NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_S
	MOVD $0x7fff, R4
	VDUP R4, V30.S4
	MOVD $1, R4
	VDUP R4, V29.S4
	REGISTERS(SUM_BF16)
	FOUR(SUM_BF16)
	TWO(SUM_BF16)
	RET

// func sumF16NEON(dst, a, b []byte)
TEXT ·sumF16NEON(SB), NOSPLIT, $0-72
	BEGIN
	NAN_S
	REGISTERS(SUM_F16)
	FOUR(SUM_F16)
	TWO(SUM_F16)
	RET
