package benchkit

import (
	"sync/atomic"
	"unsafe"
)

// page is a line of memory that both ranks have mapped, for what is measured beside messages.
type page struct {
	word  *atomic.Uint32
	stamp *atomic.Int64
	close func() error
}

func pageIn(mem []byte, close func() error) *page {
	return &page{word: (*atomic.Uint32)(unsafe.Pointer(&mem[0])), stamp: (*atomic.Int64)(unsafe.Pointer(&mem[8])), close: close}
}

func (p *page) address() uintptr { return uintptr(unsafe.Pointer(p.word)) }

// address of a buffer, which stays where it is as long as it is used.
func address(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }
