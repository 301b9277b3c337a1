//go:build linux

package shm

import (
	"unsafe"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// pieceIn is piece k of the region table that lies in b, which is mapped, hence aligned.
func pieceIn(b []byte, k int) *mem.Piece {
	return (*mem.Piece)(unsafe.Pointer(unsafe.SliceData(b[k*mem.PieceBytes:][:mem.PieceBytes])))
}

// wordAddr is where a peer finds a word of ours.
func wordAddr(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// wordBytes are the bytes of a word.
func wordBytes(p *uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), 8) }
