package kernel

import "unsafe"

// octets shows the memory of a value.
func octets[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// place is where b begins in a line of cache.
func place(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 64) }

// aligned is memory that begins with a line of cache.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	return b[(64-place(b))%64:][:n:n]
}
