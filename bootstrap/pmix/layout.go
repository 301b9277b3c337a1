//go:build linux && (amd64 || arm64)

package pmix

import (
	"fmt"
	"unsafe"
)

// Lengths of pmix_common.h.
const (
	maxNamespace = 255
	maxKeyLen    = 511
)

// Ranks, scopes and types of values.
const (
	rankWildcard = 0xfffffffe
	scopeGlobal  = 3

	typeBool       = 1
	typeInt        = 6
	typeUint16     = 13
	typeUint32     = 14
	typeByteObject = 27
)

// proc is pmix_proc_t.
type proc struct {
	nspace [maxNamespace + 1]byte
	rank   uint32
}

// value is pmix_value_t: a type and a union of 24 bytes, here as words.
type value struct {
	kind uint16
	data [3]uint64
}

// info is pmix_info_t.
type info struct {
	key   [maxKeyLen + 1]byte
	flags uint32
	value value
}

// bytesValue is a byte object of b, which must be pinned while the library reads it.
func bytesValue(b []byte) value {
	return value{typeByteObject, [3]uint64{uint64(uintptr(unsafe.Pointer(&b[0]))), uint64(len(b))}}
}

// attribute is an info of a small number.
func attribute(key string, kind uint16, n uint64) info {
	i := info{value: value{kind, [3]uint64{n}}}
	copy(i.key[:maxKeyLen], key)
	return i
}

// number reads an unsigned number of 16 or 32 bits.
func (v *value) number() (int, error) {
	switch v.kind {
	case typeUint16:
		return int(*(*uint16)(unsafe.Pointer(&v.data))), nil
	case typeUint32:
		return int(*(*uint32)(unsafe.Pointer(&v.data))), nil
	}
	return 0, fmt.Errorf("a value of type %d where a number was due", v.kind)
}

// bytes copies a byte object, of at most most bytes.
func (v *value) bytes(most int) ([]byte, error) {
	n := v.data[1]
	if v.kind != typeByteObject || n == 0 || n > uint64(most) {
		return nil, fmt.Errorf("a value of type %d and %d bytes, which rank 0 has not put there", v.kind, n)
	}
	b := make([]byte, n)
	copy(b, unsafe.Slice(*(**byte)(unsafe.Pointer(&v.data)), n))
	return b, nil
}
