package coll

import (
	"reflect"
	"sync"
	"unsafe"
)

// bytesOf shows x as bytes: the same memory.
func bytesOf[T any](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), len(x)*int(unsafe.Sizeof(x[0])))
}

// elementsOf is the inverse. b is aligned for T.
func elementsOf[T any](b []byte) []T {
	var zero T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(zero)))
}

// elementSize is the bytes of a T, or an error where it has pointers.
func elementSize[T any]() (int, error) {
	var zero T
	t := reflect.TypeFor[T]()
	if k := t.Kind(); k >= reflect.Bool && k <= reflect.Complex128 && k != reflect.Uintptr {
		return int(unsafe.Sizeof(zero)), nil
	}
	if err, known := fixed.Load(t); known {
		if err != nil {
			return 0, err.(error)
		}
		return int(unsafe.Sizeof(zero)), nil
	}
	var err error
	switch {
	case pointers(t):
		err = invalidf("elements of type %v have pointers, which mean nothing on other ranks", t)
	case unsafe.Sizeof(zero) == 0:
		err = invalidf("elements of type %v have no bytes", t)
	}
	if err != nil {
		fixed.Store(t, err)
		return 0, err
	}
	fixed.Store(t, nil)
	return int(unsafe.Sizeof(zero)), nil
}

// fixed is what was found out about types: nil, or an error.
var fixed sync.Map

// pointers reports whether values of t hold what only their process can follow.
func pointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return pointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if pointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Uintptr:
		return true
	}
	return t.Kind() < reflect.Bool || t.Kind() > reflect.Complex128
}
