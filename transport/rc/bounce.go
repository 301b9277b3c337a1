package rc

import (
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// bouncePool is registered buffers for messages that the device does not take inline. A buffer comes back with the
// completion of its send.
type bouncePool struct {
	mr   verbs.MR
	slab []byte
	size int
	free []uint32
}

const maxBounce = 64

// open makes the pool if some message of BufferSize(maxEager) bytes can be larger than inline.
func (b *bouncePool) open(pd verbs.PD, inline, maxEager, depth int) error {
	b.size = BufferSize(maxEager)
	if inline >= b.size {
		return nil
	}
	n := min(depth, maxBounce)
	b.slab = make([]byte, n*b.size)
	mr, err := pd.RegMR(b.slab, 0)
	if err != nil {
		return fmt.Errorf("bounce buffers, %d of %d bytes: %w", n, b.size, err)
	}
	b.mr = mr
	for i := range n {
		b.put(uint32(n - 1 - i))
	}
	return nil
}

func (b *bouncePool) get() (slot uint32, buf []byte, ok bool) {
	if len(b.free) == 0 {
		return 0, nil, false
	}
	slot = b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	buf = b.at(slot)
	if invariant.Enabled {
		invariant.RequirePoison(buf, "a free send buffer")
	}
	return slot, buf, true
}

func (b *bouncePool) at(slot uint32) []byte {
	off := int(slot) * b.size
	return b.slab[off : off+b.size]
}

func (b *bouncePool) put(slot uint32) {
	if invariant.Enabled {
		invariant.Check(!slices.Contains(b.free, slot), "once", "send buffer %d comes back twice", slot)
		invariant.PoisonStart(b.at(slot))
	}
	b.free = append(b.free, slot)
}

func (b *bouncePool) close() error {
	if b.mr == nil {
		return nil
	}
	return b.mr.Dereg()
}
