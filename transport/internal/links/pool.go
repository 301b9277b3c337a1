package links

import "github.com/tagmatch/tagmatch/verbs"

// Pool is registered bounce buffers of one size, for data that the device cannot take from, or
// receive into, the caller's memory. A buffer belongs to the caller of Get until Put, which must
// not be called before the device is done with it.
type Pool struct {
	slab
	free []uint32 // free slots, the last is the next to be used
	inv  poolCheck
}

// Open allocates n buffers of size bytes and registers them with access.
func (b *Pool) Open(pd verbs.PD, n, size int, access verbs.AccessFlags) error {
	if err := b.slab.open(pd, "bounce buffers", n, size, access); err != nil {
		return err
	}
	b.inv.init(n)
	b.free = make([]uint32, n)
	for i := range b.free {
		b.free[i] = uint32(n - 1 - i)
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
	b.checkFree(slot)
	return slot, b.at(uint64(slot)), true
}

// Put frees the buffer in a slot.
func (b *Pool) Put(slot uint32) {
	b.checkPut(slot)
	b.free = append(b.free, slot)
}

// Region is the memory region of the buffers, nil if the pool is not open.
func (b *Pool) Region() verbs.MR { return b.mr }

// Close deregisters and frees the buffers, if the pool is open. The device must be done with all of
// them.
func (b *Pool) Close() error { return b.slab.close() }
