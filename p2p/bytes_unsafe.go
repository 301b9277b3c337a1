package p2p

import "unsafe"

// Number lists what Bytes takes: types of a fixed size, without pointers. int and uint are left
// out, as their size differs between hosts.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64 | ~complex64 | ~complex128
}

// Bytes shows s as bytes, in this host's byte order, without a copy: the same memory, as long as s
// lives. One function serves every call of this package, instead of a typed twin for each:
//
//	c.Send(ctx, dst, tag, p2p.Bytes(gradients))
//
// Ranks of one job must have the same byte order. An empty s gives nil.
func Bytes[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// Elements is the inverse of Bytes: it shows b as elements of a type, as many as fit, without a
// copy. It is nil where b is not aligned for the type; a Region of World.Alloc always is.
func Elements[T Number](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 || uintptr(unsafe.Pointer(&b[0]))%unsafe.Alignof(zero) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}
