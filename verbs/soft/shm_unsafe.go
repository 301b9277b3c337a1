//go:build linux

package soft

import "unsafe"

// regionSlots is the region table that lies in mem, which is mapped, hence aligned.
func regionSlots(mem []byte) []region {
	return unsafe.Slice((*region)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/regionSlotBytes)
}

// wordAddr is where a peer finds a word of ours.
func wordAddr(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// wordBytes are the bytes of a word.
func wordBytes(p *uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), 8) }
