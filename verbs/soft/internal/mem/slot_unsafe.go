package mem

import "unsafe"

// The slot's size is part of the shared-memory format.
var _ [PieceBytes]byte = [unsafe.Sizeof(Piece{})]byte{}

// AddrOf returns the address of b's first byte, as verbs name it (SendWR.RemoteAddr).
func AddrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
