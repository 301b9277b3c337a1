package tracefile

import (
	"unsafe"

	"github.com/tagmatch/tagmatch/internal/trace"
)

// ringIn is the Ring in a file, which begins where b does. Records have no pointers.
func ringIn(b []byte) trace.Ring {
	return trace.Ring{
		Records: unsafe.Slice((*trace.Record)(unsafe.Pointer(&b[ringAt])), (len(b)-ringAt)/trace.Size),
		Count:   (*uint64)(unsafe.Pointer(&b[countAt])),
	}
}

// sound reports whether these bytes are a record: a value of each type, of a known kind or unused.
func sound(b []byte) bool {
	var r trace.Record
	for _, at := range []uintptr{unsafe.Offsetof(r.Failed), unsafe.Offsetof(r.Call), unsafe.Offsetof(r.Device)} {
		if b[at] > 1 {
			return false
		}
	}
	return b[unsafe.Offsetof(r.Kind)] < byte(trace.Kinds)
}
