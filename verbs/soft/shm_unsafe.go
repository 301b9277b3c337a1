//go:build linux

package soft

import "unsafe"

// pieceIn is piece k of the region table that lies in mem, which is mapped, hence aligned.
func pieceIn(mem []byte, k int) *regionPiece {
	return (*regionPiece)(unsafe.Pointer(unsafe.SliceData(mem[k*pieceBytes:][:pieceBytes])))
}

// wordAddr is where a peer finds a word of ours.
func wordAddr(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// wordBytes are the bytes of a word.
func wordBytes(p *uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), 8) }
