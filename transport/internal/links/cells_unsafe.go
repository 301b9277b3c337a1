package links

import "unsafe"

// cellBytes returns the memory of a credit cell as bytes, for registration.
func cellBytes(c *uint64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(c)), 8) }
