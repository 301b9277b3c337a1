//go:build linux

package shm

import (
	"unsafe"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// pieceIn returns piece k of the region table in b, which is mapped and therefore aligned.
func pieceIn(b []byte, k int) *mem.Piece {
	return (*mem.Piece)(unsafe.Pointer(unsafe.SliceData(b[k*mem.PieceBytes:][:mem.PieceBytes])))
}

func wordAddr(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

func wordBytes(p *uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), 8) }
