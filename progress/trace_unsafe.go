package progress

import (
	"unsafe"

	"github.com/tagmatch/tagmatch/progress/internal/wait"
)

// name tells op from all others that have not ended: Ops stay where they are.
func (op *Op) name() uint64 { return uint64(uintptr(unsafe.Pointer(op))) }

// nameOf is the name of what a call waits for; 0: it has none.
func nameOf(op wait.Operation) uint64 {
	switch op := op.(type) {
	case *Op:
		return op.name()
	case *call:
		return uint64(uintptr(unsafe.Pointer(op)))
	}
	return 0
}
