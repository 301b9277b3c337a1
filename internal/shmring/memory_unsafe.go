package shmring

import "unsafe"

var (
	_ [controlBytes]byte = [unsafe.Sizeof(control{})]byte{}
	_ [192]byte          = [unsafe.Offsetof(control{}.want)]byte{}
	_ [inboxBytes]byte   = [unsafe.Sizeof(inbox{})]byte{}
)

// lines is the packet part of a ring. Its methods check nothing: callers mask line numbers and
// check lengths.
type lines struct{ base unsafe.Pointer }

func linesOf(mem []byte) lines {
	return lines{unsafe.Pointer(unsafe.SliceData(mem[dataPart:]))}
}

func controlOf(mem []byte) *control {
	return (*control)(unsafe.Pointer(unsafe.SliceData(mem)))
}

func inboxOf(mem []byte) *inbox {
	return (*inbox)(unsafe.Pointer(unsafe.SliceData(mem)))
}

func aligned(mem []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%LineBytes == 0
}

// word is the first word of a line.
func (l lines) word(line uint64) *uint64 {
	return (*uint64)(unsafe.Add(l.base, line*LineBytes))
}

// id is the second word of a line.
func (l lines) id(line uint64) *uint64 {
	return (*uint64)(unsafe.Add(l.base, line*LineBytes+8))
}

// ext is the place of an extension in a packet's first line.
func (l lines) ext(line uint64) *Ext {
	return (*Ext)(unsafe.Add(l.base, line*LineBytes+shortHeader))
}

// bytes returns n bytes from offset off of a line on.
func (l lines) bytes(line, off, n uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(l.base, line*LineBytes+off)), n)
}

// put copies src, at most shortRoom bytes, to offset off of a line: in words, the last one
// overlapping, which is faster than memmove for sizes that vary.
func (l lines) put(line, off uint64, src []byte) {
	n := uintptr(len(src))
	dst, from := unsafe.Add(l.base, line*LineBytes+off), unsafe.Pointer(unsafe.SliceData(src))
	switch {
	case n >= 8:
		for i := uintptr(0); i < n-8; i += 8 {
			*(*uint64)(unsafe.Add(dst, i)) = *(*uint64)(unsafe.Add(from, i))
		}
		*(*uint64)(unsafe.Add(dst, n-8)) = *(*uint64)(unsafe.Add(from, n-8))
	case n >= 4:
		a, b := *(*uint32)(from), *(*uint32)(unsafe.Add(from, n-4))
		*(*uint32)(dst), *(*uint32)(unsafe.Add(dst, n-4)) = a, b
	case n > 0:
		for i := uintptr(0); i < n; i++ {
			*(*byte)(unsafe.Add(dst, i)) = *(*byte)(unsafe.Add(from, i))
		}
	}
}
