package links

import "unsafe"

// cellBytes returns the memory of c as bytes, for registration.
func cellBytes(c []uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&c[0])), 8*len(c)) }
