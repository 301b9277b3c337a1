#include "go_asm.h"
#include "textflag.h"

// These functions have the C calling convention: the argument is in DI; BX, BP and R12 to R15 are
// the caller's. The stack pointer is a multiple of 16 before each CALL. AL is the number of vector
// registers that a function with variable arguments has to save.

#define LOAD_ARGS(args, base) \
	MOVQ (args+0)(base), DI  \
	MOVQ (args+8)(base), SI  \
	MOVQ (args+16)(base), DX \
	MOVQ (args+24)(base), CX \
	MOVQ (args+32)(base), R8 \
	MOVQ (args+40)(base), R9 \
	XORL AX, AX

#define LOAD_STEP(base) \
	MOVQ (Step_Args+0)(base), DI  \
	MOVQ (Step_Args+8)(base), SI  \
	MOVQ (Step_Args+16)(base), DX \
	XORL AX, AX

// do(*Call)
TEXT do<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	MOVQ  DI, BX
	MOVQ  Call_Fn(BX), R11
	LOAD_ARGS(Call_Args, BX)
	CALL  R11
	MOVQ  AX, Call_Ret(BX)
	POPQ  BX
	RET

// errno(*errnoCall)
TEXT errno<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	PUSHQ R12
	PUSHQ R13
	MOVQ  DI, R12
	MOVQ  errnoCall_location(R12), R11
	CALL  R11
	MOVQ  AX, R13
	MOVL  $0, (R13)
	MOVQ  errnoCall_call(R12), BX
	MOVQ  Call_Fn(BX), R11
	LOAD_ARGS(Call_Args, BX)
	CALL  R11
	MOVQ  AX, Call_Ret(BX)
	MOVL  (R13), AX
	MOVL  AX, errnoCall_errno(R12)
	POPQ  R13
	POPQ  R12
	POPQ  BX
	RET

// run(*runCall)
TEXT run<>(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	PUSHQ R12
	PUSHQ R13
	MOVQ  DI, R13
	MOVQ  runCall_first(R13), BX
	MOVQ  runCall_left(R13), R12

step:
	DECQ R12
	MOVQ Step_Addr(BX), R11
	CMPQ Step_Kind(BX), $const_StepLoad
	JEQ  load
	LOAD_STEP(BX)
	CALL R11
	MOVQ AX, Step_Ret(BX)
	CMPQ Step_Kind(BX), $const_StepCheck
	JNE  next
	TESTL AX, AX
	JEQ  next
	CMPQ BX, runCall_first(R13)
	JEQ  end
	JMP  last

next:
	ADDQ  $Step__size, BX
	TESTQ R12, R12
	JNE   step

last:
	MOVQ  runCall_last(R13), BX
	TESTQ BX, BX
	JEQ   end
	MOVQ  Step_Addr(BX), R11
	LOAD_STEP(BX)
	CALL  R11
	MOVQ  AX, Step_Ret(BX)

end:
	MOVQ R12, runCall_left(R13)
	POPQ R13
	POPQ R12
	POPQ BX
	RET

load:
	MOVQ (R11), AX
	MOVQ AX, Step_Ret(BX)
	JMP  next

DATA ·doEntry(SB)/8, $do<>(SB)
GLOBL ·doEntry(SB), NOPTR|RODATA, $8

DATA ·errnoEntry(SB)/8, $errno<>(SB)
GLOBL ·errnoEntry(SB), NOPTR|RODATA, $8

DATA ·runEntry(SB)/8, $run<>(SB)
GLOBL ·runEntry(SB), NOPTR|RODATA, $8
