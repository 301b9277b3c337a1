#include "textflag.h"

// func LoadBarrier()
TEXT ·LoadBarrier(SB), NOSPLIT, $0-0
	DMB $9 // ISHLD
	RET
