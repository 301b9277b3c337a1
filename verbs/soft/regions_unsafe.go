package soft

import "unsafe"

// The slot's size is part of the shared-memory format.
var _ [pieceBytes]byte = [unsafe.Sizeof(regionPiece{})]byte{}

// addrOf is the address of b's first byte, as peers name it.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
