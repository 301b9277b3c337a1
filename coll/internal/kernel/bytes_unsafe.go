package kernel

import "unsafe"

// of makes a Func of a loop over elements.
func of[T any](loop func(dst, a, b []T)) Func {
	return func(dst, a, b []byte) { loop(elements[T](dst), elements[T](a), elements[T](b)) }
}

// elements shows b as the whole elements in it.
func elements[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
