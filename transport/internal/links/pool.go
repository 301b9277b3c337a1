package links

import (
	"fmt"

	"github.com/tagmatch/tagmatch/verbs"
)

// Pool is registered bounce buffers of one size, for data that the device cannot take from, or
// receive into, the caller's memory. They are one allocation, whose pages are touched only when
// used. A buffer belongs to the caller of Get until Put, which must not be called before the device
// is done with it.
type Pool struct {
	mr   verbs.MR // of slab; nil: not open
	slab []byte   // the buffers, by slot
	size int      // of a buffer, bytes
	free []uint32 // free slots, the last is the next to be used
}

// Open allocates n buffers of size bytes and registers them with access.
func (b *Pool) Open(pd verbs.PD, n, size int, access verbs.AccessFlags) error {
	b.size, b.slab = size, make([]byte, n*size)
	mr, err := pd.RegMR(b.slab, access)
	if err != nil {
		return fmt.Errorf("bounce buffers, %d of %d bytes: %w", n, size, err)
	}
	b.mr = mr
	for i := range n {
		b.Put(uint32(n - 1 - i))
	}
	return nil
}

// LKey is the local key of all the buffers.
func (b *Pool) LKey() uint32 { return b.mr.LKey() }

// Get returns a free buffer and its slot, if there is one.
func (b *Pool) Get() (slot uint32, buf []byte, ok bool) {
	if len(b.free) == 0 {
		return 0, nil, false
	}
	slot = b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	buf = b.at(slot)
	checkFree(buf)
	return slot, buf, true
}

// at returns the buffer in a slot.
func (b *Pool) at(slot uint32) []byte {
	off := int(slot) * b.size
	return b.slab[off : off+b.size : off+b.size]
}

// Put frees the buffer in a slot.
func (b *Pool) Put(slot uint32) {
	b.checkPut(slot)
	b.free = append(b.free, slot)
}

// Region is the memory region of the buffers, nil if the pool is not open.
func (b *Pool) Region() verbs.MR { return b.mr }

// Close deregisters the buffers, if the pool is open. The device must be done with all of them.
func (b *Pool) Close() error {
	if b.mr == nil {
		return nil
	}
	return b.mr.Dereg()
}
