package soft

import (
	"math/bits"

	"github.com/tagmatch/tagmatch/internal/invariant"
)

// bufPool keeps buffers for inline data that cannot be sent at once.
type bufPool struct {
	class [21][][]byte // free buffers of 1<<i bytes, by i
}

// get returns a buffer of n bytes with undefined contents.
func (p *bufPool) get(n int) []byte {
	c := bits.Len(uint(max(n, 64) - 1))
	if k := len(p.class[c]); k > 0 {
		b := p.class[c][k-1]
		p.class[c] = p.class[c][:k-1]
		invariant.RequirePoison(b[:cap(b)], "a pooled buffer")
		return b[:n]
	}
	return make([]byte, n, 1<<c)
}

// put takes a buffer back.
func (p *bufPool) put(b []byte) {
	c := bits.Len(uint(cap(b) - 1))
	invariant.PoisonStart(b[:cap(b)])
	p.class[c] = append(p.class[c], b[:0])
}
