package mem

import (
	"runtime"
	"runtime/debug"
)

// granule is the smallest page there is, in bytes.
const granule = 4096

// Readable reports whether b can be read: memory that is registered may have been unmapped or
// protected since, or lie behind the end of its file. It reads a byte of each page, which costs
// less than a system call for the pieces that wires send.
func Readable(b []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case runtime.Error: // of touch
			ok = false
		default:
			panic(fault)
		}
	}()
	touch(b)
	return true
}

// touch reads a byte of each page of b.
//
//go:noinline
func touch(b []byte) (sum byte) {
	for i := 0; i < len(b); i += granule {
		sum |= b[i]
	}
	if len(b) != 0 {
		sum |= b[len(b)-1]
	}
	return sum
}
