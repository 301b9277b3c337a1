package benchkit

import (
	"sync/atomic"
	"unsafe"
)

// page is memory that both ranks have mapped, for what is measured beside messages.
type page struct {
	word  *atomic.Uint32
	stamp *atomic.Int64
	close func() error
}

func pageIn(mem []byte, close func() error) *page {
	const line = 64
	return &page{word: (*atomic.Uint32)(unsafe.Pointer(&mem[0])), stamp: (*atomic.Int64)(unsafe.Pointer(&mem[line])), close: close}
}

func (p *page) address() uintptr { return uintptr(unsafe.Pointer(p.word)) }
