package tmsrq

import (
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// bouncePool is registered buffers in which messages for short receives land, so that it is software that finds them
// too long (TMO 6.8). The slab is large: its pages come fresh from the system, and are touched only when used.
type bouncePool struct {
	mr   verbs.MR
	slab []byte
	size int
	free []int32
}

func (b *bouncePool) open(pd verbs.PD, n, size int) error {
	b.size, b.slab = size, make([]byte, n*size)
	mr, err := pd.RegMR(b.slab, verbs.AccessLocalWrite)
	if err != nil {
		return fmt.Errorf("bounce buffers, %d of %d bytes: %w", n, size, err)
	}
	b.mr = mr
	for i := range n {
		b.put(int32(n - 1 - i))
	}
	return nil
}

// get takes a buffer, -1 where there is none.
func (b *bouncePool) get() (int32, []byte) {
	n := len(b.free)
	if n == 0 {
		return -1, nil
	}
	i := b.free[n-1]
	b.free = b.free[:n-1]
	buf := b.at(i)
	if invariant.Enabled {
		invariant.RequirePoison(buf, "a free receive buffer")
	}
	return i, buf
}

func (b *bouncePool) at(i int32) []byte {
	off := int(i) * b.size
	return b.slab[off : off+b.size : off+b.size]
}

func (b *bouncePool) put(i int32) {
	if invariant.Enabled {
		invariant.PoisonStart(b.at(i))
	}
	b.free = append(b.free, i)
}

func (b *bouncePool) close() error {
	if b.mr == nil {
		return nil
	}
	return b.mr.Dereg()
}
