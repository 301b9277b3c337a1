package rc

import "unsafe"

// cellBytes is the memory of the cells, for registration.
func cellBytes(c []uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), 8*len(c)) }
