package abi

import "unsafe"

// Op returns the operation at an offset of VerbsContext: 0 if the provider lacks it, or the library
// is older than it.
func (c *Context) Op(offset uintptr) uintptr {
	if c.ABICompat != ABIExtended {
		return 0
	}
	x := (*VerbsContext)(unsafe.Add(unsafe.Pointer(c), -int(unsafe.Sizeof(VerbsContext{}))))
	if x.Sz < unsafe.Sizeof(*x)-offset+unsafe.Sizeof(*c) {
		return 0
	}
	return *(*uintptr)(unsafe.Add(unsafe.Pointer(x), offset))
}
