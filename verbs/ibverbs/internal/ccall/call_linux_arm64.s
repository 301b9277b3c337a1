#include "go_asm.h"
#include "textflag.h"

// These functions have the C calling convention: the argument is in R0; R19 to R29 are the
// caller's. The stack pointer is always a multiple of 16.

#define LOAD_ARGS(args, base) \
	LDP (args+0)(base), (R0, R1)  \
	LDP (args+16)(base), (R2, R3) \
	LDP (args+32)(base), (R4, R5)

// do(*Call)
TEXT do<>(SB), NOSPLIT|NOFRAME, $0
	STP.W (R19, R30), -16(RSP)
	MOVD  R0, R19
	MOVD  Call_Fn(R19), R9
	LOAD_ARGS(Call_Args, R19)
	BL    (R9)
	MOVD  R0, Call_Ret(R19)
	LDP.P 16(RSP), (R19, R30)
	RET

// errno(*errnoCall)
TEXT errno<>(SB), NOSPLIT|NOFRAME, $0
	STP.W (R19, R30), -32(RSP)
	STP   (R20, R21), 16(RSP)
	MOVD  R0, R20
	MOVD  errnoCall_location(R20), R9
	BL    (R9)
	MOVD  R0, R21
	MOVW  ZR, (R21)
	MOVD  errnoCall_call(R20), R19
	MOVD  Call_Fn(R19), R9
	LOAD_ARGS(Call_Args, R19)
	BL    (R9)
	MOVD  R0, Call_Ret(R19)
	MOVW  (R21), R0
	MOVW  R0, errnoCall_errno(R20)
	LDP   16(RSP), (R20, R21)
	LDP.P 32(RSP), (R19, R30)
	RET

// run(*runCall)
TEXT run<>(SB), NOSPLIT|NOFRAME, $0
	STP.W (R19, R30), -32(RSP)
	STP   (R20, R21), 16(RSP)
	MOVD  R0, R21
	MOVD  runCall_first(R21), R19
	MOVD  runCall_left(R21), R20

step:
	SUB  $1, R20
	MOVD Step_Kind(R19), R10
	MOVD Step_Addr(R19), R9
	CMP  $const_StepLoad, R10
	BEQ  load
	LDP  Step_Args(R19), (R0, R1)
	MOVD (Step_Args+16)(R19), R2
	BL   (R9)
	MOVD R0, Step_Ret(R19)
	MOVD Step_Kind(R19), R10
	CMP  $const_StepCheck, R10
	BNE  next
	CBZW R0, next
	MOVD runCall_first(R21), R10
	CMP  R19, R10
	BEQ  end
	B    last

next:
	ADD  $Step__size, R19
	CBNZ R20, step

last:
	MOVD runCall_last(R21), R19
	CBZ  R19, end
	MOVD Step_Addr(R19), R9
	LDP  Step_Args(R19), (R0, R1)
	MOVD (Step_Args+16)(R19), R2
	BL   (R9)
	MOVD R0, Step_Ret(R19)

end:
	MOVD  R20, runCall_left(R21)
	LDP   16(RSP), (R20, R21)
	LDP.P 32(RSP), (R19, R30)
	RET

load:
	MOVD (R9), R0
	MOVD R0, Step_Ret(R19)
	B    next

DATA ·doEntry(SB)/8, $do<>(SB)
GLOBL ·doEntry(SB), NOPTR|RODATA, $8

DATA ·errnoEntry(SB)/8, $errno<>(SB)
GLOBL ·errnoEntry(SB), NOPTR|RODATA, $8

DATA ·runEntry(SB)/8, $run<>(SB)
GLOBL ·runEntry(SB), NOPTR|RODATA, $8
